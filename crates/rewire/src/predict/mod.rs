//! Predictions of models imported from TorchEasyRec pipelines.
//!
//! A model folder holds `config.json`, `{"pipeline": ...}` with the fields of the pipeline's configuration, and
//! `model.safetensors` with the reference's parameter names without the leading `model.`. A [`Predictor`] maps the columns of
//! a table to the columns that the reference writes.

mod apart;
mod caches;
mod evaluator;
mod ids;
mod imported;
mod predictor;
mod signature;
mod update;

pub use caches::Caches;
pub use evaluator::{Evaluated, Evaluation, Evaluator, Negatives};
pub use ids::IdentifiedRows;
#[cfg(feature = "files")]
pub(crate) use ids::ModelIds;
#[cfg(feature = "train")]
pub(crate) use ids::{growing_of, id_maps, ids_beside, is_of_ids, take_identified};
pub use imported::{Imported, is_pipeline};
pub use predictor::{Lists, Predicted, Predictor};
pub use rewire_features::{
    Column, Data, EncodeError, Feature, FeatureValues, Features, MixedCells, Offsets, OwnedCell, Problem, Problems,
    Validity, rows_of, size_vocabularies, vocabulary_files,
};
pub(crate) use signature::Signature;
pub use signature::{LabelledTask, PredictedColumn, ReadColumn};

#[cfg(feature = "files")]
pub use predictor::{is_imported, read};
