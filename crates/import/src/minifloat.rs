//! Floats of at most 8 bits: decoding and encoding.

use crate::ScalarType;

/// Layout of a narrow float.
pub(crate) struct Layout {
    /// Number of fraction bits.
    pub fraction: i32,
    pub bias: i32,
    pub most: f64,
    pub has_infinity: bool,
    pub has_nan: bool,
    /// True if the bits of negative zero encode the only NaN.
    pub is_unsigned_zero: bool,
}

impl ScalarType {
    pub(crate) fn layout(self) -> Layout {
        let (fraction, bias, most, has_infinity, has_nan, is_unsigned_zero) = match self {
            Self::F4E2M1 => (1, 1, 6.0, false, false, false),
            Self::F8E4M3 => (3, 7, 448.0, false, true, false),
            Self::F8E4M3Fnuz => (3, 8, 240.0, false, true, true),
            Self::F8E5M2 => (2, 15, 57344.0, true, true, false),
            _ => (2, 16, 57344.0, false, true, true),
        };
        Layout { fraction, bias, most, has_infinity, has_nan, is_unsigned_zero }
    }

    /// Decodes the bits of a narrow float.
    pub(crate) fn decoded(self, bits: u8) -> f64 {
        if self == Self::F8E8M0 {
            return if bits == 255 { f64::NAN } else { 2f64.powi(i32::from(bits) - 127) };
        }
        let layout = self.layout();
        let sign_bit = 1u8 << (self.bits() - 1);
        if layout.is_unsigned_zero && bits == sign_bit {
            return f64::NAN;
        }
        let magnitude = bits & (sign_bit - 1);
        let fraction = f64::from(magnitude & ((1 << layout.fraction) - 1)) / f64::from(1 << layout.fraction);
        let exponent = i32::from(magnitude >> layout.fraction);
        let value = match exponent {
            0 => fraction * 2f64.powi(1 - layout.bias),
            _ => (1.0 + fraction) * 2f64.powi(exponent - layout.bias),
        };
        let value = match (value > layout.most, layout.has_infinity && fraction == 0.0) {
            (true, true) => f64::INFINITY,
            (true, false) => f64::NAN,
            _ => value,
        };
        if bits & sign_bit == 0 { value } else { -value }
    }

    /// Encodes a value that the type can represent.
    pub(crate) fn encoded(self, value: f64) -> u8 {
        let is_same = |own: f64| own == value && own.is_sign_negative() == value.is_sign_negative();
        let all = || 0..=u8::MAX >> (8 - self.bits());
        let exact = all().find(|&bits| is_same(self.decoded(bits)));
        let near = || all().find(|&bits| self.decoded(bits) == value || value.is_nan() && self.decoded(bits).is_nan());
        exact.or_else(near).unwrap_or_default()
    }
}
