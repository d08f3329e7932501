use super::attention::equal_rows;
use super::tracer::CaseTracer;
use super::{Outputs, ReplayError, module};
use rewire_graph::{Ragged, Scope, Tensor};
use rewire_hstu::modules::{KvCache, StuInput, StuLayer, StuStack};
use rewire_hstu::ops::SeqLen;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
enum CachedCall {
    Forward { max_seq_len: usize, max_kv_caching_len: usize },
    CachedForward {},
}

/// A module that keeps keys and values from call to call.
trait Cached {
    fn forward(&self, scope: &Scope, input: &StuInput) -> Tensor;
    fn prefill(
        &self,
        scope: &Scope,
        input: &StuInput,
        cached: &Ragged,
        max_len: Option<&Tensor>,
    ) -> (Tensor, Vec<KvCache>);
    fn cached_forward(
        &self,
        scope: &Scope,
        x: &Tensor,
        rows: &Ragged,
        num_targets: Option<&Tensor>,
        caches: &[KvCache],
    ) -> Tensor;
    /// What the name of a cache tensor begins with.
    fn prefix(&self, layer: usize) -> String;
}

impl Cached for StuLayer {
    fn forward(&self, scope: &Scope, input: &StuInput) -> Tensor {
        self.forward(scope, input)
    }

    fn prefill(
        &self,
        scope: &Scope,
        input: &StuInput,
        cached: &Ragged,
        max_len: Option<&Tensor>,
    ) -> (Tensor, Vec<KvCache>) {
        let (out, cache) = self.prefill(scope, input, cached, max_len);
        (out, vec![cache])
    }

    fn cached_forward(
        &self,
        scope: &Scope,
        x: &Tensor,
        rows: &Ragged,
        num_targets: Option<&Tensor>,
        caches: &[KvCache],
    ) -> Tensor {
        caches.iter().fold(x.clone(), |x, cache| self.cached_forward(scope, &x, rows, num_targets, cache))
    }

    fn prefix(&self, _: usize) -> String {
        String::new()
    }
}

impl Cached for StuStack {
    fn forward(&self, scope: &Scope, input: &StuInput) -> Tensor {
        self.forward(scope, input).x
    }

    fn prefill(
        &self,
        scope: &Scope,
        input: &StuInput,
        cached: &Ragged,
        max_len: Option<&Tensor>,
    ) -> (Tensor, Vec<KvCache>) {
        self.prefill(scope, input, cached, max_len)
    }

    fn cached_forward(
        &self,
        scope: &Scope,
        x: &Tensor,
        rows: &Ragged,
        num_targets: Option<&Tensor>,
        caches: &[KvCache],
    ) -> Tensor {
        self.cached_forward(scope, x, rows, num_targets, caches)
    }

    fn prefix(&self, layer: usize) -> String {
        format!("layer{layer}.")
    }
}

pub(super) fn stu_layer(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    run(case, &module::layer(case.init()?)?)
}

pub(super) fn stu_stack(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    run(case, &module::stack(case)?)
}

fn run(case: &CaseTracer, module: &impl Cached) -> Result<Outputs, ReplayError> {
    let steps = Vec::<CachedCall>::deserialize(case.part("steps"))?;
    let mut caches: Vec<KvCache> = vec![];
    let mut outputs = vec![];
    for (number, step) in steps.iter().enumerate() {
        let name = |name: &str| format!("step{number}.{name}");
        let y = match step {
            CachedCall::Forward { max_seq_len, max_kv_caching_len } => {
                let input = forward_input(case, &name, *max_seq_len)?;
                let y = match case.optional(&name("kv_caching_lengths"), |name| case.lengths(name))? {
                    Some(cached) => {
                        let bound = case.scope.host_size(*max_kv_caching_len);
                        let bound = (*max_kv_caching_len > 0).then_some(&bound);
                        let (y, replaced) = module.prefill(&case.scope, &input, &cached, bound);
                        caches = replaced;
                        y
                    }
                    None => module.forward(&case.scope, &input),
                };
                outputs.extend(cache_outputs(&caches, |layer| name(&module.prefix(layer))));
                y
            }
            CachedCall::CachedForward {} => {
                let Some(cached) = caches.first().map(|cache| cache.rows.clone()) else {
                    return Err(ReplayError::Missing { name: format!("in.{}", name("kv_caching_lengths")) });
                };
                let targets = name("num_targets");
                let samples = case.extent(&targets, 0)?;
                let rows = equal_rows(case, &name("delta_x"), samples, &cached)?;
                let x = case.input(&name("delta_x"), std::slice::from_ref(&rows.total))?;
                let num_targets = case.counts(&targets, &rows)?;
                module.cached_forward(&case.scope, &x, &rows, Some(&num_targets), &caches)
            }
        };
        outputs.push((name("y"), y));
    }
    Ok(outputs)
}

fn forward_input(
    case: &CaseTracer,
    name: &impl Fn(&str) -> String,
    max_seq_len: usize,
) -> Result<StuInput, ReplayError> {
    let rows = case.offsets(&name("x_offsets"))?;
    let x = case.input(&name("x"), std::slice::from_ref(&rows.total))?;
    let num_targets = case.optional(&name("num_targets"), |name| case.counts(name, &rows))?;
    Ok(StuInput { x, rows, num_targets, max_seq_len: SeqLen::Fixed(max_seq_len) })
}

fn cache_outputs(caches: &[KvCache], prefix: impl Fn(usize) -> String) -> Outputs {
    let of_layer = |(layer, cache): (usize, &KvCache)| {
        let prefix = prefix(layer);
        let cache = cache.clone();
        let named = [
            ("k_cache", cache.k),
            ("v_cache", cache.v),
            ("kv_caching_offsets", cache.rows.offsets),
            ("max_kv_caching_len", cache.max_len),
        ];
        named.map(|(name, tensor)| (format!("{prefix}{name}"), tensor))
    };
    caches.iter().enumerate().flat_map(of_layer).collect()
}
