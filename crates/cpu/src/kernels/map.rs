use super::coords::Coords;
use super::error::CpuError;
use super::lanes::ROWS;
use super::machine::RowInputs;
use super::memory::Memory;
use super::operand::{Env, count};
use super::panel::{segments, within};
use super::run::{as_one, scattered};
use super::store::{Blocks, Stores};
use super::{Compile, Scheduled, tasks};
use rewire_graph::Dim;
use rewire_graph::pointwise::ExprId;
use rewire_graph_rewrite::plan::{Body, Extent, Nest, Output};
use rewire_graph_rewrite::schedule::{Bound, Map};
use std::ops::Range;
use std::sync::Arc;

/// Minimum number of points per task.
const TASK: usize = 1 << 14;

/// A pointwise kernel.
#[derive(Clone, Debug)]
pub(super) struct CompiledMap {
    /// Variants of the loop, best first. A run uses the first variant whose extents fit.
    loops: Vec<Loop>,
}

/// A loop over rows and, within each row, over parts of the columns.
#[derive(Clone, Debug)]
struct Loop {
    /// The dimensions before the columns.
    outer: Vec<Dim>,
    /// Number of columns and outputs of each part.
    parts: Vec<(Dim, Stores)>,
}

impl Compile for Bound<'_, Map> {
    fn compile(&self) -> Result<Arc<dyn Scheduled>, CpuError> {
        Ok(Arc::new(CompiledMap::new(self)?))
    }
}

impl CompiledMap {
    pub(super) fn new(kernel: &Bound<'_, Map>) -> Result<Self, CpuError> {
        let mut nests = vec![kernel.nest.clone()];
        while let Some(joined) = nests.last().and_then(joined) {
            nests.push(joined);
        }
        Ok(Self { loops: nests.iter().rev().map(Loop::new).collect::<Result<_, _>>()? })
    }
}

impl Scheduled for CompiledMap {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        let mut failure = Ok(());
        for way in &self.loops {
            match way.extents(env) {
                Ok(extents) => return way.run(env, outputs, extents),
                Err(error) => failure = Err(error),
            }
        }
        failure
    }
}

impl Loop {
    fn new(nest: &Nest) -> Result<Self, CpuError> {
        let extents = extents_of(nest);
        let Some((_, outer)) = extents.split_last().filter(|(_, outer)| outer.len() < 16) else {
            return Err(CpuError::Unsupported { kernel: "map", reason: "it has no or too many dimensions".to_owned() });
        };
        let axis = outer.len() as u8;
        let part = |part: &Nest| {
            let columns = extents_of(part).pop().unwrap_or_default();
            Ok((columns, Stores::compile(&part.body, &part.outputs, axis, Some(outer), &|_, _| None)?))
        };
        let parts = divided(nest).iter().map(part).collect::<Result<_, CpuError>>()?;
        Ok(Self { outer: outer.to_vec(), parts })
    }

    /// The extents of the outer dimensions, and the number of columns of each part.
    fn extents(&self, env: &Env<'_>) -> Result<(Vec<usize>, Vec<usize>), CpuError> {
        let widths = self.parts.iter().map(|(columns, _)| env.extent(columns, "the loop"));
        Ok((env.extents(&self.outer, "the loop")?, widths.collect::<Result<_, _>>()?))
    }

    fn run(
        &self,
        env: &Env<'_>,
        outputs: &mut [&mut Memory],
        (outer, widths): (Vec<usize>, Vec<usize>),
    ) -> Result<(), CpuError> {
        let (rows, width) = (count(&outer, "the loop")?, widths.iter().sum());
        // Several parts can only be divided by rows.
        let blocks = match self.parts.len() {
            1 => Blocks::of_points(rows, width, TASK),
            _ => Blocks::of_rows(rows, width, TASK),
        };
        if blocks.rows == 0 || blocks.width == 0 {
            return Ok(());
        }
        tasks::for_each_block(
            self.parts.iter().flat_map(|(_, stores)| stores.iter()),
            outputs,
            blocks,
            || self.parts.iter().map(|(_, stores)| stores.writer(env)).collect::<Result<Vec<_>, _>>(),
            |writers, targets, n| {
                let (rows, columns) = blocks.block(n);
                let mut coords = Coords::new(outer.len())?;
                for (writer, &width) in writers.iter_mut().zip(&widths) {
                    let columns = if blocks.across { columns.clone() } else { 0..width };
                    for first in rows.clone().step_by(ROWS) {
                        let count = ROWS.min(rows.end - first);
                        coords.unravel(first, count, &outer);
                        let inputs = RowInputs { rows: count, coords: coords.all(), ..RowInputs::default() };
                        writer.rows(targets, inputs, first, columns.clone());
                    }
                }
                Ok(())
            },
        )
    }
}

/// The extents of a pointwise loop.
fn extents_of(map: &Nest) -> Vec<Dim> {
    map.axes.iter().filter_map(|axis| axis.extent.dense().cloned()).collect()
}

/// The expressions that a loop computes.
fn values(map: &Nest) -> Vec<ExprId> {
    map.outputs.iter().flat_map(Output::roots).collect()
}

/// Row length from which the overhead of a row pays.
const LONG: usize = 16;
/// Average number of columns per part from which a separate loop for each part pays.
const WIDE: usize = 4;

/// Ranges of columns with different expressions, such as the operands of a concatenation. Empty if separate loops would
/// be slower.
fn parts(map: &Nest) -> Vec<Range<usize>> {
    let Some((last, outer)) = map.axes.split_last() else { return vec![] };
    let columns = last.extent.dense().and_then(Dim::as_const);
    let parts = segments(&map.body.dag, &values(map), outer.len() as u8, columns);
    let is_plain = outer.is_empty() || map.outputs.iter().any(|output| output.columns.is_some());
    match is_plain || columns.is_some_and(|columns| columns < WIDE * parts.len()) {
        true => vec![],
        false => parts,
    }
}

/// A loop for each of the [`parts`].
fn divided(map: &Nest) -> Vec<Nest> {
    let all = || vec![map.clone()];
    let (roots, parts) = (values(map), parts(map));
    let Some(axis) = map.axes.len().checked_sub(1).filter(|_| parts.len() > 1).map(|axis| axis as u8) else {
        return all();
    };
    let part = |columns: &Range<usize>| {
        let (dag, copies) = within(&map.body.dag, &roots, axis, std::slice::from_ref(columns));
        let mut copies = copies.into_iter();
        let outputs = map.outputs.iter().filter_map(|output| {
            let index = copies.by_ref().take(output.index.len()).collect();
            Some(Output { index, value: copies.next()?, ..output.clone() })
        });
        let outputs = outputs.collect();
        let mut part = Nest { body: Body { dag, ..map.body.clone() }, outputs, ..map.clone() };
        part.axes.iter_mut().next_back().into_iter().for_each(|axis| axis.extent = Extent::Dense(columns.len().into()));
        part
    };
    parts.iter().map(part).collect()
}

/// The loop with its last two dimensions merged. `None` if rows are long, or if contiguous loads would not stay
/// contiguous.
fn joined(map: &Nest) -> Option<Nest> {
    let all = extents_of(map);
    let (last, outer) = all.split_last()?;
    let (before, rest) = outer.split_last()?;
    let width = last.as_const().filter(|&width| width > 0 && (width < LONG || width % 4 == 0 && width <= 128))?;
    let extent = before.product(last)?;
    if map.outputs.iter().any(|output| output.columns.is_some()) || parts(map).len() > 1 {
        return None;
    }
    let axis = rest.len() as u8;
    let is_short = width < LONG;
    let roots = values(map);
    let (dag, copies) = as_one(&map.body.dag, &roots, (axis, axis + 1, axis), (width, extent.as_const()));
    let mut copies = copies.into_iter();
    let mut outputs = Vec::with_capacity(map.outputs.len());
    for output in &map.outputs {
        let index = copies.by_ref().take(output.index.len()).collect();
        outputs.push(Output { index, value: copies.next()?, ..output.clone() });
    }
    let extents = rest.iter().cloned().chain([extent]).collect::<Vec<_>>();
    let body = Body { dag, operands: map.body.operands.clone(), sizes: map.body.sizes.clone() };
    let joined = Nest::map(body, extents, outputs);
    let (flat, single) =
        (scattered(&joined.body, &values(&joined), axis), scattered(&map.body, &values(map), axis + 1));
    (is_short || flat <= single).then_some(joined)
}
