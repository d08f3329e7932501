//! Reductions over the points of a row.

use super::chain::Destination;
use super::error::CpuError;
use super::lanes::{LANES, ROWS, tile_rows};
use super::machine::{RowInputs, Vm};
use super::operand::Env;
use super::program::{AccumulatorValue, Program};
use super::totals::{Partials, Totals, neutral};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{Dim, Scalar};
use rewire_graph_rewrite::plan::{Body, ReduceOp};
use rewire_graph_rewrite::schedule::Reduced;

/// Reductions of a row, in order.
#[derive(Clone, Debug)]
pub(super) struct CompiledReductions {
    passes: Vec<Pass>,
}

#[derive(Clone, Debug)]
struct Pass {
    op: ReduceOp,
    extent: Dim,
    program: Program,
    /// True if the next result is the reduction of the squares.
    squares: bool,
}

/// Reductions, bound to a run.
pub(super) struct ReductionMachines<'a> {
    passes: Vec<(&'a Pass, usize, Vm<'a>)>,
    /// The results of each reduction for the current rows.
    pub results: Vec<[f32; ROWS]>,
}

/// Maps `Value(n)` to result `n` of the reductions.
pub(super) fn row_value(dag: &Dag, id: ExprId) -> Option<AccumulatorValue> {
    match *dag.expr(id) {
        Expr::Value(position) if dag.scalar(id) == Scalar::F32 => Some(AccumulatorValue::Row(position)),
        _ => None,
    }
}

impl CompiledReductions {
    pub(super) fn new(body: &Body, reductions: &[Reduced]) -> Result<Self, CpuError> {
        let dag = &body.dag;
        let mut passes = Vec::with_capacity(reductions.len());
        let mut rest = reductions.iter().peekable();
        while let Some(reduction) = rest.next() {
            if dag.scalar(reduction.value) != Scalar::F32 {
                let reason = "a reduction's element is not a float".to_owned();
                return Err(CpuError::Unsupported { kernel: "reduce", reason });
            }
            let program = Program::compile(dag, &body.operands, &[reduction.value], reduction.axis, &row_value)?;
            let squares = rest.next_if(|next| are_squares(dag, reduction, next)).is_some();
            passes.push(Pass { op: reduction.op, extent: reduction.extent.clone(), program, squares });
        }
        Ok(Self { passes })
    }

    /// The number of elements of each reduction.
    pub(super) fn extents(&self, env: &Env<'_>) -> Result<Vec<usize>, CpuError> {
        self.passes.iter().map(|pass| env.extent(&pass.extent, "a reduction")).collect()
    }

    /// Binds the reductions to a run. `extents` are their numbers of elements.
    pub(super) fn machines<'a>(
        &'a self,
        env: &'a Env<'a>,
        extents: &[usize],
    ) -> Result<ReductionMachines<'a>, CpuError> {
        let passes = self.passes.iter().zip(extents);
        let passes = passes.map(|(pass, &extent)| Ok((pass, extent, Vm::new(&pass.program, env)?)));
        Ok(ReductionMachines { passes: passes.collect::<Result<_, CpuError>>()?, results: vec![] })
    }
}

impl ReductionMachines<'_> {
    /// Reduces the rows of `inputs`.
    pub(super) fn rows(&mut self, inputs: RowInputs<'_>) {
        self.results.clear();
        for (pass, width, machine) in &mut self.passes {
            let (first, rows) = (inputs.first, inputs.rows);
            let mut results = [[neutral(pass.op); ROWS]; 2];
            let [values, squares] = &mut results;
            let inputs = RowInputs { values: &self.results, ..inputs };
            let squares = if pass.squares { Some(&mut *squares) } else { None };
            if first + rows <= ROWS {
                let squares = squares.map(|squares| &mut squares[first..first + rows]);
                reduce(machine, inputs, *width, pass.op, (&mut values[first..first + rows], squares));
            }
            self.results.extend(&results[..1 + usize::from(pass.squares)]);
        }
    }
}

/// True if `next` is the same reduction of the squares of the elements of `reduction`.
fn are_squares(dag: &Dag, reduction: &Reduced, next: &Reduced) -> bool {
    let value = reduction.value;
    let is_square = *dag.expr(next.value) == Expr::Binary(BinaryOp::Mul, value, value);
    is_square && (reduction.op, reduction.axis, &reduction.extent) == (next.op, next.axis, &next.extent)
}

/// Reduces `width` points of each row of `inputs`, and their squares if `squares` is set.
fn reduce(
    machine: &mut Vm<'_>,
    inputs: RowInputs<'_>,
    width: usize,
    op: ReduceOp,
    (results, mut squares): (&mut [f32], Option<&mut [f32]>),
) {
    let mut partials = [Partials::of(op); 2];
    let [partials, of_squares] = &mut partials;
    machine.rows(inputs);
    let totals = Totals { op, partials, results, begins: true, ends: true };
    let squared = squares.as_deref_mut();
    let squared = squared.map(|results| Totals { op, partials: of_squares, results, begins: true, ends: true });
    if machine.compute(inputs, (0, width), 0, Destination::Totals(totals, squared)) {
        return;
    }
    let size = tile_rows(width);
    for (n, results) in results.chunks_mut(size).enumerate() {
        let part = inputs.part(n * size, size);
        let mut squares = squares.as_deref_mut().and_then(|squares| squares.chunks_mut(size).nth(n));
        for start in (0..width).step_by(LANES) {
            let points = LANES.min(width - start);
            machine.tile(part, start, points);
            let (begins, ends) = (start == 0, start + points == width);
            let totals = Totals { op, partials, results, begins, ends };
            let squared = squares.as_deref_mut();
            let squared = squared.map(|results| Totals { op, partials: of_squares, results, begins, ends });
            machine.put(part, 0, Destination::Totals(totals, squared));
        }
    }
}
