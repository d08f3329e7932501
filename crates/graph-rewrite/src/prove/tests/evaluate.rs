//! Evaluates kernels as a plain loop over their expressions, and records out-of-range accesses and elements that are
//! not written.

use super::super::region::{Region, Values};
use crate::plan::{Binding, Body, BufferId, HostSlot, MemorySpace, Plan, ShapeValues, Step};
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId, UnaryOp};
use rewire_graph::{Dim, Scalar};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

/// An element of a tensor of integers: usually a small index, sometimes an extreme of 32 bits.
fn integer(chance: i64) -> i64 {
    match chance % 11 {
        0 => i64::from(i32::MAX) - chance / 11 % 9,
        1 => i64::from(i32::MIN) + chance / 11 % 9,
        _ => chance / 11 % 40 - 20,
    }
}

/// Largest number of values of a coordinate for which a loop is evaluated completely.
const FULL: i64 = 40;

/// Evaluates all kernels of a plan in one run.
pub(super) fn check(plan: &Plan, values: &ShapeValues, seed: u64) -> Result<(), Wrong> {
    let mut known: HashSet<BufferId> = HashSet::new();
    for step in plan.load.iter().chain(&plan.steps) {
        let mut run = Run { step, values, seed, written: HashMap::new(), is_full: true };
        run.evaluate()?;
        for (position, &id) in step.writes.iter().enumerate() {
            let is_first = known.insert(id);
            if is_first && run.is_full && run.leaves(position) {
                return Err(Wrong::Partial { step: step.name.clone(), position });
            }
        }
    }
    Ok(())
}

/// One run of a kernel.
struct Run<'a> {
    step: &'a Step,
    values: &'a ShapeValues,
    seed: u64,
    /// By result, the indices that were written.
    written: HashMap<usize, HashSet<Vec<i64>>>,
    /// True if all points were evaluated.
    is_full: bool,
}

/// A violation of the proofs.
#[derive(Debug, PartialEq)]
pub(super) enum Wrong {
    /// An out-of-range load or store.
    Outside { step: String, expression: u32, index: Vec<i64> },
    /// A result whose first writer does not write all of it.
    Partial { step: String, position: usize },
}

impl Run<'_> {
    fn body(&self) -> &Body {
        self.step.computation.body()
    }

    fn dim(&self, dim: &Dim) -> Option<i64> {
        dim.evaluate(|symbol| self.values.symbols.get(&symbol).copied()).map(|n| n as i64)
    }

    fn vector(&self, operand: u16) -> &[i64] {
        match self.step.reads.get(usize::from(operand)) {
            Some(Binding::Host(HostSlot(slot))) => &self.values.slots[*slot as usize],
            _ => &[],
        }
    }

    /// Evaluates the loops until the first violation.
    fn evaluate(&mut self) -> Result<(), Wrong> {
        for region in Region::of(&self.step.computation) {
            self.points(&region, &mut vec![])?;
        }
        Ok(())
    }

    /// True if elements of a result are unwritten.
    fn leaves(&self, position: usize) -> bool {
        let written = self.step.computation.written();
        let result = written.iter().find(|written| usize::from(written.target) == position);
        let extents = result.map(|result| result.shape.iter().map(|dim| self.dim(dim)).product::<Option<i64>>());
        let count = self.written.get(&position).map_or(0, HashSet::len);
        extents.flatten().is_none_or(|elements| elements != count as i64)
    }

    fn points(&mut self, region: &Region<'_>, point: &mut Vec<i64>) -> Result<(), Wrong> {
        let Some(extent) = region.coords.get(point.len()) else {
            let values = region.roots.iter().map(|&root| self.at(root, point)).collect::<Result<Vec<_>, _>>()?;
            let Some((_, output)) = region.output else { return Ok(()) };
            let within = |(at, dim): (&i64, &Dim)| (0..self.dim(dim).unwrap_or(0)).contains(at);
            return match values.iter().zip(&output.shape).all(within) {
                true => {
                    let last = point.last().and_then(|&last| usize::try_from(last).ok()).unwrap_or(0);
                    let index = values.get(..output.index.len()).unwrap_or(&values).to_vec();
                    if output.columns.is_none_or(|(start, end)| (start..end).contains(&last)) {
                        self.written.entry(output.target.into()).or_default().insert(index);
                    }
                    Ok(())
                }
                false => {
                    Err(Wrong::Outside { step: self.step.name.clone(), expression: output.value.0, index: values })
                }
            };
        };
        let (first, end) = match extent {
            Values::Dim(dim) | Values::Depth(dim) => (0, self.dim(dim).unwrap_or(0)),
            Values::Part(first, last, _) => (*first as i64, *last as i64 + 1),
            Values::Unread => (0, 1),
            Values::Ragged(offsets) => {
                let offsets = self.vector(*offsets);
                let entry = |n: i64| offsets.get(n as usize).copied().unwrap_or(0);
                (0, entry(point[0] + 1) - entry(point[0]))
            }
        };
        // Long loops are evaluated at their first and last points.
        let most = if end - first > FULL { 9 } else { FULL };
        self.is_full &= end - first <= FULL;
        for coord in (first..end.min(first + most)).chain((end - 2).max(first + most)..end) {
            point.push(coord);
            self.points(region, point)?;
            point.pop();
        }
        Ok(())
    }

    fn chance(&self, what: impl Hash) -> i64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, what).hash(&mut hasher);
        (hasher.finish() >> 20) as i64
    }

    fn at(&self, id: ExprId, point: &[i64]) -> Result<i64, Wrong> {
        let dag = &self.body().dag;
        let of = |id: ExprId| self.at(id, point);
        let word = |value: i64| if dag.scalar(id) == Scalar::I32 { i64::from(value as i32) } else { value };
        Ok(match dag.expr(id) {
            &Expr::Int(_, value) => value,
            &Expr::Bool(value) => value.into(),
            &Expr::Coord(axis) => point.get(usize::from(axis)).copied().unwrap_or(0),
            &Expr::Size(position) => self.dim(&self.body().sizes[usize::from(position)]).unwrap_or(0),
            Expr::Load { operand, index } => {
                let index = index.iter().map(|&id| of(id)).collect::<Result<Vec<_>, _>>()?;
                let declared = &self.body().operands[usize::from(*operand)];
                let within = |(at, dim): (&i64, &Dim)| (0..self.dim(dim).unwrap_or(0)).contains(at);
                if !index.iter().zip(&declared.shape).all(within) {
                    return Err(Wrong::Outside { step: self.step.name.clone(), expression: id.0, index });
                }
                match declared.space {
                    MemorySpace::Host => {
                        word(self.vector(*operand).get(*index.first().unwrap_or(&0) as usize).copied().unwrap_or(0))
                    }
                    _ => word(integer(self.chance((operand, index)))),
                }
            }
            &Expr::Sample { offsets, row } => {
                let (row, offsets) = (of(row)?, self.vector(offsets));
                let (mut low, mut high) = (0, offsets.len() as i64 - 2);
                while low < high {
                    let middle = (low + high + 1) >> 1;
                    if offsets[middle as usize] <= row { low = middle } else { high = middle - 1 }
                }
                low
            }
            &Expr::Select(condition, a, b) => of(if of(condition)? != 0 { a } else { b })?,
            &Expr::Unary(UnaryOp::Not, a) => 1 - of(a)?,
            &Expr::Unary(UnaryOp::Neg, a) if dag.scalar(id) != Scalar::F32 => word(-of(a)?),
            &Expr::Binary(op, a, b) if dag.scalar(a) != Scalar::F32 => {
                let (x, y) = (of(a)?, of(b)?);
                if op == BinaryOp::Pow { 1 } else { word(op.evaluate_int(dag.scalar(a), x, y)) }
            }
            &Expr::Cast(to, a) if dag.scalar(a) != Scalar::F32 => {
                let value = of(a)?;
                if to == Scalar::Bool { i64::from(value != 0) } else { word(value) }
            }
            expr => {
                let read = expr.operands().into_iter().map(of).collect::<Result<Vec<_>, _>>()?;
                let any = self.chance((id.0, read));
                if dag.scalar(id) == Scalar::Bool { any & 1 } else { any % 60 - 30 }
            }
        })
    }
}
