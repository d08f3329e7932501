fn advance(row: i32, batch: i32, unit: i32) {
    let reset = sigmoid(load_x(row, batch, PLACE_0 * WIDTH + unit) + hidden(PLACE_0, unit));
    let update = sigmoid(load_x(row, batch, PLACE_1 * WIDTH + unit) + hidden(PLACE_1, unit));
    let fresh = tanh_of(load_x(row, batch, PLACE_2 * WIDTH + unit) + reset * hidden(PLACE_2, unit));
    next[unit] = (state[unit] - fresh) * update + fresh;
}
