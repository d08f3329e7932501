use crate::Scalar;
use std::ops::{BitAnd, BitOr};

/// Integers with the semantics of [`Scalar`].
pub trait Integer: Copy + Ord + BitAnd<Output = Self> + BitOr<Output = Self> {
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;

    /// `self + other`
    fn plus(self, other: Self) -> Self;
    /// `self - other`
    fn minus(self, other: Self) -> Self;
    /// `self * other`
    fn times(self, other: Self) -> Self;
    /// The quotient rounded down; 0 for a divisor of 0.
    fn floor_div(self, divisor: Self) -> Self;

    /// The remainder of floor division; 0 for a divisor of 0.
    #[inline(always)]
    fn floor_mod(self, divisor: Self) -> Self {
        let rest = self.minus(divisor.times(self.floor_div(divisor)));
        if divisor == Self::ZERO { Self::ZERO } else { rest }
    }
}

macro_rules! integer {
    ($type:ty, $a:ident / $b:ident => $quotient:expr) => {
        impl Integer for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn floor_div(self, divisor: Self) -> Self {
                let ($a, $b) = (self, divisor);
                $quotient
            }
        }
    };
}

// The quotient in f64 is exact enough to be rounded down, and f64 has vector instructions.
integer!(i32, a / b => {
    let quotient = (f64::from(a) / f64::from(b)).floor();
    if b == 0 { 0 } else { quotient as i64 as i32 }
});

integer!(i64, a / b => {
    if b == 0 {
        return 0;
    }
    let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b));
    quotient.wrapping_sub(i64::from(rest != 0 && (rest < 0) != (b < 0)))
});

impl Scalar {
    /// An integer reduced to this type: the low 32 bits for `I32`, 0 or 1 for a bool.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check<I: Integer + std::fmt::Debug>(of: impl Fn(i64) -> I, least: i64) {
        for (a, b, quotient, rest) in
            [(-7, 2, -4, 1), (7, -2, -4, -1), (7, 0, 0, 0), (least, -1, least, 0), (least, 2, least / 2, 0)]
        {
            assert_eq!((of(a).floor_div(of(b)), of(a).floor_mod(of(b))), (of(quotient), of(rest)), "{a} by {b}");
        }
    }

    #[test]
    fn division_rounds_down_and_is_defined_everywhere() {
        check(|a| a as i32, i32::MIN.into());
        check(|a| a, i64::MIN);
    }
}
