use crate::{DType, HostTensor, Scalar, TypeError};
use std::fmt;

/// A number in model code: a float, or an integer of 64 bits.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// let scope = Scope::new();
/// let id = scope.input("id", DType::I64, &[4.into()]);
/// let later = &id + ((1 << 53) + 1);
/// let scaled = &later.cast(DType::F32) * 0.5;
/// # let _ = &scaled;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A float.
    Float(f64),
    /// An integer.
    Integer(i64),
}

impl Number {
    /// The number as a float, rounded to nearest.
    pub fn float(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Integer(value) => value as f64,
        }
    }

    /// The number as a 64-bit integer, if it is one.
    pub fn whole(self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(value),
            Self::Float(value) => {
                let bounds = -(2f64.powi(63))..2f64.powi(63);
                (value.fract() == 0.0 && bounds.contains(&value)).then_some(value as i64)
            }
        }
    }

    /// The number rounded toward 0.
    pub fn integer(self) -> i64 {
        match self {
            Self::Float(value) => value as i64,
            Self::Integer(value) => value,
        }
    }

    /// A scalar tensor of this number; for `U32`, with the bits of an `I32`.
    ///
    /// # Errors
    /// [`TypeError`] if an integer type cannot represent the number.
    pub fn tensor(self, dtype: DType) -> Result<HostTensor, TypeError> {
        let of = |bytes: Vec<u8>| {
            HostTensor::from_bytes(dtype, vec![], bytes).map_err(|error| TypeError::new("value", "a scalar", error))
        };
        let (least, most) = match dtype.scalar() {
            Scalar::F32 => return of(dtype.format().encode(&[], &[self.float()])),
            Scalar::I64 => (i64::MIN, i64::MAX),
            Scalar::I32 => (i32::MIN.into(), i32::MAX.into()),
            Scalar::Bool => (0, 1),
        };
        let held = self.whole().filter(|whole| (least..=most).contains(whole));
        let whole = held.ok_or_else(|| {
            TypeError::new("value", format!("a whole number from {least} to {most}, an {dtype}; cast the tensor"), self)
        })?;
        of(if dtype == DType::I64 { whole.to_le_bytes().into() } else { (whole as u32).to_le_bytes().into() })
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
        }
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<f32> for Number {
    fn from(value: f32) -> Self {
        Self::Float(value.into())
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<i32> for Number {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}
