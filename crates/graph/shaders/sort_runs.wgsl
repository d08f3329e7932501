// A bitonic network in the memory of a workgroup. Beyond the last column keys are the largest, and so are their places.

var<workgroup> sorted_keys: array<vec2<u32>, RUN>;
var<workgroup> sorted_places: array<i32, RUN>;

fn exchange(a: i32, b: i32, is_up: bool) {
    let left = sorted_keys[a];
    let right = sorted_keys[b];
    let left_place = sorted_places[a];
    let right_place = sorted_places[b];
    if (before(right, right_place, left, left_place) == is_up) {
        sorted_keys[a] = right;
        sorted_keys[b] = left;
        sorted_places[a] = right_place;
        sorted_places[b] = left_place;
    }
}

fn sort_run(row: i32, start: i32, width: i32, thread: i32) {
    for (var place = thread; place < width; place += THREADS) {
        let column = start + place;
        sorted_keys[place] = select(vec2<u32>(0xffffffffu), key(row, column), column < extent_keys_1());
        sorted_places[place] = place;
    }
    workgroupBarrier();
    for (var size = 2; size <= width; size *= 2) {
        for (var step = size / 2; step > 0; step /= 2) {
            for (var pair = thread; pair < width / 2; pair += THREADS) {
                let a = 2 * pair - (pair & (step - 1));
                exchange(a, a + step, (a & size) == 0);
            }
            workgroupBarrier();
        }
    }
    for (var place = thread; place < width; place += THREADS) {
        store_order(row, start + place, start + sorted_places[place]);
    }
    workgroupBarrier();
}

fn run(workgroup: i32, thread: i32) {
    let columns = extent_keys_1();
    let runs = (columns + RUN - 1) / RUN;
    var width = 1;
    while (width < min(columns, RUN)) {
        width *= 2;
    }
    // As many workgroups as are started.
    let count = max((extent_keys_0() * columns + RUN - 1) / RUN, 1);
    for (var n = workgroup; n < extent_keys_0() * runs; n += count) {
        sort_run(n / runs, n % runs * RUN, width, thread);
    }
}
