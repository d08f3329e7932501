// NaN is the largest; zeros of both signs are equal.
fn words(row: i32, column: i32) -> vec2<u32> {
    let bits = bitcast<u32>(load_keys(row, column));
    let magnitude = bits & 0x7fffffffu;
    let high = select(bits | 0x80000000u, ~bits, bits != magnitude);
    let ordered = select(high, 0x80000000u, magnitude == 0u);
    return vec2<u32>(select(ordered, 0xffffffffu, magnitude > 0x7f800000u), 0u);
}
