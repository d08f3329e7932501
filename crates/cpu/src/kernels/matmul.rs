use super::arch::Arch;
use super::coords::Coords;
use super::error::CpuError;
use super::machine::{AccumulatorLanes, RowInputs};
use super::memory::Memory;
use super::operand::{Env, count};
use super::panel::{ExprMatrix, PanelMachine};
use super::product::{DEPTH, Matrix, PackedRhs, blocks_of_sum, multiply};
use super::program::AccumulatorValue;
use super::reductions::{CompiledReductions, ReductionMachines};
use super::scratch::{Buffer, private_cache};
use super::small::CompiledSmallProduct;
use super::store::{Blocks, SharedOutputs, Stores, Target, Writer, deal};
use super::taps::{Taps, TapsMachine};
use super::weights::Weights;
use super::{Compile, Scheduled, tasks};
use crate::parallel::threads;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr};
use rewire_graph::{Dim, Scalar};
use rewire_graph_rewrite::plan::{Extent, Nest};
use rewire_graph_rewrite::schedule::{Bound, Product};
use std::sync::Arc;

/// Maximum number of rows per step: those with accumulators in memory at once.
const STEP: usize = 48;
/// Rows of the register tile.
const TILE: usize = 6;
/// Minimum number of rows per step, unless there are fewer.
const LEAST_STEP: usize = 24;
/// Minimum number of rows per block for a large right operand, which smaller blocks would reread. If this gives few
/// tasks, columns are split, too.
const BLOCK: usize = 2 * STEP;
/// Number of right operand elements that fit in a core's private cache.
const RIGHT: usize = 1 << 18;
/// Maximum number of steps per task, which amortize reading the right operand from a shared cache.
const STEPS: usize = 8;
/// Maximum number of left operand elements per task, unless two steps have more.
const LEFT: usize = 1 << 18;
/// Maximum number of columns with accumulators in memory at once.
const COLUMNS: usize = 512;
/// Share of a core's private cache for the right operand's columns that are multiplied with all rows of a task before the
/// next ones, unless 64 columns have more.
const CHUNK: usize = 2;
/// Multiply-adds up to which a task processes several batch entries.
const WORK: usize = 1 << 18;
/// Minimum number of tasks per thread if batch entries are small.
const TASKS: usize = 8;
/// Number of rows from which packing the right operand pays.
const MANY: usize = 96;

/// A matmul.
#[derive(Clone, Debug)]
pub(super) struct CompiledMatmul {
    batch: Vec<Dim>,
    m: Extent,
    n: Dim,
    k: Extent,
    axes: usize,
    stats: CompiledReductions,
    a: ExprMatrix,
    b: ExprMatrix,
    /// True if all batch entries share `b`.
    shared: bool,
    /// `b` as windows of a tensor that are not copied one by one.
    taps: Option<Taps>,
    /// `a`, if it depends only on the contents of operands and all batch entries share it.
    fixed: Option<Weights>,
    /// Packed `b`, if it depends only on the contents of operands.
    weights: Option<Weights>,
    stores: Stores,
}

/// A block of the result: batch entry, rows, columns.
#[derive(Clone, Copy, Debug)]
struct Block {
    entry: usize,
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
}

/// The right operand.
#[derive(Clone, Copy)]
enum Factor<'a> {
    Matrix(Matrix<'a>),
    PackedRhs(&'a PackedRhs),
}

/// The operands of a block.
enum Factors<'b, 'a> {
    Matrices(Matrix<'b>, Factor<'b>),
    /// The left operand, unless the block has its own, and the right operand.
    Taps(Option<&'b PackedRhs>, &'b mut TapsMachine<'a>),
}

impl Factor<'_> {
    /// Packs these columns of a matrix, if there are enough `rows` of the left operand.
    fn packed<'p>(
        &self,
        (column, columns): (usize, usize),
        rows: usize,
        panels: &'p mut PackedRhs,
    ) -> Result<Option<Factor<'p>>, CpuError> {
        Ok(match self {
            Self::Matrix(b) if rows >= MANY => {
                panels.pack(b.part((0, column), (b.rows, columns)))?;
                Some(Factor::PackedRhs(panels))
            }
            _ => None,
        })
    }

    /// `out = a b` for a range of columns of `b`. `gathered` is scratch memory for blocks of `a`.
    fn multiply(
        &self,
        out: &mut [f32],
        stride: usize,
        a: Matrix<'_>,
        (column, columns): (usize, usize),
        gathered: &mut Vec<f32>,
    ) -> Result<(), CpuError> {
        let mut multiply = |a: Matrix<'_>, row: usize| match self {
            Self::Matrix(b) => multiply(out, stride, a, b.part((row, column), (a.columns, columns)), row > 0),
            Self::PackedRhs(b) => b.multiply(out, stride, a, (column, column + columns, row), row > 0),
        };
        if !a.is_spread() || a.columns == 0 {
            return multiply(a, 0);
        }
        let mut parts = blocks_of_sum(a.columns);
        parts.try_for_each(|(row, depth)| multiply(a.part((0, row), (a.rows, depth)).gathered(gathered)?, row))
    }
}

struct Sizes {
    batch: Vec<usize>,
    n: usize,
    /// Depth of each batch entry.
    k: Vec<usize>,
    /// Rows per step.
    step: usize,
}

struct Worker<'a> {
    stats: ReductionMachines<'a>,
    taps: Option<TapsMachine<'a>>,
    a: PanelMachine<'a>,
    b: PanelMachine<'a>,
    panels: PackedRhs,
    epilogue: Writer<'a>,
    coords: Coords,
    gathered: Vec<f32>,
    sums: Buffer,
}

impl Compile for Bound<'_, Product> {
    fn compile(&self) -> Result<Arc<dyn Scheduled>, CpuError> {
        if taps(self)?.is_none()
            && let Some(small) = CompiledSmallProduct::new(self)?
        {
            return Ok(Arc::new(small));
        }
        let matmul = match flattened(self)? {
            Some(nest) => {
                let unsupported =
                    |reason| CpuError::Unsupported { kernel: "matmul", reason: format!("as one matrix: {reason}") };
                let schedule = Product::of(&nest).map_err(unsupported)?;
                CompiledMatmul::new(&Bound { nest: &nest, schedule: &schedule })?
            }
            None => CompiledMatmul::new(self)?,
        };
        Ok(Arc::new(matmul))
    }
}

/// True if all batch entries share the right operand.
fn is_shared(kernel: &Bound<'_, Product>) -> bool {
    kernel.k.dense().is_some() && kernel.nest.body.dag.coords(kernel.b) & ((1 << kernel.row()) - 1) == 0
}

/// The right operand as windows of a tensor with constant extents, such as the image of a convolution.
fn taps(kernel: &Bound<'_, Product>) -> Result<Option<Taps>, CpuError> {
    let depth = kernel.k.dense().and_then(Dim::as_const);
    match depth.zip(kernel.n.as_const()).filter(|_| !is_shared(kernel)) {
        Some(extents) => Taps::new(&kernel.nest.body, kernel.b, (kernel.depth, kernel.column()), extents),
        None => Ok(None),
    }
}

/// The left operand.
fn left(kernel: &Bound<'_, Product>) -> Result<ExprMatrix, CpuError> {
    let constant = |extent: &Extent| extent.dense().and_then(Dim::as_const);
    let extents = (constant(&kernel.m), constant(&kernel.k));
    ExprMatrix::new(&kernel.nest.body, kernel.a, (kernel.row(), kernel.depth), extents)
}

/// A matmul with a shared right operand, with batch and rows merged, so that entries with few rows fill the tiles. `None`
/// for other matmuls, and for windows of images, which need separate batch entries.
fn flattened(kernel: &Bound<'_, Product>) -> Result<Option<Nest>, CpuError> {
    if !is_shared(kernel) || kernel.batch.is_empty() || left(kernel)?.has_windows() {
        return Ok(None);
    }
    Ok(merged(kernel))
}

/// The nest with batch and rows merged to one axis. `None` if their extents after the first are not constant.
fn merged(kernel: &Bound<'_, Product>) -> Option<Nest> {
    let row = kernel.row();
    let (first, batch) = kernel.batch.split_first()?;
    let rows = kernel.m.dense()?;
    let inner = batch.iter().chain([rows]).map(Dim::as_const).collect::<Option<Vec<_>>>()?;
    let extent = inner.iter().try_fold(first.clone(), |product, &extent| product.product(&extent.into()))?;
    let mut dag = Dag::new();
    let mut rest = dag.coord(0, extent.as_const());
    let mut digits = vec![];
    for &extent in inner.iter().rev() {
        let extent = dag.int(extent.max(1) as i64);
        digits.push(dag.binary(BinaryOp::Mod, rest, extent));
        rest = dag.binary(BinaryOp::Div, rest, extent);
    }
    digits.push(rest);
    digits.reverse();
    let constant = |coord: u8| kernel.nest.axes.get(usize::from(coord))?.extent.dense()?.as_const();
    let copies = dag.graft(&kernel.nest.body.dag, &kernel.nest.roots(), |dag, expr, _| match *expr {
        Expr::Coord(coord) if coord <= row => digits.get(usize::from(coord)).copied(),
        Expr::Coord(coord) => Some(dag.coord(coord - row, constant(coord))),
        _ => None,
    });
    let mut copies = copies.into_iter();
    let mut nest = kernel.nest.clone();
    for sum in &mut nest.accumulations {
        sum.factors.iter_mut().zip(&mut copies).for_each(|(factor, copy)| *factor = copy);
        sum.axis -= row;
    }
    for output in &mut nest.outputs {
        output.index.iter_mut().zip(&mut copies).for_each(|(index, copy)| *index = copy);
        output.value = copies.next()?;
    }
    nest.body.dag = dag;
    nest.axes.drain(..usize::from(row));
    nest.axes.first_mut()?.extent = Extent::Dense(extent);
    Some(nest)
}

impl CompiledMatmul {
    pub(super) fn new(kernel: &Bound<'_, Product>) -> Result<Self, CpuError> {
        if kernel.batch.len() > 16 {
            return Err(CpuError::Unsupported { kernel: "matmul", reason: "it has too many dimensions".to_owned() });
        }
        let (body, outputs) = (&kernel.nest.body, &kernel.nest.outputs);
        let (row, column, depth) = (kernel.row(), kernel.column(), kernel.depth);
        let sum = |dag: &Dag, id| match *dag.expr(id) {
            Expr::Value(position) if position == kernel.sum() && dag.scalar(id) == Scalar::F32 => {
                Some(AccumulatorValue::Lane(0))
            }
            _ => None,
        };
        let rows = kernel.m.dense().filter(|_| row == 0).map(std::slice::from_ref);
        let shared = is_shared(kernel);
        let constant = |extent: &Extent| extent.dense().and_then(Dim::as_const);
        let is_constant = constant(&kernel.k).and(kernel.n.as_const()).is_some();
        let weights = if shared && is_constant { Weights::of(&body.dag, kernel.b) } else { None };
        Ok(Self {
            stats: CompiledReductions::new(body, &kernel.stats)?,
            a: left(kernel)?.parted(body, kernel.a, column, constant(&kernel.k))?,
            b: ExprMatrix::new(body, kernel.b, (depth, column), (constant(&kernel.k), kernel.n.as_const()))?,
            shared,
            taps: taps(kernel)?,
            fixed: Weights::of(&body.dag, kernel.a).filter(|_| body.dag.coords(kernel.a) & ((1 << row) - 1) == 0),
            weights,
            stores: Stores::compile(body, outputs, column, rows, &sum)?,
            batch: kernel.batch.clone(),
            m: kernel.m.clone(),
            n: kernel.n.clone(),
            k: kernel.k.clone(),
            axes: kernel.nest.axes.len(),
        })
    }

    /// Computes a block. `targets` are the outputs of its steps.
    fn block(
        &self,
        worker: &mut Worker<'_>,
        targets: &mut [Vec<Target<'_>>],
        sizes: &Sizes,
        (left, b): (Option<&PackedRhs>, Option<Factor<'_>>),
        block: Block,
    ) -> Result<(), CpuError> {
        let Worker { stats, taps, a, b: panel, panels, epilogue, coords, gathered, sums } = worker;
        let batch = sizes.batch.len();
        coords.set_row(block.entry, &sizes.batch);
        let k = sizes.k.get(block.entry).copied();
        debug_assert!(k.is_some(), "every entry has a depth");
        let k = k.unwrap_or(0);
        let taps = match taps {
            Some(taps) => taps.load(panel.env(), coords)?.then_some(taps),
            None => None,
        };
        let mut product = match (taps, b) {
            (Some(taps), _) => {
                if left.is_none() {
                    taps.pack(a.matrix(coords, block.row, (block.rows, k), Some(stats))?)?;
                }
                Factors::Taps(left, taps)
            }
            (None, b) => {
                let right = match b {
                    Some(b) => b,
                    None => Factor::Matrix(panel.matrix(coords, 0, (k, sizes.n), None)?),
                };
                Factors::Matrices(a.matrix(coords, block.row, (block.rows, k), Some(stats))?, right)
            }
        };
        let most = (private_cache() / CHUNK / k.clamp(1, DEPTH) / 64 * 64).clamp(64, COLUMNS);
        for column in (block.column..block.column + block.columns).step_by(most) {
            let columns = most.min(block.column + block.columns - column);
            let stride = columns.next_multiple_of(64);
            let packed = match &product {
                Factors::Matrices(_, right) => right.packed((column, columns), block.rows, panels)?,
                Factors::Taps(..) => None,
            };
            for (step, targets) in targets.iter_mut().enumerate() {
                let first = step * sizes.step;
                let rows = sizes.step.min(block.rows - first);
                let sums = sums.floats(rows * stride)?;
                match &mut product {
                    Factors::Matrices(left, right) => {
                        let left = left.part((first, 0), (rows, k));
                        let (right, first) = packed.map_or((*right, column), |packed| (packed, 0));
                        right.multiply(sums, stride, left, (first, columns), gathered)?;
                    }
                    Factors::Taps(left, right) => {
                        let start = left.map_or(first, |_| block.row + first);
                        right.multiply(sums, stride, (*left, start..start + rows), (column, columns))?;
                    }
                }
                coords.count(batch, block.row + first);
                let lanes = &[AccumulatorLanes { data: sums, stride, origin: column }];
                let inputs = RowInputs { rows, coords: coords.all(), lanes, ..RowInputs::default() };
                epilogue.rows(targets, inputs, block.row + first, column..column + columns);
            }
        }
        Ok(())
    }
}

impl Scheduled for CompiledMatmul {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        let batch = env.extents(&self.batch, "the batch")?;
        let entries = count(&batch, "the batch")?;
        let rows = env.rows(&self.m, entries)?;
        let k = env.rows(&self.k, entries)?;
        let sizes = Sizes { batch, n: env.extent(&self.n, "the columns")?, k, step: step(&rows) };
        let longest = sizes.k.iter().copied().max().unwrap_or(0);
        count(&[sizes.n, longest], "a factor")?;
        let reduced = self.stats.extents(env)?;
        let blocks = blocks(&rows, sizes.n, longest, sizes.step);
        if blocks.is_empty() {
            return Ok(());
        }
        let mut coords = Coords::new(self.axes)?;
        let mut panel = self.b.machine(env);
        let extents = (longest, sizes.n);
        let mut panels = match &self.weights {
            Some(weights) => weights.panels(env, || PackedRhs::new(panel.matrix(&mut coords, 0, extents, None)?))?,
            None => None,
        };
        let all: usize = rows.iter().sum();
        if panels.is_none() && self.shared && all >= MANY {
            panels = Some(Arc::new(PackedRhs::for_run(panel.matrix(&mut coords, 0, extents, None)?)?));
        }
        let b = match &panels {
            Some(panels) => Some(Factor::PackedRhs(panels)),
            None if self.shared => Some(Factor::Matrix(panel.matrix(&mut coords, 0, extents, None)?)),
            None => None,
        };
        let taps = self.taps.as_ref().filter(|_| !Arch::chosen().is_scalar());
        let highest = rows.iter().copied().max().unwrap_or(0);
        let mut pack = |panels: fn(Matrix<'_>) -> Result<PackedRhs, CpuError>| {
            let mut machine = self.a.machine(env);
            panels(machine.matrix(&mut coords, 0, (highest, longest), None)?.transposed())
        };
        let left = match (taps, &self.fixed) {
            (Some(_), Some(fixed)) => match fixed.panels(env, || pack(PackedRhs::new))? {
                Some(packed) => Some(packed),
                None => Some(Arc::new(pack(PackedRhs::for_run)?)),
            },
            _ => None,
        };
        let most = blocks.iter().map(|block| block.rows * block.columns).max().unwrap_or(0);
        let steps = |block: &Block| block.rows.div_ceil(sizes.step);
        let dealt: Vec<Vec<Vec<Target<'_>>>> = if sizes.batch.is_empty() && blocks.iter().all(|b| b.columns == sizes.n)
        {
            let all = Blocks { rows: all, width: sizes.n, size: sizes.step, across: false };
            let mut dealt = deal(self.stores.iter(), outputs, all)?.into_iter();
            blocks.iter().map(|block| dealt.by_ref().take(steps(block)).collect()).collect()
        } else {
            let outputs = SharedOutputs::new(outputs)?;
            blocks.iter().map(|block| (0..steps(block)).map(|_| outputs.targets()).collect()).collect()
        };
        let mut dealt = blocks.into_iter().zip(dealt);
        // A task processes several small batch entries.
        let each = dealt.len().div_ceil(TASKS * threads()).min((WORK / (most * longest).max(1)).max(1));
        let together = (0..dealt.len().div_ceil(each)).map(|_| dealt.by_ref().take(each).collect::<Vec<_>>());
        tasks::for_each(
            together.collect(),
            || {
                Ok(Worker {
                    stats: self.stats.machines(env, &reduced)?,
                    taps: match taps {
                        Some(taps) => taps.machine(env, self.axes)?,
                        None => None,
                    },
                    a: self.a.machine(env),
                    b: self.b.machine(env),
                    panels: PackedRhs::default(),
                    epilogue: self.stores.writer(env)?,
                    coords: Coords::new(self.axes)?,
                    gathered: vec![],
                    sums: Buffer::default(),
                })
            },
            |worker, blocks| {
                let mut blocks = blocks.into_iter();
                blocks.try_for_each(|(block, mut targets)| {
                    self.block(worker, &mut targets, &sizes, (left.as_deref(), b), block)
                })
            },
        )
    }
}

/// The most rows per step with which the busiest thread has about the fewest rows.
fn step(rows: &[usize]) -> usize {
    let &[rows] = rows else { return STEP };
    let busiest = |step: usize| {
        let (whole, rest) = (rows / step, rows % step);
        let (each, is_even) = (whole.div_ceil(threads()) * step, whole.is_multiple_of(threads()));
        if is_even { each + rest } else { each.max(whole / threads() * step + rest) }
    };
    let mut steps = (LEAST_STEP..=STEP).rev().step_by(TILE);
    let fewest = steps.clone().map(busiest).min().unwrap_or(rows);
    steps.find(|&step| busiest(step) - fewest <= fewest / 32).unwrap_or(STEP)
}

/// Divides the result into blocks of rows. The last blocks are smaller, to balance threads. With few blocks, columns are
/// divided, too.
fn blocks(rows: &[usize], n: usize, k: usize, step: usize) -> Vec<Block> {
    let of_rows = |size: usize| rows.iter().map(|rows| rows.div_ceil(size)).sum::<usize>();
    let least = if n.saturating_mul(k) <= RIGHT { step } else { BLOCK / STEP * step };
    let wanted = (2 * threads()).div_ceil(of_rows(least).max(1)).max(1);
    let width = n.div_ceil(wanted).next_multiple_of(64).max(64);
    let most = if wanted > 1 { 2 } else { (LEFT / (step * k.max(1))).clamp(2, STEPS) };
    let mut rest = of_rows(step);
    let mut blocks = vec![];
    for (entry, &rows) in rows.iter().enumerate() {
        let mut row = 0;
        while row < rows {
            let steps = if wanted > 1 { most } else { rest.div_ceil(2 * threads()).clamp(1, most) };
            let size = (steps * step).min(rows - row);
            for column in (0..n).step_by(width) {
                blocks.push(Block { entry, row, rows: size, column, columns: width.min(n - column) });
            }
            rest = rest.saturating_sub(size.div_ceil(step));
            row += size;
        }
    }
    blocks
}
