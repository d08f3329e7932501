use super::error::CpuError;
use super::execute::{Given, Machine};
use super::memory::Memory;
use super::operand::{Env, extents};
use super::store::{Blocks, Stores, Target, check, deal, unravel, write_row};
use super::tasks;
use rewire_graph::Symbol;
use rewire_graph_rewrite::plan::Map;

/// Points of a task.
const TASK: usize = 1 << 14;

/// A loop without an anchor.
#[derive(Clone, Debug)]
pub(super) struct CompiledMap {
    kernel: Map,
    stores: Stores,
}

impl CompiledMap {
    pub(super) fn new(kernel: &Map) -> Result<Self, CpuError> {
        let Some((_, rows)) = kernel.extents.split_last() else {
            return Err(CpuError::Unsupported { kernel: "map", reason: "it has no dimensions".to_owned() });
        };
        let stores = Stores::compile(&kernel.body, &kernel.outputs, rows.len() as u8, Some(rows), &|_| None)?;
        Ok(Self { kernel: kernel.clone(), stores })
    }

    pub(super) fn run(
        &self,
        env: &Env<'_>,
        outputs: &mut [&mut Memory],
        symbol: &dyn Fn(Symbol) -> Option<i64>,
    ) -> Result<(), CpuError> {
        check(self.kernel.outputs.iter(), outputs, symbol)?;
        let extents = extents(&self.kernel.extents, "the loop", symbol)?;
        let Some((&width, outer)) = extents.split_last() else { return Ok(()) };
        let blocks = Blocks::of_points(outer.iter().product(), width, TASK);
        if blocks.rows == 0 || width == 0 {
            return Ok(());
        }
        let dealt = deal(&self.stores.stores.iter().collect::<Vec<_>>(), outputs, blocks);
        tasks::for_each(
            dealt.into_iter().enumerate().collect(),
            || Machine::new(&self.stores.program, env),
            |machine, (n, mut targets)| self.block(machine, &mut targets, outer, blocks, n),
        );
        Ok(())
    }

    fn block(&self, machine: &mut Machine<'_>, targets: &mut [Target<'_>], outer: &[usize], blocks: Blocks, n: usize) {
        let (rows, columns) = blocks.block(n);
        let mut coords = vec![0; outer.len()];
        for row in rows {
            unravel(row, outer, &mut coords);
            let given = Given { coords: &coords, ..Given::default() };
            write_row(&self.stores, machine, targets, given, row, columns.clone(), blocks.width);
        }
    }
}
