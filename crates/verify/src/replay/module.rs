use super::tracer::{CaseTracer, out};
use super::{Outputs, ReplayError};
use rewire_graph::Ragged;
use rewire_hstu::modules::{
    ContentEncoder, ContextualMlp, ContextualMlpConfig, HstuPositionalEncoder, OutputPostprocessor,
    SimpleActionEncoder, StuConfig, StuInput, StuLayer, StuStack, width,
};
use rewire_hstu::ops::{Positions, SeqLen, build_sla_func_tensor};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Call {
    max_seq_len: usize,
}

pub(super) fn stu_layer(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let layer = layer(case.init()?)?;
    let input = stu_input(case)?;
    let mut outputs = out(layer.forward(&case.scope, &input));
    if let Some(mask) = layer.config.semi_local(input.num_targets.as_ref()) {
        let intervals = build_sla_func_tensor(&case.scope, &input.rows, layer.config.num_heads, &mask);
        outputs.push(("attn_func".to_owned(), intervals));
    }
    Ok(outputs)
}

pub(super) fn layer(config: StuConfig) -> Result<StuLayer, ReplayError> {
    config.check()?;
    Ok(StuLayer { config })
}

fn stu_input(case: &CaseTracer) -> Result<StuInput, ReplayError> {
    let Call { max_seq_len } = case.call()?;
    let rows = case.offsets("x_offsets")?;
    let x = case.input("x", std::slice::from_ref(&rows.total))?;
    let num_targets = case.num_targets(&rows)?;
    Ok(StuInput { x, rows, num_targets, max_seq_len: SeqLen::Fixed(max_seq_len) })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StackInit {
    stu_list: Vec<StuConfig>,
    #[serde(default)]
    truncate_split_layer: usize,
    #[serde(default)]
    truncate_tail_len: usize,
}

pub(super) fn stack(case: &CaseTracer) -> Result<StuStack, ReplayError> {
    let init: StackInit = case.init()?;
    Ok(StuStack {
        layers: init.stu_list.into_iter().map(layer).collect::<Result<_, _>>()?,
        truncate_split_layer: init.truncate_split_layer,
        truncate_tail_len: init.truncate_tail_len,
    })
}

pub(super) fn stu_stack(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let output = stack(case)?.forward(&case.scope, &stu_input(case)?);
    Ok(vec![
        ("x".to_owned(), output.x),
        ("x_offsets".to_owned(), output.rows.offsets),
        ("max_seq_len".to_owned(), output.max_seq_len.to_host(&case.scope)),
    ])
}

pub(super) fn positional_encoder(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let encoder: HstuPositionalEncoder = case.init()?;
    encoder.check()?;
    let rows = case.offsets("seq_offsets")?;
    let x = case.input("seq_embeddings", std::slice::from_ref(&rows.total))?;
    let seq_lengths = case.counts("seq_lengths", &rows)?;
    let num_targets = case.num_targets(&rows)?;
    let timestamps = case.column("seq_timestamps", &rows.total)?;
    let query_time = case.optional("query_time", |name| case.column(name, &rows.batch))?;
    let positions = Positions {
        rows: &rows,
        seq_lengths: &seq_lengths,
        num_targets: num_targets.as_ref(),
        interleave_targets: false,
        first: None,
    };
    Ok(out(encoder.forward(&case.scope, &x, &positions, &timestamps, query_time.as_ref())))
}

/// Splits constructor arguments into general ones and the options of the kind, as `{kind: options}`.
fn kind<T: DeserializeOwned>(
    case: &CaseTracer,
    kind: &str,
    own: &[&str],
) -> Result<(Map<String, Value>, T), ReplayError> {
    let init: Map<String, Value> = case.init()?;
    let (own, options): (Map<_, _>, Map<_, _>) = init.into_iter().partition(|(key, _)| own.contains(&key.as_str()));
    Ok((own, T::deserialize(json!({ kind: options }))?))
}

fn argument(arguments: &Map<String, Value>, key: &str) -> Result<usize, ReplayError> {
    Ok(usize::deserialize(arguments.get(key).unwrap_or(&Value::Null))?)
}

/// The ragged rows of history and targets.
fn uih_and_targets(case: &CaseTracer) -> Result<[Ragged; 2], ReplayError> {
    Ok([case.offsets("uih_offsets")?, case.offsets("target_offsets")?])
}

pub(super) fn content_encoder(case: &CaseTracer, name: &str) -> Result<Outputs, ReplayError> {
    let (own, config) = kind(case, name, &["uih_embedding_dim", "target_embedding_dim"])?;
    let encoder = ContentEncoder {
        config,
        uih_embedding_dim: argument(&own, "uih_embedding_dim")?,
        target_embedding_dim: argument(&own, "target_embedding_dim")?,
    };
    encoder.check()?;
    let [uih, targets] = uih_and_targets(case)?;
    let history = case.input("uih_embeddings", std::slice::from_ref(&uih.total))?;
    let candidates = case.input("target_embeddings", std::slice::from_ref(&targets.total))?;
    Ok(out(encoder.forward(&case.scope, (&history, &uih), (&candidates, &targets)).0))
}

pub(super) fn action_encoder(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let encoder: SimpleActionEncoder = case.init()?;
    encoder.check()?;
    let [uih, targets] = uih_and_targets(case)?;
    let actions = case.column("seq_actions", &uih.total)?;
    let watchtimes = case.optional("seq_watchtimes", |name| case.column(name, &uih.total))?;
    Ok(out(encoder.forward(&case.scope, &actions, watchtimes.as_ref(), &uih, &targets).0))
}

pub(super) fn contextual_mlp(case: &CaseTracer, name: &str) -> Result<Outputs, ReplayError> {
    let dims = ["sequential_input_dim", "sequential_output_dim", "contextual_embedding_dim"];
    let (own, config) = kind::<ContextualMlpConfig>(case, name, &dims)?;
    config.check()?;
    let mlp = ContextualMlp { config, sequential_output_dim: argument(&own, "sequential_output_dim")? };
    width("sequential_output_dim", mlp.sequential_output_dim)?;
    let rows = case.offsets("seq_offsets")?;
    let x = case.input("seq_embeddings", std::slice::from_ref(&rows.total))?;
    let context = case.optional("contextual_embeddings", |name| case.input(name, std::slice::from_ref(&rows.batch)))?;
    Ok(out(mlp.forward(&case.scope, &x, &rows, context.as_ref())))
}

pub(super) fn postprocessor(case: &CaseTracer, name: &str) -> Result<Outputs, ReplayError> {
    let (_, config) = kind(case, name, &["embedding_dim"])?;
    let rows = [case.scope.size("rows")];
    let x = case.input("seq_embeddings", &rows)?;
    let timestamps = case.input("seq_timestamps", &rows)?;
    let postprocessor = OutputPostprocessor { config, embedding_dim: x.width() };
    postprocessor.check()?;
    Ok(out(postprocessor.forward(&case.scope, &x, &timestamps)))
}
