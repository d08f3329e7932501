// What replaces functions of the same name where the target computes with 64-bit integers.

// The whole product of two words: low, high.
fn u32_mul_wide(a: u32, b: u32) -> vec2<u32> {
    let product = u64(a) * u64(b);
    return vec2<u32>(u32(product), u32(product >> 32u));
}
