//! Float functions that the graph has no operator for.

use crate::ScalarType;
use crate::context::Context;
use rewire_graph::Tensor;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

/// `((c[0] x + c[1]) x + ..) x + c[n]`
pub(crate) fn polynomial(x: &Tensor, coefficients: &[f64]) -> Tensor {
    let (first, rest) = coefficients.split_first().unwrap_or((&0.0, &[]));
    let mut sum = x * 0.0 + *first;
    for (n, &coefficient) in rest.iter().enumerate() {
        sum = if n == 0 { x * *first } else { &sum * x } + coefficient;
    }
    sum
}

impl Context {
    /// Rounds a float to a narrow type. Values above its range become the largest one if `saturates`, otherwise NaN or infinity.
    pub fn narrowed(&self, x: &Tensor, ty: ScalarType, saturates: bool) -> Tensor {
        if ty == ScalarType::F8E8M0 {
            return x.clone();
        }
        let layout = ty.layout();
        let least = 1 - layout.bias;
        let nearest = self.rounded_to(x, least, layout.fraction, layout.most);
        let magnitude = nearest.abs();
        let above = magnitude.gt(layout.most);
        let limit = self.with_sign(&self.f(layout.most), x);
        let beyond = match (saturates || !layout.has_nan, layout.has_infinity) {
            (true, _) => limit,
            (false, true) => x * f64::INFINITY,
            (false, false) => self.f(f64::NAN),
        };
        let y = above.select(&beyond, &nearest);
        // In formats without negative zero, results that would be -0 become 0.
        let y = if layout.is_unsigned_zero { y.equal(0.0).select(&self.f(0.0), &y) } else { y };
        // NaN becomes 0 in formats without NaN.
        let other = if layout.has_nan { x.clone() } else { self.f(0.0) };
        self.is_nan(x).select(&other, &y)
    }

    /// A 0-dim float constant.
    pub fn f(&self, value: f64) -> Tensor {
        self.scope.scalar(rewire_graph::DType::F32, value)
    }

    /// A float rounded to the 16-bit type `ty`.
    pub fn rounded(&self, x: &Tensor, ty: ScalarType) -> Tensor {
        let (least, bits, most) = match ty {
            ScalarType::F16 => (-14, 10, 65504.0),
            _ => (-126, 7, 3.3895313892515355e38),
        };
        let nearest = self.rounded_to(x, least, bits, most);
        let beyond = nearest.abs().gt(most).or(x.abs().equal(f64::INFINITY));
        beyond.select(&(x * f64::INFINITY), &nearest)
    }

    /// Rounds a float to `bits` fraction bits, or to the spacing at the smallest exponent `least`: to nearest, ties to even.
    ///
    /// Kernels keep f32 results between operators, so the rounding is computed: a power of two scales the value to an integer.
    pub fn rounded_to(&self, x: &Tensor, least: i32, bits: i32, most: f64) -> Tensor {
        let magnitude = x.abs();
        let power = |exponent: i32| 2f64.powi(exponent);
        let (mut scale, mut inverse) = (self.f(power(least)), self.f(power(1 - least)));
        let span = (most.log2().floor() as i32 - least + 1).max(1) as u32;
        for step in (0..=span.ilog2()).rev().map(|step| (1i32 << step).min(126)) {
            let next = &scale * power(step);
            let reaches = magnitude.ge(&next);
            inverse = reaches.select(&(&inverse * power(-step)), &inverse);
            scale = reaches.select(&next, &scale);
        }
        let whole = ((x * 0.5 * inverse) * power(bits)).round();
        (whole * power(-bits)) * scale
    }

    pub fn atan(&self, x: &Tensor) -> Tensor {
        let a = x.abs();
        let (large, middle) = (a.gt(2.414213562373095), a.gt(0.414213562373095));
        let start = large.select(&self.f(FRAC_PI_2), &middle.select(&self.f(FRAC_PI_4), &self.f(0.0)));
        let reciprocal = self.f(-1.0) / &a;
        let z = large.select(&reciprocal, &middle.select(&((&a - 1.0) / (&a + 1.0)), &a));
        let coefficients = [8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1];
        let square = &z * &z;
        let y = start + polynomial(&square, &coefficients) * &square * &z + &z;
        self.with_sign(&y, x)
    }

    pub fn atan2(&self, y: &Tensor, x: &Tensor) -> Tensor {
        let (zero, pi) = (self.f(0.0), self.f(PI));
        let both_infinite = y.abs().equal(f64::INFINITY).and(x.abs().equal(f64::INFINITY));
        let ratio = both_infinite.select(&self.f(1.0), &(y.abs() / x.abs()));
        let origin = y.equal(0.0).and(x.equal(0.0));
        let angle = origin.select(&zero, &self.atan(&ratio));
        let angle = x.lt(0.0).select(&(&pi - &angle), &angle);
        self.with_sign(&angle, y)
    }

    pub fn asin(&self, x: &Tensor) -> Tensor {
        let a = x.abs();
        let large = a.gt(0.5);
        let z = large.select(&((self.f(1.0) - &a) * 0.5), &(&a * &a));
        let root = large.select(&z.sqrt(), &a);
        let coefficients = [4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1];
        let p = polynomial(&z, &coefficients) * &z * &root + &root;
        let y = large.select(&(self.f(FRAC_PI_2) - &p * 2.0), &p);
        self.with_sign(&y, x)
    }

    pub fn acos(&self, x: &Tensor) -> Tensor {
        self.f(FRAC_PI_2) - self.asin(x)
    }

    pub fn log1p(&self, x: &Tensor) -> Tensor {
        let sum = x + 1.0;
        let log = sum.log();
        let usable = sum.gt(0.0).and(sum.lt(f64::INFINITY));
        let rest = (&sum - 1.0 - x) / &sum;
        usable.select(&(&log - rest), &log)
    }

    pub fn expm1(&self, x: &Tensor) -> Tensor {
        let exp = x.exp();
        let small = (x * 0.5).tanh() * (&exp + 1.0);
        x.abs().lt(1.0).select(&small, &(exp - 1.0))
    }

    pub fn sinh(&self, x: &Tensor) -> Tensor {
        let e = self.expm1(x);
        let small = (&e + &e / (&e + 1.0)) * 0.5;
        x.abs().lt(1.0).select(&small, &((x - LN_2).exp() - (-x - LN_2).exp()))
    }

    pub fn cosh(&self, x: &Tensor) -> Tensor {
        (x - LN_2).exp() + (-x - LN_2).exp()
    }

    pub fn asinh(&self, x: &Tensor) -> Tensor {
        let a = x.abs();
        let square = &a * &a;
        let y = self.log1p(&(&a + &square / ((&square + 1.0).sqrt() + 1.0)));
        let y = a.gt(1e15).select(&(a.log() + LN_2), &y);
        self.with_sign(&y, x)
    }

    pub fn acosh(&self, x: &Tensor) -> Tensor {
        let t = x - 1.0;
        let y = self.log1p(&(&t + (&t * 2.0 + &t * &t).sqrt()));
        x.gt(1e15).select(&(x.log() + LN_2), &y)
    }

    pub fn atanh(&self, x: &Tensor) -> Tensor {
        self.log1p(&(x * 2.0 / (self.f(1.0) - x))) * 0.5
    }

    /// The inverse error function by Giles' f32 approximation (Approximating the erfinv function).
    pub fn erfinv(&self, x: &Tensor) -> Tensor {
        let w = -((self.f(1.0) - x) * (x + 1.0)).log();
        let near = [
            2.81022636e-08,
            3.43273939e-07,
            -3.5233877e-06,
            -4.39150654e-06,
            0.00021858087,
            -0.00125372503,
            -0.00417768164,
            0.246640727,
            1.50140941,
        ];
        let far = [
            -0.000200214257,
            0.000100950558,
            0.00134934322,
            -0.00367342844,
            0.00573950773,
            -0.0076224613,
            0.00943887047,
            1.00167406,
            2.83297682,
        ];
        let inner = polynomial(&(&w - 2.5), &near);
        let outer = polynomial(&(w.sqrt() - 3.0), &far);
        let y = w.lt(5.0).select(&inner, &outer) * x;
        x.abs().equal(1.0).select(&(x * f64::INFINITY), &y)
    }

    /// Lanczos' approximation; below one half by reflection.
    pub fn lgamma(&self, x: &Tensor) -> Tensor {
        const COEFFICIENTS: [f64; 8] = [
            676.5203681218851,
            -1259.1392167224028,
            771.3234287776531,
            -176.6150291621406,
            12.507343278686905,
            -0.13857109526572012,
            9.984369578019572e-6,
            1.5056327351493116e-7,
        ];
        let is_low = x.lt(0.5);
        let shifted = is_low.select(&-x, &(x - 1.0));
        let mut sum = self.f(0.9999999999998099);
        for (n, coefficient) in COEFFICIENTS.iter().enumerate() {
            sum = sum + self.f(*coefficient) / (&shifted + (n + 1) as f64);
        }
        let t = &shifted + 7.5;
        let log = (&shifted + 0.5) * t.log() - &t + sum.log() + 0.9189385332046727;
        let fraction = x - x.floor();
        let reflected = self.f(PI.ln()) - (fraction * PI).sin().abs().log() - &log;
        is_low.select(&reflected, &log)
    }

    /// The asymptotic series after six recurrence steps; below 0 by reflection.
    pub fn digamma(&self, x: &Tensor) -> Tensor {
        let is_negative = x.lt(0.0);
        let own = is_negative.select(&(self.f(1.0) - x), x);
        let mut sum = self.f(0.0);
        for n in 0..6 {
            sum = sum - self.f(1.0) / (&own + f64::from(n));
        }
        let y = &own + 6.0;
        let square = self.f(1.0) / y.square();
        let series = polynomial(&square, &[-1.0 / 252.0, 1.0 / 120.0, -1.0 / 12.0]) * &square;
        let value = sum + y.log() - self.f(0.5) / &y + series;
        let angle = x * PI;
        is_negative.select(&(&value - (angle.cos() / angle.sin()) * PI), &value)
    }

    /// The magnitude of `y` with the sign of `x`.
    pub fn with_sign(&self, y: &Tensor, x: &Tensor) -> Tensor {
        x.lt(0.0).select(&-y, y)
    }

    /// -1, 0 or 1.
    pub fn sign(&self, x: &Tensor) -> Tensor {
        let [one, zero, minus] = [1i64, 0, -1].map(|value| {
            let dtype = if x.dtype().is_float() { rewire_graph::DType::F32 } else { x.dtype() };
            self.scope.scalar(dtype, value)
        });
        let zero = zero;
        let below = x.lt(&zero).select(&minus, &zero);
        x.gt(&zero).select(&one, &below)
    }

    pub fn is_nan(&self, x: &Tensor) -> Tensor {
        x.not_equal(x)
    }
}
