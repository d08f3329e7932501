// Of equal keys the one in the smaller column comes first.
fn before(a: vec2<u32>, a_column: i32, b: vec2<u32>, b_column: i32) -> bool {
    if (a.x != b.x) {
        return a.x < b.x;
    }
    if (a.y != b.y) {
        return a.y < b.y;
    }
    return a_column < b_column;
}
