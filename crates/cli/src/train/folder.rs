//! The output folder of a training: a model, and its checkpoint.

use super::deltas::Deltas;
use super::observer::EVALUATIONS;
use super::{Learner, Record, TrainFailed};
use crate::continued::lock;
use rewire::train::{Checkpoint, Position, RankTrainError, TrainError, Trainer};
use rewire::weights::Weights;
use rewire::write_file_with;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
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
    /// The folder of another rank: the first rank writes it, and this one only reads it.
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

    /// The checkpoint for resuming a training with this record; `None` if there is none yet.
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

    /// Writes all files atomically, unless a parameter is not finite. All ranks of a training participate, and the
    /// first one writes. The checkpoint comes first, because only it is needed for resuming. With deltas, the latest
    /// delta is of the same step.
    pub fn save(
        &self,
        record: &Record,
        learner: &dyn Learner,
        (trainer, position): (&Trainer, Position),
        deltas: Option<&Deltas>,
    ) -> Result<(), TrainFailed> {
        trainer.check_parameters()?;
        let metadata = record.metadata().into_iter().chain(deltas.map(Deltas::entry)).collect();
        self.write(CHECKPOINT, |out| Checkpoint::write(trainer, position, &metadata, out))?;
        let version = deltas.map(|deltas| deltas.version().metadata()).into_iter().flatten().collect();
        self.write_model(["config.json", "model.safetensors"], learner, trainer, &version)?;
        match trainer.config().ema {
            Some(_) => self.write("ema.safetensors", |out| learner.write_averages(trainer, out)),
            None => Ok(()),
        }
    }

    /// Writes the current model to `best`, a separate model folder.
    pub fn save_best(&self, learner: &dyn Learner, trainer: &Trainer) -> Result<(), TrainFailed> {
        if self.lock.is_some() {
            let folder = self.path.join("best");
            let file = folder.display().to_string();
            std::fs::create_dir_all(&folder).map_err(|source| TrainFailed::Write { file, source })?;
        }
        self.write_model(["best/config.json", "best/model.safetensors"], learner, trainer, &BTreeMap::new())
    }

    fn write_model(
        &self,
        [config, weights]: [&str; 2],
        learner: &dyn Learner,
        trainer: &Trainer,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), TrainFailed> {
        let model = |out: &mut dyn Write| Ok(out.write_all(self.model.as_bytes()).map_err(TrainError::Write)?);
        self.write(config, model)?;
        self.write(weights, |out| learner.write_weights(trainer, metadata, out))
    }

    /// Writes a file in the first rank; the other ranks participate in gathering its content.
    fn write(
        &self,
        name: &str,
        content: impl FnOnce(&mut dyn Write) -> Result<(), RankTrainError>,
    ) -> Result<(), TrainFailed> {
        if self.lock.is_none() {
            return Ok(content(&mut io::sink())?);
        }
        let path = self.path.join(name);
        let mut failed = None;
        let written = write_file_with(&path, |file| {
            let mut out = BufWriter::new(file);
            let written = content(&mut out).map_err(|error| {
                failed = Some(error);
                io::Error::other("its content failed")
            });
            written.and_then(|()| out.flush())
        });
        match (written, failed) {
            (Ok(()), _) => Ok(()),
            (Err(source), None) => Err(TrainFailed::Write { file: path.display().to_string(), source }),
            (Err(_), Some(error)) => Err(of_content(&path, error)),
        }
    }
}

/// The error of the content of a file; an error of writing names the file.
fn of_content(path: &Path, error: RankTrainError) -> TrainFailed {
    match error {
        RankTrainError::Train(error) => match *error {
            TrainError::Write(source) => TrainFailed::Write { file: path.display().to_string(), source },
            other => other.into(),
        },
        other => other.into(),
    }
}
