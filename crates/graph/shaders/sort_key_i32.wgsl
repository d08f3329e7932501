fn words(row: i32, column: i32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(load_keys(row, column)) ^ 0x80000000u, 0u);
}
