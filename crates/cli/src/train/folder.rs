//! The output folder of a training: a model, and its checkpoint.

use super::deltas::Deltas;
use super::observer::EVALUATIONS;
use super::{Learner, Record, TrainFailed};
use crate::continued::lock;
use rewire::train::{Checkpoint, Position, Trainer};
use rewire::weights::{Weights, serialize};
use rewire::write_file;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The checkpoint for resuming a training.
const CHECKPOINT: &str = "checkpoint.safetensors";
/// The file that is locked while a training writes the folder. It is never removed, because a removed file could be locked
/// twice.
const LOCK: &str = "training.lock";

/// The files that a training writes into its folder.
pub const FILES: [&str; 7] = [
    CHECKPOINT,
    "config.json",
    "model.safetensors",
    "ema.safetensors",
    EVALUATIONS,
    "best/config.json",
    "best/model.safetensors",
];

/// The folder.
pub struct Folder {
    path: PathBuf,
    /// The model's `config.json`.
    model: String,
    /// Locked until it is closed; `None` if another rank writes the folder.
    lock: Option<File>,
}

impl Folder {
    /// The folder that the first rank writes, which another one only reads.
    pub fn of_first_rank(path: &Path, model: &str) -> Self {
        Self { path: path.to_owned(), model: model.to_owned(), lock: None }
    }

    /// Creates the folder, if it does not exist, for the model with this configuration.
    pub fn new(path: &Path, model: &str) -> Result<Self, TrainFailed> {
        let failed = |file: &Path| {
            let file = file.display().to_string();
            |source| TrainFailed::Write { file, source }
        };
        std::fs::create_dir_all(path).map_err(failed(path))?;
        let place = path.join(LOCK);
        let file = File::options().write(true).create(true).truncate(false).open(&place).map_err(failed(&place))?;
        match lock(&file) {
            true => Ok(Self { path: path.to_owned(), model: model.to_owned(), lock: Some(file) }),
            false => Err(TrainFailed::Busy { folder: path.display().to_string() }),
        }
    }

    /// The checkpoint for resuming a training with this record; `None` if nothing was written yet.
    pub fn checkpoint(&self, record: &Record, allows_changes: bool) -> Result<Option<Checkpoint>, TrainFailed> {
        let path = self.path.join(CHECKPOINT);
        if !path.exists() {
            return Ok(None);
        }
        let file = path.display().to_string();
        let checkpoint = Checkpoint::from_weights(&file, &Weights::read(&path)?)?;
        record.check(&file, &checkpoint, allows_changes)?;
        Ok(Some(checkpoint))
    }

    /// Writes all files atomically, unless a parameter is not finite. All ranks of a training take part, and the first one writes. The
    /// checkpoint comes first, because only it is needed for resuming. With deltas, the latest one is of the same step.
    pub fn save(
        &self,
        record: &Record,
        learner: &dyn Learner,
        (trainer, position): (&Trainer, Position),
        deltas: Option<&Deltas>,
    ) -> Result<(), TrainFailed> {
        trainer.check_parameters()?;
        let metadata = record.metadata().into_iter().chain(deltas.map(Deltas::entry)).collect();
        let checkpoint = Checkpoint { metadata, ..learner.checkpoint(trainer, position)? };
        self.write(CHECKPOINT, &checkpoint.to_bytes()?)?;
        self.write("config.json", self.model.as_bytes())?;
        self.write("model.safetensors", &weights(learner, trainer, deltas)?)?;
        match learner.averages(trainer)? {
            Some(averages) => self.write("ema.safetensors", &averages),
            None => Ok(()),
        }
    }

    /// Writes the current model to `best`, a separate model folder.
    pub fn save_best(&self, learner: &dyn Learner, trainer: &Trainer) -> Result<(), TrainFailed> {
        let weights = weights(learner, trainer, None)?;
        if self.lock.is_none() {
            return Ok(());
        }
        let folder = self.path.join("best");
        let file = folder.display().to_string();
        std::fs::create_dir_all(&folder).map_err(|source| TrainFailed::Write { file, source })?;
        self.write("best/config.json", self.model.as_bytes())?;
        self.write("best/model.safetensors", &weights)
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), TrainFailed> {
        if self.lock.is_none() {
            return Ok(());
        }
        let path = self.path.join(name);
        let file = path.display().to_string();
        write_file(&path, content).map_err(|source| TrainFailed::Write { file, source })
    }
}

/// The file of the current model, with its version if deltas follow it.
fn weights(learner: &dyn Learner, trainer: &Trainer, deltas: Option<&Deltas>) -> Result<Vec<u8>, TrainFailed> {
    let metadata = deltas.map(|deltas| deltas.version().metadata()).into_iter().flatten().collect();
    Ok(serialize(&learner.tensors(trainer)?, &metadata)?)
}
