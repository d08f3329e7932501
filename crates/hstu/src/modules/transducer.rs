use super::{CachedRows, ConfigError, Features, HistoryCache, Hstu, HstuConfig, Sequence};
use rewire_graph::{DType, Dim, Ragged, Scope, Tensor};
use std::slice;

/// An HSTU pipeline that computes a vector per candidate.
#[derive(Clone, Debug)]
pub struct HstuTransducer {
    /// The pipeline.
    pub hstu: Hstu,
}

/// The output of a transducer.
#[derive(Clone, Debug)]
pub struct TransducerOutput {
    /// One row per candidate, `[sum T, E]`.
    pub candidates: Tensor,
    /// Rows of the whole sequence, `[L, E]`; `None` unless the configuration requests them.
    pub full: Option<Tensor>,
}

impl HstuTransducer {
    /// Creates the transducer of a configuration.
    pub fn new(config: HstuConfig) -> Result<Self, ConfigError> {
        if !config.input_preprocessor.reads_candidates() {
            let kind = config.input_preprocessor.kind();
            return Err(ConfigError::new("input_preprocessor", "a kind that reads candidates", kind));
        }
        super::width("target_embedding_dim", config.target_embedding_dim)?;
        Ok(Self { hstu: Hstu::new(config)? })
    }

    /// Stores histories in cache rows. Adds the inputs `<name>.query_time` `[B]`, the request time that a history is computed for, and
    /// `<name>.kept` U32 `[rows]`, the cache rows to store to. If `appends`, which the configuration must
    /// [allow](HstuConfig::is_appendable), also adds `<name>.before.lengths` `[B]` and `<name>.before` U32, the cache rows to continue.
    pub fn keep(&self, scope: &Scope, features: &Features, name: &str, cache: &HistoryCache, appends: bool) {
        let (uih, batch) = (&features.uih, &features.uih.rows.batch);
        let time = scope.input(&format!("{name}.query_time"), uih.timestamps.dtype(), slice::from_ref(batch));
        let before = appends.then(|| cached(scope, &format!("{name}.before"), batch));
        let kept = |rows: &Dim| scope.input(&format!("{name}.kept"), DType::U32, slice::from_ref(rows));
        self.hstu.history(scope, features, &time, kept, before.as_ref(), cache);
    }

    /// [`HstuTransducer::targets`] with inputs for the request: `candidate.query_time` `[B]`, its time, and `<name>.lengths` `[B]` and
    /// `<name>` U32, the cache rows that a user's candidates attend to.
    pub fn read(
        &self,
        scope: &Scope,
        (candidates, contextual): (&Sequence, Option<&Tensor>),
        name: &str,
        cache: &HistoryCache,
    ) -> Tensor {
        let batch = &candidates.rows.batch;
        let time = scope.input("candidate.query_time", candidates.timestamps.dtype(), slice::from_ref(batch));
        self.targets(scope, (candidates, contextual), &time, &cached(scope, name, batch), cache)
    }

    /// One row per candidate of users whose histories are cached; see [`Hstu::history`].
    pub fn targets(
        &self,
        scope: &Scope,
        (candidates, contextual): (&Sequence, Option<&Tensor>),
        query_time: &Tensor,
        history: &CachedRows,
        cache: &HistoryCache,
    ) -> Tensor {
        let rows = self.hstu.targets(scope, (candidates, contextual), query_time, history, cache);
        self.hstu.postprocess(scope, &rows, &candidates.timestamps)
    }

    /// One row per candidate.
    pub fn forward(&self, scope: &Scope, features: &Features) -> TransducerOutput {
        let out = self.hstu.forward(scope, features, None);
        let doubled = self.hstu.config.input_preprocessor.doubles_targets(scope.mode());
        let select = |x: &Tensor| {
            let last = x.jagged_tail(&out.rows, &out.targets);
            if doubled { every_second(&last, &out.targets) } else { last }
        };
        if self.hstu.config.return_full_embeddings {
            let full = self.hstu.postprocess(scope, &out.embeddings, &out.timestamps);
            return TransducerOutput { candidates: select(&full), full: Some(full) };
        }
        let candidates = self.hstu.postprocess(scope, &select(&out.embeddings), &select(&out.timestamps));
        TransducerOutput { candidates, full: None }
    }
}

/// The cache rows in the inputs `<name>.lengths` and `<name>`.
fn cached(scope: &Scope, name: &str, batch: &Dim) -> CachedRows {
    let rows = scope.lengths(&format!("{name}.lengths"), batch);
    let index = scope.input(name, DType::U32, slice::from_ref(&rows.total));
    CachedRows { rows, index }
}

/// The rows of `x` `[total, ..]` with even index.
fn every_second(x: &Tensor, rows: &Ragged) -> Tensor {
    let half = rows.total.divide(2).unwrap_or_default();
    let mut paired = x.shape().to_vec();
    paired.splice(..paired.len().min(1), [half.clone(), 2.into()]);
    let mut single = x.shape().to_vec();
    single.splice(..single.len().min(1), [half]);
    x.reshape(&paired).slice(1, 0, 1).reshape(&single)
}
