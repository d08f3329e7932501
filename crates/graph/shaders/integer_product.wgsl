// Tiles of 32 rows by 32 columns; a thread sums 4 rows by 4 columns of one, a byte of 4 depths at a time.

const TILE = 32;
const WORDS = 16;
const THREADS = 64;

var<workgroup> left_words: array<u32, 512>;
var<workgroup> right_words: array<u32, 512>;

fn packed(row: i32, word: i32) -> u32 {
    let four = vec4<u32>(four_bytes(row, word * 4)) & vec4<u32>(255u);
    return four.x | (four.y << 8u) | (four.z << 16u) | (four.w << 24u);
}

fn tile(row0: i32, column0: i32, thread: i32) {
    let words = extent_right_1();
    let i = (thread / 8) * 4;
    let j = (thread % 8) * 4;
    var sums: array<vec4<i32>, 4>;
    var column_sums = vec4<i32>();
    for (var start = 0; start < words; start += WORDS) {
        for (var n = thread; n < TILE * WORDS; n += THREADS) {
            let line = n / WORDS;
            let word = start + n % WORDS;
            // Beyond the last word right is 0, so that left may be anything.
            left_words[n] = packed(row0 + line, word);
            right_words[n] = select(0u, bitcast<u32>(load_right(column0 + line, word)), word < words);
        }
        workgroupBarrier();
        for (var word = 0; word < WORDS; word++) {
            let b0 = right_words[j * WORDS + word];
            let b1 = right_words[(j + 1) * WORDS + word];
            let b2 = right_words[(j + 2) * WORDS + word];
            let b3 = right_words[(j + 3) * WORDS + word];
            let ones = 0x01010101u;
            column_sums += vec4<i32>(dot4I8Packed(ones, b0), dot4I8Packed(ones, b1), dot4I8Packed(ones, b2), dot4I8Packed(ones, b3));
            for (var r = 0; r < 4; r++) {
                let a = left_words[(i + r) * WORDS + word];
                sums[r] += vec4<i32>(dot4I8Packed(a, b0), dot4I8Packed(a, b1), dot4I8Packed(a, b2), dot4I8Packed(a, b3));
            }
        }
        workgroupBarrier();
    }
    for (var r = 0; r < 4; r++) {
        for (var c = 0; c < 4; c++) {
            store_product(row0 + i + r, column0 + j + c, finished(sums[r][c], column_sums[c]));
        }
    }
}

fn run(workgroup: i32, thread: i32) {
    let across = (extent_product_1() + TILE - 1) / TILE;
    let down = (extent_product_0() + TILE - 1) / TILE;
    // As many workgroups as are started.
    let count = max((extent_product_0() * across + 3) / 4, 1);
    for (var n = workgroup; n < across * down; n += count) {
        tile(n / across * TILE, n % across * TILE, thread);
    }
}
