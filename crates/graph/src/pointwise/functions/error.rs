use super::exponential::exp_within;
use super::op::Erf;
use super::{Algebra, Declaration, Unary, UnaryOp, Vectors, Wgsl};
use crate::Scalar::F32;
use std::f64::consts::{FRAC_2_SQRT_PI, PI};

/// `-ln(erfc(x))` for `x` in `0.9..4` as a polynomial of `x`.
const ERFC: [f32; 7] =
    [1.774_945e-4, 1.127_749_6, 0.637_059_75, 0.104_037_36, -0.022_277_087, 0.003_055_607_4, -1.971_817_1e-4];
/// `erf(x) / x - 1` for `x` in `0..0.95` as a polynomial of `x^2`.
const ERF: [f32; 6] = [0.128_379_14, -0.376_124_47, 0.112_813_205, -0.026_748_864, 0.004_967_507, -5.862_082_5e-4];
/// The end of the range of `ERF`.
const SPLIT: f32 = 0.95;

impl Unary for Erf {
    const DECLARATION: Declaration = Declaration {
        name: "erf",
        wgsl: &[(&[F32], Wgsl::scalar("erf({a})"))],
        library: "
// The Maclaurin series below 1; above, a Chebyshev fit of erfc with a relative error of 1.2e-7.
fn erf(x: f32) -> f32 {
    let a = abs(x);
    let s = a * a;
    if (a < 1.0f) {
        var sum = -1.4503852e-7f * s + 1.4589169e-6f;
        sum = sum * s - 1.3227513e-5f;
        sum = sum * s + 1.0683761e-4f;
        sum = sum * s - 7.5757576e-4f;
        sum = sum * s + 4.6296296e-3f;
        sum = sum * s - 2.3809524e-2f;
        sum = sum * s + 0.1f;
        sum = sum * s - 0.33333334f;
        sum = sum * s + 1.0f;
        return 1.1283792f * x * sum;
    }
    let t = 1.0f / (1.0f + 0.5f * a);
    var fit = 0.17087277f * t - 0.82215223f;
    fit = fit * t + 1.48851587f;
    fit = fit * t - 1.13520398f;
    fit = fit * t + 0.27886807f;
    fit = fit * t - 0.18628806f;
    fit = fit * t + 0.09678418f;
    fit = fit * t + 0.37409196f;
    fit = fit * t + 1.00002368f;
    fit = fit * t - 1.26551223f;
    let result = 1.0f - t * exp(fit - s);
    return select(result, -result, x < 0.0f);
}",
        ..Declaration::FUNCTION
    };
    /// The Maclaurin series below 3, a continued fraction of erfc above (DLMF 7.6.1, 7.9.1).
    const EVALUATE: fn(f64) -> f64 = |x| {
        let a = x.abs();
        if a < 3.0 {
            let (mut term, mut sum) = (x, x);
            for n in 1..100 {
                let n = f64::from(n);
                term *= -x * x / n;
                sum += term / (2.0 * n + 1.0);
            }
            return (sum * FRAC_2_SQRT_PI).copysign(x);
        }
        let fraction = (1..60).rev().fold(a, |rest, n| a + f64::from(n) / 2.0 / rest);
        (1.0 - (-a * a).exp() / PI.sqrt() / fraction).copysign(x)
    };

    /// Minimax fits of erf below 0.95 and of the logarithm of erfc above. Vectors below compute only the former.
    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        let (a, most) = (v.abs(x), v.splat(4.0));
        let a = v.select(v.less(most, a), most, a);
        let small = v.mul_add(a, v.polynomial(v.mul(a, a), ERF), a);
        let is_small = v.less(a, v.splat(SPLIT));
        if !v.any(v.not(is_small)) {
            return v.signed(small, x);
        }
        let erfc = exp_within(v, v.neg(v.polynomial(a, ERFC)));
        v.signed(v.select(is_small, small, v.sub(v.splat(1.0), erfc)), x)
    }

    fn gradient<A: Algebra>(at: &mut A, x: &A::Value, _: &A::Value, g: &A::Value) -> Option<A::Value> {
        let (scale, square) = (at.number(FRAC_2_SQRT_PI), at.mul(x, x));
        let exponent = at.neg(&square);
        let bell = at.unary(UnaryOp::Exp, &exponent);
        let slope = at.mul(&scale, &bell);
        Some(at.mul(g, &slope))
    }
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
            assert!(((Erf::EVALUATE)(x) - expected).abs() < 1e-13, "erf({x}) = {}", (Erf::EVALUATE)(x));
        }
    }
}
