use crate::draft::{Draft, DraftError, Rows};
use rewire_graph::{HostTensor, Tensor};
use rewire_hstu::modules::{
    CachedRows, Features, HistoryCache, HstuConfig, HstuMatchEncoder, HstuTransducer, Sequence, StuConfig, StuInput,
    StuLayer, StuStack,
};
use serde_json::json;

const TIME_BUCKETS: usize = 2048;
/// Number of tasks per candidate.
const TASKS: usize = 4;

fn config(draft: &Draft<'_>) -> serde_json::Value {
    let shape = draft.shape;
    json!({
        "embedding_dim": shape.embedding_dim, "num_heads": shape.heads, "hidden_dim": shape.hidden_dim,
        "attention_dim": shape.attn_dim, "max_attn_len": shape.window, "contextual_seq_len": shape.context,
    })
}

fn run(draft: &mut Draft<'_>, layers: usize) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let config: StuConfig = serde_json::from_value(config(draft))?;
    config.check()?;
    let lengths = draft.lengths()?;
    let rows = draft.samples("lengths", lengths);
    let x = draft.rows_of("x", &rows, &[draft.shape.embedding_dim])?;
    let num_targets = draft.num_targets(&rows);
    let input = StuInput { x, rows: rows.ragged, num_targets, max_seq_len: draft.shape.max_len.into() };
    let layers = vec![StuLayer { config }; layers];
    let stack = StuStack { layers, truncate_split_layer: 0, truncate_tail_len: 0 };
    let out = stack.forward(&draft.scope, &input).x;
    Ok(vec![("out", draft.stored(&out))])
}

pub(super) fn layer(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    run(draft, 1)
}

pub(super) fn stack(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    run(draft, draft.shape.layers)
}

pub(super) fn cached(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let config: StuConfig = serde_json::from_value(config(draft))?;
    config.check()?;
    let layers = vec![StuLayer { config }; draft.shape.layers];
    let stack = StuStack { layers, truncate_split_layer: 0, truncate_tail_len: 0 };
    let all = draft.lengths()?;
    let candidates = draft.targets(&all, 0);
    let history = all.iter().zip(&candidates).map(|(all, candidates)| all - candidates).collect();
    let history = draft.samples("lengths", history);
    let candidates = draft.more_samples("candidate_lengths", &history.ragged.batch, candidates);
    let [x, y] = [("x", &history), ("candidates", &candidates)]
        .map(|(name, rows)| draft.rows_of(name, rows, &[draft.shape.embedding_dim]));
    draft.state_rows = history.total().max(1);
    let cache = HistoryCache { rows: draft.scope.size("cache rows"), dtype: draft.shape.dtype };
    let places: Vec<u32> = (0..history.total() as u32).collect();
    let index = HostTensor::u32(vec![places.len()], &places)?;
    let total = history.ragged.total.clone();
    let kept = CachedRows { rows: history.ragged, index: draft.input("kept", &[total], index) };
    let max_seq_len = draft.shape.max_len.into();
    stack.history(&draft.scope, &x?, &kept, None, &cache, &max_seq_len);
    let out = stack.targets(&draft.scope, (&y?, &candidates.ragged), &kept, &cache, &max_seq_len);
    Ok(vec![("out", draft.stored(&out))])
}

/// The configuration of a pipeline whose inputs are embeddings.
fn pipeline(draft: &Draft<'_>, preprocessor: serde_json::Value) -> Result<HstuConfig, DraftError> {
    let shape = draft.shape;
    let mut stu = config(draft);
    if let Some(stu) = stu.as_object_mut() {
        stu.remove("contextual_seq_len");
    }
    Ok(serde_json::from_value(json!({
        "uih_embedding_dim": shape.embedding_dim,
        "target_embedding_dim": shape.embedding_dim,
        "stu": stu,
        "attn_num_layers": shape.layers,
        "positional_encoder": {
            "num_position_buckets": shape.max_len, "num_time_buckets": TIME_BUCKETS, "use_time_encoding": true,
        },
        "input_preprocessor": preprocessor,
        "output_postprocessor": { "layernorm_postprocessor": {} },
        "scaling_seqlen": shape.max_len,
        "contextual_feature_dim": if shape.context > 0 { shape.embedding_dim } else { 0 },
        "max_contextual_seq_len": shape.context,
    }))?)
}

/// Embeddings and timestamps for the rows of samples.
fn sequence(draft: &mut Draft<'_>, name: &str, rows: Rows) -> Result<Sequence, DraftError> {
    let embeddings = draft.rows_of(name, &rows, &[draft.shape.embedding_dim])?;
    let timestamps = draft.timestamps(&format!("{name}_timestamps"), &rows)?;
    Ok(Sequence { embeddings, rows: rows.ragged, timestamps, actions: None, watchtimes: None })
}

fn candidates(draft: &mut Draft<'_>) -> Result<Tensor, DraftError> {
    let shape = draft.shape;
    let preprocessor = json!({ "contextual_preprocessor": {
        "content_encoder": { "slice_content_encoder": {} },
        "content_mlp": { "simple_mlp": { "hidden_dim": shape.embedding_dim } },
    }});
    let transducer = HstuTransducer::new(pipeline(draft, preprocessor)?)?;
    let all = draft.lengths()?;
    let candidates = draft.targets(&all, 1);
    let history = all.iter().zip(&candidates);
    let history = history.map(|(all, candidates)| (all - candidates - shape.context as i64).max(0)).collect();
    let history = draft.samples("history_lengths", history);
    let candidates = draft.more_samples("candidate_lengths", &history.ragged.batch, candidates);
    let context = match shape.context {
        0 => None,
        context => {
            Some(draft.floats("context", &history.ragged.batch, shape.batch, &[context * shape.embedding_dim])?)
        }
    };
    let features = Features {
        uih: sequence(draft, "history", history)?,
        candidates: Some(sequence(draft, "candidates", candidates)?),
        contextual: context,
    };
    Ok(transducer.forward(&draft.scope, &features).candidates)
}

pub(super) fn transducer(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let out = candidates(draft)?;
    Ok(vec![("candidates", draft.stored(&out))])
}

pub(super) fn ranking(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let (candidates, width) = (candidates(draft)?, draft.shape.embedding_dim);
    let hidden = candidates.linear(&draft.weight("hidden", &[width, width]), None).silu();
    Ok(vec![("logits", hidden.linear(&draft.weight("head", &[TASKS, width]), None))])
}

pub(super) fn matching(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let encoder = HstuMatchEncoder::new(pipeline(draft, json!({ "uih_preprocessor": {} }))?)?;
    let lengths = draft.lengths()?;
    let history = draft.samples("history_lengths", lengths);
    let features = Features { uih: sequence(draft, "history", history)?, candidates: None, contextual: None };
    let users = encoder.forward(&draft.scope, &features, None);
    Ok(vec![("users", draft.stored(&users))])
}
