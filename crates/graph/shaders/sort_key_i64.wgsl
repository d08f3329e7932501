fn words(row: i32, column: i32) -> vec2<u32> {
    let value = load_keys(row, column);
    return vec2<u32>(value.y ^ 0x80000000u, value.x);
}
