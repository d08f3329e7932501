use super::{History, KvCache, StuInput, StuLayer};
use crate::ops::{SeqLen, Truncation, stu_truncation};
use rewire_graph::{DType, Dim, Ragged, Scope, Tensor};

/// A stack of STU layers.
#[derive(Clone, Debug)]
pub struct StuStack {
    /// The layers.
    pub layers: Vec<StuLayer>,
    /// Index of the layer before which old history is truncated.
    pub truncate_split_layer: usize,
    /// Number of history rows per sample that remain; 0 keeps all.
    pub truncate_tail_len: usize,
}

/// The output of a stack.
#[derive(Clone, Debug)]
pub struct StuStackOutput {
    /// Rows `[L', E]`.
    pub x: Tensor,
    /// The sample of each row.
    pub rows: Ragged,
    /// An upper bound of the lengths in the last layer.
    pub max_seq_len: SeqLen,
    /// The rows that remain; `None` if none were truncated.
    pub truncation: Option<Truncation>,
}

/// Cache rows of histories.
#[derive(Clone, Debug)]
pub struct CachedRows {
    /// The sample of each row.
    pub rows: Ragged,
    /// Row numbers in the cache, `[total]` of integers.
    pub index: Tensor,
}

/// A KV cache of histories that persists between runs: states `k_cache` `[rows, H * A]` and `v_cache` `[rows, H * V]` of every layer.
/// The app assigns the rows to users.
#[derive(Clone, Debug)]
pub struct HistoryCache {
    /// Number of rows.
    pub rows: Dim,
    /// The storage type of keys and values.
    pub dtype: DType,
}

impl HistoryCache {
    fn states(&self, scope: &Scope, layer: &StuLayer) -> [Tensor; 2] {
        let config = &layer.config;
        let width = |head: usize| config.num_heads.saturating_mul(head).into();
        [("k_cache", width(config.attention_dim)), ("v_cache", width(config.hidden_dim))]
            .map(|(name, width)| scope.state(name, self.dtype, [self.rows.clone(), width]))
    }

    fn read(&self, scope: &Scope, layer: &StuLayer, cached: &CachedRows) -> History {
        let [k, v] = self.states(scope, layer).map(|state| state.gather(&cached.index));
        History { k, v, rows: cached.rows.clone() }
    }

    fn write(&self, scope: &Scope, layer: &StuLayer, index: &Tensor, history: &History) {
        self.states(scope, layer);
        scope.set_state_rows("k_cache", index, &history.k);
        scope.set_state_rows("v_cache", index, &history.v);
    }
}

impl StuStack {
    /// The last layer's output for history rows `x` `[sum d, E]`, which follow the cache rows `before` if given. Stores the keys and values
    /// of every layer in the cache rows `kept`.
    pub fn history(
        &self,
        scope: &Scope,
        x: &Tensor,
        kept: &CachedRows,
        before: Option<&CachedRows>,
        cache: &HistoryCache,
        max_seq_len: &SeqLen,
    ) -> Tensor {
        let (mut x, mut kept) = (x.clone(), kept.clone());
        for (index, layer) in self.layers.iter().enumerate() {
            if let Some(plan) = self.truncation(scope, index, &kept.rows) {
                x = plan.apply(&x);
                kept = kept.truncated(&plan);
            }
            x = scope.module(&name(index), |scope| {
                let before = before.map(|before| cache.read(scope, layer, before));
                let (out, new) = layer.history(scope, (&x, &kept.rows), before.as_ref(), max_seq_len, cache.dtype);
                cache.write(scope, layer, &kept.index, &new);
                out
            });
        }
        x
    }

    /// The last layer's output for candidates `x` `[sum T, E]` of samples whose histories are in the cache rows `history`.
    pub fn targets(
        &self,
        scope: &Scope,
        (x, rows): (&Tensor, &Ragged),
        history: &CachedRows,
        cache: &HistoryCache,
        max_seq_len: &SeqLen,
    ) -> Tensor {
        let (mut x, mut history) = (x.clone(), history.clone());
        for (index, layer) in self.layers.iter().enumerate() {
            if let Some(plan) = self.truncation(scope, index, &history.rows) {
                history = history.truncated(&plan);
            }
            x = scope.module(&name(index), |scope| {
                layer.targets(scope, (&x, rows), &cache.read(scope, layer, &history), max_seq_len)
            });
        }
        x
    }

    /// The rows of histories that remain from this layer on; `None` if the layer does not truncate.
    fn truncation(&self, scope: &Scope, layer: usize, rows: &Ragged) -> Option<Truncation> {
        let context = self.layers.get(layer)?.config.context();
        let truncates = self.truncate_tail_len > 0 && layer == self.truncate_split_layer;
        truncates.then(|| stu_truncation(scope, rows, None, context, self.truncate_tail_len))
    }

    /// The last layer's output.
    pub fn forward(&self, scope: &Scope, input: &StuInput) -> StuStackOutput {
        let mut input = input.clone();
        let mut truncation = None;
        for (index, layer) in self.layers.iter().enumerate() {
            if self.truncate_tail_len > 0 && index == self.truncate_split_layer {
                let plan = self.plan(scope, &input, layer);
                input.x = plan.apply(&input.x);
                input.rows = plan.kept.clone();
                input.max_seq_len = SeqLen::Host(plan.kept.max());
                truncation = Some(plan);
            }
            input.x = scope.module(&name(index), |scope| layer.forward(scope, &input));
        }
        StuStackOutput { x: input.x, rows: input.rows, max_seq_len: input.max_seq_len, truncation }
    }

    fn plan(&self, scope: &Scope, input: &StuInput, layer: &StuLayer) -> Truncation {
        let context = layer.config.context();
        stu_truncation(scope, &input.rows, input.num_targets.as_ref(), context, self.truncate_tail_len)
    }

    /// The last layer's output, plus a KV cache per layer of the first `cached` rows of every sample.
    pub fn prefill(
        &self,
        scope: &Scope,
        input: &StuInput,
        cached: &Ragged,
        max_len: Option<&Tensor>,
    ) -> (Tensor, Vec<KvCache>) {
        let mut input = input.clone();
        let mut caches = Vec::with_capacity(self.layers.len());
        for (index, layer) in self.layers.iter().enumerate() {
            let (x, cache) = scope.module(&name(index), |scope| layer.prefill(scope, &input, cached, max_len));
            input.x = x;
            caches.push(cache);
        }
        (input.x, caches)
    }

    /// The last layer's output for new rows `x` that follow the cached rows of every layer.
    pub fn cached_forward(
        &self,
        scope: &Scope,
        x: &Tensor,
        rows: &Ragged,
        num_targets: Option<&Tensor>,
        caches: &[KvCache],
    ) -> Tensor {
        let layers = self.layers.iter().zip(caches).enumerate();
        layers.fold(x.clone(), |x, (index, (layer, cache))| {
            scope.module(&name(index), |scope| layer.cached_forward(scope, &x, rows, num_targets, cache))
        })
    }
}

impl CachedRows {
    fn truncated(&self, plan: &Truncation) -> Self {
        Self { rows: plan.kept.clone(), index: plan.apply(&self.index) }
    }
}

fn name(index: usize) -> String {
    format!("_stu_layers.{index}")
}
