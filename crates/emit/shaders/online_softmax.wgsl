{# The online softmax of rows whose scores are computed one tile at a time. #}
{% macro memory(masked, by_four, rows) %}
// Scores are lessened by their row's shift before exponentials are taken: by the largest of them when it was last raised, which
// happens where one lies more than MOST_EXCESS above, so that f16 holds the exponentials.
const MOST_EXCESS = 8.0f;
// The largest score of no keys.
const LOWEST = -3.40282346e38f;
var<workgroup> row_shift: array<f32, {{ rows }}>;
// What sums of a row are multiplied by when its shift is raised, and in the end.
var<workgroup> row_scale: array<f32, {{ rows }}>;

// Raises the shift of a row to the largest score of a tile where that lies far above. It does not depend on other rows.
fn raise(row: u32, largest: f32) {
    let before = row_shift[row];
    let after = select(before, largest, largest - before > MOST_EXCESS);
    row_shift[row] = after;
    row_scale[row] = exp(before - after);
}

// True if a key counts for a row, whose exponentials may all be 0.
fn attends(c0: i32, c1: i32, i: i32, keys: i32) -> bool {
{% if masked and by_four %}
    for (var j = 0; j < keys; j += 4) {
        let inside = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
        if (any(inside & keep(c0, c1, i, j, inside))) {
            return true;
        }
    }
    return false;
{% elif masked %}
    for (var j = 0; j < keys; j++) {
        if (keep(c0, c1, i, j)) {
            return true;
        }
    }
    return false;
{% else %}
    return keys > 0;
{% endif %}
}

{% endmacro %}
{# Combines the values of the `lanes` neighbours, a power of two, that share a row. #}
{% macro combine(name, function, lanes) %}
{% for step in [1, 2, 4, 8, 16, 32] %}{% if step < lanes %}
            {{ name }} = {{ function }}({{ name }}, subgroupShuffleXor({{ name }}, {{ step }}u));
{% endif %}{% endfor %}
{% endmacro %}
{# Adds their values. #}
{% macro add_up(name, lanes) %}
{% for step in [1, 2, 4, 8, 16, 32] %}{% if step < lanes %}
    {{ name }} += subgroupShuffleXor({{ name }}, {{ step }}u);
{% endif %}{% endfor %}
{% endmacro %}
{% macro largest_of(four) %}max(max({{ four }}.x, {{ four }}.y), max({{ four }}.z, {{ four }}.w)){% endmacro %}
{% macro sum_of(four) %}({{ four }}.x + {{ four }}.y) + ({{ four }}.z + {{ four }}.w){% endmacro %}
{# The functions of matrix elements: `sums` is their type, `sum` the number of the device function. #}
{% macro elements(sums, masked, sum) %}
// What a score exceeds its row's shift by, in a tile of which all pairs count. Rows past the last query read that one.
fn excess_of_whole(row: u32, column: u32, product: f32, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32, first_row: u32) -> f32 {
    return weigh{{ sum }}(c0, c1, min(i0 + i32(row), rows - 1), j0 + i32(column), true, product) - row_shift[first_row + row];
}

fn counts_pair(i: i32, j: i32, c0: i32, c1: i32, rows: i32, keys: i32) -> bool {
{% if masked %}
    return j < keys && keep(c0, c1, min(i, rows - 1), min(j, keys - 1));
{% else %}
    return j < keys;
{% endif %}
}

// The score of a pair, the lowest if it does not count.
fn score_of_part(row: u32, column: u32, product: f32, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32) -> f32 {
    let i = i0 + i32(row);
    let j = j0 + i32(column);
    return weigh{{ sum }}(c0, c1, min(i, rows - 1), min(j, keys - 1), counts_pair(i, j, c0, c1, rows, keys), product);
}

fn excess_of_part(row: u32, column: u32, product: f32, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32, first_row: u32) -> f32 {
    let i = i0 + i32(row);
    let j = j0 + i32(column);
    let kept = counts_pair(i, j, c0, c1, rows, keys);
    let score = weigh{{ sum }}(c0, c1, min(i, rows - 1), min(j, keys - 1), kept, product);
    return select(LOWEST, score - row_shift[first_row + row], kept);
}

{% for kind in ["whole", "part"] %}
fn matrix_each_excess_of_{{ kind }}(products: {{ sums }}, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32, first_row: u32) -> {{ sums }} {
    return products;
}

{% endfor %}
fn matrix_each_score_of_part(products: {{ sums }}, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32) -> {{ sums }} {
    return products;
}

fn exponential_of(row: u32, column: u32, excess: f32) -> f32 {
    return exp(excess);
}

fn matrix_each_exponential_of(excesses: {{ sums }}) -> {{ sums }} {
    return excesses;
}

fn rescaled(row: u32, column: u32, sum: f32, first_row: u32) -> f32 {
    return sum * row_scale[first_row + row];
}

fn matrix_each_rescaled(sums: {{ sums }}, first_row: u32) -> {{ sums }} {
    return sums;
}

fn matrix_element(matrix: {{ sums }}, number: u32) -> f32 {
    return 0.0f;
}

{% endmacro %}
