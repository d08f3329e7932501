//! Functions of floats as straight-line code without branches, so that loops over them become vector code.
//!
//! No operation is contracted: a result is the same in vector and scalar code and on every machine.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding it rounds to an integer, which is then in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// `erfc(x) e^(x^2)` for `x` in `0.9..4.2` as a polynomial of `(1 / (1 + x / 2) - ERFC_CENTRE) * ERFC_SCALE`.
const ERFC: [f32; 7] =
    [0.260_658_97, 0.158_992_96, 0.032_952_994, 0.003_914_13, 5.995_91e-5, -4.552_465e-5, -1.849_316e-6];
const ERFC_CENTRE: f32 = 0.506_117_9;
const ERFC_SCALE: f32 = 1.0 / 0.183_537_26;

#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// `x = n ln 2 + r`: `(n, r)`.
#[inline(always)]
fn reduce(x: f32) -> (i32, f32) {
    let shifted = x * LOG2_E + ROUNDER;
    let n = shifted - ROUNDER;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    ((shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32), r)
}

/// `e^r - 1` for `|r| < 0.35`.
#[inline(always)]
fn expm1_reduced(r: f32) -> f32 {
    let p = 1.0 / 720.0 + r * (1.0 / 5040.0);
    let p = 1.0 / 120.0 + r * p;
    let p = 1.0 / 24.0 + r * p;
    let p = 1.0 / 6.0 + r * p;
    let p = 0.5 + r * p;
    r + r * r * p
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `e^x`; 0 and infinity beyond the range of floats.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let (n, r) = reduce(clamp(x, -104.0, 89.0));
    let half = n >> 1;
    (1.0 + expm1_reduced(r)) * power_of_two(half) * power_of_two(n - half)
}

/// `1 / (1 + e^-x)`
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + e^-x)`
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    let (n, r) = reduce(clamp(-x, -87.0, 88.0));
    let e = (1.0 + expm1_reduced(r)) * power_of_two(n);
    let y = x / (1.0 + e);
    if x < -88.0 { 0.0 * y } else { y }
}

/// Hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let (n, r) = reduce(clamp(2.0 * x.abs(), 0.0, 20.0));
    let scale = power_of_two(n);
    let e = scale * expm1_reduced(r) + (scale - 1.0);
    (e / (e + 2.0)).copysign(x)
}

/// Natural logarithm.
#[inline(always)]
pub(super) fn log(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let normal = if tiny { x * 8_388_608.0 } else { x };
    let bits = normal.to_bits() as i32;
    let offset = bits.wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32);
    let n = offset >> 23;
    let m = f32::from_bits(bits.wrapping_sub(n << 23) as u32);
    let n = n as f32 - if tiny { 23.0 } else { 0.0 };
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let p = z * (2.0 / 3.0 + z * (0.4 + z * (2.0 / 7.0 + z * (2.0 / 9.0))));
    let y = n * LN2_HIGH + (f - (s * (f - p) - n * LN2_LOW));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// Error function: its Maclaurin series below 0.95, a fit of `erfc(x) e^(x^2)` above.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let a = clamp(x.abs(), 0.0, 4.2);
    let z = a * a;
    let p = -1.0 / 75_600.0 + z * (1.0 / 685_440.0);
    let p = 1.0 / 9360.0 + z * p;
    let p = -1.0 / 1320.0 + z * p;
    let p = 1.0 / 216.0 + z * p;
    let p = -1.0 / 42.0 + z * p;
    let p = 0.1 + z * p;
    let p = -1.0 / 3.0 + z * p;
    let small = (a + a * (z * p)) * std::f32::consts::FRAC_2_SQRT_PI;
    let u = (1.0 / (1.0 + 0.5 * a) - ERFC_CENTRE) * ERFC_SCALE;
    let g = ERFC.iter().rev().fold(0.0, |sum, &c| sum * u + c);
    let large = 1.0 - exp(-z) * g;
    let y = if a < 0.95 { small } else { large };
    let y = y.copysign(x);
    if x.is_nan() { x } else { y }
}

/// Rounds of the generator.
pub(super) const ROUNDS: usize = 10;
/// Factors of a round.
pub(super) const FACTORS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// The key of the round after that of `key`.
#[inline(always)]
pub(super) fn next_key(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)]
}

/// A random word as a float in `[0, 1)`.
#[inline(always)]
pub(super) fn unit(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// Philox4x32-10: the counter `(counter, 0, 0, 0)` under the halves of `seed`, as floats in `[0, 1)`.
#[inline(always)]
pub(super) fn uniform_block(seed: i64, counter: u32) -> [f32; 4] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut c = [counter, 0, 0, 0];
    for _ in 0..ROUNDS {
        let [a, b] = [u64::from(c[0]) * u64::from(FACTORS[0]), u64::from(c[2]) * u64::from(FACTORS[1])];
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = next_key(key);
    }
    c.map(unit)
}

/// Element `index` of the stream of [`uniform_block`].
#[inline(always)]
pub(super) fn uniform(seed: i64, index: u32) -> f32 {
    let [a, b, c, d] = uniform_block(seed, index / 4);
    let (low, high) = if index & 1 == 0 { (a, c) } else { (b, d) };
    if index & 2 == 0 { low } else { high }
}

/// Floor division; 0 for divisor 0. The quotient in doubles is exact enough to be rounded down.
#[inline(always)]
pub(super) fn floor_div_i32(a: i32, b: i32) -> i32 {
    let quotient = (f64::from(a) / f64::from(b)).floor();
    if b == 0 { 0 } else { quotient as i64 as i32 }
}

/// Floor division; 0 for divisor 0.
#[inline(always)]
pub(super) fn floor_div_i64(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b));
    quotient.wrapping_sub(i64::from(rest != 0 && (rest < 0) != (b < 0)))
}

/// What floor division leaves; 0 for divisor 0.
#[inline(always)]
pub(super) fn floor_mod_i32(a: i32, b: i32) -> i32 {
    let rest = a.wrapping_sub(b.wrapping_mul(floor_div_i32(a, b)));
    if b == 0 { 0 } else { rest }
}

/// What floor division leaves; 0 for divisor 0.
#[inline(always)]
pub(super) fn floor_mod_i64(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_sub(b.wrapping_mul(floor_div_i64(a, b)));
    if b == 0 { 0 } else { rest }
}
