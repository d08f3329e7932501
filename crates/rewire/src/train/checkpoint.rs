use super::{Position, RankTrainError};
use crate::rank::RankError;
use crate::weights::{Weights, serialize};
use rewire_graph::HostTensor;
use std::collections::BTreeMap;

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
    /// Parameters, optimizer states, and averages.
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
        let own = [
            ("version", VERSION.to_owned()),
            ("steps", self.steps.to_string()),
            ("epoch", self.position.epoch.to_string()),
            ("batch", self.position.batch.to_string()),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value));
        let metadata = self.metadata.clone().into_iter().chain(own);
        let metadata = metadata.map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect();
        Ok(serialize(&self.states, &metadata).map_err(RankError::from)?)
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
            value.ok_or_else(|| bad(format!("`{PREFIX}{key}` is no number")))
        };
        let (steps, position) = (number("steps")?, Position { epoch: number("epoch")?, batch: number("batch")? });
        Ok(Self { steps, position, states: weights.tensors().map_err(RankError::from)?, metadata })
    }
}
