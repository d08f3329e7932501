use super::{KvCache, StuInput, StuLayer};
use crate::ops::{SeqLen, Truncation, stu_truncation};
use rewire_graph::{Ragged, Scope, Tensor};

/// STU layers, one after the other.
#[derive(Clone, Debug)]
pub struct StuStack {
    /// The layers.
    pub layers: Vec<StuLayer>,
    /// The layer before which old history is dropped.
    pub truncate_split_layer: usize,
    /// History rows of a sample that stay; 0 keeps all.
    pub truncate_tail_len: usize,
}

/// Results of a stack.
#[derive(Clone, Debug)]
pub struct StuStackOutput {
    /// Rows `[L', E]`.
    pub x: Tensor,
    /// How they are divided among samples.
    pub rows: Ragged,
    /// The bound of their numbers that the last layer used.
    pub max_seq_len: SeqLen,
    /// Which rows stayed, where some were dropped.
    pub truncation: Option<Truncation>,
}

impl StuStack {
    /// The last layer's rows.
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

    /// The last layer's rows, and a cache a layer of the first `cached` rows of every sample.
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

    /// The last layer's rows for new rows `x` that follow the cached ones of every layer.
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

fn name(index: usize) -> String {
    format!("_stu_layers.{index}")
}
