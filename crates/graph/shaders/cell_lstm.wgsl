fn advance(row: i32, batch: i32, unit: i32) {
    let added = sigmoid(load_x(row, batch, PLACE_0 * WIDTH + unit) + hidden(PLACE_0, unit));
    let kept = sigmoid(load_x(row, batch, PLACE_1 * WIDTH + unit) + hidden(PLACE_1, unit));
    let fresh = tanh_of(load_x(row, batch, PLACE_2 * WIDTH + unit) + hidden(PLACE_2, unit));
    let shown = sigmoid(load_x(row, batch, PLACE_3 * WIDTH + unit) + hidden(PLACE_3, unit));
    let cell = kept * state[WIDTH + unit] + added * fresh;
    next[unit] = shown * tanh_of(cell);
    next[WIDTH + unit] = cell;
}
