use crate::storage::{Codec, Format, decode, encode, rows};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The codec between floats of a type and f64.
macro_rules! floats {
    ($ty:ty, $from:expr, $to:expr) => {
        Codec::Float {
            decode: |bytes| decode(bytes, |bytes| $to(<$ty>::from_le_bytes(bytes))),
            encode: |values| encode(values, |value: f64| <$ty>::to_le_bytes($from(value))),
        }
    };
}

/// The codec between integers of a type, f64 and i64.
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
    /// IEEE 754 binary32 (f32).
    F32,
    /// IEEE 754 binary16 (f16). Computed in f32 and rounded to nearest when stored; values from 65520 become
    /// infinite.
    F16,
    /// bfloat16: the range of f32 with eight bits of precision. Computed in f32 and rounded to nearest, ties to even,
    /// when stored. NaN stays NaN.
    BF16,
    /// Whole floats from -128 to 127 in a byte. Computed in f32, rounded to nearest, ties to even, and limited to the
    /// range when stored; NaN is 0. Matmuls of two such tensors multiply integers.
    I8,
    /// Rows of 8-bit integers, each with an `f32` scale and an `f32` bias: fbgemm's fused 8-bit rows. Element `q` is
    /// `q * scale + bias`, rounded once. For tables and weights: kernels only read them,
    /// [`crate::HostTensor::stored_as`] makes them.
    Rows8,
    /// Rows of 4-bit integers, each with an `f16` scale and an `f16` bias: fbgemm's fused 4-bit rows. Otherwise like
    /// `Rows8`; row lengths are multiples of 4.
    Rows4,
    /// Rows of 2-bit integers, like `Rows4`; row lengths are multiples of 8.
    Rows2,
    /// 64-bit signed integer; two u32 on a GPU.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer; kernels read its bits as an `I32`. Inputs above `i32::MAX` are rejected.
    U32,
    /// Boolean, stored as a u32 of 0 or 1.
    Bool,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I8,
        Self::Rows8,
        Self::Rows4,
        Self::Rows2,
        Self::I64,
        Self::I32,
        Self::U32,
        Self::Bool,
    ];

    /// The memory format of the elements.
    pub fn format(self) -> &'static Format {
        const fn format(name: &'static str, scalar: Scalar, bits: usize, codec: Codec) -> Format {
            Format { name, scalar, bits, parameters: 0, multiple: 1, codec }
        }
        const F32: Format = format("f32", Scalar::F32, 32, floats!(f32, |x| x as f32, f64::from));
        const F16: Format = format("f16", Scalar::F32, 16, floats!(f16, |x| f16::from_f32(x as f32), f16::to_f64));
        const BF16: Format = format("bf16", Scalar::F32, 16, floats!(bf16, |x| bf16::from_f32(x as f32), bf16::to_f64));
        const I8: Format =
            format("i8", Scalar::F32, 8, floats!(i8, |x: f64| x.round_ties_even() as i8, |x: i8| f64::from(x)));
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
            Self::I8 => &I8,
            Self::Rows8 => &ROWS8,
            Self::Rows4 => &ROWS4,
            Self::Rows2 => &ROWS2,
            Self::I64 => &I64,
            Self::I32 => &I32,
            Self::U32 => &U32,
            Self::Bool => &BOOL,
        }
    }

    /// The element type with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.format().name == name)
    }

    /// True if arithmetic on this type is float arithmetic.
    pub fn is_float(self) -> bool {
        self.scalar() == Scalar::F32
    }

    /// The type in which arithmetic on this storage type is done.
    pub fn scalar(self) -> Scalar {
        self.format().scalar
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format().name)
    }
}

/// Scalar type inside a kernel. Loads convert storage types to one of these.
///
/// Integer arithmetic is bit-exact and the same in the interpreter, simplification, constant folding, on the CPU and on
/// every GPU:
///
/// | operation | meaning |
/// | --- | --- |
/// | `I32`, `I64` | two's complement; sums, differences, products, negation and absolute value wrap around |
/// | quotient | rounded toward negative infinity; 0 if the divisor is 0; the minimum divided by -1 is the minimum |
/// | remainder | remainder of that quotient, with the divisor's sign; 0 if the divisor is 0 |
/// | to a narrower integer | the low bits |
/// | from a float | rounded toward 0 and clamped to the type; 0 for NaN |
/// | from a bool, to a bool | 0 or 1; true if not 0 |
///
/// Indices follow the same rules. Simplification assumes that an index does not wrap around only if bounds of its
/// coordinates prove it: see [`crate::pointwise::Dag::range`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scalar {
    /// 32-bit float.
    F32,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Boolean.
    Bool,
}
