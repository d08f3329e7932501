//! Lowering: fused operators become steps, host values become the shape program.

mod builder;
mod computation;
mod custom;
mod in_place;
mod narrow;
mod pooling;

mod lowerings;

pub use crate::error::{NotLowerable, RewriteError};
use computation::rows_set;
pub use computation::{computation, of};
use in_place::leave_out;
pub(crate) use lowerings::{LoweringCache, LoweringResult};
pub(crate) use pooling::{pool, pooled};

use crate::plan::{Binding, Buffer, BufferId, Computation, Plan, PlanOutput, Source, Step};
use rewire_graph::op::{Fused, Role};
use rewire_graph::shape::HostProgram;
use rewire_graph::{DType, Graph, Layout, Node, NodeId, Value};
use std::collections::{HashMap, HashSet};

/// Lowers a graph whose operators are all fused, host operators, inputs, parameters or constants.
///
/// Every fused operator becomes one step, in graph order, or a step of [`Plan::load`] if it reads only parameters.
/// Every device value becomes a buffer; host values become the shape program. The input should come from
/// [`optimize`](crate::optimize).
///
/// # Errors
/// [`RewriteError::Graph`] if the graph has a cycle; [`RewriteError::Unsupported`] names an operator that is not fused,
/// or whose body no schedule supports; [`RewriteError::Limit`] names the limit of [`rewire_graph::limits`] that is
/// exceeded.
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

/// The kernel of a fused operator, with operands bound as in a step of [`lower`]'s plan: small parameters share a
/// buffer, and states are written in place. `None` for any other node.
///
/// # Errors
/// [`RewriteError::Graph`] if the graph has a cycle, [`RewriteError::Unsupported`] if no schedule supports the
/// operator's body.
pub fn kernel(graph: &Graph, id: NodeId) -> Result<Option<Computation>, RewriteError> {
    let Some((node, Role::Fused(fused))) = graph.node(id).map(|node| (node, node.op.role())) else { return Ok(None) };
    let fixed = graph.fixed().map_err(|source| RewriteError::graph("lowering", source))?;
    Ok(Some(Kernel::of(graph, id, (node, fused), &pooled(graph, &fixed))?.computation))
}

/// A lowered fused operator.
struct Kernel {
    computation: Computation,
    /// Its operands.
    operands: Vec<Value>,
    /// By result, the state whose rows it sets in place.
    states: Vec<Option<Value>>,
}

impl Kernel {
    fn of(
        graph: &Graph,
        id: NodeId,
        (node, fused): (&Node, &Fused),
        pooled: &HashSet<Value>,
    ) -> Result<Self, RewriteError> {
        let mut computation = of(fused).map_err(|reason| unsupported(node, &reason.to_string()))?;
        let mut operands = graph.inputs(id);
        let state = |&(_, value): &(String, Value)| {
            let Some((_, [table, ..])) = rows_set(&fused.body, value) else { return Ok(None) };
            let position = fused.body.node(table.node).and_then(|node| Fused::operand(node.op.as_ref()));
            let table = position.and_then(|position| operands.get(position)).copied();
            let is_state = |table: &Value| match graph.node(table.node).map(|node| node.op.role()) {
                Some(Role::Input(input)) => graph.states().contains(&input.name),
                _ => false,
            };
            let state = table.filter(is_state);
            state.map(Some).ok_or_else(|| unsupported(node, "it sets rows of a value that is not a state"))
        };
        let states = fused.body.outputs().iter().map(state).collect::<Result<Vec<_>, _>>()?;
        leave_out(&mut computation, &mut operands, |value| states.contains(&Some(value)))
            .map_err(|reason| unsupported(node, &reason.to_string()))?;
        pool(&mut computation, &operands, pooled);
        Ok(Self { computation, operands, states })
    }
}

struct Lowering<'a> {
    graph: &'a Graph,
    plan: Plan,
    bound: HashMap<Value, Binding>,
    /// Values that are computed when parameters are bound.
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
        let Kernel { computation, operands, states } = Kernel::of(self.graph, id, (node, fused), &self.pooled)?;
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
            .zip(&states)
            .map(|((port, ty), state)| {
                let buffer = match state.and_then(|state| self.bound.get(&state)) {
                    Some(&Binding::Buffer(state)) => state,
                    _ => {
                        let (dtype, shape) = (ty.dtype, ty.shape.clone());
                        self.plan.buffers.push(Buffer { dtype, shape, source: source.clone() });
                        BufferId(self.plan.buffers.len() as u32 - 1)
                    }
                };
                self.bound.insert(Value { node: id, port: port as u32 }, Binding::Buffer(buffer));
                buffer
            })
            .collect();
        let steps = if fixed { &mut self.plan.load } else { &mut self.plan.steps };
        steps.push(Step { name: fused.name.clone(), path: node.path.clone(), computation, reads, writes });
        Ok(())
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

pub(crate) fn unsupported(node: &Node, reason: &str) -> RewriteError {
    let (op, path) = (node.op.name().to_owned(), node.path.clone());
    RewriteError::Unsupported { op, path, reason: reason.to_owned() }
}
