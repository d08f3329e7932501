//! Bounds of integer expressions, computed when expressions are added.

use super::algebra::Integers;
use super::dag::{Dag, ExprId};
use super::functions::BinaryOp;
use super::interval::Interval;
use crate::Scalar;

impl Dag {
    /// The union of the bounds of two expressions.
    pub(super) fn joined_range(&self, a: ExprId, b: ExprId) -> Option<(i64, i64)> {
        let (a, b) = (self.range(a)?, self.range(b)?);
        Some((a.0.min(b.0), a.1.max(b.1)))
    }

    /// Bounds of a conversion that cannot change the value.
    pub(super) fn cast_range(&self, scalar: Scalar, a: ExprId) -> Option<(i64, i64)> {
        let whole = |(low, high): &(i64, i64)| scalar.wrap(*low) == *low && scalar.wrap(*high) == *high;
        if matches!(scalar, Scalar::I32 | Scalar::I64) { self.range(a).filter(whole) } else { None }
    }

    /// Bounds of a function of two `I32`; `None` if it may wrap around.
    pub(super) fn binary_range(&self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<(i64, i64)> {
        let bounds = self.interval(op, a, b)?;
        let is_whole = |end: i64| Scalar::I32.wrap(end) == end;
        (!op.is_comparison() && is_whole(bounds.low) && is_whole(bounds.high)).then_some((bounds.low, bounds.high))
    }

    /// Bounds of a function of two `I32`, assuming that it does not wrap around. An operand without bounds can have any
    /// value.
    pub(super) fn interval(&self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<Interval<i64>> {
        const ANY: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);
        let (x, y) = (self.range(a), self.range(b));
        x.or(y)?;
        let [x, y] = [x, y].map(|range| range.unwrap_or(ANY)).map(|(low, high)| Interval::new(low, high));
        op.interval(&mut Integers, Scalar::I32, [&x, &y])
    }
}
