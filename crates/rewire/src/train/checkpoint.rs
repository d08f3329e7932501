use super::written::{Written, write};
use super::{Position, RankTrainError, Trainer};
use crate::rank::RankError;
use crate::weights::{Weights, serialize};
use rewire_graph::{DType, HostTensor};
use std::collections::BTreeMap;
use std::io::Write;

/// The prefix of keys in the file's metadata.
const PREFIX: &str = "rewire.train.";
/// The format of the file.
const VERSION: &str = "2";

/// The state that a training resumes from. As a file, it is safetensors with the position in the data as metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Completed steps.
    pub steps: u64,
    /// Position in the data of the next step.
    pub position: Position,
    /// Parameters, optimizer states, averages, and the ids of growing tables.
    pub states: BTreeMap<String, HostTensor>,
    /// Additional metadata of the training, by name.
    pub metadata: BTreeMap<String, String>,
}

impl Checkpoint {
    /// The bytes of a file.
    ///
    /// # Errors
    /// [`RankTrainError::Rank`] if the metadata is too large for a header.
    pub fn to_bytes(&self) -> Result<Vec<u8>, RankTrainError> {
        let metadata = all_metadata(self.steps, self.position, &self.metadata);
        Ok(serialize(&self.states, &metadata).map_err(RankError::from)?)
    }

    /// Writes the file of a training at a position in the data, without gathering tables that ranks divide. All ranks
    /// participate; the first one writes the file to `out`.
    ///
    /// # Errors
    /// [`TrainError::Write`](super::TrainError::Write), and those of the ranks.
    pub fn write(
        trainer: &Trainer,
        position: Position,
        metadata: &BTreeMap<String, String>,
        out: &mut dyn Write,
    ) -> Result<(), RankTrainError> {
        let written = |name: &str| (name.to_owned(), Written { state: name.to_owned(), dtype: DType::F32 });
        let states = trainer.state_shapes().map(|(name, _)| written(name)).collect();
        write(trainer, &states, &trainer.ids(), &all_metadata(trainer.steps(), position, metadata), out)
    }

    /// Resumes a training of the same model and configuration. Each rank reads the rows that it holds.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`](super::TrainError::Checkpoint) names a missing tensor.
    pub fn resume(&self, trainer: &mut Trainer) -> Result<(), RankTrainError> {
        Ok(trainer.resume(self.steps, |name| self.states.get(name).cloned())?)
    }

    /// Parses the bytes of a file, which errors refer to as `file`.
    ///
    /// # Errors
    /// [`RankTrainError::Checkpoint`] if the file is damaged, not a training checkpoint, or of a newer program.
    pub fn from_weights(file: &str, weights: &Weights<'_>) -> Result<Self, RankTrainError> {
        let bad = |reason: String| RankTrainError::Checkpoint { file: file.to_owned(), reason };
        let mut metadata: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in weights.metadata() {
            metadata.extend(key.strip_prefix(PREFIX).map(|key| (key.to_owned(), value.clone())));
        }
        match metadata.remove("version") {
            Some(version) if version == VERSION => {}
            Some(version) => {
                return Err(bad(format!(
                    "it has format {version}, and this program reads format {VERSION}: resume with the program that wrote it, or \
                     begin another training with the model beside it"
                )));
            }
            None => return Err(bad("it is not a training checkpoint".to_owned())),
        }
        let mut number = |key: &str| {
            let value = metadata.remove(key).and_then(|value| value.parse().ok());
            value.ok_or_else(|| bad(format!("`{PREFIX}{key}` is not a number")))
        };
        let (steps, position) = (number("steps")?, Position { epoch: number("epoch")?, batch: number("batch")? });
        Ok(Self { steps, position, states: weights.tensors().map_err(RankError::from)?, metadata })
    }
}

/// The metadata of a file.
fn all_metadata(steps: u64, position: Position, more: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = [
        ("version", VERSION.to_owned()),
        ("steps", steps.to_string()),
        ("epoch", position.epoch.to_string()),
        ("batch", position.batch.to_string()),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value));
    let all = more.clone().into_iter().chain(own);
    all.map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect()
}
