use super::error::CpuError;
use super::execute::{Given, LANES, Lanes, Machine};
use super::memory::Memory;
use super::operand::{Env, extent, extents};
use super::program::{Leaf, Program};
use super::store::{Blocks, Stores, Target, Writer, check, deal, unravel};
use super::tasks;
use pulp::{Arch, Simd, WithSimd};
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph::{Dim, Scalar, Symbol};
use rewire_graph_rewrite::plan::{Body, Reduce, ReduceOp, Reduction};

/// Points of a task.
const TASK: usize = 1 << 14;
/// Rows that are reduced before their outputs are written, so that tensors are read in long stretches.
const GROUP: usize = 8;
/// Partial results of a row; point `x` goes to partial `x % PARTIALS`, whatever the row's neighbours are.
const PARTIALS: usize = 64;

/// Reductions of a row along one axis, in order.
#[derive(Clone, Debug)]
pub(super) struct CompiledReductions {
    passes: Vec<Pass>,
}

#[derive(Clone, Debug)]
struct Pass {
    op: ReduceOp,
    extent: Dim,
    program: Program,
}

/// The machines of reductions, with the results of the last row.
#[derive(Debug)]
pub(super) struct ReductionMachines<'a> {
    passes: Vec<(ReduceOp, usize, Machine<'a>)>,
    /// By position.
    pub results: Vec<f32>,
    arch: Arch,
}

/// Takes `Value(n)` for result `n` of reductions.
pub(super) fn row_value(dag: &Dag, id: ExprId) -> Option<Leaf> {
    match *dag.expr(id) {
        Expr::Value(position) if dag.scalar(id) == Scalar::F32 => Some(Leaf::Row(position)),
        _ => None,
    }
}

impl CompiledReductions {
    pub(super) fn new(body: &Body, reductions: &[Reduction], axis: u8) -> Result<Self, CpuError> {
        let dag = &body.dag;
        let mut passes = Vec::with_capacity(reductions.len());
        for reduction in reductions {
            if dag.scalar(reduction.value) != Scalar::F32 {
                let reason = "a reduction's element is no float".to_owned();
                return Err(CpuError::Unsupported { kernel: "reduce", reason });
            }
            let program = Program::compile(dag, &body.operands, &[reduction.value], axis, &|id| row_value(dag, id))?;
            passes.push(Pass { op: reduction.op, extent: reduction.extent.clone(), program });
        }
        Ok(Self { passes })
    }

    /// The number of elements of each reduction.
    pub(super) fn extents(&self, symbol: &dyn Fn(Symbol) -> Option<i64>) -> Result<Vec<usize>, CpuError> {
        self.passes.iter().map(|pass| extent(&pass.extent, "a reduction", symbol)).collect()
    }

    /// Machines for a run in which the reductions have these numbers of elements.
    pub(super) fn machines<'a>(&'a self, env: &'a Env<'a>, extents: &[usize]) -> ReductionMachines<'a> {
        let passes = self.passes.iter().zip(extents);
        let passes = passes.map(|(pass, &extent)| (pass.op, extent, Machine::new(&pass.program, env))).collect();
        ReductionMachines { passes, results: vec![], arch: Arch::new() }
    }
}

impl ReductionMachines<'_> {
    /// Reduces the row at `coords`.
    pub(super) fn row(&mut self, coords: &[i32]) {
        self.results.clear();
        for &mut (op, width, ref mut machine) in &mut self.passes {
            let given = Given { coords, row: &self.results, ..Given::default() };
            machine.row(given);
            let mut partials = Partials::new(op);
            for start in (0..width).step_by(LANES) {
                let n = LANES.min(width - start);
                machine.chunk(given, start, n);
                let values = machine.floats(0, given, n);
                self.arch.dispatch(Accumulate { partials: &mut partials, values, n });
            }
            self.results.push(self.arch.dispatch(Finish(&partials)));
        }
    }
}

#[repr(align(64))]
struct Partials {
    lanes: [f32; PARTIALS],
    op: ReduceOp,
}

impl Partials {
    fn new(op: ReduceOp) -> Self {
        let start = match op {
            ReduceOp::Sum => 0.0,
            ReduceOp::Max => f32::MIN,
            ReduceOp::Min => f32::MAX,
        };
        Self { op, lanes: [start; PARTIALS] }
    }

    /// Combines the partial results, always in the same order.
    #[inline(always)]
    fn finish(&self) -> f32 {
        match self.op {
            ReduceOp::Sum => fold(&self.lanes, |a, b| combine(ReduceOp::Sum, a, b)),
            ReduceOp::Max => fold(&self.lanes, |a, b| combine(ReduceOp::Max, a, b)),
            ReduceOp::Min => fold(&self.lanes, |a, b| combine(ReduceOp::Min, a, b)),
        }
    }
}

#[inline(always)]
fn fold(lanes: &[f32; PARTIALS], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = *lanes;
    let mut half = PARTIALS / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn combine(op: ReduceOp, a: f32, b: f32) -> f32 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Max => {
            if b > a {
                b
            } else {
                a
            }
        }
        ReduceOp::Min => {
            if b < a {
                b
            } else {
                a
            }
        }
    }
}

struct Finish<'a>(&'a Partials);

impl WithSimd for Finish<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        self.0.finish()
    }
}

struct Accumulate<'a> {
    partials: &'a mut Partials,
    values: Lanes<'a, f32>,
    n: usize,
}

impl WithSimd for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let values = match self.values {
            Lanes::Each(values) => values,
            Lanes::Same(value) => &[value; LANES][..self.n],
        };
        let lanes = &mut self.partials.lanes;
        match self.partials.op {
            ReduceOp::Sum => accumulate(lanes, values, |a, b| combine(ReduceOp::Sum, a, b)),
            ReduceOp::Max => accumulate(lanes, values, |a, b| combine(ReduceOp::Max, a, b)),
            ReduceOp::Min => accumulate(lanes, values, |a, b| combine(ReduceOp::Min, a, b)),
        }
    }
}

#[inline(always)]
fn accumulate(lanes: &mut [f32; PARTIALS], values: &[f32], combine: impl Fn(f32, f32) -> f32) {
    let (blocks, rest) = values.as_chunks::<PARTIALS>();
    let mut partials = *lanes;
    for block in blocks {
        for lane in 0..PARTIALS {
            partials[lane] = combine(partials[lane], block[lane]);
        }
    }
    for (partial, &value) in partials.iter_mut().zip(rest) {
        *partial = combine(*partial, value);
    }
    *lanes = partials;
}

/// Row reductions and what is made of them.
#[derive(Clone, Debug)]
pub(super) struct CompiledReduce {
    kernel: Reduce,
    reductions: CompiledReductions,
    outputs: Stores,
    row_outputs: Stores,
}

struct Machines<'a> {
    reductions: ReductionMachines<'a>,
    outputs: Writer<'a>,
    row_outputs: Writer<'a>,
    coords: Vec<i32>,
    /// Of the rows of a group.
    results: Vec<f32>,
}

impl CompiledReduce {
    pub(super) fn new(kernel: &Reduce) -> Result<Self, CpuError> {
        let Some((_, rows)) = kernel.extents.split_last() else {
            return Err(CpuError::Unsupported { kernel: "reduce", reason: "it has no dimensions".to_owned() });
        };
        let (dag, axis) = (&kernel.body.dag, rows.len() as u8);
        let leaf = |id: ExprId| row_value(dag, id);
        Ok(Self {
            kernel: kernel.clone(),
            reductions: CompiledReductions::new(&kernel.body, &kernel.reductions, axis)?,
            outputs: Stores::compile(&kernel.body, &kernel.outputs, axis, Some(rows), &leaf)?,
            row_outputs: Stores::compile(&kernel.body, &kernel.row_outputs, u8::MAX, None, &leaf)?,
        })
    }

    pub(super) fn run(
        &self,
        env: &Env<'_>,
        outputs: &mut [&mut Memory],
        symbol: &dyn Fn(Symbol) -> Option<i64>,
    ) -> Result<(), CpuError> {
        check(self.kernel.outputs.iter().chain(&self.kernel.row_outputs), outputs, symbol)?;
        let extents = extents(&self.kernel.extents, "the loop", symbol)?;
        let Some((&width, outer)) = extents.split_last() else { return Ok(()) };
        let reduced = self.reductions.extents(symbol)?;
        let rows: usize = outer.iter().product();
        if rows == 0 {
            return Ok(());
        }
        let blocks = Blocks::of_rows(rows, width, TASK);
        let dealt = deal(self.outputs.iter().chain(self.row_outputs.iter()), outputs, blocks);
        tasks::for_each(
            dealt.into_iter().enumerate().collect(),
            || Machines {
                reductions: self.reductions.machines(env, &reduced),
                outputs: self.outputs.writer(env),
                row_outputs: self.row_outputs.writer(env),
                coords: vec![0; outer.len()],
                results: vec![],
            },
            |machines, (n, mut targets)| self.block(machines, &mut targets, outer, blocks, n),
        );
        Ok(())
    }

    fn block(
        &self,
        machines: &mut Machines<'_>,
        targets: &mut [Target<'_>],
        outer: &[usize],
        blocks: Blocks,
        n: usize,
    ) {
        let Machines { reductions, outputs, row_outputs, coords, results } = machines;
        let count = reductions.passes.len();
        let rows = blocks.block(n).0;
        for first in rows.clone().step_by(GROUP) {
            let group = first..rows.end.min(first + GROUP);
            results.clear();
            for row in group.clone() {
                unravel(row, outer, coords);
                reductions.row(coords);
                results.extend_from_slice(&reductions.results);
            }
            for row in group {
                unravel(row, outer, coords);
                let values = results.get((row - first) * count..).unwrap_or(&[]);
                let given = Given { coords, row: values, ..Given::default() };
                outputs.row(targets, given, row, 0..blocks.width);
                row_outputs.row(targets, given, row, 0..1);
            }
        }
    }
}
