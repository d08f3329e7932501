// A workgroup computes all steps of one row; a thread every THREADS-th unit of its state.

var<workgroup> state: array<f32, WIDTH * STATES>;
var<workgroup> next: array<f32, WIDTH * STATES>;

fn run(workgroup: i32, thread: i32) {
    let steps = extent_x_0();
    for (var at = thread; at < WIDTH * STATES; at += THREADS) {
        state[at] = load_start(workgroup, at);
    }
    workgroupBarrier();
    for (var n = 0; n < steps; n++) {
        let row = step(n, steps);
        for (var unit = thread; unit < WIDTH; unit += THREADS) {
            advance(row, workgroup, unit);
        }
        workgroupBarrier();
        for (var at = thread; at < WIDTH * STATES; at += THREADS) {
            state[at] = next[at];
            store_y(row, workgroup, at, next[at]);
        }
        workgroupBarrier();
    }
}

// The hidden part of a gate.
fn hidden(place: i32, unit: i32) -> f32 {
    var sum = load_bias(place * WIDTH + unit);
    for (var k = 0; k < WIDTH; k++) {
        sum += load_weight(place * WIDTH + unit, k) * state[k];
    }
    return sum;
}

fn sigmoid(x: f32) -> f32 {
    return 1.0f / (1.0f + exp(-x));
}

// The series below 0.15, where the quotient would cancel.
fn tanh_of(x: f32) -> f32 {
    let a = abs(x);
    let s = x * x;
    let small = x * (1.0f + s * (-0.33333334f + s * (0.13333334f + s * -0.053968254f)));
    let e = exp(-2.0f * a);
    let large = (1.0f - e) / (1.0f + e);
    return select(select(large, -large, x < 0.0f), small, a < 0.15f);
}
