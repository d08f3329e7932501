use super::function::{BinaryOp, UnaryOp};

/// Bounds of a scalar over a tile. Truth values are 0 and 1, so `[0, 1]` means undecided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The smallest value.
    pub low: f64,
    /// The largest value.
    pub high: f64,
}

/// What a condition is over a whole tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tri {
    /// False everywhere: the tile is skipped.
    Never,
    /// True in places: the tile is masked.
    Sometimes,
    /// True everywhere: the tile runs unmasked.
    Always,
}

impl Interval {
    /// Everything.
    pub const UNKNOWN: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };
    /// Integers below this magnitude are exact in bounds.
    pub const EXACT: f64 = 9_007_199_254_740_992.0;
    /// An undecided truth value.
    pub const UNDECIDED: Self = Self { low: 0.0, high: 1.0 };

    /// From `low` to `high`, both included.
    pub fn new(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    /// One value.
    pub fn point(value: f64) -> Self {
        Self::new(value, value)
    }

    /// The smallest interval with all of both.
    pub fn join(self, other: Self) -> Self {
        Self::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// Reads a truth value.
    pub fn truth(self) -> Tri {
        match (self.low > 0.0, self.high > 0.0) {
            (true, _) => Tri::Always,
            (false, true) => Tri::Sometimes,
            (false, false) => Tri::Never,
        }
    }

    /// Bounds of a function of one interval.
    pub fn unary(op: UnaryOp, a: Self) -> Self {
        match op {
            UnaryOp::Neg => Self::new(-a.high, -a.low),
            UnaryOp::Not => Self::new(1.0 - a.high, 1.0 - a.low),
            UnaryOp::Abs if a.low >= 0.0 => a,
            UnaryOp::Abs if a.high <= 0.0 => Self::new(-a.high, -a.low),
            UnaryOp::Abs => Self::new(0.0, a.high.max(-a.low)),
            UnaryOp::Relu | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => {
                Self::new(op.evaluate(a.low), op.evaluate(a.high))
            }
            _ => Self::UNKNOWN,
        }
    }

    /// Bounds of a function of two intervals.
    pub fn binary(op: BinaryOp, a: Self, b: Self) -> Self {
        let truth = |always: bool, never: bool| Self::new(f64::from(u8::from(always)), f64::from(u8::from(!never)));
        match op {
            BinaryOp::Add => Self::new(a.low + b.low, a.high + b.high),
            BinaryOp::Sub => Self::new(a.low - b.high, a.high - b.low),
            BinaryOp::Mul => {
                let corners = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high];
                if corners.iter().any(|c| c.is_nan()) {
                    return Self::UNKNOWN;
                }
                Self::new(
                    corners.iter().copied().fold(f64::INFINITY, f64::min),
                    corners.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                )
            }
            BinaryOp::Min => Self::new(a.low.min(b.low), a.high.min(b.high)),
            BinaryOp::Max => Self::new(a.low.max(b.low), a.high.max(b.high)),
            BinaryOp::Lt => truth(a.high < b.low, a.low >= b.high),
            BinaryOp::Le => truth(a.high <= b.low, a.low > b.high),
            BinaryOp::Gt => truth(a.low > b.high, a.high <= b.low),
            BinaryOp::Ge => truth(a.low >= b.high, a.high < b.low),
            BinaryOp::Eq | BinaryOp::Ne => {
                let same = a.low == a.high && a == b;
                let apart = a.high < b.low || b.high < a.low;
                if op == BinaryOp::Eq { truth(same, apart) } else { truth(apart, same) }
            }
            BinaryOp::And if is_truth(a) && is_truth(b) => Self::new(a.low.min(b.low), a.high.min(b.high)),
            BinaryOp::Or if is_truth(a) && is_truth(b) => Self::new(a.low.max(b.low), a.high.max(b.high)),
            _ => Self::UNKNOWN,
        }
    }

    /// Bounds of a choice.
    pub fn select(condition: Self, a: Self, b: Self) -> Self {
        match condition.truth() {
            Tri::Always => a,
            Tri::Never => b,
            Tri::Sometimes => a.join(b),
        }
    }
}

fn is_truth(a: Interval) -> bool {
    a.low >= 0.0 && a.high <= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_causal_tile_is_decided_by_its_corners() {
        let causal = |i: (f64, f64), j: (f64, f64)| {
            Interval::binary(BinaryOp::Ge, Interval::new(i.0, i.1), Interval::new(j.0, j.1)).truth()
        };
        assert_eq!(causal((32.0, 63.0), (0.0, 31.0)), Tri::Always);
        assert_eq!(causal((32.0, 63.0), (32.0, 63.0)), Tri::Sometimes);
        assert_eq!(causal((0.0, 31.0), (32.0, 63.0)), Tri::Never);
    }
}
