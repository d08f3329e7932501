use super::part::Part;
use super::{Context, DeadCode, Fuse, Pass, Pipeline, Separate};
use crate::error::RewriteError;
use rewire_graph::op::{Fused, Identity, Op, Role};
use rewire_graph::{Copies, Graph, GraphError, NodeId, Type, Value, reached};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A result may be larger than its operands if it has at most this number of bytes.
const SMALL: usize = 64 << 10;

/// Moves computation that depends only on parameters into separate fused operators, which a session computes once, when
/// parameters are bound.
///
/// Layout and storage type changes stay with their readers, which apply them while loading, as do values that need more
/// memory than their operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Precompute;

impl Pass for Precompute {
    fn name(&self) -> &str {
        "precompute"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let fixed = graph.fixed().map_err(failed)?;
        let mut values = Candidates { graph, fixed: &fixed }.choose();
        values.retain(|value| context.permits(self.name(), graph, value.node));
        let mut result = graph.clone();
        if values.is_empty() {
            return Ok(result);
        }
        let program = extract(graph, &values).map_err(failed)?;
        let pipeline = Pipeline::new(vec![Box::new(Separate), Box::new(Fuse)]);
        let (program, _) = pipeline.run_within(program, context.within())?;
        let computed = insert(&mut result, &program).map_err(failed)?;
        for (&old, new) in values.iter().zip(computed) {
            result.replace_except(old, new, &[]);
        }
        let bytes: usize = values.iter().filter_map(|value| graph.ty(*value)).map(size).sum();
        context.note(format!("{bytes} bytes computed when parameters are bound"));
        DeadCode.run(&result, &mut Context::new())
    }
}

struct Candidates<'a> {
    graph: &'a Graph,
    fixed: &'a HashSet<NodeId>,
}

impl Candidates<'_> {
    /// Fixed values with readers that are not fixed. A value that is too large is replaced by its nearest dependencies
    /// that are not.
    fn choose(&self) -> Vec<Value> {
        let outputs: HashSet<NodeId> = self.graph.outputs().iter().map(|(_, value)| value.node).collect();
        let is_read =
            |id: &NodeId| outputs.contains(id) || self.graph.users(*id).iter().any(|user| !self.fixed.contains(user));
        let mut stack: Vec<NodeId> = self.graph.ids().filter(|id| self.fixed.contains(id)).filter(is_read).collect();
        let mut seen: HashSet<NodeId> = stack.iter().copied().collect();
        let mut chosen = BTreeSet::new();
        while let Some(id) = stack.pop() {
            let producers = self.graph.inputs(id);
            // Fused operators are already computed when parameters are bound.
            if self.graph.op::<Fused>(id).is_some() {
                continue;
            }
            if self.pays(id) {
                chosen.insert(Value { node: id, port: 0 });
            } else {
                stack.extend(producers.iter().map(|value| value.node).filter(|&id| seen.insert(id)));
            }
        }
        chosen.into_iter().collect()
    }

    /// True for operators of one operand that readers apply while loading.
    fn is_free(&self, id: NodeId) -> bool {
        let moves = |op: &dyn Op| op.movement().is_some() || op.is_conversion();
        self.graph.inputs(id).len() == 1 && self.graph.node(id).is_some_and(|node| moves(node.op.as_ref()))
    }

    /// True if the result of a node is worth its memory.
    fn pays(&self, id: NodeId) -> bool {
        let Some(node) = self.graph.node(id) else { return false };
        if is_source(self.graph, id) || self.is_free(id) || node.types.len() != 1 {
            return false;
        }
        let bytes = |id: NodeId| self.graph.ty(Value { node: id, port: 0 }).map_or(0, size);
        let mut left = bytes(id).saturating_sub(SMALL);
        let mut stack = vec![id];
        let mut seen = HashSet::from([id]);
        while let Some(id) = stack.pop() {
            if is_source(self.graph, id) {
                left = left.saturating_sub(bytes(id));
                if left == 0 {
                    return true;
                }
            }
            stack.extend(self.graph.inputs(id).iter().map(|value| value.node).filter(|&id| seen.insert(id)));
        }
        false
    }
}

fn is_source(graph: &Graph, id: NodeId) -> bool {
    graph.role(id).is_some_and(Role::is_fixed)
}

fn size(ty: &Type) -> usize {
    let extents = ty.shape.iter().map(|dim| dim.as_const().map_or(u64::MAX, |n| n as u64));
    ty.dtype.format().bytes(extents.fold(1, u64::saturating_mul)).try_into().unwrap_or(usize::MAX)
}

/// The part of the graph that computes `values`.
fn extract(graph: &Graph, values: &[Value]) -> Result<Graph, GraphError> {
    let roots = values.iter().map(|value| value.node);
    let needed: HashSet<NodeId> = reached(roots, |id| graph.producers(id)).into_iter().collect();
    let mut nodes = graph.order()?;
    nodes.retain(|id| needed.contains(id));
    Ok(Part::new(graph, &nodes, values)?.graph)
}

/// Adds the nodes of `program` to a graph with its parameters and returns its outputs there.
fn insert(graph: &mut Graph, program: &Graph) -> Result<Vec<Value>, GraphError> {
    let mut copies = Copies::default();
    let known: HashMap<Source, NodeId> = graph
        .ids()
        .filter(|&id| is_source(graph, id))
        .filter_map(|id| graph.node(id).map(|node| (Source::of(&node.op), id)))
        .collect();
    for id in program.order()? {
        let source = program.node(id).filter(|_| is_source(program, id));
        match source.and_then(|node| known.get(&Source::of(&node.op))) {
            Some(&own) => copies.insert(Value { node: id, port: 0 }, Value { node: own, port: 0 }),
            None => copies.add(program, id, graph)?,
        }
    }
    copies.find(&program.outputs().iter().map(|(_, value)| *value).collect::<Vec<_>>())
}

/// The identity of a parameter or constant.
#[derive(PartialEq, Eq, Hash)]
enum Source {
    Parameter(String),
    Constant(Identity),
}

impl Source {
    fn of(op: &Arc<dyn Op>) -> Self {
        match op.role() {
            Role::Parameter(parameter) => Self::Parameter(parameter.name.clone()),
            _ => Self::Constant(Identity(Arc::clone(op))),
        }
    }
}
