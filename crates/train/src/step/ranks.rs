//! A step of several ranks: each computes the gradients of its batches, then updates from the sums over all ranks.

use super::gradients::{Gradients, gradient, output};
use super::update::{Table, Update};
use super::{Begun, KeptMoment, Lookup, State, StepError, kept, names, with_unchanged};
use crate::{Objective, TrainConfig};
use rewire_graph::op::{Gather, Role};
use rewire_graph::{DType, Dim, Graph, NodeId, Scope, Tensor, Value};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// The two graphs of a step.
#[derive(Debug)]
pub(crate) struct RankStep {
    /// Computes losses, [gradients](RankStep::dense) and states that the model sets, from a batch, parameters and [rows of tables](names::rows).
    pub gradients: Graph,
    /// Computes [new rows](names::after) of tables and moments from sums of gradients and the [old rows](names::before). Other parameters
    /// and moments are states of this graph.
    pub update: Graph,
    /// Computes the indices that the host sorts from the inputs of a batch.
    pub indices: Graph,
    pub lookups: Vec<Lookup>,
    pub states: BTreeMap<String, State>,
    pub moments: Vec<KeptMoment>,
    pub reported: Vec<String>,
    /// Trained parameters that are not tables.
    pub dense: Vec<String>,
    pub tables: Vec<RankTable>,
    /// States that the model sets.
    pub kept: Vec<String>,
}

/// A table. The host stores its rows; graphs read them as inputs.
#[derive(Clone, Debug)]
pub(crate) struct RankTable {
    pub name: String,
    /// The position of its lookup.
    pub lookup: usize,
    /// The table and its moments.
    pub states: Vec<String>,
}

impl RankStep {
    pub fn new(objective: &Objective, config: &TrainConfig) -> Result<Self, StepError> {
        let Begun { graph, gradients, reported } = Begun::new(objective, config)?;
        let kept: Vec<String> = kept(&objective.graph).map(|(name, _)| name).collect();
        let Updates { graph: update, states, moments } = updates(&gradients, objective, config)?;
        let table = |(name, at): (&String, &Option<usize>)| {
            let own = moments.iter().filter(|moment| moment.parameter == *name).map(|moment| moment.state.clone());
            let states = std::iter::once(name.clone()).chain(own).collect();
            Some(RankTable { name: name.clone(), lookup: (*at)?, states })
        };
        let tables: Vec<RankTable> = gradients.parameters.iter().filter_map(table).collect();
        let dense = gradients.parameters.iter().filter(|(_, table)| table.is_none()).map(|(name, _)| name.clone());
        let dense = dense.collect();
        let outputs = outputs(&gradients, &reported, &kept);
        let Gradients { graph: whole, mut lookups, indices, .. } = gradients;
        for table in &tables {
            lookups.iter_mut().skip(table.lookup).take(1).for_each(|lookup| lookup.is_placed = true);
        }
        let mut gradients = with_rows(&whole, &tables, &lookups)?.part_for(&outputs)?;
        gradients.rebind_extents();
        let states = with_unchanged(states, objective, &graph);
        Ok(Self { gradients, update, indices, lookups, states, moments, reported, dense, tables, kept })
    }
}

/// The outputs of [`RankStep::gradients`].
fn outputs(gradients: &Gradients, reported: &[String], kept: &[String]) -> Vec<(String, Value)> {
    let same = |name: String| (name.clone(), name);
    let names = reported.iter().cloned().map(same);
    let names = names.chain(gradients.parameters.keys().map(|name| same(gradient(name))));
    let names = names.chain(kept.iter().map(|name| (name.clone(), names::kept(name))));
    names.filter_map(|(own, name)| Some((name, output(&gradients.graph, &own)?))).collect()
}

/// Replaces lookups in tables by lookups in inputs with the distinct rows.
fn with_rows(graph: &Graph, tables: &[RankTable], lookups: &[Lookup]) -> Result<Graph, StepError> {
    let (scope, mut outputs) = Scope::resume(graph);
    let mut replaced = vec![];
    for table in tables {
        let refused = |reason: &str| StepError::Table { name: table.name.clone(), reason: reason.to_owned() };
        let lookup = lookups.get(table.lookup).ok_or_else(|| refused("has no lookup"))?;
        let sum = outputs.get(&gradient(&table.name)).ok_or_else(|| refused("has no gradient"))?;
        let rows = scope.input(&names::rows(&table.name), DType::F32, sum.shape());
        for reader in readers(graph, &table.name) {
            let index = graph.inputs(reader).get(1).copied().filter(|_| graph.op::<Gather>(reader).is_some());
            let part = index.and_then(|index| lookup.parts.iter().position(|part| *part == index));
            let (Some(index), Some(part)) = (index, part) else {
                return Err(refused("is used otherwise than by looking up rows"));
            };
            let place = scope.input(&lookup.place(part), DType::U32, scope.value(index).shape());
            let name = names::replaced(replaced.len());
            outputs.insert(name.clone(), rows.gather(&place));
            replaced.push((Value { node: reader, port: 0 }, name));
        }
    }
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let mut graph = scope.finish(&named)?;
    for (old, name) in &replaced {
        if let Some(new) = output(&graph, name) {
            graph.replace_except(*old, new, &[]);
        }
    }
    graph.retain_outputs(|name| replaced.iter().all(|(_, replaced)| replaced != name));
    Ok(graph)
}

/// The operators that read a state.
fn readers(graph: &Graph, state: &str) -> Vec<NodeId> {
    let is_state = |value: &Value| matches!(graph.role(value.node), Some(Role::Input(input)) if input.name == state);
    graph.ids().filter(|id| graph.inputs(*id).iter().any(is_state)).collect()
}

/// The update of a step.
struct Updates {
    graph: Graph,
    states: BTreeMap<String, State>,
    moments: Vec<KeptMoment>,
}

fn updates(gradients: &Gradients, objective: &Objective, config: &TrainConfig) -> Result<Updates, StepError> {
    let config = match config.fused_tables {
        true => config.clone(),
        // Ranks pass the sum over all batches of the step.
        false => TrainConfig { gradient_accumulation_steps: NonZeroUsize::MIN, ..config.clone() },
    };
    let scope = Scope::new();
    let (mut inputs, mut tables) = (BTreeMap::new(), BTreeMap::new());
    for (name, table) in &gradients.parameters {
        let value = output(&gradients.graph, &gradient(name)).and_then(|value| gradients.graph.ty(value));
        let mut shape: Vec<Dim> = value.map(|ty| ty.shape.clone()).ok_or(StepError::Nothing)?;
        if let Some(lookup) = table.and_then(|at| gradients.lookups.get(at)) {
            let full = std::iter::once(Dim::from(lookup.table_rows)).chain(shape[1..].iter().cloned()).collect();
            tables.insert(name.clone(), Table { shape: full, lookup: None });
            shape[0] = scope.size(&format!("rows of {name}"));
        }
        inputs.insert(gradient(name), scope.input(&gradient(name), DType::F32, shape));
    }
    let loss = output(&gradients.graph, &objective.loss).and_then(|value| gradients.graph.ty(value));
    let shape = loss.map(|ty| ty.shape.clone()).ok_or(StepError::Nothing)?;
    let loss = scope.scalar(DType::F32, 0.0).broadcast(shape);
    let (states, moments, row_sums) = (BTreeMap::new(), vec![], BTreeMap::new());
    let mut update = Update { scope, outputs: inputs, loss, config: &config, states, moments, row_sums };
    update.apply(&mut gradients.parameters.clone(), &tables)?;
    let Update { scope, mut outputs, states, moments, .. } = update;
    outputs.retain(|name, _| names::is_reserved(name));
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    Ok(Updates { graph: scope.finish(&named)?, states, moments })
}
