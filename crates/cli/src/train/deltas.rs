//! Deltas of a training for serving models.

use super::{Learner, TrainFailed};
use rewire::delta::{Delta, DeltaError, ModelVersion};
use rewire::train::{Checkpoint, Trainer};
use rewire::write_file;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// The folder of deltas in --out.
const FOLDER: &str = "deltas";
/// The entry of a checkpoint with the version of its model.
const VERSION: &str = "model_version";

/// Writes the deltas of a training.
pub struct Deltas {
    folder: PathBuf,
    every: NonZeroU64,
    /// The version of the model with the latest delta, and the number of completed steps. Only the first rank, which
    /// writes the delta, has the version of all tensors.
    version: ModelVersion,
    steps: u64,
    /// False if another rank writes the deltas.
    writes: bool,
}

impl Deltas {
    /// Starts to record changes. The deltas continue those of a checkpoint, or start with the current model.
    pub fn new(
        (out, every, writes): (&Path, NonZeroU64, bool),
        checkpoint: Option<&Checkpoint>,
        learner: &dyn Learner,
        trainer: &mut Trainer,
    ) -> Result<Self, TrainFailed> {
        trainer.record_changes();
        let folder = out.join(FOLDER);
        let version = checkpoint.and_then(|checkpoint| checkpoint.metadata.get(VERSION)?.parse().ok());
        let version = match version {
            Some(version) => version,
            None => {
                let base = ModelVersion::base_of(|out| learner.write_weights(trainer, &BTreeMap::new(), out))?;
                if writes {
                    start(&folder)?;
                }
                base
            }
        };
        Ok(Self { folder, every, version, steps: trainer.steps(), writes })
    }

    /// The version of the model with all deltas so far.
    pub fn version(&self) -> ModelVersion {
        self.version
    }

    /// The entry of a checkpoint.
    pub fn entry(&self) -> (String, String) {
        (VERSION.to_owned(), self.version.to_string())
    }

    /// True if a delta is due after a step.
    pub fn follows(&self, step: u64) -> bool {
        step.is_multiple_of(self.every.get())
    }

    /// Writes the changes since the latest delta, if a step was completed since. All ranks of a training participate.
    pub fn write(&mut self, learner: &dyn Learner, trainer: &Trainer) -> Result<(), TrainFailed> {
        if trainer.steps() == self.steps {
            return Ok(());
        }
        let (delta, bytes) = Delta::new(self.version, trainer.steps(), learner.changes(trainer)?)?;
        if self.writes {
            let path = self.folder.join(format!("{:08}.safetensors", delta.version().number()));
            write_file(&path, &bytes).map_err(|source| DeltaError::Write { path, source })?;
        }
        (self.version, self.steps) = (delta.version(), trainer.steps());
        Ok(())
    }
}

/// Creates the folder, and removes the deltas of an earlier training.
fn start(folder: &Path) -> Result<(), DeltaError> {
    let failed = |source| DeltaError::Write { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}
