//! The folder that a training writes: a model, and what it goes on from.

use super::TrainFailed;
use rewire::train::{Checkpoint, Position, RankTask, Trainer};
use rewire::weights::Weights;
use rewire::write_file;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file that a training goes on from.
const CHECKPOINT: &str = "checkpoint.safetensors";

/// The files that a training writes into its folder.
pub const FILES: [&str; 4] = [CHECKPOINT, "config.json", "model.safetensors", "ema.safetensors"];

/// The folder.
pub struct Folder {
    path: PathBuf,
    /// The model's `config.json`.
    model: String,
    /// The training's configuration.
    training: String,
}

impl Folder {
    /// Makes the folder, if there is none.
    pub fn new(path: &Path, model: &str, training: &str) -> Result<Self, TrainFailed> {
        let failed = |source| TrainFailed::Write { file: path.display().to_string(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), model: model.to_owned(), training: training.to_owned() })
    }

    /// What the training goes on from; `None` if nothing was written yet.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, TrainFailed> {
        let path = self.path.join(CHECKPOINT);
        if !path.exists() {
            return Ok(None);
        }
        let file = path.display().to_string();
        let checkpoint = Checkpoint::from_weights(&file, &Weights::read(&path)?)?;
        let own = self.metadata();
        for (key, expected) in &own {
            if checkpoint.metadata.get(key) != Some(expected) {
                return Err(TrainFailed::Other { file, key: key.clone() });
            }
        }
        Ok(Some(checkpoint))
    }

    /// Writes all files, each whole or not at all, unless a parameter is no number. The checkpoint comes first: a training goes on from it alone.
    pub fn save(&self, task: &RankTask, trainer: &Trainer, position: Position) -> Result<(), TrainFailed> {
        trainer.check_parameters()?;
        let checkpoint = Checkpoint { metadata: self.metadata(), ..task.checkpoint(trainer, position)? };
        self.write(CHECKPOINT, &checkpoint.to_bytes()?)?;
        self.write("config.json", self.model.as_bytes())?;
        self.write("model.safetensors", &task.weights(trainer)?)?;
        match task.averages(trainer)? {
            Some(averages) => self.write("ema.safetensors", &averages),
            None => Ok(()),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), TrainFailed> {
        let path = self.path.join(name);
        let file = path.display().to_string();
        write_file(&path, content).map_err(|source| TrainFailed::Write { file, source })
    }

    /// What has to be the same for a training to go on. It may go on for longer, and with other memory.
    fn metadata(&self) -> BTreeMap<String, String> {
        let without = |text: &str| {
            let mut value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            if let Some(keys) = value.as_object_mut() {
                keys.retain(|key, _| !["steps", "epochs", "memory_limit"].contains(&key.as_str()));
                keys.sort_keys();
            }
            value.to_string()
        };
        let of = |key: &str, text: &str| (key.to_owned(), without(text));
        BTreeMap::from([of("model", &self.model), of("config", &self.training)])
    }
}
