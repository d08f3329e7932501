use super::algebra::Algebra;
use super::functions::BinaryOp;
use crate::Scalar;

/// Bounds of a number. For a bool, `low` is true if it is true everywhere, `high` if it is true anywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval<T = f64> {
    /// The smallest value.
    pub low: T,
    /// The largest value.
    pub high: T,
}

/// A condition over a whole tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tri {
    /// False everywhere: the tile is skipped.
    Never,
    /// True at some points: the tile is masked.
    Sometimes,
    /// True everywhere: the tile runs unmasked.
    Always,
}

impl<T> Interval<T> {
    /// From `low` to `high`, inclusive.
    pub fn new(low: T, high: T) -> Self {
        Self { low, high }
    }

    /// One value.
    pub fn point(value: T) -> Self
    where
        T: Clone,
    {
        Self::new(value.clone(), value)
    }

    /// Applies an increasing function to both ends.
    pub fn map<R>(&self, mut function: impl FnMut(&T) -> R) -> Interval<R> {
        Interval::new(function(&self.low), function(&self.high))
    }

    /// Applies a function that increases in both arguments to the lower ends and to the upper ends.
    pub fn zip<R>(&self, other: &Self, mut function: impl FnMut(&T, &T) -> R) -> Interval<R> {
        Interval::new(function(&self.low, &other.low), function(&self.high, &other.high))
    }

    /// Bounds of a select between two values of type `scalar`.
    pub fn select<A: Algebra<Value = T>>(at: &mut A, scalar: Scalar, condition: &Self, [a, b]: [&Self; 2]) -> Self {
        let (least, most) = match scalar {
            Scalar::Bool => (BinaryOp::And, BinaryOp::Or),
            _ => (BinaryOp::Min, BinaryOp::Max),
        };
        let mut end = |op, a, b| {
            let either = at.binary(op, a, b);
            let possible = at.select(&condition.high, &either, b);
            at.select(&condition.low, a, &possible)
        };
        Self::new(end(least, &a.low, &b.low), end(most, &a.high, &b.high))
    }
}

impl Interval {
    /// All numbers.
    pub const UNKNOWN: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };
    /// Integers below this magnitude are exact in bounds.
    pub const EXACT: f64 = super::algebra::EXACT;
    /// A bool that may be true or false.
    pub const UNDECIDED: Self = Self { low: 0.0, high: 1.0 };

    /// The smallest interval that contains both.
    pub fn join(self, other: Self) -> Self {
        Self::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// Interprets the bounds of a bool.
    pub fn truth(self) -> Tri {
        match (self.low > 0.0, self.high > 0.0) {
            (true, _) => Tri::Always,
            (false, true) => Tri::Sometimes,
            (false, false) => Tri::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::algebra::Numbers;
    use super::*;

    #[test]
    fn a_causal_tile_is_decided_by_its_corners() {
        let causal = |i: (f64, f64), j: (f64, f64)| {
            let (i, j) = (Interval::new(i.0, i.1), Interval::new(j.0, j.1));
            BinaryOp::Ge.interval(&mut Numbers(Scalar::I32), Scalar::I32, [&i, &j]).unwrap().truth()
        };
        assert_eq!(causal((32.0, 63.0), (0.0, 31.0)), Tri::Always);
        assert_eq!(causal((32.0, 63.0), (32.0, 63.0)), Tri::Sometimes);
        assert_eq!(causal((0.0, 31.0), (32.0, 63.0)), Tri::Never);
    }
}
