use rewire_graph::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An element type of PyTorch or ONNX.
///
/// Integers of up to 16 bits are computed as `I32` and `U32` as `I64`, and wrapped after each operator. `U64` is stored as the bits of an
/// `I64`. `F64` and floats of at most 8 bits are computed in f32; narrow floats are rounded after each operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ScalarType {
    Bool,
    U2,
    I2,
    U4,
    I4,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F4E2M1,
    F8E4M3,
    F8E4M3Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    F8E8M0,
    F16,
    BF16,
    F32,
    F64,
    /// Complex numbers, stored as pairs of `F32` along an additional last axis. Only used inside programs.
    C64,
}

impl ScalarType {
    /// All types that inputs and outputs may have, in the order of the C library's numbering.
    pub const ALL: [Self; 23] = [
        Self::Bool,
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::U2,
        Self::I2,
        Self::U4,
        Self::I4,
        Self::F4E2M1,
        Self::F8E4M3,
        Self::F8E4M3Fnuz,
        Self::F8E5M2,
        Self::F8E5M2Fnuz,
        Self::F8E8M0,
    ];

    /// The type for a type code of the archive.
    pub(crate) fn of_code(code: u64) -> Option<Self> {
        Some(match code {
            1 => Self::U8,
            2 => Self::I8,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            6 => Self::F16,
            7 => Self::F32,
            8 => Self::F64,
            10 => Self::C64,
            12 => Self::Bool,
            13 => Self::BF16,
            _ => return None,
        })
    }

    /// The type whose tensors are stored as `dtype`; `None` for whole floats in bytes and rows with a scale.
    pub fn of_dtype(dtype: DType) -> Option<Self> {
        Some(match dtype {
            DType::Bool => Self::Bool,
            DType::I32 | DType::U32 => Self::I32,
            DType::I64 => Self::I64,
            DType::F16 => Self::F16,
            DType::BF16 => Self::BF16,
            DType::F32 => Self::F32,
            DType::I8 | DType::Rows8 | DType::Rows4 | DType::Rows2 => return None,
        })
    }

    /// The storage type of its tensors.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::Bool,
            Self::I32 => DType::I32,
            _ if self.is_integer() && self.bits() <= 16 => DType::I32,
            Self::U32 | Self::U64 | Self::I64 => DType::I64,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            _ => DType::F32,
        }
    }

    /// The type in which arithmetic is computed.
    pub(crate) fn computed(self) -> DType {
        if self.is_float() { DType::F32 } else { self.dtype() }
    }

    /// True for floats.
    pub fn is_float(self) -> bool {
        self >= Self::F4E2M1
    }

    /// True for integers.
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Self::Bool
    }

    /// True for unsigned integers.
    pub(crate) fn is_unsigned(self) -> bool {
        matches!(self, Self::U2 | Self::U4 | Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// Bits of an element.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::U2 | Self::I2 => 2,
            Self::U4 | Self::I4 | Self::F4E2M1 => 4,
            Self::Bool | Self::U8 | Self::I8 => 8,
            Self::F8E4M3 | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz | Self::F8E8M0 => 8,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 16,
            Self::U32 | Self::I32 | Self::F32 => 32,
            Self::U64 | Self::I64 | Self::F64 | Self::C64 => 64,
        }
    }

    /// Bytes of an element; types of less than 8 bits take a whole byte.
    pub(crate) fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// Category of type promotion: floats rank above integers, which rank above bools.
    fn category(self) -> u8 {
        match self {
            Self::Bool => 0,
            _ if self.is_integer() => 1,
            _ => 2,
        }
    }

    /// The promoted type of two tensors of equal priority.
    pub(crate) fn promote(self, other: Self) -> Self {
        let (low, high) = (self.min(other), self.max(other));
        match (low, high) {
            (Self::U8, Self::I8) => Self::I16,
            (Self::F16, Self::BF16) => Self::F32,
            _ => high,
        }
    }

    /// The promoted type with a type of lower priority, such as of a 0-dim tensor or a number.
    pub(crate) fn promote_weak(self, weak: Self) -> Self {
        if weak.category() > self.category() { weak } else { self }
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::U2 => "u2",
            Self::I2 => "i2",
            Self::U4 => "u4",
            Self::I4 => "i4",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F4E2M1 => "f4e2m1",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E4M3Fnuz => "f8e4m3fnuz",
            Self::F8E5M2 => "f8e5m2",
            Self::F8E5M2Fnuz => "f8e5m2fnuz",
            Self::F8E8M0 => "f8e8m0",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::C64 => "c64",
        })
    }
}
