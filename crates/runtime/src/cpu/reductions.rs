//! Values combined over the points of a row.

use super::chain::Destination;
use super::error::CpuError;
use super::lanes::{LANES, ROWS, tile_rows};
use super::machine::{Machine, RowInputs};
use super::operand::Env;
use super::program::{AnchorValue, Program};
use super::totals::{Partials, Totals, neutral};
use rewire_graph::pointwise::{Dag, Expr, ExprId};
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
}

/// The machines of reductions.
pub(super) struct ReductionMachines<'a> {
    passes: Vec<(ReduceOp, usize, Machine<'a>)>,
    /// By position, the results for the rows given last.
    pub results: Vec<[f32; ROWS]>,
}

/// Takes `Value(n)` for result `n` of reductions.
pub(super) fn row_value(dag: &Dag, id: ExprId) -> Option<AnchorValue> {
    match *dag.expr(id) {
        Expr::Value(position) if dag.scalar(id) == Scalar::F32 => Some(AnchorValue::Row(position)),
        _ => None,
    }
}

impl CompiledReductions {
    pub(super) fn new(body: &Body, reductions: &[Reduced]) -> Result<Self, CpuError> {
        let dag = &body.dag;
        let mut passes = Vec::with_capacity(reductions.len());
        for reduction in reductions {
            if dag.scalar(reduction.value) != Scalar::F32 {
                let reason = "a reduction's element is no float".to_owned();
                return Err(CpuError::Unsupported { kernel: "reduce", reason });
            }
            let program = Program::compile(dag, &body.operands, &[reduction.value], reduction.axis, &row_value)?;
            passes.push(Pass { op: reduction.op, extent: reduction.extent.clone(), program });
        }
        Ok(Self { passes })
    }

    /// The number of elements of each reduction.
    pub(super) fn extents(&self, env: &Env<'_>) -> Result<Vec<usize>, CpuError> {
        self.passes.iter().map(|pass| env.extent(&pass.extent, "a reduction")).collect()
    }

    /// Machines for a run in which the reductions have these numbers of elements.
    pub(super) fn machines<'a>(&'a self, env: &'a Env<'a>, extents: &[usize]) -> ReductionMachines<'a> {
        let passes = self.passes.iter().zip(extents);
        let passes = passes.map(|(pass, &extent)| (pass.op, extent, Machine::new(&pass.program, env))).collect();
        ReductionMachines { passes, results: vec![] }
    }
}

impl ReductionMachines<'_> {
    /// Reduces the rows given.
    pub(super) fn rows(&mut self, inputs: RowInputs<'_>) {
        self.results.clear();
        for &mut (op, width, ref mut machine) in &mut self.passes {
            let mut results = [neutral(op); ROWS];
            let inputs = RowInputs { values: &self.results, ..inputs };
            if let Some(results) = results.get_mut(inputs.first..inputs.first + inputs.rows) {
                reduce(machine, inputs, width, (op, results));
            }
            self.results.push(results);
        }
    }
}

/// Combines `width` points of every row given.
fn reduce(machine: &mut Machine<'_>, inputs: RowInputs<'_>, width: usize, (op, results): (ReduceOp, &mut [f32])) {
    let mut partials = Partials::of(op);
    machine.rows(inputs);
    let totals = Totals { op, partials: &mut partials, results, begins: true, ends: true };
    if machine.compute(inputs, (0, width), 0, Destination::Totals(totals)) {
        return;
    }
    let size = tile_rows(width);
    for (n, results) in results.chunks_mut(size).enumerate() {
        let part = inputs.part(n * size, size);
        machine.rows(part);
        for start in (0..width).step_by(LANES) {
            let points = LANES.min(width - start);
            machine.tile(part, start, points);
            let (begins, ends) = (start == 0, start + points == width);
            machine.total(part, 0, Totals { op, partials: &mut partials, results, begins, ends });
        }
    }
}
