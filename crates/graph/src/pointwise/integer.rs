//! Functions of integers, which mean what [`Scalar`] says.

use super::function::{BinaryOp, UnaryOp};
use crate::Scalar;

impl Scalar {
    /// An integer as this type holds it: the low 32 bits of an `I32`, and 0 or 1 of a truth value.
    ///
    /// ```
    /// use rewire_graph::Scalar;
    /// assert_eq!(Scalar::I32.wrap(1 << 31), i64::from(i32::MIN));
    /// assert_eq!(Scalar::Bool.wrap(-7), 1);
    /// ```
    pub fn wrap(self, value: i64) -> i64 {
        match self {
            Self::I32 => i64::from(value as i32),
            Self::Bool => i64::from(value != 0),
            Self::I64 | Self::F32 => value,
        }
    }

    /// A float as an integer of this type.
    pub fn truncate(self, value: f64) -> i64 {
        match self {
            Self::I32 => i64::from(value as i32),
            Self::Bool => i64::from(value != 0.0),
            Self::I64 | Self::F32 => value as i64,
        }
    }
}

impl UnaryOp {
    /// The function of an integer or truth value of type `scalar`.
    ///
    /// ```
    /// use rewire_graph::Scalar;
    /// use rewire_graph::pointwise::UnaryOp;
    /// assert_eq!(UnaryOp::Neg.evaluate_int(Scalar::I64, (1 << 53) + 1), -(1 << 53) - 1);
    /// assert_eq!(UnaryOp::Abs.evaluate_int(Scalar::I32, i64::from(i32::MIN)), i64::from(i32::MIN));
    /// ```
    pub fn evaluate_int(self, scalar: Scalar, a: i64) -> i64 {
        scalar.wrap(match self {
            Self::Neg => a.wrapping_neg(),
            Self::Abs => a.wrapping_abs(),
            Self::Not => i64::from(a == 0),
            _ => a,
        })
    }
}

impl BinaryOp {
    /// The function of two integers or truth values of type `scalar`; comparisons give 0 or 1.
    ///
    /// ```
    /// use rewire_graph::Scalar;
    /// use rewire_graph::pointwise::BinaryOp;
    /// assert_eq!(BinaryOp::Div.evaluate_int(Scalar::I64, -7, 2), -4);
    /// assert_eq!(BinaryOp::Add.evaluate_int(Scalar::I32, i64::from(i32::MAX), 1), i64::from(i32::MIN));
    /// ```
    pub fn evaluate_int(self, scalar: Scalar, a: i64, b: i64) -> i64 {
        self.result(scalar).wrap(match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div => floor_div(a, b),
            Self::Mod if b == 0 => 0,
            Self::Mod => a.wrapping_sub(b.wrapping_mul(floor_div(a, b))),
            Self::Pow => a.wrapping_pow(u32::try_from(b).unwrap_or(0)),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Eq => i64::from(a == b),
            Self::Ne => i64::from(a != b),
            Self::Lt => i64::from(a < b),
            Self::Le => i64::from(a <= b),
            Self::Gt => i64::from(a > b),
            Self::Ge => i64::from(a >= b),
            Self::And => a & b,
            Self::Or => a | b,
        })
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down_and_is_defined_everywhere() {
        for scalar in [Scalar::I32, Scalar::I64] {
            assert_eq!(BinaryOp::Div.evaluate_int(scalar, -7, 2), -4);
            assert_eq!(BinaryOp::Mod.evaluate_int(scalar, -7, 2), 1);
            assert_eq!(BinaryOp::Mod.evaluate_int(scalar, 7, -2), -1);
            assert_eq!(BinaryOp::Div.evaluate_int(scalar, 7, 0), 0);
            assert_eq!(BinaryOp::Mod.evaluate_int(scalar, 7, 0), 0);
        }
        for (scalar, least) in [(Scalar::I32, i64::from(i32::MIN)), (Scalar::I64, i64::MIN)] {
            assert_eq!(BinaryOp::Div.evaluate_int(scalar, least, -1), least);
            assert_eq!(BinaryOp::Mod.evaluate_int(scalar, least, -1), 0);
        }
    }
}
