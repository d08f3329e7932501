// An element's place among merged runs is its place in its own run and the number of elements before it in each other one.

// The number of elements before one in a sorted run.
fn rank(row: i32, start: i32, end: i32, own: vec2<u32>, own_column: i32) -> i32 {
    var low = start;
    var high = end;
    while (low < high) {
        let middle = low + (high - low) / 2;
        let column = load_order(row, middle);
        if (before(key(row, column), column, own, own_column)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - start;
}

fn run(workgroup: i32, thread: i32) {
    let columns = extent_keys_1();
    let n = workgroup * THREADS + thread;
    if (n >= extent_keys_0() * columns) {
        return;
    }
    let row = n / columns;
    let place = n % columns;
    let column = load_order(row, place);
    let own = key(row, column);
    let own_run = place / RUN;
    let first_run = own_run / WAYS * WAYS;
    var to = first_run * RUN + place % RUN;
    for (var other = first_run; other < first_run + WAYS; other++) {
        let start = other * RUN;
        if (start >= columns) {
            break;
        }
        if (other != own_run) {
            to += rank(row, start, min(start + RUN, columns), own, column);
        }
    }
    store_merged(row, to, column);
}
