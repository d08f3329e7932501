use crate::hstu;
use crate::models::{self, Model};
use rewire_features::{FeatureValues, Features, Problem, Problems};
use rewire_graph::limits::MAX_WIDTH;
use rewire_graph::op::Input;
use rewire_graph::{Graph, GraphError, Ordered, Scope, Tensor};
use rewire_hstu::models::ModelError;
use rewire_hstu::modules::{Buffer, ConfigError, MAX_PARTS, MlpConfig};
use rewire_hstu::pipeline::{HstuModel, KeptChannel, Layout};
use serde_json::Value;
use std::collections::BTreeSet;
use thiserror::Error;

/// Why a pipeline could not be traced.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Keys of the configuration that are unknown, unsupported or inconsistent.
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

/// The inputs and outputs of a pipeline, without its graph.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The features and groups of the pipeline.
    pub features: Features,
    /// The layout of histories, for plans that compute them separately from candidates.
    pub histories: Option<Histories>,
    /// The input with the number of items of every row; `None` if all outputs have one row per row of the batch.
    lengths: Option<String>,
}

/// Histories of a ranker that are computed separately from candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// Number of contextual tokens before the steps of each history.
    pub context: usize,
    /// The channels, each with a separate cache.
    pub channels: Vec<Channel>,
    /// The feature with the timestamps of candidates.
    pub time: String,
    /// True if the request's time is the timestamp of the row's last candidate; otherwise of its first one.
    pub is_ascending: bool,
}

impl Histories {
    /// `None` unless the pipeline has sequence groups for all channels, and candidate timestamps with one number per step.
    fn of(features: &Features, layout: Layout) -> Option<Self> {
        let channel = |KeptChannel { name, tokens_per_step }: &KeptChannel| {
            let feature = features.first_sequence(name)?.name.clone();
            Some(Channel { feature, name: name.clone(), tokens_per_step: *tokens_per_step })
        };
        let channels: Vec<Channel> = layout.channels.iter().map(channel).collect::<Option<_>>()?;
        let time = features.first_sequence("candidate_timestamp")?;
        let is_number = matches!(time.values, FeatureValues::Floats { embedding: None, .. }) && time.value_dim == 1;
        (is_number && !channels.is_empty()).then(|| Self {
            context: layout.contextual_tokens(features.dense_parts("contextual")),
            channels,
            time: time.name.clone(),
            is_ascending: layout.is_ascending,
        })
    }
}

/// A channel of [`Histories`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The prefix of its input names.
    pub name: String,
    /// The feature that defines its steps.
    pub feature: String,
    /// Tokens per step.
    pub tokens_per_step: usize,
}

impl Interface {
    /// Parses the interface of the graph that [`trace`] builds, without parsing the options of its modules.
    ///
    /// # Errors
    /// Invalid keys of features and groups, with their JSON pointers.
    pub fn new(config: &Value) -> Result<Self, Problems> {
        let (kind, message) = model_of(config)?;
        let features = Features::parse(config, wide_dim(kind, message))?;
        Ok(Self::of(features, Layout::of(kind, message)))
    }

    fn of(features: Features, layout: Option<Layout>) -> Self {
        let lengths = layout.as_ref().and_then(|layout| features.lengths_input(&layout.items));
        let histories = layout.and_then(|layout| Histories::of(&features, layout));
        Self { features, histories, lengths }
    }

    /// Names of the features whose columns are needed to encode these inputs.
    pub fn columns<'i>(&self, inputs: impl IntoIterator<Item = &'i str>) -> Vec<String> {
        let inputs: BTreeSet<&str> = inputs.into_iter().ordered_set();
        let read = self.features.features.values().filter(|feature| inputs.contains(feature.input("values").as_str()));
        read.map(|feature| feature.name.clone()).collect()
    }

    /// The rows of an output: for models with an item sequence, one row per item, except for user vectors.
    pub fn rows_of(&self, output: &str) -> OutputRows {
        let lengths = self.lengths.as_ref().filter(|_| output != USERS);
        lengths.map_or(OutputRows::Batch, |lengths| OutputRows::Steps { lengths: lengths.clone() })
    }
}

/// Name of the output with the user vectors.
const USERS: &str = "user_tower_emb";

/// A traced pipeline.
#[derive(Debug)]
pub struct Traced {
    /// The graph.
    pub graph: Graph,
    /// The features and groups of the pipeline, and the rows of its outputs.
    pub interface: Interface,
    /// Features that the graph reads; [`Features::encode`] needs their columns.
    pub columns: Vec<String>,
    /// The outputs, in the order of the reference's predictions.
    pub outputs: Vec<Output>,
    /// State-dict tensors that follow from the configuration and are not parameters of the graph.
    pub buffers: Vec<Buffer>,
    /// The divisor of similarities; `None` unless the model is a match model.
    pub temperature: Option<f64>,
}

/// An output of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The reference's name.
    pub name: String,
    /// Its rows.
    pub rows: OutputRows,
}

/// The rows of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputRows {
    /// One per row of the batch.
    Batch,
    /// One per step of the sequence, row after row.
    Steps {
        /// The input with the number of steps of every row.
        lengths: String,
    },
}

/// Traces the pipeline of an `EasyRecConfig`, given as JSON with TorchEasyRec's field names.
///
/// # Errors
/// [`TraceError::Config`] lists all unsupported keys with their JSON pointers.
pub fn trace(config: &Value) -> Result<Traced, TraceError> {
    let pipeline = Pipeline::parse(config)?;
    let scope = Scope::new().without_places();
    let model = pipeline.model(&scope, "");
    let predictions = match &pipeline.hstu {
        Some(hstu) => hstu::predictions(&model, hstu)?,
        None => models::predictions(&model)?,
    };
    pipeline.finish(scope, &predictions)
}

/// A parsed configuration.
pub(crate) struct Pipeline<'a> {
    /// `model_config`
    config: &'a Value,
    /// The key of the model in `model_config`.
    kind: &'a str,
    /// The value of that key.
    message: &'a Value,
    features: Features,
    /// The model, if it belongs to the HSTU family.
    pub hstu: Option<HstuModel>,
}

impl<'a> Pipeline<'a> {
    pub fn parse(config: &'a Value) -> Result<Self, TraceError> {
        let (kind, message) = model_of(config)?;
        let (features, mut problems) = match Features::parse(config, wide_dim(kind, message)) {
            Ok(features) => (Some(features), Problems::default()),
            Err(problems) => (None, problems),
        };
        let (pointer, model) = ("/model_config", config.get("model_config").unwrap_or(&Value::Null));
        check(message, &format!("{pointer}/{kind}"), &mut problems);
        let groups = model.get("feature_groups").and_then(Value::as_array).into_iter().flatten();
        for (index, group) in groups.enumerate() {
            let encoders = group.get("sequence_encoders").unwrap_or(&Value::Null);
            check(encoders, &format!("{pointer}/feature_groups/{index}/sequence_encoders"), &mut problems);
        }
        let features = match (features, problems.0.is_empty()) {
            (Some(features), true) => features,
            _ => return Err(problems.into()),
        };
        let hstu = HstuModel::parse(kind, message).map_err(|error| of_model(error, pointer))?;
        Ok(Self { config: model, kind, message, features, hstu })
    }

    /// The model to trace in `scope`. Its input names start with `prefix`.
    pub fn model<'m>(&'m self, scope: &'m Scope, prefix: &'m str) -> Model<'m> {
        let Self { config, kind, message, features, .. } = self;
        Model { scope, features, config, kind, message, prefix, items: prefix, extra: None }
    }

    /// The interface; `histories` is `None` if they cannot be computed separately.
    pub fn interface(&self) -> Interface {
        let interface = Interface::of(self.features.clone(), Layout::of(self.kind, self.message));
        let is_cacheable = self.hstu.as_ref().is_some_and(HstuModel::is_cacheable);
        Interface { histories: interface.histories.filter(|_| is_cacheable), ..interface }
    }

    pub fn finish(self, scope: Scope, predictions: &[(String, Tensor)]) -> Result<Traced, TraceError> {
        let model = self.model(&scope, "");
        let (pointer, is_match) = (model.pointer(), model.is_match());
        let temperature = is_match.then(|| self.message.get("temperature").and_then(Value::as_f64).unwrap_or(1.0));
        let buffers = self.hstu.as_ref().map(HstuModel::buffers).transpose();
        let buffers = buffers.map_err(|error| of_model(error, &pointer))?.unwrap_or_default();
        let interface = self.interface();
        let output = |(name, _): &(String, Tensor)| Output { name: name.clone(), rows: interface.rows_of(name) };
        let outputs = predictions.iter().map(output).collect();
        let named: Vec<(&str, Tensor)> = predictions.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
        let graph = scope.finish(&named)?;
        let columns = interface.columns(inputs(&graph, ""));
        Ok(Traced { graph, interface, columns, outputs, buffers, temperature })
    }
}

/// The only model of a configuration: its key in `model_config`, and its message.
fn model_of(config: &Value) -> Result<(&str, &Value), Problems> {
    let members = config.get("model_config").and_then(Value::as_object).into_iter().flatten();
    let mut kinds = members.filter(|(key, _)| !OTHER_KEYS.contains(&key.as_str()));
    match (kinds.next(), kinds.next()) {
        (Some((kind, message)), None) => Ok((kind, message)),
        _ => Err(Problems(vec![Problem::new("/model_config", "must have one model")])),
    }
}

/// Width of the tables of WIDE groups; 0 selects the default.
fn wide_dim(kind: &str, message: &Value) -> usize {
    let wide = message.get("wide_embedding_dim").and_then(Value::as_u64);
    let wide = wide.and_then(|wide| usize::try_from(wide).ok());
    wide.unwrap_or(if kind == "xdeepfm" { 16 } else { 0 })
}

/// Keys of `model_config` that are not models.
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

/// Keys that count repeated parts of the graph.
const PARTS: [&str; 9] = [
    "cross_num",
    "expert_num_per_task",
    "low_rank_dim",
    "max_k",
    "n_mask_blocks",
    "num_expert",
    "num_iters",
    "share_num",
    "task_domain_num",
];

/// Keys that define widths.
const WIDTHS: [&str; 15] = [
    "aggregation_dim",
    "cin_layer_size",
    "compressed_feature_num",
    "epnet_hidden_unit",
    "fmb_feature_num",
    "hidden_dim",
    "high_dim",
    "lcb_feature_num",
    "low_rank",
    "multihead_attn_dim",
    "num_class",
    "output_dim",
    "ppnet_hidden_units",
    "reduction_ratio",
    "wide_embedding_dim",
];

/// The maximum value of a key; `None` for keys without a limit.
fn most(key: &str) -> Option<usize> {
    PARTS.contains(&key).then_some(MAX_PARTS).or(WIDTHS.contains(&key).then_some(MAX_WIDTH))
}

/// Checks every MLP, width and count in a message, so that the size of the graph is bounded.
fn check(message: &Value, pointer: &str, problems: &mut Problems) {
    let key = pointer.rsplit('/').find(|key| key.parse::<usize>().is_err()).unwrap_or_default();
    if let (Some(value), Some(most)) = (message.as_f64(), most(key))
        && !(0.0..=most as f64).contains(&value)
    {
        problems.push(pointer, format!("must be in 0..={most}, got {value}"));
    }
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
        check(value, &format!("{pointer}/{key}"), problems);
    }
}

/// Converts the error of a key below `pointer`.
pub(crate) fn problem(pointer: &str, error: ConfigError) -> Problem {
    let path = error.key.replace('[', "/").replace(']', "").replace('.', "/");
    Problem::new(format!("{pointer}/{path}"), format!("must be {}, got {}", error.expected, error.actual))
}

pub(crate) fn of_model(error: ModelError, pointer: &str) -> TraceError {
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

/// Names of the graph's inputs that start with `prefix`, without the prefix.
pub(crate) fn inputs<'g>(graph: &'g Graph, prefix: &'g str) -> impl Iterator<Item = &'g str> {
    let names = graph.ids().filter_map(|id| graph.op::<Input>(id));
    names.filter_map(move |input| input.name.strip_prefix(prefix))
}
