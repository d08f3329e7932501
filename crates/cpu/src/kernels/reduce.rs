use super::coords::Coords;
use super::error::CpuError;
use super::lanes::ROWS;
use super::machine::RowInputs;
use super::memory::Memory;
use super::operand::{Env, count};
use super::reductions::{CompiledReductions, ReductionMachines, row_value};
use super::store::{Blocks, Stores, Target, Writer};
use super::{Compile, Scheduled, tasks};
use rewire_graph::Dim;
use rewire_graph_rewrite::schedule::{Bound, Reduction};
use std::sync::Arc;

/// Minimum number of points per task. A row counts as at least [`ROW`] points.
const TASK: usize = 1 << 14;
const ROW: usize = 64;
/// Points reduced before outputs are written, so that tensors are read in long runs.
const GROUP: usize = 1 << 15;

/// Row reductions with an epilogue.
#[derive(Clone, Debug)]
pub(super) struct CompiledReduce {
    extents: Vec<Dim>,
    reductions: CompiledReductions,
    outputs: Stores,
    row_outputs: Stores,
}

struct Machines<'a> {
    reductions: ReductionMachines<'a>,
    outputs: Writer<'a>,
    row_outputs: Writer<'a>,
    coords: Coords,
}

impl Compile for Bound<'_, Reduction> {
    fn compile(&self) -> Result<Arc<dyn Scheduled>, CpuError> {
        Ok(Arc::new(CompiledReduce::new(self)?))
    }
}

impl CompiledReduce {
    pub(super) fn new(kernel: &Bound<'_, Reduction>) -> Result<Self, CpuError> {
        let Some((_, rows)) = kernel.extents.split_last().filter(|(_, rows)| rows.len() < 16) else {
            return Err(CpuError::Unsupported {
                kernel: "reduce",
                reason: "it has no or too many dimensions".to_owned(),
            });
        };
        let axis = rows.len() as u8;
        Ok(Self {
            extents: kernel.extents.clone(),
            reductions: CompiledReductions::new(&kernel.nest.body, &kernel.reductions)?,
            outputs: Stores::compile(&kernel.nest.body, &kernel.outputs(), axis, Some(rows), &row_value)?,
            row_outputs: Stores::compile(&kernel.nest.body, &kernel.row_outputs(), u8::MAX, None, &row_value)?,
        })
    }

    fn block(
        &self,
        machines: &mut Machines<'_>,
        targets: &mut [Target<'_>],
        outer: &[usize],
        blocks: Blocks,
        n: usize,
    ) {
        let Machines { reductions, outputs, row_outputs, coords } = machines;
        let all = blocks.block(n).0;
        let size = (GROUP / blocks.width.max(1)).clamp(1, ROWS);
        for first in all.clone().step_by(size) {
            let rows = size.min(all.end - first);
            coords.unravel(first, rows, outer);
            let inputs = RowInputs { rows, coords: coords.all(), ..RowInputs::default() };
            reductions.rows(inputs);
            let inputs = RowInputs { values: &reductions.results, ..inputs };
            outputs.rows(targets, inputs, first, 0..blocks.width);
            row_outputs.rows(targets, inputs, first, 0..1);
        }
    }
}

impl Scheduled for CompiledReduce {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        let extents = env.extents(&self.extents, "the loop")?;
        let Some((&width, outer)) = extents.split_last() else { return Ok(()) };
        let reduced = self.reductions.extents(env)?;
        let rows = count(outer, "the rows")?;
        if rows == 0 {
            return Ok(());
        }
        let blocks = Blocks { width, ..Blocks::of_rows(rows, width.max(ROW), TASK) };
        tasks::for_each_block(
            self.outputs.iter().chain(self.row_outputs.iter()),
            outputs,
            blocks,
            || {
                Ok(Machines {
                    reductions: self.reductions.machines(env, &reduced)?,
                    outputs: self.outputs.writer(env)?,
                    row_outputs: self.row_outputs.writer(env)?,
                    coords: Coords::new(outer.len())?,
                })
            },
            |machines, targets, n| {
                self.block(machines, targets, outer, blocks, n);
                Ok(())
            },
        )
    }
}
