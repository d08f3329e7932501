use super::ids::{id_maps, is_of_ids};
use super::{Problem, Problems};
use crate::program::{Extent, Port, ScalarType};
use crate::rank::{CacheOptions, RankError};
use crate::weights::Weights;
use rewire_families::{TraceError, Traced, trace, trace_cached};
use rewire_features::Features;
use rewire_graph::ParameterSpec;
use rewire_graph::op::Input;
use rewire_graph::{Arrange, Dim, Graph, HostTensor, Type};
use rewire_hstu::modules::Buffer;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// The model of a pipeline: its features, and the graph of its predictions.
#[derive(Clone, Debug)]
pub struct Imported {
    pipeline: Arc<Value>,
    traced: Arc<Traced>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// Buffers of the reference's modules that predictions do not use.
const BUFFERS: [&str; 4] = ["num_batches_tracked", "windows_len", "cumsum_windows_len", "feature_dim_repeat"];

/// The outputs of matching models: vectors of users, and of items.
pub(super) const TOWERS: [&str; 2] = ["user_tower_emb", "item_tower_emb"];

/// An input or output of a graph.
fn port(name: &str, ty: &Type) -> Port {
    let extent = |dim: &Dim| dim.as_const().map_or_else(|| Extent::Open(dim.to_string()), Extent::Known);
    let shape = ty.shape.iter().map(extent).collect();
    Port {
        name: name.to_owned(),
        ty: ScalarType::of_dtype(ty.dtype).unwrap_or(ScalarType::F32),
        shape,
        dtype: ty.dtype,
    }
}

/// The keys of a `config.json`.
#[derive(Deserialize)]
struct Config {
    pipeline: Value,
}

/// Checks that tensors which follow from the configuration have the expected values.
pub(super) fn check_buffers(buffers: &[Buffer], weights: &Weights<'_>) -> Result<(), RankError> {
    for Buffer { name, value } in buffers {
        let other = weights.get(name)?.filter(|stored| stored.to_f64() != value.to_f64());
        if let Some(stored) = other {
            let (expected, actual) = (value.to_f64(), stored.to_f64());
            return Err(RankError::Buffer { name: name.clone(), expected, actual });
        }
    }
    Ok(())
}

/// The `EasyRecConfig` in the text of a `config.json`; errors refer to the file as `name`.
pub(super) fn pipeline_of(name: &str, text: &str) -> Result<Value, RankError> {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() && !is_pipeline(text) {
        return Err(RankError::NotImported { name: name.to_owned() });
    }
    let unread = |error: serde_json::Error| {
        let problems = Problems(vec![Problem::new("", error.to_string())]);
        RankError::Pipeline { name: name.to_owned(), problems }
    };
    let config: Config = serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(unread)?;
    Ok(config.pipeline)
}

/// The reasons why a pipeline could not be traced, by keys of its configuration.
pub(super) fn problems_of(error: TraceError) -> Problems {
    match error {
        TraceError::Config(problems) => problems,
        other => Problems(vec![Problem::new("/model_config", other.to_string())]),
    }
}

/// True for parameters that are embedding tables.
pub(super) fn is_table(name: &str) -> bool {
    (name.contains(".embedding_bags.") || name.contains("ec_dict.")) && name.ends_with(".weight")
}

/// True for the text of a `config.json` of an imported model.
pub fn is_pipeline(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        pipeline: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Kind>(text.trim_start_matches('\u{feff}')).is_ok_and(|kind| kind.pipeline.is_some())
}

impl Imported {
    /// Traces the model of an `EasyRecConfig`, with the reference's field names.
    ///
    /// # Errors
    /// All unsupported options, by their JSON pointers.
    pub fn new(pipeline: &Value) -> Result<Self, Problems> {
        let traced = trace(pipeline).map_err(problems_of)?;
        let graph = &traced.graph;
        let input = |id| graph.op::<Input>(id).map(|input| port(&input.name, &input.ty));
        let output = |(name, value): &(String, rewire_graph::Value)| {
            let ty = graph.node(value.node)?.types.get(value.port as usize)?;
            Some(port(name, ty))
        };
        let mut inputs: Vec<Port> = graph.ids().filter_map(input).collect();
        inputs.arrange_by(|a, b| a.name.cmp(&b.name));
        let outputs = graph.outputs().iter().filter_map(output).collect();
        Ok(Self { inputs, outputs, traced: Arc::new(traced), pipeline: Arc::new(pipeline.clone()) })
    }

    /// Parses the text of a `config.json`; errors refer to it as `name`.
    ///
    /// # Errors
    /// [`RankError::Pipeline`].
    pub fn parse(name: &str, text: &str) -> Result<Self, RankError> {
        let bad = |problems| RankError::Pipeline { name: name.to_owned(), problems };
        Self::new(&pipeline_of(name, text)?).map_err(bad)
    }

    /// The graph of the predictions.
    pub fn graph(&self) -> &Graph {
        &self.traced.graph
    }

    /// The graph that a [`Predictor`](super::Predictor) runs: for a ranker with histories the one that separates them from candidates, if
    /// the model allows it, and otherwise [`Imported::graph`].
    pub(crate) fn served(&self, cache: &CacheOptions) -> Result<Graph, RankError> {
        if self.traced.interface.histories.is_none() {
            return Ok(self.graph().clone());
        }
        let bad = |error| RankError::Pipeline { name: "the configuration".to_owned(), problems: problems_of(error) };
        Ok(trace_cached(&self.pipeline, cache.dtype).map_err(bad)?.traced.graph)
    }

    /// The graphs of single towers of a matching model, by output.
    pub(crate) fn towers(&self) -> Vec<(String, Graph)> {
        let outputs = self.graph().outputs().iter().map(|(name, _)| name);
        let outputs = outputs.filter(|name| TOWERS.contains(&name.as_str()));
        let tower = |output: &String| {
            let mut graph = self.graph().clone();
            graph.narrow(|name| name == output);
            (output.clone(), graph)
        };
        outputs.map(tower).collect()
    }

    /// The columns of a table that the model reads.
    pub fn columns(&self) -> &[String] {
        &self.traced.columns
    }

    /// The features and groups of the pipeline.
    pub fn features(&self) -> &Features {
        &self.traced.interface.features
    }

    /// The inputs of the graph.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The outputs of the graph.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The parameters of the graph.
    pub fn parameters(&self) -> Vec<ParameterSpec> {
        self.traced.graph.parameters()
    }

    /// Tensors of a checkpoint that follow from the configuration.
    pub fn buffers(&self) -> &[Buffer] {
        &self.traced.buffers
    }

    /// True for tensors of a checkpoint that predictions depend on, and for buffers that follow from the configuration or count batches.
    pub fn reads(&self, name: &str) -> bool {
        let last = name.rsplit('.').next().unwrap_or(name);
        self.parameters().iter().any(|known| known.name == name)
            || self.buffers().iter().any(|buffer| buffer.name == name)
            || BUFFERS.contains(&last)
            || is_of_ids(name)
    }

    /// The parameters that are embedding tables.
    pub fn tables(&self) -> HashSet<String> {
        self.parameters().into_iter().map(|known| known.name).filter(|name| is_table(name)).collect()
    }

    /// Checks that tensors which follow from the configuration have the expected values.
    pub(crate) fn check_weights(&self, weights: &Weights<'_>) -> Result<(), RankError> {
        self.check_ids(|name| Ok(weights.get(name)?))?;
        check_buffers(&self.traced.buffers, weights)
    }

    /// Checks that growing tables have ids.
    ///
    /// # Errors
    /// [`RankError::Ids`] and [`RankError::UnequalIds`].
    pub fn check_ids(&self, tensor: impl Fn(&str) -> Result<Option<HostTensor>, RankError>) -> Result<(), RankError> {
        let parameters = self.parameters();
        id_maps(self.features(), parameters.iter().map(|known| known.name.as_str()), tensor).map(drop)
    }
}
