use super::lookups::{Addends, Lookup, addends, flattened, is_known_to_host, table_rows};
use super::precision::in_f16;
use super::{StepError, names};
use crate::{Objective, TrainConfig};
use rewire_graph::op::{IndexAdd, Role};
use rewire_graph::{Graph, Scope, Seed, Tensor, Value, differentiate, reached};
use rewire_graph_rewrite::passes::SelectRows;
use std::collections::{BTreeMap, HashSet};

/// A graph with the loss and the gradients `grad.<name>` as outputs. A dense parameter's gradient has the parameter's shape; a table's
/// gradient has one row for each distinct row looked up.
#[derive(Debug)]
pub(super) struct Gradients {
    pub graph: Graph,
    pub lookups: Vec<Lookup>,
    /// The graph that computes the indices of the lookups.
    pub indices: Graph,
    /// Trained parameters; for tables, with the position of the lookup.
    pub parameters: BTreeMap<String, Option<usize>>,
}

/// The output name of a gradient.
pub(crate) fn gradient(parameter: &str) -> String {
    format!("grad.{parameter}")
}

impl Gradients {
    /// Differentiates `graph`, in which trained parameters are states.
    pub fn new(graph: &Graph, objective: &Objective, config: &TrainConfig) -> Result<Self, StepError> {
        let own = |name: &&String| !objective.graph.states().contains(name);
        let learned: Vec<&str> = graph.states().iter().filter(own).map(String::as_str).collect();
        let seed = if config.grad_scaler.is_some() { Seed::Input(names::SCALE) } else { Seed::One };
        let graph = differentiate(&SelectRows.select(graph)?, &[(&objective.loss, seed)], &learned)?;
        let graph = match config.mixed_precision {
            Some(precision) => in_f16(&graph, precision.dtype())?,
            None => graph,
        };
        let mut sorting = Sorting::new(&graph, objective);
        let mut parameters = BTreeMap::new();
        for name in learned {
            let Some(gradient) = output(&graph, &gradient(name)) else { continue };
            if is_zero(&graph, gradient) {
                continue;
            }
            let table = match objective.tables.contains(name) {
                true => Some(sorting.table(name, gradient)?),
                false => None,
            };
            parameters.insert(name.to_owned(), table);
        }
        if parameters.is_empty() {
            return Err(StepError::Nothing);
        }
        sorting.dense(&parameters)?;
        let (lookups, indices, graph) = sorting.finish()?;
        Ok(Self { graph, lookups, indices, parameters })
    }
}

pub(super) fn output(graph: &Graph, name: &str) -> Option<Value> {
    graph.outputs().iter().find(|(own, _)| own == name).map(|(_, value)| *value)
}

/// True if a gradient is a broadcast constant: the loss does not depend on the parameter.
fn is_zero(graph: &Graph, mut value: Value) -> bool {
    while let [only] = graph.inputs(value.node)[..] {
        value = only;
    }
    matches!(graph.role(value.node), Some(Role::Constant(_)))
}

/// The rows of a segmented sum.
#[derive(Clone, Copy)]
enum Rows {
    All,
    /// Rows that occur in the index, except for the `untrained` one.
    Occurring {
        untrained: Option<usize>,
    },
}

/// Replaces scatter-adds by index with segmented sums.
struct Sorting<'a> {
    graph: &'a Graph,
    objective: &'a Objective,
    scope: Scope,
    outputs: BTreeMap<String, Tensor>,
    lookups: Vec<Lookup>,
    /// Replaced sums, and the names of the outputs that replace them.
    replaced: Vec<(Value, String)>,
}

impl<'a> Sorting<'a> {
    fn new(graph: &'a Graph, objective: &'a Objective) -> Self {
        let (scope, outputs) = Scope::resume(graph);
        Self { graph, objective, scope, outputs, lookups: vec![], replaced: vec![] }
    }

    /// Replaces the gradient of a table by the gradient of the rows looked up.
    fn table(&mut self, name: &str, value: Value) -> Result<usize, StepError> {
        let refused = |reason: &str| StepError::Table { name: name.to_owned(), reason: reason.to_owned() };
        let found = addends(self.graph, value).ok_or_else(|| refused("is used otherwise than by looking up rows"))?;
        let table_rows = table_rows(self.graph, name, value)?;
        let mut growing = self.objective.growing.iter().filter(|growing| growing.tables.iter().any(|own| own == name));
        let untrained = growing.any(|growing| !growing.trains_default).then(|| table_rows.saturating_sub(1));
        let sum = self.sum(&found, table_rows, Rows::Occurring { untrained })?;
        let (position, sum) =
            sum.ok_or_else(|| refused("is looked up by an index that the host cannot compute before a run"))?;
        self.outputs.insert(gradient(name), sum);
        Ok(position)
    }

    /// Replaces the other scatter-adds whose index is known on the host.
    fn dense(&mut self, parameters: &BTreeMap<String, Option<usize>>) -> Result<(), StepError> {
        let dense = parameters.iter().filter(|(_, table)| table.is_none());
        let gradients = dense.filter_map(|(name, _)| output(self.graph, &gradient(name)));
        let needed: HashSet<_> =
            reached(gradients.map(|value| value.node), |id| self.graph.producers(id)).into_iter().collect();
        for id in self.graph.order()?.into_iter().filter(|id| needed.contains(id)) {
            let Some(rows) = self.graph.op::<IndexAdd>(id).and_then(|op| op.rows.as_const()) else { continue };
            let [values, index] = self.graph.inputs(id)[..] else { continue };
            if let Some((_, sum)) = self.sum(&[Addends { values, index }], rows, Rows::All)? {
                // Sums by the same index share a lookup.
                let name = names::replaced(self.replaced.len());
                self.outputs.insert(name.clone(), sum);
                self.replaced.push((Value { node: id, port: 0 }, name));
            }
        }
        Ok(())
    }

    /// The position of the lookup, and the segmented sum of addends; `None` if the index is not known on the host.
    fn sum(&mut self, all: &[Addends], table_rows: usize, rows: Rows) -> Result<Option<(usize, Tensor)>, StepError> {
        let (mut values, mut parts) = (vec![], vec![]);
        for addends in all {
            let is_known = is_known_to_host(self.graph, addends.index)?;
            let Some(flat) = flattened(&self.scope, addends).filter(|_| is_known) else { return Ok(None) };
            values.push(flat);
            parts.push(addends.index);
        }
        let (is_sparse, untrained) = match rows {
            Rows::All => (false, None),
            Rows::Occurring { untrained } => (true, untrained),
        };
        let same = |known: &Lookup| {
            known.parts == parts
                && (known.table_rows, known.is_sparse, known.untrained) == (table_rows, is_sparse, untrained)
        };
        let position = self.lookups.iter().position(same).unwrap_or(self.lookups.len());
        if position == self.lookups.len() {
            let name = names::lookup(position);
            self.lookups.push(Lookup { name, parts, table_rows, is_sparse, is_placed: false, untrained });
        }
        Ok(self.lookups.get(position).map(|lookup| (position, lookup.sum(&self.scope, &values))))
    }

    /// The lookups, the graph that computes their indices, and the graph with segmented sums.
    fn finish(self) -> Result<(Vec<Lookup>, Graph, Graph), StepError> {
        let part = |lookup: &Lookup| {
            let parts = lookup.parts.iter().enumerate();
            parts.map(|(part, value)| (lookup.part(part), *value)).collect::<Vec<_>>()
        };
        let mut indices = self.graph.part_for(&self.lookups.iter().flat_map(part).collect::<Vec<_>>())?;
        indices.rebind_extents();
        let outputs: Vec<(&str, Tensor)> = self.outputs.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
        let mut graph = self.scope.finish(&outputs)?;
        for (old, name) in &self.replaced {
            if let Some(new) = output(&graph, name) {
                graph.replace_except(*old, new, &[]);
            }
        }
        graph.retain_outputs(|name| self.replaced.iter().all(|(_, replaced)| replaced != name));
        Ok((self.lookups, indices, graph))
    }
}
