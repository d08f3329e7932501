// Matrix product of few rows: finish(m, n, sum over k of left(m, k) * right(k, n)) for every batch entry.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup computes TILE_M x TILE_N elements. A thread computes one column of {{ rows_per_thread }} rows; all threads load. {{ tile_k }} steps of k are
// staged in workgroup memory at a time, along k, the next ones on their way in registers. The sum runs over k in order, in one accumulator,
// as for other tiles.
// Statistics of a row of left are combined by four threads a row before the product.

const THREADS = {{ threads }};
const TILE_M = {{ tile_m }};
const TILE_N = {{ tile_n }};
const TILE_K = {{ tile_k }};
const ROW_STRIDE = {{ tile_m // rows_per_thread }}u;
// Rows of tiles, in groups of four, are padded against bank conflicts.
const PITCH = {{ tile_k // 4 + 1 }}u;

{{ declarations -}}
var<workgroup> left_tile: array<vec4<f32>, {{ tile_m * (tile_k // 4 + 1) }}>;
var<workgroup> right_tile: array<vec4<f32>, {{ tile_n * (tile_k // 4 + 1) }}>;
var<workgroup> results: array<f32, {{ tile_m * tile_n }}>;
{% include "statistics_memory.wgsl" %}

{{ functions -}}
{% set groups = tile_k // 4 %}
{% set parts = [("left", tile_m, (tile_m * groups + threads - 1) // threads), ("right", tile_n, (tile_n * groups + threads - 1) // threads)] %}
{% macro position(n, across) %}
        let item = local_index + {{ n * threads }}u;
        let outer = i32(item / {{ tile_k // 4 }}u);
        let step = i32(item % {{ tile_k // 4 }}u);
        let exists = {% if (n + 1) * threads > across * tile_k // 4 %}item < {{ across * tile_k // 4 }}u{% else %}true{% endif %};
{% endmacro %}
{% macro fetch_both(k0) %}
{% for name, across, items in parts %}{% for n in range(items) %}
    next_{{ name }}{{ n }} = vec4<f32>();
    {
{{ position(n, across) -}}
        let k = {{ k0 }} + step * 4;
        if (exists && {{ "m0 + outer < rows" if name == "left" else "n0 + outer < columns" }} && k < depth) {
{% if name == "left" %}
            let row = outer;
            next_left{{ n }} = left({{ batch }}m0 + row, k{{ left_more }});
{% else %}
            next_right{{ n }} = right({{ batch }}k, n0 + outer);
{% endif %}
        }
    }
{% endfor %}{% endfor %}
{% endmacro %}
{% include "workgroup.wgsl" %}
    let local = i32(local_index);
{{ body }}
    let columns = {{ n }};
    let depth = {{ k }};
{% include "statistics.wgsl" %}

    let column = local_index % {{ tile_n }}u;
    let first_row = local_index / {{ tile_n }}u;
{% for i in range(rows_per_thread) %}
    var sum{{ i }} = 0.0f;
{% endfor %}
{% for name, across, items in parts %}{% for n in range(items) %}
    var next_{{ name }}{{ n }} = vec4<f32>();
{% endfor %}{% endfor %}
{{ fetch_both("0") -}}
    for (var k0 = 0; k0 < depth; k0 += TILE_K) {
{% for name, across, items in parts %}{% for n in range(items) %}
        {
{{ position(n, across) -}}
            if (exists) {
                {{ name }}_tile[u32(outer) * PITCH + u32(step)] = next_{{ name }}{{ n }};
            }
        }
{% endfor %}{% endfor %}
        workgroupBarrier();
        let k1 = k0 + TILE_K;
        if (k1 < depth) {
{{ fetch_both("k1") -}}
        }
        if (first_row < ROW_STRIDE) {
            for (var step = 0u; step < {{ tile_k // 4 }}u; step++) {
                let b = right_tile[column * PITCH + step];
{% for i in range(rows_per_thread) %}
                let a{{ i }} = left_tile[(first_row + {{ i }}u * ROW_STRIDE) * PITCH + step];
{% endfor %}
{% for c in ["x", "y", "z", "w"] %}{% for i in range(rows_per_thread) %}
                sum{{ i }} += a{{ i }}.{{ c }} * b.{{ c }};
{% endfor %}{% endfor %}
            }
        }
        workgroupBarrier();
    }
    if (first_row < ROW_STRIDE) {
{% for i in range(rows_per_thread) %}
        results[(first_row + {{ i }}u * ROW_STRIDE) * {{ tile_n }}u + column] = sum{{ i }};
{% endfor %}
    }
    workgroupBarrier();
    for (var item = local_index; item < {{ tile_m * tile_n // 4 }}u; item += {{ threads }}u) {
        let m = m0 + i32(item / {{ tile_n // 4 }}u);
        let n = n0 + i32(item % {{ tile_n // 4 }}u) * 4;
        let at = item * 4u;
        if (m < rows && n < columns) {
            finish({{ batch }}m, n, vec4<f32>(results[at], results[at + 1u], results[at + 2u], results[at + 3u]));
        }
    }
}
