fn advance(row: i32, batch: i32, unit: i32) {
    next[unit] = max(load_x(row, batch, PLACE_0 * WIDTH + unit) + hidden(PLACE_0, unit), 0.0f);
}
