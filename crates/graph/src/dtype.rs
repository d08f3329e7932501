use crate::storage::{Codec, Format, decode, encode, rows};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The codec of floats of a type, from doubles and to doubles.
macro_rules! floats {
    ($ty:ty, $from:expr, $to:expr) => {
        Codec::Float {
            decode: |bytes| decode(bytes, |bytes| $to(<$ty>::from_le_bytes(bytes))),
            encode: |values| encode(values, |value: f64| <$ty>::to_le_bytes($from(value))),
        }
    };
}

/// The codec of integers of a type, from doubles and to integers of 64 bits.
macro_rules! integers {
    ($ty:ty, $from:expr, $to:expr) => {
        Codec::Integer {
            decode: |bytes| decode(bytes, |bytes| $to(<$ty>::from_le_bytes(bytes))),
            encode: |values| encode(values, |value: f64| <$ty>::to_le_bytes($from(value))),
        }
    };
}

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision; computed in f32 and rounded to the nearest where stored, which is infinite from 65520 on.
    F16,
    /// The upper half of single precision: its range with eight bits of precision; computed in f32 and rounded to the nearest,
    /// ties to even, where stored. NaN stays NaN.
    BF16,
    /// Rows of 8-bit integers with an `f32` scale and an `f32` bias each, fbgemm's fused 8-bit rows: element `q` is
    /// `q * scale + bias`, rounded once. Tables and weights; kernels read them, [`crate::HostTensor::stored_as`] makes them.
    Rows8,
    /// Rows of 4-bit integers with an `f16` scale and an `f16` bias each, fbgemm's fused 4-bit rows. As `Rows8` otherwise; rows have a
    /// multiple of 4 elements.
    Rows4,
    /// Rows of 2-bit integers, as `Rows4`; rows have a multiple of 8 elements.
    Rows2,
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
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Rows8,
        Self::Rows4,
        Self::Rows2,
        Self::I64,
        Self::I32,
        Self::U32,
        Self::Bool,
    ];

    /// How elements lie in memory.
    pub fn format(self) -> &'static Format {
        const fn format(name: &'static str, scalar: Scalar, bits: usize, codec: Codec) -> Format {
            Format { name, scalar, bits, parameters: 0, multiple: 1, codec }
        }
        const F32: Format = format("f32", Scalar::F32, 32, floats!(f32, |x| x as f32, f64::from));
        const F16: Format = format("f16", Scalar::F32, 16, floats!(f16, |x| f16::from_f32(x as f32), f16::to_f64));
        const BF16: Format = format("bf16", Scalar::F32, 16, floats!(bf16, |x| bf16::from_f32(x as f32), bf16::to_f64));
        const fn rows(name: &'static str, bits: usize, (parameters, multiple): (usize, usize), codec: Codec) -> Format {
            Format { parameters, multiple, ..format(name, Scalar::F32, bits, codec) }
        }
        const ROWS8: Format =
            rows("rows8", 8, (64, 1), Codec::Float { decode: rows::decode_bytes, encode: rows::encode_bytes });
        const ROWS4: Format =
            rows("rows4", 4, (32, 4), Codec::Float { decode: rows::decode::<4>, encode: rows::encode::<4> });
        const ROWS2: Format =
            rows("rows2", 2, (32, 8), Codec::Float { decode: rows::decode::<2>, encode: rows::encode::<2> });
        const I64: Format = format("i64", Scalar::I64, 64, integers!(i64, |x| x as i64, |x| x));
        const I32: Format = format("i32", Scalar::I32, 32, integers!(i32, |x| x as i32, i64::from));
        const U32: Format = format("u32", Scalar::I32, 32, integers!(u32, |x| x as u32, i64::from));
        const BOOL: Format = format("bool", Scalar::Bool, 32, integers!(u32, |x| u32::from(x != 0.0), i64::from));
        match self {
            Self::F32 => &F32,
            Self::F16 => &F16,
            Self::BF16 => &BF16,
            Self::Rows8 => &ROWS8,
            Self::Rows4 => &ROWS4,
            Self::Rows2 => &ROWS2,
            Self::I64 => &I64,
            Self::I32 => &I32,
            Self::U32 => &U32,
            Self::Bool => &BOOL,
        }
    }

    /// The storage type of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.format().name == name)
    }

    /// True where arithmetic is that of floats.
    pub fn is_float(self) -> bool {
        self.scalar() == Scalar::F32
    }

    /// The type that arithmetic on this storage type is done in.
    pub fn scalar(self) -> Scalar {
        self.format().scalar
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format().name)
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
