use crate::models::{self, Model};
use rewire_features::{Features, Group, GroupConfig, GroupType, Problem, Problems, SequenceSteps};
use rewire_graph::op::Input;
use rewire_graph::{Graph, GraphError, Scope, Tensor};
use rewire_hstu::models::ModelError;
use rewire_hstu::modules::{Buffer, ConfigError, MlpConfig};
use rewire_hstu::pipeline::{self, Groups, HstuModel};
use serde_json::Value;
use std::collections::BTreeSet;
use thiserror::Error;

/// Why a pipeline could not be traced.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Keys of the configuration that are unknown, unsupported or do not fit each other.
    #[error("the configuration has values that cannot be used:\n{0}")]
    Config(#[from] Problems),
    /// An operator rejected its operands.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl From<Problem> for TraceError {
    fn from(problem: Problem) -> Self {
        Self::Config(Problems(vec![problem]))
    }
}

/// A traced pipeline.
#[derive(Debug)]
pub struct Traced {
    /// The graph.
    pub graph: Graph,
    /// The features and groups of the pipeline.
    pub features: Features,
    /// The features that the graph reads, whose columns [`Features::encode`] needs.
    pub columns: Vec<String>,
    /// The outputs, in the order of the reference's predictions.
    pub outputs: Vec<Output>,
    /// State-dict tensors that follow from the configuration and are no parameters of the graph.
    pub buffers: Vec<Buffer>,
    /// What similarities of match models are divided by; `None` for other models.
    pub temperature: Option<f64>,
}

/// An output of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The reference's name.
    pub name: String,
    /// What it has a row for.
    pub rows: OutputRows,
}

/// What an output has a row for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputRows {
    /// Every row of the batch.
    Batch,
    /// Every step of the sequence, row after row.
    Steps {
        /// The input that has the number of steps of every row.
        lengths: String,
    },
}

/// Traces the pipeline of an `EasyRecConfig`, as JSON with the field names of the reference.
///
/// # Errors
/// [`TraceError::Config`] lists the keys that cannot be used, by their JSON pointers.
pub fn trace(config: &Value) -> Result<Traced, TraceError> {
    let pointer = "/model_config";
    let model = config.get("model_config").unwrap_or(&Value::Null);
    let members = model.as_object().into_iter().flatten();
    let kinds: Vec<(&String, &Value)> = members.filter(|(key, _)| !OTHER_KEYS.contains(&key.as_str())).collect();
    let [(kind, message)] = kinds.as_slice() else {
        return Err(Problem::new(pointer, "must have one model").into());
    };
    let wide = message.get("wide_embedding_dim").and_then(Value::as_u64).and_then(|wide| usize::try_from(wide).ok());
    let wide = wide.unwrap_or(if *kind == "xdeepfm" { 16 } else { 0 });
    let (features, mut problems) = match Features::parse(config, wide) {
        Ok(features) => (Some(features), Problems::default()),
        Err(problems) => (None, problems),
    };
    check_mlps(message, &format!("{pointer}/{kind}"), &mut problems);
    let features = match (features, problems.0.is_empty()) {
        (Some(features), true) => features,
        _ => return Err(problems.into()),
    };
    let scope = Scope::new();
    let traced = Model { scope: &scope, features: &features, config: model, kind, message };
    let hstu = HstuModel::parse(kind, message).map_err(|error| of_model(error, pointer))?;
    let (predictions, rows, buffers) = match hstu {
        Some(hstu) => trace_hstu(&traced, &hstu)?,
        None => (models::predictions(&traced)?, OutputRows::Batch, vec![]),
    };
    let temperature = traced.is_match().then(|| message.get("temperature").and_then(Value::as_f64).unwrap_or(1.0));
    // Items of matching have rows of their own, users have those of the batch.
    let rows_of = |name: &str| if name == "user_tower_emb" { OutputRows::Batch } else { rows.clone() };
    let outputs = predictions.iter().map(|(name, _)| Output { name: name.clone(), rows: rows_of(name) }).collect();
    let named: Vec<(&str, Tensor)> = predictions.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let graph = scope.finish(&named)?;
    let columns = columns(&graph, &features);
    Ok(Traced { graph, features, columns, outputs, buffers, temperature })
}

/// Keys of `model_config` that are no models.
const OTHER_KEYS: [&str; 8] = [
    "feature_groups",
    "num_class",
    "losses",
    "metrics",
    "train_metrics",
    "variational_dropout",
    "kernel",
    "use_pareto_loss_weight",
];

/// Checks every MLP within a message.
fn check_mlps(message: &Value, pointer: &str, problems: &mut Problems) {
    let inner: Vec<(String, &Value)> = match message {
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect(),
        _ => return,
    };
    if message.get("hidden_units").is_some()
        && let Some(mlp) = rewire_features::read::<MlpConfig>(message, pointer, problems)
        && let Err(error) = mlp.check()
    {
        problems.0.push(problem(pointer, error));
    }
    for (key, value) in inner {
        check_mlps(value, &format!("{pointer}/{key}"), problems);
    }
}

/// A problem with a key within what `pointer` says.
pub(crate) fn problem(pointer: &str, error: ConfigError) -> Problem {
    let path = error.key.replace('[', "/").replace(']', "").replace('.', "/");
    Problem::new(format!("{pointer}/{path}"), format!("must be {}, got {}", error.expected, error.actual))
}

fn of_model(error: ModelError, pointer: &str) -> TraceError {
    match error {
        ModelError::Graph(error) => error.into(),
        ModelError::Config(error) => match error.key.strip_prefix("feature_groups.") {
            Some(group) => {
                let reason = format!("`{group}` must be {}, got {}", error.expected, error.actual);
                Problem::new("/model_config/feature_groups", reason).into()
            }
            None => problem(pointer, error).into(),
        },
        ModelError::Key { keys, source } => {
            let path = keys.replace('[', "/").replace(']', "").replace('.', "/");
            Problem::new(format!("{pointer}/{path}"), source.to_string()).into()
        }
        other => Problem::new(pointer, other.to_string()).into(),
    }
}

type TracedHstu = (Vec<(String, Tensor)>, OutputRows, Vec<Buffer>);

fn trace_hstu(model: &Model<'_>, hstu: &HstuModel) -> Result<TracedHstu, TraceError> {
    let (scope, features) = (model.scope, model.features);
    let mut groups = Groups::new();
    let candidates = hstu.candidate_groups();
    for name in hstu.history_groups().iter().chain(&candidates) {
        if features.group(name).is_none() {
            continue;
        }
        groups.insert(name.clone(), hstu_group(model, name)?);
    }
    let lengths = candidates.first().and_then(|name| features.lengths_input(name));
    let outputs = hstu.forward(scope, &groups).map_err(|error| of_model(error, &model.pointer()))?;
    let buffers = hstu.buffers().map_err(|error| of_model(error, &model.pointer()))?;
    let rows = lengths.map_or(OutputRows::Batch, |lengths| OutputRows::Steps { lengths });
    Ok((outputs.values, rows, buffers))
}

fn hstu_group(model: &Model<'_>, name: &str) -> Result<pipeline::Group, TraceError> {
    let (scope, features) = (model.scope, model.features);
    let is_dense = |group: &GroupConfig| matches!(group.group_type, GroupType::Deep | GroupType::Wide);
    let (values, parts) = if features.group(name).is_some_and(is_dense) {
        let dense = model.dense(name)?;
        (dense.values, dense.parts)
    } else {
        match scope.module("embedding_group", |scope| features.trace(scope, name))? {
            Group::Jagged { values, rows } => return Ok(pipeline::Group::Jagged { values, rows }),
            Group::Dense { parts, .. } | Group::Sequence(SequenceSteps { query: parts, .. }) => {
                let parts: Vec<Tensor> = parts.into_iter().map(|part| part.values).collect();
                (scope.concat(&parts.iter().collect::<Vec<_>>(), 1), parts)
            }
        }
    };
    Ok(pipeline::Group::Dense { values, widths: parts.iter().map(Tensor::width).collect() })
}

/// The features of which a graph has inputs.
fn columns(graph: &Graph, features: &Features) -> Vec<String> {
    let inputs: BTreeSet<&str> =
        graph.ids().filter_map(|id| graph.op::<Input>(id)).map(|input| input.name.as_str()).collect();
    let read = features.features.values().filter(|feature| inputs.contains(feature.input("values").as_str()));
    read.map(|feature| feature.name.clone()).collect()
}
