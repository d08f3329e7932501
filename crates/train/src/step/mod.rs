//! A step of training as one graph: the loss, gradients, and what optimizers make of parameters, which are states.

mod error;
mod gradients;
mod lookups;
pub(crate) mod names;
mod precision;
mod update;

pub use error::StepError;
pub(crate) use lookups::Lookup;
pub(crate) use update::{LATEST, reported_rows};

use crate::{Objective, TrainConfig};
use gradients::Gradients;
use rewire_graph::op::{Input, Role};
use rewire_graph::{DType, Dim, Graph, HostTensor, Layout, NodeId, TensorSizeError, Type};
use std::collections::BTreeMap;

/// What a state holds before the first step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Initial {
    /// The parameter of this name.
    Parameter(String),
    /// The tensor of this name where there is one, else zeros.
    Kept(String),
    /// This, everywhere.
    Constant(f32),
}

/// A state of a step.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub shape: Vec<usize>,
    /// What its values are rounded to; it is an `F32`.
    pub dtype: DType,
    pub initial: Initial,
}

impl State {
    /// A constant tensor.
    pub fn filled(&self, value: f32) -> Result<HostTensor, TensorSizeError> {
        HostTensor::generate(self.shape.clone(), || value)
    }
}

/// Where a state has what an optimizer keeps of a parameter.
#[derive(Clone, Debug)]
pub(crate) struct KeptMoment {
    pub state: String,
    pub parameter: String,
    pub moment: &'static str,
    /// Elements of the state before it.
    pub start: usize,
    pub shape: Vec<usize>,
}

/// A step of training.
#[derive(Debug)]
pub(crate) struct StepGraph {
    pub graph: Graph,
    /// Indices that the host sorts, from inputs; the outputs are named `<lookup>.<part>`.
    pub indices: Graph,
    pub lookups: Vec<Lookup>,
    pub states: BTreeMap<String, State>,
    pub moments: Vec<KeptMoment>,
    /// Columns of [`names::REPORTED`]: outputs of one element, the loss and what is reported with it.
    pub reported: Vec<String>,
    /// Tables and the positions of their lookups.
    pub tables: BTreeMap<String, usize>,
    /// What the gradients of rows are added to from batch to batch of a step, by table.
    pub row_sums: BTreeMap<String, Type>,
}

impl StepGraph {
    pub fn new(objective: &Objective, config: &TrainConfig) -> Result<Self, StepError> {
        check_names(objective)?;
        let is_learned = |name: &str, ty: &Type| learns(ty) && !objective.frozen.contains(name);
        let graph = objective.graph.with_states(is_learned)?;
        let reported = reported(&objective.graph);
        if !reported.contains(&objective.loss) {
            let ty = objective.graph.outputs().iter().find(|(name, _)| *name == objective.loss);
            let ty = ty.and_then(|(_, value)| objective.graph.ty(*value));
            let actual = ty.map_or_else(|| "no output of that name".to_owned(), ToString::to_string);
            return Err(StepError::Loss { name: objective.loss.clone(), actual });
        }
        let gradients = Gradients::new(&graph, objective, config)?;
        let narrow = narrow(&objective.graph);
        let mut step = update::step(gradients, config, &objective.loss, reported, &narrow)?;
        // What the loss does not depend on stays what it begins with.
        for parameter in graph.ids().filter_map(|id| learned(objective, &graph, id)) {
            let shape = parameter.ty.shape.iter().filter_map(Dim::as_const).collect();
            let dtype = narrow.get(&parameter.name).copied().unwrap_or(DType::F32);
            let state = State { shape, dtype, initial: Initial::Parameter(parameter.name.clone()) };
            step.states.entry(parameter.name.clone()).or_insert(state);
        }
        step.states.extend(kept(&objective.graph));
        Ok(step)
    }
}

/// The types of parameters whose values are no `F32`.
fn narrow(graph: &Graph) -> BTreeMap<String, DType> {
    let parameter = |id| match graph.role(id) {
        Some(Role::Parameter(own)) if learns(&own.ty) && own.ty.dtype != DType::F32 => {
            Some((own.name.clone(), own.ty.dtype))
        }
        _ => None,
    };
    graph.ids().filter_map(parameter).collect()
}

/// States that the model itself sets, such as running statistics of norms.
pub(crate) fn kept(graph: &Graph) -> impl Iterator<Item = (String, State)> {
    let state = |id| match graph.role(id) {
        Some(Role::Input(input)) if graph.states().contains(&input.name) && input.ty.dtype == DType::F32 => {
            let shape = input.ty.shape.iter().map(Dim::as_const).collect::<Option<_>>()?;
            Some((input.name.clone(), State { shape, dtype: DType::F32, initial: Initial::Kept(input.name.clone()) }))
        }
        _ => None,
    };
    graph.ids().filter_map(state)
}

/// The state that stands for a parameter.
fn learned<'g>(objective: &Objective, graph: &'g Graph, id: NodeId) -> Option<&'g Input> {
    match graph.role(id) {
        Some(Role::Input(input)) => {
            let [own, others] = [graph, &objective.graph].map(|graph| graph.states().contains(&input.name));
            (own && !others).then_some(input)
        }
        _ => None,
    }
}

/// True for a parameter that can learn.
fn learns(ty: &Type) -> bool {
    ty.layout == Layout::Device && ty.dtype.is_float() && ty.dtype.format().is_written()
}

fn check_names(objective: &Objective) -> Result<(), StepError> {
    let graph = &objective.graph;
    let given = graph.ids().filter_map(|id| match graph.role(id) {
        Some(Role::Input(own)) => Some(&own.name),
        Some(Role::Parameter(own)) => Some(&own.name),
        _ => None,
    });
    let outputs = graph.outputs().iter().map(|(name, _)| name);
    if let Some(name) = given.chain(outputs).find(|name| names::is_reserved(name)) {
        return Err(StepError::Reserved { name: name.clone(), prefix: names::PREFIX });
    }
    let parameter = |id| match graph.role(id) {
        Some(Role::Parameter(parameter)) if learns(&parameter.ty) => Some(parameter.name.as_str()),
        _ => None,
    };
    let known: Vec<&str> = graph.ids().filter_map(parameter).collect();
    match objective.tables.union(&objective.frozen).find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(StepError::Unknown { name: name.clone(), known: known.join(", ") }),
        None => Ok(()),
    }
}

/// Outputs of one float.
fn reported(graph: &Graph) -> Vec<String> {
    let is_one = |ty: &Type| ty.dtype == DType::F32 && ty.shape.iter().all(|extent| *extent == 1.into());
    let outputs = graph.outputs().iter().filter(|(_, value)| graph.ty(*value).is_some_and(is_one));
    outputs.map(|(name, _)| name.clone()).collect()
}
