use crate::Scalar;
use serde::{Deserialize, Serialize};

/// A function of one scalar. Floats unless said otherwise.
///
/// Floats are those of IEEE 754 in the interpreter, in folded constants and on every kernel: NaN gives NaN, infinities
/// and zeros give the limits there or, where there is none, NaN, and what exceeds single precision is infinite. Magnitudes
/// below its normal numbers, `1.2e-38`, may count as zeros of their sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UnaryOp {
    /// `-x`, floats and integers.
    Neg,
    /// `|x|`, floats and integers.
    Abs,
    /// `e^x`
    Exp,
    /// Natural logarithm; NaN of negative numbers.
    Log,
    /// Square root; NaN of negative numbers.
    Sqrt,
    /// `1 / sqrt(x)`; NaN of negative numbers.
    Rsqrt,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x / (1 + e^-x)`, the product of `x` and its sigmoid: NaN of negative infinity.
    Silu,
    /// `max(x, 0)`, a zero of either sign for zeros.
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// Sine of an angle in radians; NaN of infinities.
    Sin,
    /// Cosine of an angle in radians; NaN of infinities.
    Cos,
    /// Largest integer not above `x`.
    Floor,
    /// Smallest integer not below `x`.
    Ceil,
    /// Rounded toward zero.
    Trunc,
    /// Rounded to nearest, ties to even.
    Round,
    /// Logical negation of a truth value.
    Not,
}

/// A function of two scalars of the same type. Of floats, what [`UnaryOp`] says holds as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`; of integers, rounded toward negative infinity; 0 where `b` is the integer 0.
    Div,
    /// What dividing `a` by `b` and rounding down leaves, with the sign of `b`; 0 where `b` is the integer 0. Of floats
    /// it is exact but for one addition of `b` where the signs differ, a zero of either sign, NaN where `b` is 0 or `a`
    /// infinite.
    Mod,
    /// `a^b` as C's `pow` has it: NaN where a negative number has an exponent that is not whole, and 1 where the base is 1
    /// or the exponent 0, whatever the other is.
    Pow,
    /// The smaller; of floats NaN if either is, and either of two zeros.
    Min,
    /// The larger; of floats NaN if either is, and either of two zeros.
    Max,
    /// `a == b`; NaN equals nothing.
    Eq,
    /// `a != b`, true for NaN.
    Ne,
    /// `a < b`; like all comparisons of order false for NaN.
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
    /// Conjunction of truth values, bitwise on integers.
    And,
    /// Disjunction of truth values, bitwise on integers.
    Or,
}

impl UnaryOp {
    /// The name used in drawings and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Neg => "neg",
            Self::Abs => "abs",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Rsqrt => "rsqrt",
            Self::Sigmoid => "sigmoid",
            Self::Silu => "silu",
            Self::Relu => "relu",
            Self::Tanh => "tanh",
            Self::Erf => "erf",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Trunc => "trunc",
            Self::Round => "round",
            Self::Not => "not",
        }
    }

    /// True if the function is defined for arguments of type `scalar`.
    pub fn accepts(self, scalar: Scalar) -> bool {
        match (self, scalar) {
            (Self::Not, scalar) => scalar == Scalar::Bool,
            (Self::Neg | Self::Abs, Scalar::I32 | Scalar::I64) => true,
            (_, scalar) => scalar == Scalar::F32,
        }
    }

    /// The function in double precision.
    pub fn evaluate(self, x: f64) -> f64 {
        match self {
            Self::Neg => -x,
            Self::Abs => x.abs(),
            Self::Exp => x.exp(),
            Self::Log => x.ln(),
            Self::Sqrt => x.sqrt(),
            Self::Rsqrt => x.sqrt().recip(),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::Relu => larger(x, 0.0),
            Self::Tanh => x.tanh(),
            Self::Erf => erf(x),
            Self::Sin => x.sin(),
            Self::Cos => x.cos(),
            Self::Floor => x.floor(),
            Self::Ceil => x.ceil(),
            Self::Trunc => x.trunc(),
            Self::Round => x.round_ties_even(),
            Self::Not => 1.0 - x,
        }
    }
}

impl BinaryOp {
    /// The name used in drawings and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Mod => "mod",
            Self::Pow => "pow",
            Self::Min => "minimum",
            Self::Max => "maximum",
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Lt => "lt",
            Self::Le => "le",
            Self::Gt => "gt",
            Self::Ge => "ge",
            Self::And => "and",
            Self::Or => "or",
        }
    }

    /// True if the result is a truth value whatever the arguments are.
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge)
    }

    /// True if the operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        use BinaryOp::*;
        matches!(self, Add | Mul | Min | Max | Eq | Ne | And | Or)
    }

    /// True if the function is defined for arguments of type `scalar`.
    pub fn accepts(self, scalar: Scalar) -> bool {
        match (self, scalar) {
            (Self::And | Self::Or, scalar) => scalar != Scalar::F32,
            (Self::Eq | Self::Ne, _) => true,
            (Self::Pow, scalar) => scalar == Scalar::F32,
            (_, scalar) => scalar != Scalar::Bool,
        }
    }

    /// The type of the result for arguments of type `scalar`.
    pub fn result(self, scalar: Scalar) -> Scalar {
        if self.is_comparison() { Scalar::Bool } else { scalar }
    }

    /// The function of two floats; comparisons give 0 or 1.
    pub fn evaluate(self, a: f64, b: f64) -> f64 {
        let truth = |t: bool| f64::from(u8::from(t));
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            Self::Div => a / b,
            Self::Mod => floor_mod(a, b),
            Self::Pow => a.powf(b),
            Self::Min => -larger(-a, -b),
            Self::Max => larger(a, b),
            Self::Eq => truth(a == b),
            Self::Ne => truth(a != b),
            Self::Lt => truth(a < b),
            Self::Le => truth(a <= b),
            Self::Gt => truth(a > b),
            Self::Ge => truth(a >= b),
            Self::And => truth(a != 0.0 && b != 0.0),
            Self::Or => truth(a != 0.0 || b != 0.0),
        }
    }
}

/// The larger, or NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// What floor division leaves.
fn floor_mod(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

/// Error function: its Maclaurin series below 3, a continued fraction of erfc above (DLMF 7.6.1, 7.9.1).
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    let fraction = (1..60).rev().fold(a, |rest, n| a + f64::from(n) / 2.0 / rest);
    (1.0 - (-a * a).exp() / std::f64::consts::PI.sqrt() / fraction).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_meets_tabulated_values() {
        for (x, expected) in [
            (0.1, 0.112_462_916_018_284_9),
            (1.0, 0.842_700_792_949_714_9),
            (2.9, 0.999_958_902_121_900_5),
            (-3.5, -0.999_999_256_901_627_7),
        ] {
            assert!((erf(x) - expected).abs() < 1e-13, "erf({x}) = {}", erf(x));
        }
    }
}
