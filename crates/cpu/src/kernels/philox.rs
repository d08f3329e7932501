//! The random number generator Philox.

const ROUNDS: usize = 10;
/// Multipliers of a round.
const FACTORS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// The key of the next round.
#[inline(always)]
fn next_key(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)]
}

/// The lower half of a product.
#[inline(always)]
fn low(product: u64) -> u64 {
    product & u64::from(u32::MAX)
}

/// A random word as a float in `[0, 1)`.
#[inline(always)]
fn unit(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// Philox4x32-10 of the counter `(counter, 0, 0, 0)` with the words of `seed` as key, as floats in `[0, 1)`.
#[inline(always)]
pub(super) fn uniform_block(seed: i64, counter: u32) -> [f32; 4] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    // Each word is the lower half of an integer of 64 bits, so that a loop over counters becomes vectors of products that need no
    // conversion between rounds.
    let mut c = [u64::from(counter), 0, 0, 0];
    for _ in 0..ROUNDS {
        let [a, b] = [low(c[0]) * FACTORS[0], low(c[2]) * FACTORS[1]];
        c = [(b >> 32) ^ c[1] ^ u64::from(key[0]), b, (a >> 32) ^ c[3] ^ u64::from(key[1]), a];
        key = next_key(key);
    }
    c.map(|word| unit(word as u32))
}

/// Element `index` of the stream of [`uniform_block`].
#[inline(always)]
pub(super) fn uniform(seed: i64, index: u32) -> f32 {
    let [a, b, c, d] = uniform_block(seed, index / 4);
    let (low, high) = if index & 1 == 0 { (a, c) } else { (b, d) };
    if index & 2 == 0 { low } else { high }
}
