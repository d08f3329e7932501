use super::profile::{Detail, Recorder};
use super::sizes::Sizes;
use crate::RunError;
use crate::cpu::{CpuError, Memory, Operand, for_each, padded_bytes};
use crate::model::{BufferAssignment, CpuSite, CpuStep, CpuWeights, HostTable, SiteRun};
use rewire_graph::{Arrange, HostTensor};
use rewire_graph_rewrite::plan::{Axis, Binding, BufferId, Extent, Lookup, Plan, Step};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

/// The memory of a session on the CPU.
#[derive(Debug)]
pub(crate) struct CpuSide {
    site: CpuSite,
    slots: Vec<Option<Memory>>,
    /// By buffer, tensors of the host that a run reads in place.
    borrowed: Vec<Option<Memory>>,
    /// States that a run writes in place.
    states: BTreeMap<BufferId, Memory>,
}

/// A step with the memory of its outputs.
struct Begun<'s> {
    position: usize,
    step: &'s Step,
    /// States that it writes in place.
    in_place: Vec<BufferId>,
    outputs: Vec<Memory>,
    /// Start and duration.
    spent: Option<(Instant, Duration)>,
    result: Result<(), CpuError>,
}

/// Steps whose tensors have at most this many bytes are too small to be divided among threads.
const SMALL: u64 = 1 << 18;
/// Steps whose loops have at most this many points are too small, regardless of the size of tables from which they read
/// a few rows.
const FEW: u64 = 1 << 16;

/// Points of the loops of a step, including reductions.
fn points(step: &Step, sizes: &Sizes) -> Option<u64> {
    let extent = |axis: &Axis| match &axis.extent {
        Extent::Dense(dim) => u64::try_from(sizes.dim(dim).ok()?).ok(),
        Extent::Ragged { offsets } => match step.reads.get(usize::from(*offsets))? {
            Binding::Host(slot) => {
                let offsets = sizes.slot(*slot);
                let rows = u64::try_from(*offsets.last()?).ok()?;
                Some(rows.div_ceil(offsets.len().saturating_sub(1).max(1) as u64))
            }
            Binding::Buffer(_) => None,
        },
    };
    let axes = &step.computation.nest()?.axes;
    axes.iter().try_fold(1, |points: u64, axis| points.checked_mul(extent(axis)?))
}

fn is_small(step: &Step, sizes: &Sizes) -> bool {
    if points(step, sizes).is_some_and(|points| points <= FEW) {
        return true;
    }
    let buffers = step.reads.iter().filter_map(|binding| match binding {
        Binding::Buffer(id) => Some(id),
        Binding::Host(_) => None,
    });
    let layouts = buffers.chain(&step.writes).filter_map(|id| sizes.layouts.get(id.0 as usize));
    layouts.map(|layout| padded_bytes(layout.dtype, &layout.shape)).sum::<u64>() <= SMALL
}

impl CpuSide {
    pub fn new(site: CpuSite) -> Self {
        let homes = &site.kernels.homes;
        let slots = (0..homes.slots).map(|_| None).collect();
        let borrowed = homes.slot.iter().map(|_| None).collect();
        Self { site, slots, borrowed, states: BTreeMap::new() }
    }

    /// Replaces the parameters.
    pub fn set_weights(&mut self, weights: &Arc<CpuWeights>) {
        self.site.weights = weights.clone();
    }

    /// Frees all memory except parameters, constants and memory that kernels keep for all sessions.
    pub fn trim(&mut self) {
        self.slots.fill(None);
        self.release();
        self.site.kernels.trim();
    }

    /// Bytes of memory held, excluding parameters and constants.
    pub fn bytes(&self) -> u64 {
        self.slots.iter().flatten().map(Memory::bytes).sum()
    }

    /// Returns the tensors that [`CpuSide::put`] borrowed.
    pub fn release(&mut self) {
        self.borrowed.fill(None);
    }

    /// Moves in a state that a run writes in place.
    pub fn lend_state(&mut self, id: BufferId, memory: Memory) {
        self.states.insert(id, memory);
    }

    /// Moves out the state that [`CpuSide::lend_state`] moved in.
    pub fn return_state(&mut self, id: BufferId) -> Option<Memory> {
        self.states.remove(&id)
    }

    /// True for a state that a run writes in place.
    pub fn has_state(&self, id: BufferId) -> bool {
        self.states.contains_key(&id)
    }

    /// Fills a tensor, or borrows it for this run.
    pub fn put(&mut self, id: BufferId, tensor: &HostTensor) -> Result<(), CpuError> {
        let slot = self.slot(id);
        debug_assert!(slot.is_some(), "buffer {} has no place on the CPU", id.0);
        let Some(slot) = slot else { return Ok(()) };
        self.borrowed[id.0 as usize] = Memory::shared_with(tensor);
        if self.borrowed[id.0 as usize].is_some() {
            return Ok(());
        }
        let place = &mut self.slots[slot];
        match place {
            Some(memory) => memory.reset(tensor.dtype(), tensor.shape())?,
            None => *place = Some(Memory::new(tensor.dtype(), tensor.shape())?),
        }
        if let Some(memory) = place {
            memory.write(tensor.bytes())?;
        }
        Ok(())
    }

    /// The content of a tensor; `None` if it has no memory here.
    pub fn get(&self, id: BufferId) -> Result<Option<HostTensor>, CpuError> {
        self.memory(id).map(Memory::to_host).transpose()
    }

    /// Runs the steps of a segment. If memory for a step cannot be allocated, the memory of the others is freed.
    pub fn run(
        &mut self,
        plan: &Plan,
        segment: &SiteRun,
        sizes: &Sizes,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        let by_itself = recorder.detail() == Some(Detail::Steps);
        for wave in &segment.waves {
            let is_here = |position: &&usize| !matches!(self.site.kernels.step(**position), Some(CpuStep::OnDevice));
            let steps = wave.iter().filter(is_here).map(|&position| (position, &plan.steps[position]));
            let (small, large): (Vec<_>, Vec<_>) = steps.partition(|(_, step)| !by_itself && is_small(step, sizes));
            large.chunks(1).try_for_each(|step| self.run_together(step, sizes, recorder))?;
            self.run_together(&small, sizes, recorder)?;
        }
        Ok(())
    }

    /// Runs independent steps in parallel.
    fn run_together(
        &mut self,
        steps: &[(usize, &Step)],
        sizes: &Sizes,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        let mut failure = None;
        let mut begun = Vec::with_capacity(steps.len());
        for &(position, step) in steps {
            match self.begin(position, step, sizes) {
                Ok(step) => begun.push(step),
                Err(error) => failure = failure.or(Some((position, step, error))),
            }
        }
        if failure.is_none() {
            let (this, recorder) = (&*self, &*recorder);
            let compute = |(): &mut (), step: &mut Begun<'_>| {
                let since = recorder.now();
                step.result = this.compute(step.position, step.step, sizes, &mut step.outputs);
                step.spent = since.map(|since| (since, since.elapsed()));
                Ok(())
            };
            let done = for_each(begun.iter_mut().collect(), || Ok(()), compute);
            failure = steps.first().zip(done.err()).map(|(&(position, step), error)| (position, step, error));
        }
        if begun.iter().any(|step| step.spent.is_some()) {
            begun.arrange_by_key(|step| step.spent.map(|(since, spent)| since + spent));
        }
        for mut done in begun {
            let (position, step) = (done.position, done.step);
            match std::mem::replace(&mut done.result, Ok(())) {
                Ok(()) => recorder.cpu(position, step, done.spent),
                Err(error) => failure = failure.or(Some((position, step, error))),
            }
            self.end(done);
        }
        let Some((position, step, error)) = failure else { return Ok(()) };
        if matches!(error, CpuError::Memory { .. } | CpuError::Scratch { .. }) {
            self.trim();
        }
        let (name, path, reason) = (step.name.clone(), step.path.clone(), error.to_string());
        Err(RunError::Cpu { step: position, name, path, reason })
    }

    /// Runs one step.
    pub fn run_step(&mut self, position: usize, step: &Step, sizes: &Sizes) -> Result<(), CpuError> {
        let mut begun = self.begin(position, step, sizes)?;
        let result = self.compute(position, step, sizes, &mut begun.outputs);
        self.end(begun);
        result
    }

    /// Takes the memory of a step's outputs.
    fn begin<'s>(&mut self, position: usize, step: &'s Step, sizes: &Sizes) -> Result<Begun<'s>, CpuError> {
        let (in_place, others): (Vec<BufferId>, Vec<BufferId>) =
            step.writes.iter().partition(|id| self.states.contains_key(id));
        let others = others.into_iter().map(|id| self.output(id, sizes)).collect::<Result<Vec<_>, _>>()?;
        let mut others = others.into_iter();
        let taken = step.writes.iter().filter_map(|id| self.states.remove(id).or_else(|| others.next()));
        let outputs = taken.collect();
        Ok(Begun { position, step, in_place, outputs, spent: None, result: Ok(()) })
    }

    /// Returns the memory that [`CpuSide::begin`] took.
    fn end(&mut self, begun: Begun<'_>) {
        for (&id, memory) in begun.step.writes.iter().zip(begun.outputs) {
            match self.slot(id) {
                _ if begun.in_place.contains(&id) => drop(self.states.insert(id, memory)),
                Some(slot) => self.slots[slot] = Some(memory),
                None => {}
            }
        }
    }

    /// Memory for an output of a step.
    fn output(&mut self, id: BufferId, sizes: &Sizes) -> Result<Memory, CpuError> {
        let layout = &sizes.layouts[id.0 as usize];
        let borrowed = self.borrowed.get_mut(id.0 as usize).and_then(Option::take);
        match borrowed.or_else(|| self.slot(id).and_then(|slot| self.slots[slot].take())) {
            Some(mut memory) => memory.reset(layout.dtype, &layout.shape).map(|()| memory),
            None => Memory::new(layout.dtype, &layout.shape),
        }
    }

    fn compute(&self, position: usize, step: &Step, sizes: &Sizes, outputs: &mut [Memory]) -> Result<(), CpuError> {
        if let Some(CpuStep::Lookup(lookup)) = self.site.kernels.step(position) {
            return self.look_up(*lookup, outputs);
        }
        let operands: Option<Vec<Operand<'_>>> = step
            .reads
            .iter()
            .map(|binding| match binding {
                Binding::Host(slot) => Some(Operand::Host(sizes.slot(*slot))),
                Binding::Buffer(id) => self.memory(*id).map(Operand::Tensor),
            })
            .collect();
        let (Some(CpuStep::Kernel(compiled)), Some(operands)) = (self.site.kernels.step(position), operands) else {
            return Err(CpuError::Count { what: "operands", expected: step.reads.len(), actual: 0 });
        };
        let symbol = |symbol| sizes.values.symbols.get(&symbol).copied();
        compiled.run(&operands, &mut outputs.iter_mut().collect::<Vec<_>>(), &symbol)
    }

    fn look_up(&self, lookup: Lookup, outputs: &mut [Memory]) -> Result<(), CpuError> {
        match (self.site.weights.tables.get(&lookup.table), self.memory(lookup.ids), outputs) {
            (Some(table), Some(ids), [rows]) => rows.copy_rows(&table.given, table, ids),
            _ => Err(CpuError::Count { what: "operands", expected: 2, actual: 0 }),
        }
    }

    /// The table of a lookup, and the row for each id, clamped.
    pub fn selected(&self, lookup: Lookup) -> Result<Option<(&HostTable, Vec<u32>)>, CpuError> {
        let (Some(table), Some(ids)) = (self.site.weights.tables.get(&lookup.table), self.get(lookup.ids)?) else {
            return Ok(None);
        };
        let last = table.height().saturating_sub(1) as i64;
        let rows = ids.to_i64().into_iter().map(|id| id.clamp(0, last) as u32).collect();
        Ok(Some((table, rows)))
    }

    pub(super) fn homes(&self) -> &BufferAssignment {
        &self.site.kernels.homes
    }

    pub(super) fn slots(&self) -> &[Option<Memory>] {
        &self.slots
    }

    fn slot(&self, id: BufferId) -> Option<usize> {
        *self.homes().slot.get(id.0 as usize)?
    }

    fn memory(&self, id: BufferId) -> Option<&Memory> {
        if let Some(state) = self.states.get(&id) {
            return Some(state);
        }
        match (self.borrowed.get(id.0 as usize), self.slot(id)) {
            (Some(Some(memory)), _) => Some(memory),
            (_, Some(slot)) => self.slots.get(slot)?.as_ref(),
            (_, None) => self.site.weights.memories.get(id.0 as usize)?.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Layout;
    use rewire_graph::pointwise::Dag;
    use rewire_graph::{DType, Dim, Scalar, Symbol};
    use rewire_graph_rewrite::plan::{
        Accumulation, Body, Computation, HostSlot, MemorySpace, Nest, Operand as Declared, Output, ReduceOp,
        ShapeValues,
    };

    #[test]
    fn a_few_rows_of_a_large_table_are_a_small_step() {
        let (mut dag, samples) = (Dag::new(), Dim::symbol(Symbol(0)));
        let (sample, column, row) = (dag.coord(0, None), dag.coord(1, Some(16)), dag.coord(2, None));
        let value = dag.load(1, DType::F32, vec![row, column]);
        let shape = vec![samples.clone(), 16.into()];
        let output = Output {
            target: 0,
            dtype: DType::F32,
            shape: shape.clone(),
            index: vec![sample, column],
            value: dag.value(0, Scalar::F32),
            columns: None,
        };
        let declared = |dtype, shape, space| Declared { dtype, shape, space };
        let operands = vec![
            declared(DType::I32, vec![samples + 1.into()], MemorySpace::Host),
            declared(DType::F32, vec![100_000.into(), 16.into()], MemorySpace::Device),
        ];
        let mut axes = Axis::points(shape);
        axes.push(Axis::sum(Extent::Ragged { offsets: 0 }));
        let sum = Accumulation { op: ReduceOp::Sum, axis: 2, factors: vec![value], dtype: DType::F32 };
        let body = Body { dag, operands, sizes: vec![] };
        let step = Step {
            name: String::new(),
            path: String::new(),
            computation: Computation::of(Nest { body, axes, accumulations: vec![sum], outputs: vec![output] }).unwrap(),
            reads: vec![Binding::Host(HostSlot(0)), Binding::Buffer(BufferId(0))],
            writes: vec![BufferId(1)],
        };
        let is_small = |samples: usize, rows: i64| {
            let offsets = (0..=samples as i64).map(|n| n * rows).collect();
            let values = ShapeValues { symbols: BTreeMap::from([(Symbol(0), samples as i64)]), slots: vec![offsets] };
            let layouts = [[100_000, 16], [samples, 16]].map(|shape| Layout::new(DType::F32, shape.to_vec()));
            let mut sizes = Sizes::fixed(layouts.to_vec());
            sizes.values = values;
            is_small(&step, &sizes)
        };
        assert!(is_small(512, 1));
        assert!(!is_small(512, 50));
    }
}
