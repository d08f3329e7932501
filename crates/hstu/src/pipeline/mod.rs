//! HSTU models from TorchEasyRec configurations: `dlrm_hstu`, `ultra_hstu`, `hstu_match`.
//!
//! # Where the reference may surprise
//!
//! - Timestamps are raw features and therefore F32: seconds since the epoch have a resolution of 128 seconds.
//! - The bucket of a time gap is `int(f(gap / increments) / buckets * buckets)` with every step in F32, which can be one less than `f`.
//! - `timestamp_layernorm_postprocessor` uses `2 * 3.14` for a full turn.
//! - The time of a request is the timestamp of its last candidate, and applies to all of its candidates. With
//!   `sequence_timestamp_is_ascending: false` it is the first candidate's.
//! - With semi-local attention (`sla_k1`, `sla_k2`) candidates do not attend to themselves.
//! - `contextual_interleave_preprocessor` interleaves actions unless `enable_interleaving` is false. Candidates have no action rows.

mod inputs;
mod layout;
mod matching;
pub mod message;
mod predictions;
mod ranking;

use crate::models::{self, ModelError};
use crate::modules::{Buffer, ConfigError};
pub use layout::{KeptChannel, Layout};
use message::{Hstu, Match, Ranking};
pub use predictions::prediction;
use rewire_graph::{DType, Ragged, Scope, Tensor};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::slice;

/// The groups of a pipeline by name.
pub type Groups = BTreeMap<String, Group>;

/// The value of a feature group.
#[derive(Clone, Debug)]
pub enum Group {
    /// A DEEP group, or the query of a SEQUENCE group.
    Dense {
        /// Columns of all features `[B, W]`.
        values: Tensor,
        /// Number of columns of each feature.
        widths: Vec<usize>,
    },
    /// A JAGGED_SEQUENCE group.
    Jagged {
        /// One row per step, `[total, W]`.
        values: Tensor,
        /// Number of steps of every row of the batch.
        rows: Ragged,
    },
}

/// The outputs of a model.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// The outputs, with the reference's names.
    pub values: Vec<(String, Tensor)>,
    /// Number of candidates of every row of the batch, `[B]` in the shape program; `None` unless outputs have one row per candidate.
    pub candidates: Option<Tensor>,
}

/// An HSTU model of a pipeline.
#[derive(Clone, Debug)]
pub enum HstuModel {
    /// `dlrm_hstu` and `ultra_hstu`
    Ranking(Box<Ranking>),
    /// `hstu_match`
    Match(Box<Match>),
}

impl HstuModel {
    /// Parses a model from its key in `model_config` and the message of that key as JSON. `None` if the key belongs to another family.
    ///
    /// # Errors
    /// [`ModelError`] if a key is unknown, missing or of another type. The path of a key starts with `kind`.
    pub fn parse(kind: &str, message: &Value) -> Result<Option<Self>, ModelError> {
        Ok(Some(match kind {
            "dlrm_hstu" => Self::Ranking(Box::new(parse::<Ranking<Hstu>>(kind, message)?.into())),
            "ultra_hstu" => Self::Ranking(Box::new(parse::<Ranking>(kind, message)?)),
            "hstu_match" => Self::Match(Box::new(parse::<Match>(kind, message)?)),
            _ => return Ok(None),
        }))
    }

    /// Names of the groups of users and histories: `contextual`, which is optional, and the groups of every channel.
    pub fn history_groups(&self) -> Vec<String> {
        let (pipelines, time) = match self {
            Self::Ranking(model) => (model.hstu.as_slice(), None),
            Self::Match(model) => (slice::from_ref(&model.user_tower.hstu), Some("query_time")),
        };
        let of_users = ["contextual"].into_iter().chain(time).map(str::to_owned);
        of_users.chain(pipelines.iter().flat_map(Hstu::groups)).collect()
    }

    /// Names of the groups of candidates.
    pub fn candidate_groups(&self) -> Vec<String> {
        match self {
            Self::Ranking(_) => vec!["candidate".to_owned(), "candidate_timestamp".to_owned()],
            Self::Match(model) => vec![model.item_tower.input.clone()],
        }
    }

    /// Names of the groups of requests if traced in [two parts](HstuModel::forward_cached): the groups of candidates, and `contextual` if
    /// candidate rows depend on it.
    pub fn request_groups(&self) -> Vec<String> {
        let reads_context = match self {
            Self::Ranking(model) => model.hstu.iter().any(|hstu| hstu.input_preprocessor.targets_read_context()),
            Self::Match(_) => false,
        };
        let of_users = reads_context.then(|| "contextual".to_owned());
        of_users.into_iter().chain(self.candidate_groups()).collect()
    }

    /// Traces the model over its groups.
    ///
    /// # Errors
    /// [`ModelError`] names the invalid key of the configuration, or the invalid group.
    pub fn forward(&self, scope: &Scope, groups: &Groups) -> Result<Outputs, ModelError> {
        match self {
            Self::Ranking(model) => model.forward(scope, groups),
            Self::Match(model) => model.forward(scope, groups),
        }
    }

    /// True if the model can be traced in [two parts](HstuModel::forward_cached): it is a ranking model, candidates attend only to history
    /// and themselves, and history does not attend to candidates.
    pub fn is_cacheable(&self) -> bool {
        match self {
            Self::Ranking(model) => model.is_cacheable(),
            Self::Match(_) => false,
        }
    }

    /// Traces a ranking model in two parts that share KV caches: the groups of `histories` are computed and stored, and the candidates of
    /// `requests` attend to histories stored by earlier runs. Caches are a pair of states per layer and channel, with elements of `dtype`.
    ///
    /// # Inputs
    ///
    /// In addition to the groups' inputs, for `G` histories, `B` requests and every channel `c` (`uih` if unnamed):
    ///
    /// | input | type | meaning |
    /// |---|---|---|
    /// | `<c>.query_time` | F32 `[G]` | request time: the timestamp of the last candidate, or of the first one if sequences descend |
    /// | `<c>.kept` | U32 `[contextual, history and action tokens]` | distinct cache rows to store to |
    /// | `<c>.cached.lengths` | integers `[B]`, read on the host | number of cache rows that a request reads |
    /// | `<c>.cached` | U32 `[rows]` | these cache rows, in order |
    /// | `candidate.query_time` | F32 `[B]` | request time, as above |
    ///
    /// Contextual features of requests are only read if candidate rows depend on them (`parameterized_mlp`).
    ///
    /// # Errors
    /// As [`HstuModel::forward`], and for matching models and models that are not [`HstuModel::is_cacheable`].
    pub fn forward_cached(
        &self,
        scope: &Scope,
        histories: &Groups,
        requests: &Groups,
        dtype: DType,
    ) -> Result<Outputs, ModelError> {
        match self {
            Self::Ranking(model) => model.cached(scope, histories, requests, dtype),
            Self::Match(_) => {
                Err(ConfigError::new("model_config", "a ranking model, which has candidates", "`hstu_match`").into())
            }
        }
    }

    /// State-dict tensors that follow from the configuration and are not parameters of the graph. If a checkpoint has other values,
    /// it belongs to another configuration.
    ///
    /// # Errors
    /// [`ModelError`] if the configuration is not valid.
    pub fn buffers(&self) -> Result<Vec<Buffer>, ModelError> {
        match self {
            Self::Ranking(model) => model.buffers(),
            Self::Match(model) => model.buffers(),
        }
    }
}

fn parse<T: DeserializeOwned>(kind: &str, message: &Value) -> Result<T, ModelError> {
    models::from_json(&message.to_string()).map_err(|error| match error {
        ModelError::Key { keys, source } => ModelError::Key { keys: format!("{kind}.{keys}"), source },
        ModelError::Parse(source) => ModelError::Key { keys: kind.to_owned(), source },
        other => other,
    })
}
