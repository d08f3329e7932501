// A thread rotates the columns of one matrix, with those of the unit matrix below.

const ALL = (ROWS + COLUMNS) * COLUMNS;

fn rotate(both: ptr<function, array<f32, ALL>>, p: i32, q: i32) {
    var left = 0.0f;
    var right = 0.0f;
    var across = 0.0f;
    for (var row = 0; row < ROWS; row++) {
        let a = (*both)[row * COLUMNS + p];
        let b = (*both)[row * COLUMNS + q];
        left += a * a;
        right += b * b;
        across += a * b;
    }
    // Columns that are orthogonal as far as f32 can tell stay.
    if (abs(across) <= 1e-7f * sqrt(left) * sqrt(right)) {
        return;
    }
    let ratio = (right - left) / (2.0f * across);
    let length = abs(ratio) + sqrt(ratio * ratio + 1.0f);
    let tangent = select(1.0f, -1.0f, ratio < 0.0f) / length;
    let cosine = 1.0f / sqrt(tangent * tangent + 1.0f);
    for (var row = 0; row < ROWS + COLUMNS; row++) {
        let a = (*both)[row * COLUMNS + p];
        let b = (*both)[row * COLUMNS + q];
        (*both)[row * COLUMNS + p] = cosine * (a - tangent * b);
        (*both)[row * COLUMNS + q] = cosine * (tangent * a + b);
    }
}

fn run(workgroup: i32, thread: i32) {
    let matrix = workgroup * 64 + thread;
    if (matrix >= extent_y_0()) {
        return;
    }
    var both: array<f32, ALL>;
    for (var row = 0; row < ROWS + COLUMNS; row++) {
        for (var column = 0; column < COLUMNS; column++) {
            let unit = select(0.0f, 1.0f, row - ROWS == column);
            both[row * COLUMNS + column] = select(unit, load_x(matrix, row, column), row < ROWS);
        }
    }
    for (var sweep = 0; sweep < SWEEPS; sweep++) {
        for (var q = 1; q < COLUMNS; q++) {
            for (var p = 0; p < q; p++) {
                rotate(&both, p, q);
            }
        }
    }
    for (var row = 0; row < ROWS + COLUMNS; row++) {
        for (var column = 0; column < COLUMNS; column++) {
            store_y(matrix, row, column, both[row * COLUMNS + column]);
        }
    }
}
