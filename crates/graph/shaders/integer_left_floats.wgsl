// Bytes are signed here: 128 less than the unsigned ones.
fn four_bytes(row: i32, column: i32) -> vec4<i32> {
    let whole = round(load4_left(row, column) / load_scale()) + load_zero();
    return vec4<i32>(clamp(whole, vec4<f32>(0.0f), vec4<f32>(255.0f))) - 128;
}

fn finished(sum: i32, column_sum: i32) -> i32 {
    return sum - (i32(load_zero()) - 128) * column_sum;
}
