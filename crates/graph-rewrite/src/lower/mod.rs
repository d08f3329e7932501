//! Lowering: fused operators become steps, host values the shape program.

mod builder;
mod computation;
mod custom;
mod error;
mod in_place;
mod pooling;

use computation::rows_set;
pub use computation::{computation, of};
pub use error::{Refusal, RewriteError};
use in_place::leave_out;
pub(crate) use pooling::{pool, pooled};

use crate::plan::{Binding, Buffer, BufferId, Plan, PlanOutput, Source, Step};
use rewire_graph::op::{Fused, Role};
use rewire_graph::shape::HostProgram;
use rewire_graph::{DType, Graph, Layout, Node, NodeId, Value};
use std::collections::{HashMap, HashSet};

/// Lowers a graph whose operators are all fused, host operators, inputs, parameters or constants.
///
/// Every fused operator becomes one step, in the order of the graph, or a step of [`Plan::load`] if it reads parameters alone; every value on the device a buffer; host values
/// become the shape program. Lower what [`optimize`](crate::optimize) returns.
///
/// # Errors
/// [`RewriteError::Graph`] if the graph has a cycle, [`RewriteError::Unsupported`] names the operator outside of a
/// fused one, or whose body no schedule computes; [`RewriteError::Limit`] names what is larger than
/// [`rewire_graph::limits`] allow.
pub fn lower(graph: &Graph) -> Result<Plan, RewriteError> {
    let order = graph.order().map_err(|source| RewriteError::graph("lowering", source))?;
    let fixed = graph.fixed().map_err(|source| RewriteError::graph("lowering", source))?;
    let HostProgram { shapes, inputs: host_inputs, slots } =
        HostProgram::of(graph).map_err(|source| RewriteError::graph("lowering", source))?;
    let mut lowering = Lowering {
        graph,
        plan: Plan { shapes, host_inputs, ..Plan::default() },
        bound: slots.into_iter().map(|(value, slot)| (value, Binding::Host(slot))).collect(),
        pooled: pooled(graph, &fixed),
        fixed,
    };
    for id in order {
        lowering.node(id)?;
    }
    lowering.outputs()?;
    lowering.plan.write_states_last();
    lowering.plan.check_limits()?;
    Ok(lowering.plan)
}

struct Lowering<'a> {
    graph: &'a Graph,
    plan: Plan,
    bound: HashMap<Value, Binding>,
    /// What is computed when parameters are bound.
    fixed: HashSet<NodeId>,
    pooled: HashSet<Value>,
}

impl Lowering<'_> {
    fn node(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let Some(node) = self.graph.node(id) else { return Ok(()) };
        let value = Value { node: id, port: 0 };
        match node.op.role() {
            Role::Input(input) if input.ty.layout == Layout::Host => {}
            Role::Host(_) => {}
            Role::Input(input) if self.graph.states().contains(&input.name) => {
                self.buffer(value, node, Source::State(input.name.clone()));
            }
            Role::Input(input) => self.buffer(value, node, Source::Input(input.name.clone())),
            Role::Parameter(parameter) => self.buffer(value, node, Source::Parameter(parameter.name.clone())),
            Role::Constant(constant) => self.buffer(value, node, Source::Constant(constant.tensor.bytes().to_vec())),
            Role::Fused(fused) => self.step(id, node, fused)?,
            Role::Computed => {
                return Err(unsupported(node, "it is not part of a fused operator; run the fusion pass first"));
            }
        }
        Ok(())
    }

    fn step(&mut self, id: NodeId, node: &Node, fused: &Fused) -> Result<(), RewriteError> {
        let mut computation = of(fused).map_err(|reason| unsupported(node, &reason.to_string()))?;
        let mut operands = self.graph.inputs(id);
        let tables = self.tables(node, fused, &operands)?;
        leave_out(&mut computation, &mut operands, |value| tables.iter().flatten().any(|(table, _)| *table == value));
        pool(&mut computation, &operands, &self.pooled);
        let reads = operands
            .into_iter()
            .map(|value| {
                self.bound.get(&value).copied().ok_or_else(|| unsupported(node, "it reads a value without a place"))
            })
            .collect::<Result<_, _>>()?;
        let fixed = self.fixed.contains(&id);
        let source = if fixed { Source::Load } else { Source::Step };
        let writes = node
            .types
            .iter()
            .enumerate()
            .zip(&tables)
            .map(|((port, ty), table)| {
                let buffer = table.map_or_else(
                    || {
                        let (dtype, shape) = (ty.dtype, ty.shape.clone());
                        self.plan.buffers.push(Buffer { dtype, shape, source: source.clone() });
                        BufferId(self.plan.buffers.len() as u32 - 1)
                    },
                    |(_, buffer)| buffer,
                );
                self.bound.insert(Value { node: id, port: port as u32 }, Binding::Buffer(buffer));
                buffer
            })
            .collect();
        let steps = if fixed { &mut self.plan.load } else { &mut self.plan.steps };
        steps.push(Step { name: fused.name.clone(), path: node.path.clone(), computation, reads, writes });
        Ok(())
    }

    /// By result of a kernel, the state of which it sets rows in place, and its buffer.
    fn tables(
        &self,
        node: &Node,
        fused: &Fused,
        operands: &[Value],
    ) -> Result<Vec<Option<(Value, BufferId)>>, RewriteError> {
        let body = &fused.body;
        let table = |&(_, value): &(String, Value)| {
            let Some((_, [table, ..])) = rows_set(body, value) else { return Ok(None) };
            let position = body.node(table.node).and_then(|node| Fused::operand(node.op.as_ref()));
            let table = position.and_then(|position| operands.get(position)).copied();
            match table.and_then(|table| Some((table, self.bound.get(&table)?))) {
                Some((table, &Binding::Buffer(id)))
                    if self.plan.buffer(id).is_some_and(|buffer| matches!(buffer.source, Source::State(_))) =>
                {
                    Ok(Some((table, id)))
                }
                _ => Err(unsupported(node, "it sets rows of a value that is no state")),
            }
        };
        body.outputs().iter().map(table).collect()
    }

    fn buffer(&mut self, value: Value, node: &Node, source: Source) {
        let Some(ty) = node.types.first() else { return };
        self.plan.buffers.push(Buffer { dtype: ty.dtype, shape: ty.shape.clone(), source });
        self.bound.insert(value, Binding::Buffer(BufferId(self.plan.buffers.len() as u32 - 1)));
    }

    fn outputs(&mut self) -> Result<(), RewriteError> {
        for (name, value) in self.graph.outputs() {
            let (Some(ty), Some(&bound)) = (self.graph.ty(*value), self.bound.get(value)) else {
                let (op, reason) = (format!("output `{name}`"), "nothing computes it".to_owned());
                return Err(RewriteError::Unsupported { op, path: String::new(), reason });
            };
            let dtype = if ty.layout == Layout::Host { DType::I64 } else { ty.dtype };
            let output = PlanOutput { name: name.clone(), value: bound, dtype, shape: ty.shape.clone() };
            self.plan.outputs.push(output);
        }
        Ok(())
    }
}

fn unsupported(node: &Node, reason: &str) -> RewriteError {
    let (op, path) = (node.op.name().to_owned(), node.path.clone());
    RewriteError::Unsupported { op, path, reason: reason.to_owned() }
}
