// What replaces functions of the same name where the target computes with 64-bit integers.

// The whole product of two words: low, high.
fn u32_mul_wide(a: u32, b: u32) -> vec2<u32> {
    let product = u64(a) * u64(b);
    return vec2<u32>(u32(product), u32(product >> 32u));
}

// Quotient of unsigned numbers; the divisor is not 0.
fn u64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = (u64(a.x) | (u64(a.y) << 32u)) / (u64(b.x) | (u64(b.y) << 32u));
    return vec2<u32>(u32(quotient), u32(quotient >> 32u));
}
