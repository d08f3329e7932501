//! A training step as one graph: the loss, the gradients, and the optimizers' updates. Trained parameters are states.

mod error;
mod gradients;
mod lookups;
pub(crate) mod names;
mod precision;
mod ranks;
mod update;

pub use error::StepError;
pub(crate) use lookups::Lookup;
pub(crate) use ranks::{Block, RankStep, RankTable, ResidentTable};
pub(crate) use update::{LATEST, reported_rows};

use crate::{Objective, TrainConfig};
use gradients::Gradients;
pub(crate) use gradients::gradient;
use rewire_graph::op::{Input, Role};
use rewire_graph::{DType, Dim, Graph, HostTensor, Layout, NodeId, TensorSizeError, Type};
use std::collections::BTreeMap;

/// The initial value of a state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Initial {
    /// The parameter with this name.
    Parameter(String),
    /// The tensor with this name, or zeros if it does not exist.
    Kept(String),
    /// This constant.
    Constant(f32),
}

/// A state of a step.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub shape: Vec<usize>,
    pub initial: Initial,
}

impl State {
    /// A tensor of the state's shape, filled with `value`.
    pub fn filled(&self, value: f32) -> Result<HostTensor, TensorSizeError> {
        HostTensor::generate(self.shape.clone(), || value)
    }
}

/// The location of a parameter's moment: a range of a state.
#[derive(Clone, Debug)]
pub(crate) struct KeptMoment {
    pub state: String,
    pub parameter: String,
    pub moment: &'static str,
    /// Offset in the state, in elements.
    pub start: usize,
    pub shape: Vec<usize>,
}

/// A training step as one graph.
#[derive(Debug)]
pub(crate) struct StepGraph {
    pub graph: Graph,
    /// Computes the indices that the host sorts from the inputs of a batch. Its outputs are named `<lookup>.<part>`.
    pub indices: Graph,
    pub lookups: Vec<Lookup>,
    pub states: BTreeMap<String, State>,
    pub moments: Vec<KeptMoment>,
    /// Columns of [`names::REPORTED`]: outputs of one element, including the loss.
    pub reported: Vec<String>,
    /// Tables, with the positions of their lookups.
    pub tables: BTreeMap<String, usize>,
    /// Row gradients accumulated over the batches of a step, by table.
    pub row_sums: BTreeMap<String, Type>,
}

impl StepGraph {
    pub fn new(objective: &Objective, config: &TrainConfig) -> Result<Self, StepError> {
        let Begun { graph, gradients, reported } = Begun::new(objective, config)?;
        let mut step = update::step(gradients, config, &objective.loss, reported)?;
        step.states = with_unchanged(step.states, objective, &graph);
        Ok(step)
    }
}

/// A model, and its gradients.
struct Begun {
    /// The model, with states in place of trained parameters.
    graph: Graph,
    gradients: Gradients,
    reported: Vec<String>,
}

impl Begun {
    fn new(objective: &Objective, config: &TrainConfig) -> Result<Self, StepError> {
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
        Ok(Self { graph, gradients, reported })
    }
}

/// Adds the states that an update does not change: parameters that the loss does not depend on, and states that the model sets.
fn with_unchanged(
    mut states: BTreeMap<String, State>,
    objective: &Objective,
    graph: &Graph,
) -> BTreeMap<String, State> {
    for parameter in graph.ids().filter_map(|id| learned(objective, graph, id)) {
        let shape = parameter.ty.shape.iter().filter_map(Dim::as_const).collect();
        let state = State { shape, initial: Initial::Parameter(parameter.name.clone()) };
        states.entry(parameter.name.clone()).or_insert(state);
    }
    states.extend(kept(&objective.graph));
    states
}

/// States that the model itself sets, such as running statistics of norms.
pub(crate) fn kept(graph: &Graph) -> impl Iterator<Item = (String, State)> {
    let state = |id| match graph.role(id) {
        Some(Role::Input(input)) if graph.states().contains(&input.name) && input.ty.dtype == DType::F32 => {
            let shape = input.ty.shape.iter().map(Dim::as_const).collect::<Option<_>>()?;
            Some((input.name.clone(), State { shape, initial: Initial::Kept(input.name.clone()) }))
        }
        _ => None,
    };
    graph.ids().filter_map(state)
}

/// The input of a state that replaces a trained parameter.
fn learned<'g>(objective: &Objective, graph: &'g Graph, id: NodeId) -> Option<&'g Input> {
    match graph.role(id) {
        Some(Role::Input(input)) => {
            let [own, others] = [graph, &objective.graph].map(|graph| graph.states().contains(&input.name));
            (own && !others).then_some(input)
        }
        _ => None,
    }
}

/// True for the type of a trainable parameter.
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
    let growing = objective.growing.iter().flat_map(|growing| &growing.tables);
    if let Some(name) =
        growing.into_iter().find(|name| !objective.tables.union(&objective.frozen).any(|own| own == *name))
    {
        return Err(StepError::Grown { name: name.clone() });
    }
    match objective.tables.union(&objective.frozen).find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(StepError::Unknown { name: name.clone(), known: known.join(", ") }),
        None => Ok(()),
    }
}

/// The names of outputs with one float.
fn reported(graph: &Graph) -> Vec<String> {
    let is_one = |ty: &Type| ty.dtype == DType::F32 && ty.shape.iter().all(|extent| *extent == 1.into());
    let outputs = graph.outputs().iter().filter(|(_, value)| graph.ty(*value).is_some_and(is_one));
    outputs.map(|(name, _)| name.clone()).collect()
}
