//! Matmuls of integers: the kernels that compute their factors round rows to 8 bits, with a scale per row.

use super::{Accumulation, Axis, BINDINGS, Binding, Body, Buffer, BufferId, Computation, Extent, LARGEST_POOLED};
use super::{MemorySpace, Nest, Operand, Output, Plan, ReduceOp, Source, Step};
use crate::schedule::{Bound, Product, Reduced, Schedule};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, Ordered, Scalar};
use std::collections::{BTreeMap, BTreeSet};

/// Smallest number of columns and smallest `k` of matmuls of integers.
const LEAST: [usize; 2] = [64, 32];

/// The smallest common divisor of `k` and of rows of results: rows start at whole vectors of 16 bytes.
const ALIGNED: usize = 16;

/// The integer of the largest element of a row, and the smallest such element.
const MOST: f32 = 127.0;
const TINY: f32 = 1e-30;

/// The name of steps that only round rows.
const NAME: &str = "quantize";

/// A matrix of integers and a scale for each of its rows.
#[derive(Clone, Copy)]
struct Rounded {
    rows: BufferId,
    scales: BufferId,
}

/// A step that rounds the rows of a factor, without the buffers that it writes.
#[derive(PartialEq)]
struct Rounding {
    nest: Nest,
    reads: Vec<Binding>,
}

/// The roundings of a plan's steps.
#[derive(Default)]
struct Known(Vec<(Rounding, Rounded)>);

impl Plan {
    /// Rounds both factors of matmuls with weights to integers. `k` is a multiple of 16, and there are at least 64
    /// columns and 32 steps.
    pub(super) fn multiply_integers(&mut self) {
        let (mut left, mut right) = (Known::default(), Known::default());
        for mut step in std::mem::take(&mut self.steps) {
            if let Some([a, b]) = self.roundings(&step) {
                let factors = [self.rounded(a, &step.path, &mut left), self.rounded_once(b, &step.path, &mut right)];
                step = self.of_integers(&step, factors).unwrap_or(step);
            }
            self.steps.push(step);
        }
        self.leave_out_unread();
    }

    /// The scales of rows of integers, which keep their type.
    pub(super) fn scales(&self) -> BTreeSet<BufferId> {
        let is_rounded = |id: &&BufferId| self.buffer(**id).is_some_and(|buffer| buffer.dtype == DType::I8);
        let steps = self.load.iter().chain(&self.steps);
        let beside = steps.flat_map(|step| {
            let rows = step.writes.iter().find(is_rounded).and_then(|id| self.buffer(*id)).map(|rows| &rows.shape);
            let is_scale = move |id: &&BufferId| match (rows.and_then(|shape| shape.split_last()), self.buffer(**id)) {
                (Some((_, outer)), Some(buffer)) => buffer.dtype == DType::F32 && buffer.shape == outer,
                _ => false,
            };
            step.writes.iter().filter(is_scale).copied()
        });
        beside.ordered_set()
    }

    /// The roundings of both factors of a matmul with weights.
    fn roundings(&self, step: &Step) -> Option<[Rounding; 2]> {
        let (nest, Schedule::Product(schedule)) = (step.computation.nest()?, step.computation.schedule()?) else {
            return None;
        };
        let product = Bound { nest, schedule };
        let (m, n, k) = (product.m.dense()?, product.n.as_const()?, product.k.dense()?);
        let depth = k.as_const()?;
        let suits = n >= LEAST[0] && depth >= LEAST[1] && depth.is_multiple_of(ALIGNED);
        let is_rounded = nest.accumulations.last().is_some_and(|sum| sum.dtype == DType::I32);
        if is_rounded || !suits || !product.batch.is_empty() || bindings(nest, 2) > BINDINGS {
            return None;
        }
        let is_fixed = |read: &Binding| match read {
            Binding::Buffer(id) => self.buffer(*id).is_some_and(|buffer| buffer.source.is_resident()),
            Binding::Host(_) => false,
        };
        let left = Rounding::of(&product, step, (product.a, product.row()), &product.stats, [m, k])?;
        let right = Rounding::of(&product, step, (product.b, product.column()), &[], [&product.n, k])?;
        let is_weight = right.reads.iter().all(is_fixed) && !left.reads.iter().all(is_fixed);
        is_weight.then_some([left, right])
    }

    /// The integers of a left factor: of a step that computes their rows, or of a step of their own.
    fn rounded(&mut self, rounding: Rounding, path: &str, known: &mut Known) -> Rounded {
        if let Some(found) = known.find(&rounding) {
            return found;
        }
        let rounded = self.create(&rounding.nest, &Source::Step);
        if !self.round_where_computed(&rounding, rounded) {
            self.steps.extend(rounding.step(path, rounded));
        }
        known.0.push((rounding, rounded));
        rounded
    }

    /// The integers of a right factor, which are computed when the plan is loaded.
    fn rounded_once(&mut self, rounding: Rounding, path: &str, known: &mut Known) -> Rounded {
        known.find(&rounding).unwrap_or_else(|| {
            let rounded = self.create(&rounding.nest, &Source::Load);
            self.load.extend(rounding.step(path, rounded));
            known.0.push((rounding, rounded));
            rounded
        })
    }

    /// Buffers for the outputs of a rounding.
    fn create(&mut self, nest: &Nest, source: &Source) -> Rounded {
        let first = self.buffers.len() as u32;
        let buffer =
            |output: &Output| Buffer { dtype: output.dtype, shape: output.shape.clone(), source: source.clone() };
        self.buffers.extend(nest.outputs.iter().map(buffer));
        Rounded { rows: BufferId(first), scales: BufferId(first + 1) }
    }

    /// Lets the step that computes a matrix row by row round it, too. Returns false if there is none.
    fn round_where_computed(&mut self, rounding: &Rounding, rounded: Rounded) -> bool {
        let Some(read) = rounding.copied() else { return false };
        let Some(step) = self.steps.iter_mut().find(|step| step.writes.contains(&read)) else { return false };
        let targets: Vec<u16> = (0..).zip(&step.writes).filter(|(_, id)| **id == read).map(|(n, _)| n).collect();
        let Computation::Nest(own) = &mut step.computation else { return false };
        let Some(parts) = parts_of_rows(own, &targets, &rounding.nest) else { return false };
        let first = step.writes.len() as u16;
        if bindings(own, 2) > BINDINGS || own.edit(|nest| round_rows(nest, &parts, &rounding.nest, first)).is_err() {
            return false;
        }
        step.writes.extend([rounded.rows, rounded.scales]);
        true
    }

    /// A matmul with rounded factors.
    fn of_integers(&self, step: &Step, [left, right]: [Rounded; 2]) -> Option<Step> {
        let (nest, Schedule::Product(schedule)) = (step.computation.nest()?, step.computation.schedule()?) else {
            return None;
        };
        let product = Bound { nest, schedule };
        let operands = [left.rows, left.scales, right.rows, right.scales];
        let operands = operands.map(|id| self.buffer(id).map(|buffer| (id, buffer)));
        let [Some(a), Some(row_scales), Some(b), Some(column_scales)] = operands else { return None };
        let mut copy = Copy::of(nest, step);
        let [m, n, k] = [product.m.dense()?, &product.n, product.k.dense()?];
        let [row, column, depth] =
            [(0, m), (1, n), (2, k)].map(|(axis, dim)| copy.body.dag.coord(axis, dim.as_const()));
        let scales = [copy.load(row_scales, vec![row]), copy.load(column_scales, vec![column])];
        let roots: Vec<ExprId> = nest.outputs.iter().flat_map(Output::roots).collect();
        let own_sum = Expr::Value(product.sum());
        let copied = copy.graft(&nest.body.dag, &roots, |dag, expr| {
            let scaled = |dag: &mut Dag| {
                let sum = dag.value(0, Scalar::F32);
                scales.into_iter().fold(sum, |product, scale| dag.binary(BinaryOp::Mul, product, scale))
            };
            (*expr == own_sum).then(|| scaled(dag))
        })?;
        let mut copied = copied.into_iter();
        let mut outputs = nest.outputs.clone();
        for output in &mut outputs {
            output.index.iter_mut().chain([&mut output.value]).zip(&mut copied).for_each(|(root, copy)| *root = copy);
        }
        let factors = vec![copy.load(a, vec![row, depth]), copy.load(b, vec![column, depth])];
        let mut axes = Axis::points([m.clone(), n.clone()]);
        axes.push(Axis::sum(Extent::Dense(k.clone())));
        let accumulations = vec![Accumulation { op: ReduceOp::Sum, axis: 2, factors, dtype: DType::I32 }];
        let computation = Computation::of(Nest { body: copy.body, axes, accumulations, outputs }).ok()?;
        let is_product = matches!(computation.schedule(), Some(Schedule::Product(_)));
        is_product.then(|| Step { computation, reads: copy.reads, ..step.clone() })
    }

    /// Leaves out results that nothing reads since their integers are read instead.
    fn leave_out_unread(&mut self) {
        let outputs = self.outputs.iter().map(|output| output.value);
        let reads = self.steps.iter().flat_map(|step| &step.reads).copied().chain(outputs);
        let buffer = |read: Binding| if let Binding::Buffer(id) = read { Some(id) } else { None };
        let read: BTreeSet<BufferId> = reads.filter_map(buffer).ordered_set();
        let is_step = |buffers: &[Buffer], id: BufferId| {
            buffers.get(id.0 as usize).is_some_and(|buffer| buffer.source == Source::Step)
        };
        for step in &mut self.steps {
            let is_unread = |id: &BufferId| is_step(&self.buffers, *id) && !read.contains(id);
            let unread: Vec<u16> = (0..).zip(&step.writes).filter(|(_, id)| is_unread(id)).map(|(n, _)| n).collect();
            if let Computation::Nest(own) = &mut step.computation
                && !unread.is_empty()
                && own.edit(|nest| leave_out(nest, &unread)).is_ok()
            {
                let mut position = 0..;
                step.writes.retain(|_| position.next().is_some_and(|n: u16| !unread.contains(&n)));
            }
        }
        self.steps.retain(|step| !step.writes.is_empty());
    }
}

impl Known {
    fn find(&self, rounding: &Rounding) -> Option<Rounded> {
        self.0.iter().find(|(known, _)| known == rounding).map(|(_, rounded)| *rounded)
    }
}

impl Rounding {
    /// The rounding of a factor, which has rows along an axis of the product.
    fn of(
        product: &Bound<'_, Product>,
        step: &Step,
        (root, axis): (ExprId, u8),
        stats: &[Reduced],
        [rows, k]: [&Dim; 2],
    ) -> Option<Self> {
        if stats.iter().any(|stat| stat.extent != *k) {
            return None;
        }
        let mut copy = Copy::of(product.nest, step);
        let place = [(0, rows), (1, k)].map(|(axis, dim)| copy.body.dag.coord(axis, dim.as_const()));
        let roots: Vec<ExprId> = stats.iter().map(|stat| stat.value).chain([root]).collect();
        let mut copies = copy.graft(&product.nest.body.dag, &roots, |_, expr| match expr {
            Expr::Coord(own) => Some(place[usize::from(*own != axis)]),
            _ => None,
        })?;
        let value = copies.pop()?;
        let accumulation =
            |op: ReduceOp, factor: ExprId| Accumulation { op, axis: 1, factors: vec![factor], dtype: DType::F32 };
        let accumulations = stats.iter().zip(copies).map(|(stat, value)| accumulation(stat.op, value)).collect();
        let extents = [rows.clone(), k.clone()];
        let output = |dtype: DType, dims: usize| Output {
            target: 0,
            dtype,
            shape: extents[..dims].to_vec(),
            index: place[..dims].to_vec(),
            value,
            columns: None,
        };
        let outputs = vec![output(DType::I8, 2), output(DType::F32, 1)];
        let axes = Axis::points(extents.clone());
        let form = Nest { body: copy.body, axes, accumulations, outputs };
        let mut nest = Nest { outputs: vec![], ..form.clone() };
        round_rows(&mut nest, &[(value, place.to_vec())], &form, 0);
        Some(Self { nest, reads: copy.reads })
    }

    /// The step; `None` if no schedule supports it.
    fn step(&self, path: &str, rounded: Rounded) -> Option<Step> {
        let computation = Computation::of(self.nest.clone()).ok()?;
        let writes = vec![rounded.rows, rounded.scales];
        Some(Step { name: NAME.to_owned(), path: path.to_owned(), computation, reads: self.reads.clone(), writes })
    }

    /// The matrix whose elements are rounded as they are.
    fn copied(&self) -> Option<BufferId> {
        let ([sum], [read]) = (self.nest.accumulations.as_slice(), self.reads.as_slice()) else { return None };
        let dag = &self.nest.body.dag;
        let Expr::Unary(UnaryOp::Abs, value) = dag.expr(*sum.factors.first()?) else { return None };
        let Expr::Load { index, .. } = dag.expr(*value) else { return None };
        let is_place = index.len() == 2 && (0..).zip(index).all(|(axis, id)| *dag.expr(*id) == Expr::Coord(axis));
        match read {
            Binding::Buffer(id) if is_place => Some(*id),
            _ => None,
        }
    }
}

/// The elements of a matrix that a nest computes row by row, in parts of as many columns as it has, each with
/// its place. `None` if it computes the matrix in another way.
fn parts_of_rows(nest: &Nest, targets: &[u16], rounding: &Nest) -> Option<Vec<(ExprId, Vec<ExprId>)>> {
    let dag = &nest.body.dag;
    let ([rows, columns], [all, width]) = (nest.axes.as_slice(), rounding.axes.as_slice()) else { return None };
    let is_plain = !rows.summed && !columns.summed && rows.extent == all.extent;
    let [columns, width] = [columns, width].map(|axis| axis.extent.dense().and_then(Dim::as_const));
    let outputs: Vec<&Output> = nest.outputs.iter().filter(|output| targets.contains(&output.target)).collect();
    let follows = |output: &&Output| match output.index.as_slice() {
        [row, column] => {
            let along = dag
                .along(&dag.affine(*column), 1)
                .is_some_and(|(stride, start)| stride == 1 && start.as_constant().is_some());
            *dag.expr(*row) == Expr::Coord(0) && along && output.columns.is_none()
        }
        _ => false,
    };
    let is_whole = columns?.checked_mul(outputs.len()) == width && outputs.iter().all(follows);
    let parts = outputs.into_iter().map(|output| (output.value, output.index.clone()));
    (is_plain && is_whole).then(|| parts.collect())
}

/// Rounds rows that consist of `parts` like another nest: adds the largest element of the row, and the outputs of
/// the integers and the scales, whose targets start at `first`.
fn round_rows(nest: &mut Nest, parts: &[(ExprId, Vec<ExprId>)], rounding: &Nest, first: u16) {
    let dag = &mut nest.body.dag;
    let sizes = parts.iter().map(|(value, _)| *value).collect::<Vec<_>>();
    let sizes: Vec<ExprId> = sizes.into_iter().map(|value| dag.unary(UnaryOp::Abs, value)).collect();
    let Some(size) = sizes.into_iter().reduce(|a, b| dag.binary(BinaryOp::Max, a, b)) else { return };
    let largest = dag.value(nest.accumulations.len() as u8, Scalar::F32);
    let [most, tiny, part] = [MOST, TINY, MOST.recip()].map(|constant| dag.float(constant));
    let divisor = dag.binary(BinaryOp::Max, largest, tiny);
    let inverse = dag.binary(BinaryOp::Div, most, divisor);
    let scale = dag.binary(BinaryOp::Mul, largest, part);
    let row = dag.coord(0, nest.axes.first().and_then(|axis| axis.extent.dense()).and_then(Dim::as_const));
    let sum = Accumulation { op: ReduceOp::Max, axis: 1, factors: vec![size], dtype: DType::F32 };
    nest.accumulations.push(sum);
    let [rows, scales] = rounding.outputs.as_slice() else { return };
    for (value, index) in parts {
        let value = nest.body.dag.binary(BinaryOp::Mul, *value, inverse);
        nest.outputs.push(Output { target: first, index: index.clone(), value, ..rows.clone() });
    }
    nest.outputs.push(Output { target: first + 1, index: vec![row], value: scale, ..scales.clone() });
}

/// Leaves out the outputs of some targets.
fn leave_out(nest: &mut Nest, unread: &[u16]) {
    nest.outputs.retain(|output| !unread.contains(&output.target));
    for output in &mut nest.outputs {
        output.target -= unread.iter().filter(|target| **target < output.target).count() as u16;
    }
}

/// Expressions copied from a step, with the operands and sizes that they read.
struct Copy<'s> {
    body: Body,
    reads: Vec<Binding>,
    source: &'s Body,
    bindings: &'s [Binding],
}

impl<'s> Copy<'s> {
    fn of(nest: &'s Nest, step: &'s Step) -> Self {
        Self { body: Body::default(), reads: vec![], source: &nest.body, bindings: &step.reads }
    }

    /// Copies expressions; `replace` may return others. `None` if an operand does not exist.
    fn graft(
        &mut self,
        source: &Dag,
        roots: &[ExprId],
        replace: impl Fn(&mut Dag, &Expr) -> Option<ExprId>,
    ) -> Option<Vec<ExprId>> {
        let mut places = BTreeMap::new();
        for id in source.reachable(roots) {
            if let Expr::Load { operand, .. } | Expr::Sample { offsets: operand, .. } = source.expr(id)
                && !places.contains_key(operand)
            {
                let position = usize::from(*operand);
                let read = self.source.operands.get(position)?.clone();
                places.insert(
                    *operand,
                    (self.add(read, *self.bindings.get(position)?), self.source.operands[position].dtype),
                );
            }
        }
        let (sizes, all) = (&mut self.body.sizes, &self.source.sizes);
        Some(self.body.dag.graft(source, roots, |dag, expr, copies| match (expr, copies) {
            (Expr::Size(position), _) => all.get(usize::from(*position)).map(|dim| dag.extent(sizes, dim)),
            (Expr::Load { operand, .. }, index) => {
                places.get(operand).map(|&(position, dtype)| dag.load(position, dtype, index.to_vec()))
            }
            (Expr::Sample { offsets, .. }, &[row]) => {
                places.get(offsets).map(|&(position, _)| dag.sample(position, row))
            }
            (other, _) => replace(dag, other),
        }))
    }

    /// Adds an operand.
    fn add(&mut self, operand: Operand, read: Binding) -> u16 {
        self.body.operands.push(operand);
        self.reads.push(read);
        (self.reads.len() - 1) as u16
    }

    /// An element of a buffer.
    fn load(&mut self, (id, buffer): (BufferId, &Buffer), index: Vec<ExprId>) -> ExprId {
        let is_small = buffer.shape.iter().all(|dim| dim.as_const().is_some_and(|n| n <= LARGEST_POOLED));
        let is_pooled = buffer.source == Source::Load && buffer.dtype == DType::F32 && is_small;
        let space = if is_pooled { MemorySpace::Pooled } else { MemorySpace::Device };
        let operand = Operand { dtype: buffer.dtype, shape: buffer.shape.clone(), space };
        let position = self.add(operand, Binding::Buffer(id));
        self.body.dag.load(position, buffer.dtype, index)
    }
}

/// Storage bindings of a kernel with `more` tensors: all pooled operands share one per type, and all host operands one.
fn bindings(nest: &Nest, more: usize) -> usize {
    let operands = &nest.body.operands;
    let own = operands.iter().filter(|operand| operand.space == MemorySpace::Device).count();
    let pooled = operands.iter().filter(|operand| operand.space == MemorySpace::Pooled).map(|operand| operand.dtype);
    let host = operands.iter().any(|operand| operand.space == MemorySpace::Host);
    let written: BTreeSet<u16> = nest.outputs.iter().map(|output| output.target).ordered_set();
    own + pooled.collect::<BTreeSet<_>>().len() + usize::from(host) + written.len() + more
}
