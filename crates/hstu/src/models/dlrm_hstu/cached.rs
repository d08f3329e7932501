//! The model in two parts that share a KV cache: histories, whose keys and values are stored, and candidates, which attend to
//! the stored histories.
//!
//! One graph contains both parts. A run computes either or both, possibly for different users. Later runs read the stored rows.
//!
//! # Inputs
//!
//! The inputs of the [whole model](super), with `contextual.<feature>` and `uih.*` for `G` histories and `candidate.*` for `B` users,
//! and:
//!
//! | input | type | meaning |
//! |---|---|---|
//! | `uih.query_time` | I64 `[G]` | request time that a history is computed for |
//! | `uih.kept` | U32 `[contextual rows and history rows]` | distinct cache rows to store to |
//! | `uih.before.lengths` | integers `[G]`, read on the host | cache rows that a history continues; only if [appendable](Config::is_appendable) |
//! | `uih.before` | U32 `[rows]` | these cache rows, in order |
//! | `history.lengths` | integers `[B]`, read on the host | number of cache rows that a user's candidates read |
//! | `history` | U32 `[rows]` | these cache rows, in order |
//! | `candidate.query_time` | I64 `[B]` | time of the request |
//! | `candidate.contextual.<feature>` | U32 `[B]` | id of a user's feature; only if candidate rows depend on it |
//!
//! # States
//!
//! `k_cache` and `v_cache` of every layer; the app chooses their number of rows.

use super::{Config, Model, TRANSDUCER, configured};
use crate::models::ModelError;
use crate::modules::{ConfigError, Features, HistoryCache};
use rewire_graph::{DType, Graph, Scope, Tensor};

/// Options of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Storage type of keys and values, `F32` or `F16`. Values are rounded to it in both parts.
    pub dtype: DType,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { dtype: DType::F32 }
    }
}

impl Config {
    /// Traces the graph in two parts. Its output is `logits` `[C, tasks]`.
    ///
    /// # Errors
    /// As [`super::trace`]. [`ModelError`] names `hstu.stu` if candidates attend to each other or history attends to candidates, because
    /// their keys and values cannot be cached.
    pub fn trace_cached(&self, options: &CacheOptions) -> Result<Graph, ModelError> {
        let model = Model::new(self)?;
        if !model.transducer.hstu.config.is_cacheable() {
            let expected = "causal or semi-local, and aware of targets";
            return Err(ConfigError::new("hstu.stu", expected, "candidates that are not apart").into());
        }
        let scope = Scope::new().without_places();
        let logits = model.cached(&scope, options);
        Ok(scope.finish(&[("logits", logits)])?)
    }

    /// True if the model can be traced in two parts: candidates attend only to history and themselves, and history does not attend to
    /// candidates.
    pub fn is_cacheable(&self) -> bool {
        configured(self).is_ok_and(|(_, hstu)| hstu.is_cacheable())
    }

    /// True if new events can be appended to a cached history.
    pub fn is_appendable(&self) -> bool {
        configured(self).is_ok_and(|(_, hstu)| hstu.is_appendable())
    }

    /// The inputs of the graph in two parts with their element types; `None` for lengths, which the host reads as integers of any type.
    pub fn cached_inputs(&self) -> Vec<(String, Option<DType>)> {
        let mut inputs: Vec<_> = self.inputs().into_iter().map(|spec| (spec.name, spec.dtype)).collect();
        if self.hstu.input_preprocessor.targets_read_context() {
            let contextual = inputs.iter().filter(|(name, _)| name.starts_with("contextual."));
            let of_users: Vec<_> = contextual.map(|(name, dtype)| (format!("candidate.{name}"), *dtype)).collect();
            inputs.extend(of_users);
        }
        let named = |name: &str, dtype| (name.to_owned(), dtype);
        inputs.extend([
            named("uih.query_time", Some(DType::I64)),
            named("uih.kept", Some(DType::U32)),
            named("history.lengths", None),
            named("history", Some(DType::U32)),
            named("candidate.query_time", Some(DType::I64)),
        ]);
        if self.is_appendable() {
            inputs.extend([named("uih.before.lengths", None), named("uih.before", Some(DType::U32))]);
        }
        inputs
    }
}

impl Model {
    fn cached(&self, scope: &Scope, options: &CacheOptions) -> Tensor {
        let cache = HistoryCache { rows: scope.size("cache rows"), dtype: options.dtype };
        self.keep(scope, &cache);
        let batch = scope.size("users");
        let candidates = self.candidates(scope, &batch);
        let reads_context = self.transducer.hstu.config.input_preprocessor.targets_read_context();
        let context = if reads_context { self.tables.context(scope, "candidate.contextual", &batch) } else { None };
        let of_users = (&candidates, context.as_ref());
        let user = scope.module(TRANSDUCER, |scope| self.transducer.read(scope, of_users, "history", &cache));
        self.logits(scope, &user, &candidates.embeddings)
    }

    /// Traces the part that stores histories in the cache.
    fn keep(&self, scope: &Scope, cache: &HistoryCache) {
        let batch = scope.size("histories");
        let features = Features {
            uih: self.tables.history(scope, &batch, &self.transducer.hstu.config),
            candidates: None,
            contextual: self.tables.context(scope, "contextual", &batch),
        };
        let appends = self.transducer.hstu.config.is_appendable();
        scope.module(TRANSDUCER, |scope| self.transducer.keep(scope, &features, "uih", cache, appends));
    }
}
