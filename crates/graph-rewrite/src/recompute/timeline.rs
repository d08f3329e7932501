use crate::cost::{Sizes, bytes};
use crate::error::RewriteError;
use crate::plan::{Lifetime, SlotPlan};
use rewire_graph::op::{Fused, Role};
use rewire_graph::{Copies, Graph, GraphError, Layout, NodeId, Type, Value};
use std::collections::{HashMap, HashSet};

/// The kernels of a rewritten graph in execution order, and the tensors between them.
#[derive(Clone, Debug)]
pub struct Timeline {
    pub(super) steps: Vec<Step>,
    pub(super) tensors: Vec<Tensor>,
}

/// A kernel, by position in the order.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub node: NodeId,
    /// Tensors, by number.
    pub reads: Vec<usize>,
    pub writes: Vec<usize>,
    /// True if it may be repeated.
    pub is_repeatable: bool,
    /// True if it is a repetition.
    pub is_repetition: bool,
}

/// A tensor that occupies memory while in use.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    /// Its value in the graph. Repetitions have the value of the original.
    pub value: Value,
    pub ty: Type,
    /// True for an input of a run, which exists from the beginning.
    pub is_input: bool,
    /// True for an output, which exists until the end.
    pub is_output: bool,
}

impl Timeline {
    /// The timeline of a graph from [`optimize`](crate::optimize).
    ///
    /// # Errors
    /// [`RewriteError::Graph`] if the graph has a cycle.
    pub fn of(graph: &Graph) -> Result<Self, RewriteError> {
        let failed = |source| RewriteError::graph("recompute", source);
        let fixed = graph.fixed().map_err(failed)?;
        let mut timeline = Self { steps: vec![], tensors: vec![] };
        let mut known: HashMap<Value, usize> = HashMap::new();
        let (order, mut last) = (graph.order().map_err(failed)?, vec![]);
        for id in order.into_iter().filter(|id| !fixed.contains(id)) {
            let Some(node) = graph.node(id) else { continue };
            let is_input = matches!(node.op.role(), Role::Input(input) if !graph.states().contains(&input.name));
            let sets_rows = graph.op::<Fused>(id).is_some_and(sets_rows);
            let ports = (0u32..).zip(&node.types).filter(|(_, ty)| ty.layout == Layout::Device);
            let mut writes = vec![];
            for (port, ty) in ports.filter(|_| (is_input || graph.op::<Fused>(id).is_some()) && !sets_rows) {
                let value = Value { node: id, port };
                let mut outputs = graph.outputs().iter().filter(|(_, output)| *output == value).peekable();
                let is_output = outputs.peek().is_some();
                // The new value of a state is not part of the timeline: it has separate memory.
                if outputs.any(|(name, _)| graph.states().contains(name)) {
                    continue;
                }
                known.insert(value, timeline.tensors.len());
                writes.push(timeline.tensors.len());
                timeline.tensors.push(Tensor { value, ty: ty.clone(), is_input, is_output });
            }
            if graph.op::<Fused>(id).is_some() {
                let reads = graph.inputs(id).iter().filter_map(|value| known.get(value).copied()).collect();
                let is_repeatable = !sets_rows && writes.len() == node.types.len();
                let step = Step { node: id, reads, writes, is_repeatable, is_repetition: false };
                // Steps that set rows of states run after all readers of the states.
                if sets_rows { last.push(step) } else { timeline.steps.push(step) }
            }
        }
        timeline.steps.extend(last);
        Ok(timeline)
    }

    /// Bytes of the tensors between kernels at some sizes, including inputs of the run, with memory shared as in a
    /// session. Excludes parameters, states and new values of states.
    pub fn bytes(&self, sizes: &Sizes) -> u64 {
        let spans = self.spans();
        let used: Vec<usize> = (0..spans.len()).filter(|&tensor| spans[tensor].is_some()).collect();
        let lifetime = |&tensor: &usize| {
            let ty = &self.tensors[tensor].ty;
            Some(Lifetime::new(spans[tensor]?, ty.dtype, &ty.shape))
        };
        let plan = SlotPlan::new(&used.iter().filter_map(lifetime).collect::<Vec<_>>());
        let mut slots = vec![0u64; plan.slots];
        for (&tensor, slot) in used.iter().zip(plan.slot) {
            slots[slot] = slots[slot].max(bytes(&self.tensors[tensor].ty, sizes));
        }
        slots.into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes of each tensor.
    pub(super) fn tensor_bytes(&self, sizes: &Sizes) -> Vec<u64> {
        self.tensors.iter().map(|tensor| bytes(&tensor.ty, sizes)).collect()
    }

    /// Number of kernels that run.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// The kernels that are repeated.
    pub(super) fn repeated(&self) -> impl Iterator<Item = NodeId> {
        self.steps.iter().filter(|step| step.is_repetition).map(|step| step.node)
    }

    /// The first and the last step at which each tensor is in use.
    pub(super) fn spans(&self) -> Vec<Option<(usize, usize)>> {
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; self.tensors.len()];
        for (at, step) in self.steps.iter().enumerate() {
            for &tensor in step.reads.iter().chain(&step.writes) {
                let first = if self.tensors[tensor].is_input { 0 } else { at };
                let (first, last) = spans[tensor].unwrap_or((first, at));
                let last = if self.tensors[tensor].is_output { self.steps.len() - 1 } else { last.max(at) };
                spans[tensor] = Some((first, last));
            }
        }
        spans
    }

    /// The step before which `step` can be repeated so that its results need not stay live in the largest gap between
    /// their uses.
    pub(crate) fn gap(&self, step: usize) -> Option<usize> {
        let writes = &self.steps[step].writes;
        let uses = |step: &Step| step.reads.iter().any(|read| writes.contains(read));
        let uses = (step + 1..self.steps.len()).filter(|&at| uses(&self.steps[at]));
        let gaps = uses.clone().zip(uses.skip(1)).max_by_key(|(before, after)| (after - before, *before));
        gaps.filter(|(before, after)| self.steps[step].is_repeatable && after - before > 1).map(|(_, after)| after)
    }

    /// The node of a step.
    pub(crate) fn node(&self, step: usize) -> NodeId {
        self.steps[step].node
    }

    /// Repeats steps, in order, right before step `at`. From there on, readers use the results of the repetition of
    /// `wanted`.
    pub(crate) fn repeat(&mut self, again: &[usize], wanted: usize, at: usize) {
        let mut copies: HashMap<usize, usize> = HashMap::new();
        let mut steps = vec![];
        for &step in again {
            let mut step = self.steps[step].clone();
            step.is_repetition = true;
            for read in &mut step.reads {
                *read = copies.get(read).copied().unwrap_or(*read);
            }
            for write in &mut step.writes {
                let copy = Tensor { is_output: false, ..self.tensors[*write].clone() };
                copies.insert(*write, self.tensors.len());
                *write = self.tensors.len();
                self.tensors.push(copy);
            }
            steps.push(step);
        }
        let wanted: HashSet<usize> = self.steps[wanted].writes.iter().copied().collect();
        for step in &mut self.steps[at..] {
            for read in step.reads.iter_mut().filter(|read| wanted.contains(read)) {
                *read = copies.get(read).copied().unwrap_or(*read);
            }
        }
        self.steps.splice(at..at, steps);
    }

    /// The graph of these kernels in this order.
    pub(crate) fn graph(&self, graph: &Graph) -> Result<Graph, GraphError> {
        let (mut ordered, mut copies) = (Graph::of_model(graph), Copies::default());
        let kernels: HashSet<NodeId> = self.steps.iter().map(|step| step.node).collect();
        for id in graph.order()?.into_iter().filter(|id| !kernels.contains(id)) {
            copies.add(graph, id, &mut ordered)?;
        }
        let mut tensors: Vec<Option<Value>> = self.tensors.iter().map(|tensor| copies.get(tensor.value)).collect();
        for step in &self.steps {
            // Operands outside the timeline are copied once.
            let mut reads = step.reads.iter();
            let mut inputs = vec![];
            for value in graph.inputs(step.node) {
                let is_tensor = reads.as_slice().first().is_some_and(|&read| self.tensors[read].value == value);
                let read = if is_tensor { reads.next().and_then(|&read| tensors[read]) } else { None };
                inputs.push(read.map_or_else(|| copies.find(&[value]).map(|found| found[0]), Ok)?);
            }
            let node = ordered.add_copy(graph, step.node, &inputs)?;
            for (port, _) in graph.node(step.node).iter().flat_map(|node| node.types.iter().enumerate()) {
                let value = Value { node: step.node, port: port as u32 };
                if !step.is_repetition {
                    copies.insert(value, Value { node, port: port as u32 });
                }
            }
            for &write in &step.writes {
                tensors[write] = Some(Value { node, port: self.tensors[write].value.port });
            }
        }
        for (name, value) in graph.outputs() {
            for value in copies.find(&[*value])? {
                ordered.add_output(name, value)?;
            }
        }
        ordered.rebind_sizes(|value| copies.get(value));
        Ok(ordered)
    }
}

fn sets_rows(fused: &Fused) -> bool {
    fused.body.ids().any(|id| fused.body.node(id).is_some_and(|node| node.op.sets_rows()))
}
