//! A step of several ranks: each computes the gradients of its batches, then updates from the sums over all ranks.

use super::gradients::{Gradients, gradient, output};
use super::update::{Table, Update, flat};
use super::{Begun, KeptMoment, Lookup, State, StepError, kept, names, with_unchanged};
use crate::{Objective, TrainConfig};
use rewire_graph::op::{Gather, Role};
use rewire_graph::{DType, Dim, Graph, NodeId, Scope, Tensor, Type, Value};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// Minimum number of elements of a block, except for the last one.
const BLOCK: usize = 1 << 20;

/// The types of row gradients, with the positions of their lookups, by table.
pub(crate) type RowSums = BTreeMap<String, (usize, Type)>;

/// The two graphs of a step.
#[derive(Debug)]
pub(crate) struct RankStep {
    /// Computes [sums](names::sum) of blocks and of row gradients, and states that the model sets, from a batch, parameters and
    /// [rows of tables](names::rows).
    pub gradients: Graph,
    /// Computes [new rows](names::after) of tables and moments on the host from sums of gradients and the [old rows](names::before). Other
    /// parameters and moments are states of this graph.
    pub update: Graph,
    /// Computes the indices that the host sorts from the inputs of a batch.
    pub indices: Graph,
    pub lookups: Vec<Lookup>,
    pub states: BTreeMap<String, State>,
    pub moments: Vec<KeptMoment>,
    pub reported: Vec<String>,
    /// Trained parameters that are not tables.
    pub dense: Vec<String>,
    /// The reported outputs, then the gradients of dense parameters.
    pub blocks: Vec<Block>,
    /// Tables on the host.
    pub tables: Vec<RankTable>,
    /// Tables that are states of the update.
    pub resident: Vec<ResidentTable>,
    /// Row gradients accumulated over the batches of a step.
    pub row_sums: RowSums,
    /// States that the model sets.
    pub kept: Vec<String>,
}

/// Values of a batch that are joined to one vector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Outputs with their shapes.
    pub parts: Vec<(String, Vec<usize>)>,
    /// Number of elements.
    pub len: usize,
}

/// A table. The host stores its rows; graphs read them as inputs.
#[derive(Clone, Debug)]
pub(crate) struct RankTable {
    pub name: String,
    /// The position of its lookup.
    pub lookup: usize,
    /// The position among all tables.
    pub position: usize,
    /// The table and its moments.
    pub states: Vec<String>,
}

/// A table that is a state of the update, on a device.
#[derive(Clone, Debug)]
pub(crate) struct ResidentTable {
    pub name: String,
    /// The position of its lookup.
    pub lookup: usize,
    /// The shape of a row.
    pub shape: Vec<usize>,
    pub width: usize,
    /// The lookup of the rows of all ranks.
    pub merged: Lookup,
}

impl RankStep {
    /// The graphs of a step. Tables for which `is_resident` is true are states of the update.
    pub fn new(
        objective: &Objective,
        config: &TrainConfig,
        is_resident: impl Fn(&str) -> bool,
    ) -> Result<Self, StepError> {
        let Begun { graph, gradients, reported } = Begun::new(objective, config)?;
        let kept: Vec<String> = kept(&objective.graph).map(|(name, _)| name).collect();
        let all = gradients.parameters.iter().filter_map(|(name, lookup)| Some((name, (*lookup)?)));
        let (resident, host): (Vec<_>, Vec<_>) = all.enumerate().partition(|(_, (name, _))| is_resident(name));
        let resident = resident.into_iter().map(|(_, (name, at))| ResidentTable::new(name, at, &gradients));
        let resident = resident.collect::<Result<Vec<_>, _>>()?;
        let dense = gradients.parameters.iter().filter(|(_, table)| table.is_none()).map(|(name, _)| name.clone());
        let dense = computed_in_order(&gradients.graph, dense.collect())?;
        let blocks = blocks(&gradients, &reported, &dense)?;
        let Updates { graph: update, states, moments } = updates(&gradients, (&blocks, &resident), objective, config)?;
        let table = |(position, (name, lookup)): (usize, (&String, usize))| {
            let own = moments.iter().filter(|moment| moment.parameter == *name).map(|moment| moment.state.clone());
            let states = std::iter::once(name.clone()).chain(own).collect();
            RankTable { name: name.clone(), lookup, position, states }
        };
        let tables: Vec<RankTable> = host.into_iter().map(table).collect();
        let mut lookups = gradients.lookups.clone();
        for table in &tables {
            lookups.iter_mut().skip(table.lookup).take(1).for_each(|lookup| lookup.is_placed = true);
        }
        let sums = Sums { blocks: &blocks, tables: &gradients.parameters, is_carried: config.step_batches() > 1 };
        let (whole, row_sums) = sums.add(&with_rows(&gradients.graph, &tables, &lookups)?)?;
        let (indices, gradients) = (gradients.indices, results(&whole, &kept)?);
        let states = with_unchanged(states, objective, &graph);
        Ok(Self {
            gradients,
            update,
            indices,
            lookups,
            states,
            moments,
            reported,
            dense,
            blocks,
            tables,
            resident,
            row_sums,
            kept,
        })
    }
}

impl ResidentTable {
    fn new(name: &str, lookup: usize, gradients: &Gradients) -> Result<Self, StepError> {
        let refused = |reason: &str| StepError::Table { name: name.to_owned(), reason: reason.to_owned() };
        let own = gradients.lookups.get(lookup).ok_or_else(|| refused("has no lookup"))?;
        let ty = type_of(&gradients.graph, &gradient(name)).ok_or_else(|| refused("has no gradient"))?;
        let shape: Vec<usize> = ty.shape.iter().skip(1).filter_map(Dim::as_const).collect();
        let width = shape.iter().product();
        let merged = Lookup { name: names::merged(name), parts: vec![], is_placed: false, ..own.clone() };
        Ok(Self { name: name.to_owned(), lookup, shape, width, merged })
    }
}

/// The part of a graph that computes sums and states that the model sets.
fn results(graph: &Graph, kept: &[String]) -> Result<Graph, StepError> {
    let is_sum = |name: &&String| name.starts_with(&names::sum(""));
    let sums = graph.outputs().iter().map(|(name, _)| name).filter(is_sum).map(|name| (name, name.clone()));
    let named = sums.chain(kept.iter().map(|name| (name, names::kept(name))));
    let outputs: Vec<_> = named.filter_map(|(own, name)| Some((name, output(graph, own)?))).collect();
    let mut part = graph.part_for(&outputs)?;
    part.rebind_extents();
    Ok(part)
}

fn type_of<'g>(graph: &'g Graph, name: &str) -> Option<&'g Type> {
    output(graph, name).and_then(|value| graph.ty(value))
}

/// Parameters in the order in which their gradients are computed: ranks exchange the first ones while the others are computed.
fn computed_in_order(graph: &Graph, mut parameters: Vec<String>) -> Result<Vec<String>, StepError> {
    let order = graph.order()?;
    let places: BTreeMap<NodeId, usize> = order.into_iter().enumerate().map(|(place, id)| (id, place)).collect();
    parameters.sort_by_cached_key(|name| output(graph, &gradient(name)).and_then(|value| places.get(&value.node)));
    Ok(parameters)
}

/// Divides the reported outputs and the gradients of dense parameters into blocks.
fn blocks(gradients: &Gradients, reported: &[String], dense: &[String]) -> Result<Vec<Block>, StepError> {
    let mut blocks = vec![Block::default()];
    for name in reported.iter().cloned().chain(dense.iter().map(|name| gradient(name))) {
        let ty = type_of(&gradients.graph, &name).ok_or(StepError::Nothing)?;
        let shape: Vec<usize> = ty.shape.iter().filter_map(Dim::as_const).collect();
        if blocks.last().is_none_or(|block| block.len >= BLOCK) {
            blocks.push(Block::default());
        }
        if let Some(block) = blocks.last_mut() {
            block.len += shape.iter().product::<usize>();
            block.parts.push((name, shape));
        }
    }
    Ok(blocks)
}

/// The results of a batch of a rank.
struct Sums<'a> {
    blocks: &'a [Block],
    /// Trained parameters; for tables, with the position of the lookup.
    tables: &'a BTreeMap<String, Option<usize>>,
    /// True if the sums over earlier batches of the step are inputs.
    is_carried: bool,
}

impl Sums<'_> {
    /// Adds the [sums](names::sum) of blocks and of row gradients, times the [share](names::SHARE) of the batch.
    fn add(&self, graph: &Graph) -> Result<(Graph, RowSums), StepError> {
        let (scope, mut outputs) = Scope::resume(graph);
        let share = scope.input(names::SHARE, DType::F32, [1]);
        let mut row_sums = BTreeMap::new();
        let weighted = |own: &Tensor, name: &str| {
            let own = own.cast(DType::F32);
            let sum = (&own * &share).reshape(own.shape());
            if self.is_carried { scope.input(&names::sum(name), DType::F32, own.shape()) + sum } else { sum }
        };
        for (position, block) in self.blocks.iter().enumerate() {
            let own = |(name, _): &(String, Vec<usize>)| flat(outputs.get(name)?);
            let parts: Vec<Tensor> = block.parts.iter().filter_map(own).map(|part| part.cast(DType::F32)).collect();
            let joined = scope.concat(&parts.iter().collect::<Vec<_>>(), 0);
            let name = names::block(position);
            outputs.insert(names::sum(&name), weighted(&joined, &name));
        }
        for (name, lookup) in self.tables {
            let (Some(lookup), Some(own)) = (lookup, outputs.get(&gradient(name)).cloned()) else { continue };
            let sum = weighted(&own, name);
            if self.is_carried {
                row_sums.insert(name.clone(), (*lookup, sum.ty().clone()));
            }
            outputs.insert(names::sum(name), sum);
        }
        let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
        Ok((scope.finish(&named)?, row_sums))
    }
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

fn updates(
    gradients: &Gradients,
    (blocks, resident): (&[Block], &[ResidentTable]),
    objective: &Objective,
    config: &TrainConfig,
) -> Result<Updates, StepError> {
    let config = match config.fused_tables {
        true => config.clone(),
        // Ranks pass the sum over all batches of the step.
        false => TrainConfig { gradient_accumulation_steps: NonZeroUsize::MIN, ..config.clone() },
    };
    let scope = Scope::new();
    let mut inputs = BTreeMap::new();
    for (position, block) in blocks.iter().enumerate() {
        let joined = scope.input(&names::sum(&names::block(position)), DType::F32, [block.len]);
        let mut start = 0;
        for (name, shape) in &block.parts {
            let count: usize = shape.iter().product();
            let shape: Vec<Dim> = shape.iter().map(|extent| (*extent).into()).collect();
            inputs.insert(name.clone(), joined.slice(0, start, count).reshape(shape));
            start += count;
        }
    }
    let mut tables = BTreeMap::new();
    for (name, lookup) in &gradients.parameters {
        let Some(lookup) = lookup.and_then(|at| gradients.lookups.get(at)) else { continue };
        let ty = type_of(&gradients.graph, &gradient(name)).ok_or(StepError::Nothing)?;
        let shaped = |rows: Dim| std::iter::once(rows).chain(ty.shape[1..].iter().cloned()).collect::<Vec<Dim>>();
        let rows = scope.size(&format!("rows of {name}"));
        let resident = resident.iter().find(|table| table.name == *name);
        let own = match resident {
            Some(table) => table.merged.sum(&scope, &[scope.input(&names::gathered(name), DType::F32, shaped(rows))]),
            None => scope.input(&gradient(name), DType::F32, shaped(rows)),
        };
        inputs.insert(gradient(name), own);
        let lookup_of_all = resident.map(|table| table.merged.clone());
        tables.insert(name.clone(), Table { shape: shaped(lookup.table_rows.into()), lookup: lookup_of_all });
    }
    let loss = type_of(&gradients.graph, &objective.loss).map(|ty| ty.shape.clone()).ok_or(StepError::Nothing)?;
    let loss = scope.scalar(DType::F32, 0.0).broadcast(loss);
    let (states, moments, row_sums) = (BTreeMap::new(), vec![], BTreeMap::new());
    let mut update = Update { scope, outputs: inputs, loss, config: &config, states, moments, row_sums };
    update.apply(&mut gradients.parameters.clone(), &tables)?;
    let Update { scope, mut outputs, states, moments, .. } = update;
    outputs.retain(|name, _| names::is_reserved(name));
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    Ok(Updates { graph: scope.finish(&named)?, states, moments })
}
