//! Values combined over the points of a row.

use super::error::CpuError;
use super::lanes::{Grid, LANES, Lanes, ROWS, Row, tile_rows};
use super::machine::{Given, Machine};
use super::operand::{Env, extent};
use super::program::{Leaf, Program};
use pulp::{Arch, Simd, WithSimd};
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph::{Dim, Scalar, Symbol};
use rewire_graph_rewrite::plan::{Body, ReduceOp, Reduction};

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

/// The machines of reductions.
#[derive(Debug)]
pub(super) struct ReductionMachines<'a> {
    passes: Vec<(ReduceOp, usize, Machine<'a>)>,
    /// By position, the results for the rows given last.
    pub results: Vec<[f32; ROWS]>,
    partials: Vec<Partials>,
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
            let program = Program::compile(dag, &body.operands, &[reduction.value], axis, &row_value)?;
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
        let partials = vec![Partials([0.0; PARTIALS]); ROWS];
        ReductionMachines { passes, results: vec![], partials, arch: Arch::new() }
    }
}

impl ReductionMachines<'_> {
    /// Reduces the rows given.
    pub(super) fn rows(&mut self, given: Given<'_>) {
        self.results.clear();
        for &mut (op, width, ref mut machine) in &mut self.passes {
            let mut results = [0.0; ROWS];
            let size = tile_rows(width);
            for start in (0..given.rows).step_by(size) {
                let part = Given { values: &self.results, ..given.part(start, size) };
                let partials = &mut self.partials[..part.rows.min(ROWS)];
                partials.fill(Partials([start_of(op); PARTIALS]));
                machine.rows(part);
                for first in (0..width).step_by(LANES) {
                    machine.tile(part, first, LANES.min(width - first));
                    let (values, grid) = (machine.floats(0, part), machine.grid());
                    self.arch.dispatch(Accumulate { op, partials, values, grid });
                }
                let from = part.first;
                if let Some(results) = results.get_mut(from..from + part.rows) {
                    self.arch.dispatch(Finish { op, partials, results });
                }
            }
            self.results.push(results);
        }
    }
}

/// Partial results of a row.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Partials([f32; PARTIALS]);

fn start_of(op: ReduceOp) -> f32 {
    match op {
        ReduceOp::Sum => 0.0,
        ReduceOp::Max => f32::MIN,
        ReduceOp::Min => f32::MAX,
    }
}

#[inline(always)]
fn add(a: f32, b: f32) -> f32 {
    a + b
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

/// Combines the partial results of every row, always in the same order.
struct Finish<'a> {
    op: ReduceOp,
    partials: &'a [Partials],
    results: &'a mut [f32],
}

impl WithSimd for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (partials, result) in self.partials.iter().zip(self.results) {
            *result = match self.op {
                ReduceOp::Sum => fold(partials.0, add),
                ReduceOp::Max => fold(partials.0, larger),
                ReduceOp::Min => fold(partials.0, smaller),
            };
        }
    }
}

#[inline(always)]
fn fold(mut lanes: [f32; PARTIALS], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = PARTIALS / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Adds a tile to the partial results of its rows.
struct Accumulate<'a> {
    op: ReduceOp,
    partials: &'a mut [Partials],
    values: Lanes<'a, f32>,
    grid: Grid,
}

impl WithSimd for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let points = self.grid.points;
        for (row, partials) in self.partials.iter_mut().enumerate() {
            let values = match self.values.row(row, points) {
                Row::Each(values) => values,
                Row::Same(value) => &[value; LANES][..points.min(LANES)],
            };
            match self.op {
                ReduceOp::Sum => accumulate_sums(simd, &mut partials.0, values),
                ReduceOp::Max => accumulate(&mut partials.0, values, larger),
                ReduceOp::Min => accumulate(&mut partials.0, values, smaller),
            }
        }
    }
}

#[inline(always)]
fn accumulate(lanes: &mut [f32; PARTIALS], values: &[f32], combine: impl Fn(f32, f32) -> f32) {
    for block in values.chunks(PARTIALS) {
        for (partial, &value) in lanes.iter_mut().zip(block) {
            *partial = combine(*partial, value);
        }
    }
}

#[inline(always)]
fn accumulate_sums<S: Simd>(simd: S, lanes: &mut [f32; PARTIALS], values: &[f32]) {
    let (blocks, rest) = values.as_chunks::<PARTIALS>();
    match S::F32_LANES {
        16 => add_blocks::<S, 4>(simd, lanes, blocks),
        8 => add_blocks::<S, 8>(simd, lanes, blocks),
        4 => add_blocks::<S, 16>(simd, lanes, blocks),
        _ => accumulate(lanes, blocks.as_flattened(), add),
    }
    accumulate(lanes, rest, add);
}

/// Adds blocks with all `N` vectors of partial sums in registers.
#[inline(always)]
fn add_blocks<S: Simd, const N: usize>(simd: S, lanes: &mut [f32; PARTIALS], blocks: &[[f32; PARTIALS]]) {
    let (vectors, _) = S::as_mut_simd_f32s(lanes);
    let Some(vectors) = vectors.first_chunk_mut::<N>() else { return };
    let mut sums = *vectors;
    for block in blocks {
        let (values, _) = S::as_simd_f32s(block);
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum = simd.add_f32s(*sum, value);
        }
    }
    *vectors = sums;
}
