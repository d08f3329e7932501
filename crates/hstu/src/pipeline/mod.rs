//! HSTU models by TorchEasyRec's own configurations: `dlrm_hstu`, `ultra_hstu`, `hstu_match`.
//!
//! # Where the reference may surprise
//!
//! - Timestamps are raw features, so F32: epoch seconds keep steps of 128 s.
//! - A time gap falls into `int(f(gap / increments) / buckets * buckets)`, every step in F32, which can be one below `f`.
//! - The periods of `timestamp_layernorm_postprocessor` turn by `2 * 3.14`.
//! - The time of a request is the timestamp of its last candidate, also for the others; with `sequence_timestamp_is_ascending:
//!   false` it is that of the first.
//! - With semi-local attention (`sla_k1`, `sla_k2`) a candidate does not attend to itself.
//! - `contextual_interleave_preprocessor` interleaves actions unless `enable_interleaving` is false; candidates have none.

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
    /// DEEP, or the query of a SEQUENCE group.
    Dense {
        /// Columns of all features `[B, W]`.
        values: Tensor,
        /// The number of columns of each feature.
        widths: Vec<usize>,
    },
    /// JAGGED_SEQUENCE
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
    /// Outputs by the reference's names.
    pub values: Vec<(String, Tensor)>,
    /// Candidates of every row of the batch, `[B]` of the shape program, if outputs have one row per candidate.
    pub candidates: Option<Tensor>,
}

/// A model, by the member of `model_config` that defines it.
#[derive(Clone, Debug)]
pub enum HstuModel {
    /// `dlrm_hstu` and `ultra_hstu`
    Ranking(Box<Ranking>),
    /// `hstu_match`
    Match(Box<Match>),
}

impl HstuModel {
    /// The model of a kind, from the message of that name as JSON; `None` if it belongs to another family.
    ///
    /// # Errors
    /// [`ModelError`] if a key is unknown, missing or of another type; the path of a key starts with the kind.
    pub fn parse(kind: &str, message: &Value) -> Result<Option<Self>, ModelError> {
        Ok(Some(match kind {
            "dlrm_hstu" => Self::Ranking(Box::new(parse::<Ranking<Hstu>>(kind, message)?.into())),
            "ultra_hstu" => Self::Ranking(Box::new(parse::<Ranking>(kind, message)?)),
            "hstu_match" => Self::Match(Box::new(parse::<Match>(kind, message)?)),
            _ => return Ok(None),
        }))
    }

    /// The groups of a history or a user: `contextual`, which is optional, and those of every channel.
    pub fn history_groups(&self) -> Vec<String> {
        let (pipelines, time) = match self {
            Self::Ranking(model) => (model.hstu.as_slice(), None),
            Self::Match(model) => (slice::from_ref(&model.user_tower.hstu), Some("query_time")),
        };
        let of_users = ["contextual"].into_iter().chain(time).map(str::to_owned);
        of_users.chain(pipelines.iter().flat_map(Hstu::groups)).collect()
    }

    /// The groups of candidates.
    pub fn candidate_groups(&self) -> Vec<String> {
        match self {
            Self::Ranking(_) => vec!["candidate".to_owned(), "candidate_timestamp".to_owned()],
            Self::Match(model) => vec![model.item_tower.input.clone()],
        }
    }

    /// The groups of requests in [two parts](HstuModel::forward_cached): those of candidates, and of users where rows of candidates depend on
    /// them.
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
    /// [`ModelError`] names the key of the configuration, or the group, that does not fit.
    pub fn forward(&self, scope: &Scope, groups: &Groups) -> Result<Outputs, ModelError> {
        match self {
            Self::Ranking(model) => model.forward(scope, groups),
            Self::Match(model) => model.forward(scope, groups),
        }
    }

    /// True for a model that can be traced in [two parts](HstuModel::forward_cached): it ranks, candidates attend to the history and
    /// themselves, and the history does not attend to candidates.
    pub fn is_cacheable(&self) -> bool {
        match self {
            Self::Ranking(model) => model.is_cacheable(),
            Self::Match(_) => false,
        }
    }

    /// Traces a ranking model in two parts that share KV caches, a pair of states per layer and channel, of type `dtype`: the groups of
    /// `histories` are computed and stored, and the candidates of `requests` attend to histories that earlier runs stored.
    ///
    /// # Inputs
    ///
    /// In addition to those of the groups, for `G` histories, `B` requests and every channel `c` (`uih` if unnamed):
    ///
    /// | input | type | what |
    /// |---|---|---|
    /// | `<c>.query_time` | F32 `[G]` | time of the last candidate that a history is computed for, of the first one where sequences descend |
    /// | `<c>.kept` | U32 `[contextual, history and action tokens]` | the rows of the cache that take them; no two are the same |
    /// | `<c>.cached.lengths` | integers `[B]`, read on the host | rows of the cache that a request reads |
    /// | `<c>.cached` | U32 `[rows]` | which ones, in order |
    /// | `candidate.query_time` | F32 `[B]` | that time of a request |
    ///
    /// Contextual features of requests are only read if rows of candidates depend on them (`parameterized_mlp`).
    ///
    /// # Errors
    /// As [`HstuModel::forward`]; also for a matching model, or one that is not [`HstuModel::is_cacheable`].
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

    /// State-dict tensors that follow from the configuration and are not parameters of the graph. A checkpoint with other
    /// values was made with another configuration.
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
