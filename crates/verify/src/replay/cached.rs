use super::attention::equal_rows;
use super::tracer::CaseTracer;
use super::{Outputs, ReplayError, module};
use rewire_graph::{Ragged, Tensor};
use rewire_hstu::modules::{KvCache, StuInput};
use rewire_hstu::ops::SeqLen;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
enum CachedCall {
    Forward { max_seq_len: usize, max_kv_caching_len: usize },
    CachedForward {},
}

type Prefill<'a> = dyn Fn(&StuInput, &Ragged, Option<&Tensor>) -> (Tensor, Vec<KvCache>) + 'a;
type CachedForward<'a> = dyn Fn(&Tensor, &Ragged, &Tensor, &[KvCache]) -> Tensor + 'a;

/// Replays calls of a module with a KV cache.
struct Cached<'a> {
    forward: &'a dyn Fn(&StuInput) -> Tensor,
    prefill: &'a Prefill<'a>,
    cached_forward: &'a CachedForward<'a>,
    /// Maps a layer to the name prefix of its cache tensors.
    prefix: &'a dyn Fn(usize) -> String,
}

pub(super) fn stu_layer(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let (layer, scope) = (module::layer(case.init()?)?, &case.scope);
    let module = Cached {
        forward: &|input| layer.forward(scope, input),
        prefill: &|input, cached, bound| {
            let (x, cache) = layer.prefill(scope, input, cached, bound);
            (x, vec![cache])
        },
        cached_forward: &|x, rows, targets, caches| match caches {
            [cache] => layer.cached_forward(scope, x, rows, Some(targets), cache),
            _ => x.clone(),
        },
        prefix: &|_| String::new(),
    };
    run(case, &module)
}

pub(super) fn stu_stack(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let (stack, scope) = (module::stack(case)?, &case.scope);
    let module = Cached {
        forward: &|input| stack.forward(scope, input).x,
        prefill: &|input, cached, bound| stack.prefill(scope, input, cached, bound),
        cached_forward: &|x, rows, targets, caches| stack.cached_forward(scope, x, rows, Some(targets), caches),
        prefix: &|layer| format!("layer{layer}."),
    };
    run(case, &module)
}

fn run(case: &CaseTracer, module: &Cached) -> Result<Outputs, ReplayError> {
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
                        let (y, replaced) = (module.prefill)(&input, &cached, bound);
                        caches = replaced;
                        y
                    }
                    None => (module.forward)(&input),
                };
                outputs.extend(cache_outputs(&caches, |layer| name(&(module.prefix)(layer))));
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
                (module.cached_forward)(&x, &rows, &num_targets, &caches)
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
