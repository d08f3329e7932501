use serde::{Deserialize, Serialize};
use std::fmt;

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision; computed in f32 and rounded to the nearest where stored, which is infinite from 65520 on.
    F16,
    /// 64-bit signed integer; a pair of u32 on a GPU.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer: in kernels the bits of an `I32`. Inputs above `i32::MAX` are rejected.
    U32,
    /// Truth value; a u32 of 0 or 1 in memory.
    Bool,
}

impl DType {
    /// Bytes one element takes in a buffer.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 | Self::Bool => 4,
        }
    }

    /// True for `F32` and `F16`.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }

    /// The type that arithmetic on this storage type is done in.
    pub fn scalar(self) -> Scalar {
        match self {
            Self::F32 | Self::F16 => Scalar::F32,
            Self::I64 => Scalar::I64,
            Self::I32 | Self::U32 => Scalar::I32,
            Self::Bool => Scalar::Bool,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::Bool => "bool",
        })
    }
}

/// Type of a scalar inside a kernel. Storage types convert to one of these when loaded.
///
/// The interpreter, simplifications, folded constants, the CPU and every GPU compute the same integers to the bit:
///
/// | what | meaning |
/// | --- | --- |
/// | `I32`, `I64` | two's complement; sums, differences, products, negations and magnitudes wrap around |
/// | quotient | rounded toward negative infinity; 0 for a divisor of 0; the least integer by -1 is itself |
/// | remainder | what the quotient leaves, with the divisor's sign; 0 for a divisor of 0 |
/// | to a narrower integer | the low bits |
/// | from a float | rounded toward 0 and limited to the type; 0 for NaN |
/// | from a truth value, to one | 0 or 1; whether it is not 0 |
///
/// Indices are integers of the same kind. They are simplified as if nothing wrapped around only where bounds of the
/// coordinates prove that: see [`crate::pointwise::Dag::range`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scalar {
    /// 32-bit float.
    F32,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Truth value.
    Bool,
}
