//! Modules: each is a plain configuration with a `forward` that traces it.
//!
//! Parameter names consist of the scope that a module is traced in and the names of the reference's state dict.
//! Configuration keys are named as in the reference. Defaults are listed in `docs/reference.md`. Some differ from the reference's, such
//! as `similarity`, `low_rank`, `input_dropout_ratio`, `recompute_*` and `item_embedding_hidden_dim`. An unknown key is an error.
//!
//! In a scope of [`Mode::Train`] dropout is active, batch norms use batch statistics and update their running statistics, and
//! interleaved targets have action rows.

mod action_encoder;
mod activation;
mod content_encoder;
mod contextual_mlp;
mod embedding;
mod hstu;
mod layers;
mod match_encoder;
mod mlp;
mod multi_task;
mod positional_encoder;
mod postprocessor;
mod preprocessor;
pub mod ranking;
mod retrieval;
mod stu_layer;
mod stu_stack;
mod transducer;

pub use action_encoder::{ActionEncoderConfig, SimpleActionEncoder};
pub use activation::Activation;
pub use content_encoder::{ContentEncoder, ContentEncoderConfig, MlpContentEncoderConfig, NoOptions};
pub use contextual_mlp::{ContextualMlp, ContextualMlpConfig, ParameterizedMlpConfig, SimpleMlpConfig};
pub use embedding::{EMBEDDINGS, EmbeddingTable};
pub use hstu::{Hstu, HstuConfig, HstuOutput, PositionalEncoderConfig};
pub use match_encoder::{HstuMatchEncoder, MatchTower};
pub use mlp::{MlpConfig, Padding};
pub use multi_task::{FusionMtlTower, FusionMtlTowerConfig, TaskConfig};
pub use positional_encoder::HstuPositionalEncoder;
pub use postprocessor::{
    L2NormConfig, LayerNormConfig, OutputPostprocessor, OutputPostprocessorConfig, TimestampLayerNormConfig,
};
pub use preprocessor::{
    ContextualConfig, ContextualInterleaveConfig, Features, InputPreprocessor, InputPreprocessorConfig, Preprocessed,
    Sequence, UihConfig,
};
pub use retrieval::{RetrievalConfig, Retrieved, Similarity};
pub use stu_layer::{History, KvCache, StuConfig, StuInput, StuLayer};
pub use stu_stack::{CachedRows, HistoryCache, StuStack, StuStackOutput};
pub use transducer::{HstuTransducer, TransducerOutput};

use crate::number::{F32, MOST_EXACT, is_f32};
pub(crate) use layers::normed_swish_mlp;
pub use layers::{layer_norm, linear, linear_map};
use rewire_graph::HostTensor;
pub use rewire_graph::Mode;
use rewire_graph::limits::{MAX_EXTENT, MAX_WIDTH};
use thiserror::Error;

/// Default epsilon of norms.
pub const NORM_EPS: f64 = 1e-5;

/// An invalid value in a configuration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{key}` must be {expected}, got {actual}")]
pub struct ConfigError {
    /// The path of the key.
    pub key: String,
    /// The allowed values.
    pub expected: String,
    /// The actual value.
    pub actual: String,
}

impl ConfigError {
    /// Creates the error of a key.
    pub fn new(key: impl Into<String>, expected: impl Into<String>, actual: impl ToString) -> Self {
        Self { key: key.into(), expected: expected.into(), actual: actual.to_string() }
    }

    pub(crate) fn within(self, outer: &str) -> Self {
        Self { key: format!("{outer}.{}", self.key), ..self }
    }
}

/// Maximum number of repeated parts, each of which adds graph nodes. It exceeds the number of layers of any model.
pub const MAX_PARTS: usize = 1024;
/// Largest number of table rows.
const MAX_ROWS: usize = MAX_EXTENT as usize;

fn within(key: &str, value: usize, range: std::ops::RangeInclusive<usize>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("in {}..={}", range.start(), range.end()), value))
}

/// Checks a width, which must be positive.
///
/// # Errors
/// [`ConfigError`] if it is not in `1..=MAX_WIDTH`.
pub fn width(key: &str, value: usize) -> Result<(), ConfigError> {
    within(key, value, 1..=MAX_WIDTH)
}

/// Checks a width or count that may be 0.
pub(crate) fn count(key: &str, value: usize) -> Result<(), ConfigError> {
    within(key, value, 0..=MAX_WIDTH)
}

/// Checks a number of repeated parts, each of which adds graph nodes.
pub(crate) fn parts(key: &str, value: usize) -> Result<(), ConfigError> {
    within(key, value, 0..=MAX_PARTS)
}

/// [`parts`] with at least one part.
pub(crate) fn some_parts(key: &str, value: usize) -> Result<(), ConfigError> {
    within(key, value, 1..=MAX_PARTS)
}

/// Checks an integer that becomes a scalar constant of the graph.
pub(crate) fn scalar(key: &str, value: i64) -> Result<(), ConfigError> {
    if (-MOST_EXACT..=MOST_EXACT).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("in {}..={MOST_EXACT}", -MOST_EXACT), value))
}

/// Checks a length; a negative one selects the default.
pub(crate) fn scaling(key: &str, value: i64) -> Result<(), ConfigError> {
    if value < 0 || (1..=MAX_ROWS as i64).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("negative or in 1..={MAX_ROWS}"), value))
}

/// Checks a number of table rows or a length, which must be positive.
pub(crate) fn rows(key: &str, value: usize) -> Result<(), ConfigError> {
    within(key, value, 1..=MAX_ROWS)
}

/// Checks a dropout ratio.
pub(crate) fn ratio(key: &str, value: f32) -> Result<(), ConfigError> {
    if (0.0..1.0).contains(&value) { Ok(()) } else { Err(ConfigError::new(key, "at least 0 and below 1", value)) }
}

/// Checks the epsilon of a norm.
pub(crate) fn eps(key: &str, value: f64) -> Result<(), ConfigError> {
    if is_f32(value) && value >= 0.0 {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("at least 0 and {F32}"), value))
}

/// A state-dict tensor whose value follows from the configuration. The graph contains the value as constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// The state-dict name.
    pub name: String,
    /// The value that the configuration defines.
    pub value: HostTensor,
}

impl Buffer {
    pub(crate) fn within(self, outer: &str) -> Self {
        Self { name: format!("{outer}.{}", self.name), ..self }
    }
}
