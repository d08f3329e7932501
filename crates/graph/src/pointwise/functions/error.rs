use super::op::{Erf, Exp};
use super::{Algebra, Declaration, Unary, UnaryOp, Vectors, Wgsl};
use crate::Scalar::F32;
use std::f64::consts::{FRAC_2_SQRT_PI, PI};

/// `erfc(x) e^(x^2)` for `x` in `0.9..4.2` as a polynomial of `(1 / (1 + x / 2) - ERFC_CENTRE) * ERFC_SCALE`.
const ERFC: [f32; 7] =
    [0.260_658_97, 0.158_992_96, 0.032_952_994, 0.003_914_13, 5.995_91e-5, -4.552_465e-5, -1.849_316e-6];
const ERFC_CENTRE: f32 = 0.506_117_9;
const ERFC_SCALE: f32 = 1.0 / 0.183_537_26;
/// `(erf(x) / (2 x / sqrt(pi)) - 1) / x^2` as a polynomial of `x^2`.
const ERF: [f32; 8] =
    [-1.0 / 3.0, 0.1, -1.0 / 42.0, 1.0 / 216.0, -1.0 / 1320.0, 1.0 / 9360.0, -1.0 / 75_600.0, 1.0 / 685_440.0];

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

    /// The Maclaurin series below 0.95, a fit of `erfc(x) e^(x^2)` above.
    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        let one = v.splat(1.0);
        let a = v.clamp(v.abs(x), 0.0, 4.2);
        let z = v.mul(a, a);
        let small = v.mul_add(a, v.mul(z, v.polynomial(z, ERF)), a);
        let small = v.mul(small, v.splat(std::f32::consts::FRAC_2_SQRT_PI));
        let u = v.div(one, v.mul_add(v.splat(0.5), a, one));
        let u = v.mul(v.sub(u, v.splat(ERFC_CENTRE)), v.splat(ERFC_SCALE));
        let g = v.polynomial(u, ERFC);
        let large = v.sub(one, v.mul(Exp::lanes(v, v.neg(z)), g));
        let y = v.select(v.less(a, v.splat(0.95)), small, large);
        v.signed(y, x)
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
