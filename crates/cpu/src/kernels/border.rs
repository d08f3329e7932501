//! Operands with a border, for pointwise loops that read shifted rows of a tensor and a constant outside of it, such as
//! depthwise convolutions and pooling: loads from a copy with a border need no choice, and rows of them are contiguous.

use super::error::CpuError;
use super::memory::Memory;
use super::operand::{Env, View};
use super::run::run_along;
use super::storage::{Elements, ElementsMut};
use super::window::is_inside;
use super::{Compile, Scheduled, tasks};
use crate::parallel::threads;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::bound;
use rewire_graph_rewrite::plan::{Body, MemorySpace, Nest, ScheduledNest};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of shifted loads from which a copy pays.
const LOADS: usize = 4;
/// Maximum number of elements of a copy per element of the tensor.
const GROWTH: usize = 3;
/// Minimum number of floats that a task copies.
const TASK: usize = 1 << 16;
/// Maximum number of copies, and of bytes of each, that a thread keeps for reuse.
const MOST_SPARE: (usize, u64) = (2, 4 << 20);

thread_local! {
    /// Memory of earlier copies, for reuse by the thread.
    static SPARE: Cell<Vec<Memory>> = const { Cell::new(vec![]) };
}

/// An operand and the constant outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    operand: u16,
    outside: u32,
}

/// Elements before and after each axis of a tensor.
pub(super) type Border = Vec<(usize, usize)>;

/// A kernel that reads copies with borders.
struct Bordered {
    copies: Vec<(Source, Border)>,
    kernel: Arc<dyn Scheduled>,
}

/// The kernel of a nest that reads shifted elements; `None` for others.
pub(super) fn compile(nest: &Nest) -> Result<Option<Arc<dyn Scheduled>>, CpuError> {
    let copies = borders(nest);
    if copies.is_empty() {
        return Ok(None);
    }
    let Ok(nest) = ScheduledNest::of(rewritten(nest, &copies)) else { return Ok(None) };
    let kernel = bound!(&nest, schedule => schedule.compile())?;
    Ok(Some(Arc::new(Bordered { copies, kernel })))
}

/// The operand of a load that has another value where its indices are out of range, the load's indices, and the axes whose
/// indices may be out of range.
fn shifted<'d>(body: &Body, dag: &'d Dag, expr: &Expr) -> Option<(Source, &'d [ExprId], Vec<bool>)> {
    let Expr::Select(condition, load, other) = *expr else { return None };
    let (Expr::Load { operand, index }, &Expr::Float(outside)) = (dag.expr(load), dag.expr(other)) else { return None };
    let declared = body.operands.get(usize::from(*operand))?;
    if declared.dtype != DType::F32 || declared.space == MemorySpace::Host {
        return None;
    }
    let extents: Vec<Option<usize>> = declared.shape.iter().map(Dim::as_const).collect();
    let mut may_leave = vec![false; index.len()];
    let is_plain = is_inside(dag, condition, (index, &extents), &mut may_leave);
    is_plain.then_some((Source { operand: *operand, outside }, &index[..], may_leave))
}

/// The copies of which a pointwise loop reads rows at least [`LOADS`] times. They have a border along rows, where each element
/// would need a choice.
pub(super) fn borders(nest: &Nest) -> Vec<(Source, Border)> {
    let body = &nest.body;
    let Some(axis) = nest.axes.len().checked_sub(1).filter(|_| nest.accumulations.is_empty()) else { return vec![] };
    let axis = axis as u8;
    let mut all: BTreeMap<Source, Option<(usize, Border)>> = BTreeMap::new();
    for id in body.dag.reachable(&nest.roots()) {
        let Some((source, index, may_leave)) = shifted(body, &body.dag, body.dag.expr(id)) else { continue };
        let Some(declared) = body.operands.get(usize::from(source.operand)) else { continue };
        let is_row = index.last().is_some_and(|&column| run_along(&body.dag, column, axis).is_some());
        let found = all.entry(source).or_insert_with(|| Some((0, vec![(0, 0); index.len()])));
        let Some((loads, border)) = found else { continue };
        *loads += 1;
        let mut axes = index.iter().zip(&declared.shape).zip(border.iter_mut()).zip(may_leave);
        let is_bounded = axes.all(|(((&index, extent), border), may_leave)| {
            if !may_leave {
                return true;
            }
            let (Some((low, high)), Some(extent)) = (body.dag.range(index), extent.as_const()) else { return false };
            let before = usize::try_from(low.saturating_neg().max(0));
            let after = usize::try_from(high.saturating_sub(extent as i64 - 1).max(0));
            let (Ok(before), Ok(after)) = (before, after) else { return false };
            *border = (border.0.max(before), border.1.max(after));
            border.0.saturating_add(border.1).saturating_add(extent) <= extent.saturating_mul(GROWTH)
        });
        if !is_bounded || !is_row {
            *found = None;
        }
    }
    let pays = |(source, found): (Source, Option<(usize, Border)>)| {
        let (loads, border) = found?;
        (loads >= LOADS && border.last().is_some_and(|&border| border != (0, 0))).then_some((source, border))
    };
    all.into_iter().filter_map(pays).collect()
}

/// A nest that reads copies with borders, which are operands after its own.
fn rewritten(nest: &Nest, copies: &[(Source, Border)]) -> Nest {
    let (old, mut nest) = (nest, nest.clone());
    let first = nest.body.operands.len();
    for (source, border) in copies {
        let mut copy = old.body.operands[usize::from(source.operand)].clone();
        for (extent, &(before, after)) in copy.shape.iter_mut().zip(border) {
            if let Some(own) = extent.as_const().filter(|_| before + after > 0) {
                *extent = (before + own + after).into();
            }
        }
        nest.body.operands.push(copy);
    }
    nest.rebuild(|dag, expr, copied| {
        let (source, ..) = shifted(&old.body, &old.body.dag, expr)?;
        let position = copies.iter().position(|(other, _)| *other == source)?;
        // A copied selection has a copied load, or what a load became, as its second operand.
        let Expr::Load { index, .. } = dag.expr(*copied.get(1)?).clone() else { return None };
        let moved = index.iter().zip(&copies[position].1).map(|(&index, &(before, _))| match before {
            0 => index,
            before => {
                let before = dag.int(before as i64);
                dag.binary(BinaryOp::Add, index, before)
            }
        });
        let moved = moved.collect();
        Some(dag.load((first + position) as u16, DType::F32, moved))
    });
    nest
}

impl Scheduled for Bordered {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        let mut spare = SPARE.take();
        let mut made = Vec::with_capacity(self.copies.len());
        for (source, border) in &self.copies {
            let view = env.views.get(usize::from(source.operand));
            let Some(View { elements: Elements::F32(data), shape, strides, .. }) = view else {
                return Err(CpuError::Unsupported { kernel: "border", reason: "an operand is missing".to_owned() });
            };
            let mut copy = match spare.pop() {
                Some(copy) => copy,
                None => Memory::new(DType::F32, &[0])?,
            };
            fill(&mut copy, (data, shape, strides), border, f32::from_bits(source.outside))?;
            made.push(copy);
        }
        self.kernel.run(&env.extended(&made), outputs)?;
        made.retain(|copy| copy.bytes() <= MOST_SPARE.1);
        made.truncate(MOST_SPARE.0);
        SPARE.set(made);
        Ok(())
    }
}

/// Copies a tensor with a border.
fn fill(
    copy: &mut Memory,
    (data, shape, strides): (&[f32], &[usize], &[usize]),
    border: &[(usize, usize)],
    outside: f32,
) -> Result<(), CpuError> {
    let extents: Vec<usize> = shape.iter().zip(border).map(|(own, (before, after))| before + own + after).collect();
    copy.reset(DType::F32, &extents)?;
    let (ElementsMut::F32(out), [_, pitches]) = copy.parts_mut()? else { return Ok(()) };
    let (Some((&width, outer)), Some((&(before, _), borders))) = (shape.split_last(), border.split_last()) else {
        return Ok(());
    };
    // A tensor of one axis is one row.
    let pitch = match pitches.len() {
        0 | 1 => out.len().max(1),
        axes => pitches[axes - 2].max(1),
    };
    let rows: usize = extents[..outer.len()].iter().product();
    let each = rows.div_ceil(threads()).max(TASK.div_ceil(pitch));
    let parts = out.chunks_mut(each * pitch).enumerate().map(|(n, part)| (n * each, part)).collect();
    tasks::for_each(
        parts,
        || Ok(vec![0usize; outer.len()]),
        |place: &mut Vec<usize>, (first, part)| {
            let mut rest = first;
            for (place, &extent) in place.iter_mut().zip(&extents).rev() {
                (*place, rest) = (rest % extent.max(1), rest / extent.max(1));
            }
            for line in part.chunks_mut(pitch).take(rows - first) {
                let mut axes = place.iter().zip(borders).zip(outer).zip(strides);
                let from = axes.try_fold(0, |from, (((place, (before, _)), extent), stride)| {
                    Some(from + place.checked_sub(*before).filter(|place| place < extent)? * stride)
                });
                match from.and_then(|from| data.get(from..from + width)).zip(line.get_mut(before..before + width)) {
                    Some((from, _)) => {
                        let (start, rest) = line.split_at_mut(before);
                        let (inside, end) = rest.split_at_mut(width);
                        start.fill(outside);
                        inside.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
                        end.fill(outside);
                    }
                    None => line.fill(outside),
                }
                for (place, &extent) in place.iter_mut().zip(&extents).rev() {
                    *place += 1;
                    if *place < extent {
                        break;
                    }
                    *place = 0;
                }
            }
            Ok(())
        },
    )
}
