use super::coords::Coords;
use super::error::CpuError;
use super::lanes::ROWS;
use super::machine::Given;
use super::memory::Memory;
use super::operand::{Env, count, extents};
use super::run::{moves, runs};
use super::store::{Blocks, Stores, Target, Writer, check, deal};
use super::tasks;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::plan::{Body, Map, Output};

/// Points of a task.
const TASK: usize = 1 << 14;

/// A loop without an anchor.
#[derive(Clone, Debug)]
pub(super) struct CompiledMap {
    kernel: Map,
    /// Ways to run the loop, the better ones first.
    loops: Vec<Loop>,
}

#[derive(Clone, Debug)]
struct Loop {
    extents: Vec<Dim>,
    stores: Stores,
}

impl CompiledMap {
    pub(super) fn new(kernel: &Map) -> Result<Self, CpuError> {
        let mut maps = vec![kernel.clone()];
        while let Some(joined) = maps.last().and_then(joined) {
            maps.push(joined);
        }
        let loops = maps.iter().rev().map(Loop::new).collect::<Result<_, _>>()?;
        Ok(Self { kernel: kernel.clone(), loops })
    }

    pub(super) fn run(
        &self,
        env: &Env<'_>,
        outputs: &mut [&mut Memory],
        symbol: &dyn Fn(Symbol) -> Option<i64>,
    ) -> Result<(), CpuError> {
        check(self.kernel.outputs.iter(), outputs, symbol)?;
        let mut failure = Ok(());
        for choice in &self.loops {
            match extents(&choice.extents, "the loop", symbol) {
                Ok(extents) => return choice.run(env, outputs, &extents),
                Err(error) => failure = Err(error),
            }
        }
        failure
    }
}

impl Loop {
    fn new(map: &Map) -> Result<Self, CpuError> {
        let Some((_, rows)) = map.extents.split_last().filter(|(_, rows)| rows.len() < 16) else {
            return Err(CpuError::Unsupported { kernel: "map", reason: "it has no or too many dimensions".to_owned() });
        };
        let stores = Stores::compile(&map.body, &map.outputs, rows.len() as u8, Some(rows), &|_, _| None)?;
        Ok(Self { extents: map.extents.clone(), stores })
    }

    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory], extents: &[usize]) -> Result<(), CpuError> {
        let Some((&width, outer)) = extents.split_last() else { return Ok(()) };
        let blocks = Blocks::of_points(count(outer, "the loop")?, width, TASK);
        if blocks.rows == 0 || width == 0 {
            return Ok(());
        }
        let dealt = deal(self.stores.iter(), outputs, blocks)?;
        tasks::for_each(
            dealt.into_iter().enumerate().collect(),
            || self.stores.writer(env),
            |writer, (n, mut targets)| {
                write_block(writer, &mut targets, outer, blocks, n);
                Ok(())
            },
        )
    }
}

fn write_block(writer: &mut Writer<'_>, targets: &mut [Target<'_>], outer: &[usize], blocks: Blocks, n: usize) {
    let (rows, columns) = blocks.block(n);
    let mut coords = Coords::new(outer.len());
    for first in rows.clone().step_by(ROWS) {
        let count = ROWS.min(rows.end - first);
        coords.unravel(first, count, outer);
        let given = Given { rows: count, coords: coords.all(), ..Given::default() };
        writer.rows(targets, given, first, columns.clone());
    }
}

/// Neighbouring points from which on a row is worth its overhead.
const LONG: usize = 16;

/// The same loop with its last two dimensions as one, where rows are too short to be worth their overhead. Loads that
/// take neighbouring elements of longer rows go on doing so.
fn joined(map: &Map) -> Option<Map> {
    let (last, outer) = map.extents.split_last()?;
    let (before, rest) = outer.split_last()?;
    let width = last.as_const().filter(|&width| width > 0 && (width < LONG || width % 4 == 0 && width <= 128))?;
    let extent = before.product(last)?;
    if map.outputs.iter().any(|output| output.columns.is_some()) {
        return None;
    }
    let axis = rest.len() as u8;
    let mut dag = Dag::new();
    let point = dag.coord(axis, extent.as_const());
    let is_short = width < LONG;
    let width = dag.int(width as i64);
    let (row, column) = (dag.binary(BinaryOp::Div, point, width), dag.binary(BinaryOp::Mod, point, width));
    let roots: Vec<ExprId> =
        map.outputs.iter().flat_map(|output| output.index.iter().copied().chain([output.value])).collect();
    let copies = dag.graft(&map.body.dag, &roots, |_, expr, _| match *expr {
        Expr::Coord(coord) if coord == axis => Some(row),
        Expr::Coord(coord) if coord == axis + 1 => Some(column),
        _ => None,
    });
    let mut copies = copies.into_iter();
    let mut outputs = Vec::with_capacity(map.outputs.len());
    for output in &map.outputs {
        let index = copies.by_ref().take(output.index.len()).collect();
        outputs.push(Output { index, value: copies.next()?, ..output.clone() });
    }
    let extents = rest.iter().cloned().chain([extent]).collect();
    let body = Body { dag, operands: map.body.operands.clone(), sizes: map.body.sizes.clone() };
    let joined = Map { body, extents, outputs };
    (is_short || scattered(&joined) <= scattered(map)).then_some(joined)
}

/// Number of loads that do not take neighbouring elements at neighbouring points.
fn scattered(map: &Map) -> usize {
    let axis = map.extents.len().saturating_sub(1) as u8;
    let mut dag = map.body.dag.clone();
    let runs = runs(&mut dag, &map.body.operands, axis);
    let loads = map.body.dag.ids().filter(|id| match map.body.dag.expr(*id) {
        Expr::Load { index, .. } => moves(&map.body.dag, index, axis) && !runs.contains_key(id),
        _ => false,
    });
    loads.count()
}
