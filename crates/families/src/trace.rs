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

/// What a pipeline reads and gives, without its graph.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The features and groups of the pipeline.
    pub features: Features,
    /// How histories lie in plans that keep them apart from candidates.
    pub histories: Option<Histories>,
    /// The input that has the number of items of every row, where outputs are of items.
    lengths: Option<String>,
}

/// Histories of a ranker that are kept apart from the candidates that read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// Tokens before the steps of each history, of contextual features.
    pub context: usize,
    /// The channels, each with a cache of its own.
    pub channels: Vec<Channel>,
    /// The feature with the times of candidates.
    pub time: String,
    /// True where the last candidate of a row has the time of its request, and not the first one.
    pub is_ascending: bool,
}

impl Histories {
    /// `None` where a ranking model's groups of sequences or times are not there.
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
    /// What names of its inputs begin with.
    pub name: String,
    /// The sequence whose steps it has.
    pub feature: String,
    /// Tokens of each step.
    pub tokens_per_step: usize,
}

impl Interface {
    /// Reads what [`trace`] made a plan of, without the options of its modules.
    ///
    /// # Errors
    /// The keys of features and groups that cannot be read, by their JSON pointers.
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

    /// The features whose columns the graph's inputs of these names are made of.
    pub fn columns<'i>(&self, inputs: impl IntoIterator<Item = &'i str>) -> Vec<String> {
        let inputs: BTreeSet<&str> = inputs.into_iter().ordered_set();
        let read = self.features.features.values().filter(|feature| inputs.contains(feature.input("values").as_str()));
        read.map(|feature| feature.name.clone()).collect()
    }

    /// What an output has a row for. Items of matching have rows of their own, users have those of the batch.
    pub fn rows_of(&self, output: &str) -> OutputRows {
        let lengths = self.lengths.as_ref().filter(|_| output != USERS);
        lengths.map_or(OutputRows::Batch, |lengths| OutputRows::Steps { lengths: lengths.clone() })
    }
}

/// The output with the vectors of users.
const USERS: &str = "user_tower_emb";

/// A traced pipeline.
#[derive(Debug)]
pub struct Traced {
    /// The graph.
    pub graph: Graph,
    /// The features and groups of the pipeline, and the rows of its outputs.
    pub interface: Interface,
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
    let pipeline = Pipeline::parse(config)?;
    let scope = Scope::new();
    let model = pipeline.model(&scope, "");
    let predictions = match &pipeline.hstu {
        Some(hstu) => hstu::predictions(&model, hstu)?,
        None => models::predictions(&model)?,
    };
    pipeline.finish(scope, &predictions)
}

/// A configuration that is read.
pub(crate) struct Pipeline<'a> {
    /// `model_config`
    config: &'a Value,
    /// The key of the model in it.
    kind: &'a str,
    /// What the key has.
    message: &'a Value,
    features: Features,
    /// The model, if it is of that family.
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

    /// The model in a scope; names of inputs begin with `prefix`.
    pub fn model<'m>(&'m self, scope: &'m Scope, prefix: &'m str) -> Model<'m> {
        let Self { config, kind, message, features, .. } = self;
        Model { scope, features, config, kind, message, prefix, items: prefix, extra: None }
    }

    /// The interface; without histories where they cannot be kept apart.
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

/// The only model of a configuration: its key in `model_config`, and what that has.
fn model_of(config: &Value) -> Result<(&str, &Value), Problems> {
    let members = config.get("model_config").and_then(Value::as_object).into_iter().flatten();
    let mut kinds = members.filter(|(key, _)| !OTHER_KEYS.contains(&key.as_str()));
    match (kinds.next(), kinds.next()) {
        (Some((kind, message)), None) => Ok((kind, message)),
        _ => Err(Problems(vec![Problem::new("/model_config", "must have one model")])),
    }
}

/// Columns of the tables of WIDE groups; 0 for the default.
fn wide_dim(kind: &str, message: &Value) -> usize {
    let wide = message.get("wide_embedding_dim").and_then(Value::as_u64);
    let wide = wide.and_then(|wide| usize::try_from(wide).ok());
    wide.unwrap_or(if kind == "xdeepfm" { 16 } else { 0 })
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

/// Keys that say how many parts of a graph there are.
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

/// Keys that say how wide something is.
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

/// The largest value of a key.
fn most(key: &str) -> Option<usize> {
    PARTS.contains(&key).then_some(MAX_PARTS).or(WIDTHS.contains(&key).then_some(MAX_WIDTH))
}

/// Checks every MLP, width and number within a message, so that no configuration makes a graph of any size.
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

/// A problem with a key within what `pointer` says.
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

/// The inputs of a graph behind `prefix`.
pub(crate) fn inputs<'g>(graph: &'g Graph, prefix: &'g str) -> impl Iterator<Item = &'g str> {
    let names = graph.ids().filter_map(|id| graph.op::<Input>(id));
    names.filter_map(move |input| input.name.strip_prefix(prefix))
}
