// Matrix product of few rows: finish(m, n, sum over k of left(m, k) * right(k, n)) for every batch entry.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup computes TILE_M x TILE_N elements. All threads load; a thread computes {{ rows_per_thread }} x {{ columns_per_thread }} elements. {{ tile_k }} steps of k are
// staged in workgroup memory at a time, along k, the next ones on their way in registers, as they are stored. The sum runs over k in order, in
// one accumulator, as for other tiles.
// Statistics of a row of left are combined by four threads a row before the product.

const THREADS = {{ threads }};
const TILE_M = {{ tile_m }};
const TILE_N = {{ tile_n }};
const TILE_K = {{ tile_k }};
const ROW_STRIDE = {{ tile_m // rows_per_thread }}u;
const COLUMN_STRIDE = {{ tile_n // columns_per_thread }}u;
const WORKERS = {{ (tile_m // rows_per_thread) * (tile_n // columns_per_thread) }}u;
// Rows of tiles, in groups of four, are padded against bank conflicts.
const PITCH = {{ tile_k // 4 + 1 }}u;

{{ declarations -}}
var<workgroup> left_tile: array<vec4<f32>, {{ tile_m * (tile_k // 4 + 1) }}>;
var<workgroup> right_tile: array<vec4<f32>, {{ tile_n * (tile_k // 4 + 1) }}>;
var<workgroup> results: array<f32, {{ tile_m * tile_n }}>;
{% include "statistics_memory.wgsl" %}

{{ functions -}}
{% set groups = tile_k // 4 %}
{% set parts = [("left", tile_m, (tile_m * groups + threads - 1) // threads, "vec4<f32>", ""), ("right", tile_n, (tile_n * groups + threads - 1) // threads, right_type, right_values)] %}
{% macro position(n, across) %}
        let item = {% if (n + 1) * threads > across * groups %}min(local_index + {{ n * threads }}u, {{ across * groups - 1 }}u){% else %}local_index + {{ n * threads }}u{% endif %};
        let outer = i32(item / {{ groups }}u);
        let step = i32(item % {{ groups }}u);
{% endmacro %}
{# Loads are not conditional, so that they are in flight together: what lies beyond the operands reads their last elements. #}
{% macro fetch_both(k0) %}
{% for name, across, items, ty, values in parts %}{% for n in range(items) %}
    {
{{ position(n, across) -}}
        let k = {{ "min(" if ragged_depth }}{{ k0 }} + step * 4{{ ", last_step)" if ragged_depth }};
{% if name == "left" %}
        let row = min(outer, rows - 1 - m0);
        next_left{{ n }} = left({{ batch }}m0 + row, k{{ left_more }});
{% else %}
        next_right{{ n }} = right({{ batch }}k, min(n0 + outer, columns - 1));
{% endif %}
    }
{% endfor %}{% endfor %}
{% endmacro %}
{% include "workgroup.wgsl" %}
    let local = i32(local_index);
{{ body }}
    let columns = {{ n }};
    let depth = {{ k }};
{% include "statistics.wgsl" %}

{% if (tile_m // rows_per_thread) * (tile_n // columns_per_thread) < threads %}
    // Other threads compute in other workgroups, so that all schedulers of a processor have work.
    let worker = (local_index + ((u32(workgroup) * 2654435769u) >> 20u) * WORKERS) % {{ threads }}u;
{% else %}
    let worker = local_index;
{% endif %}
    let column = worker % COLUMN_STRIDE;
    let first_row = worker / COLUMN_STRIDE;
{% for i in range(rows_per_thread) %}{% for j in range(columns_per_thread) %}
    var sum{{ i }}_{{ j }} = 0.0f;
{% endfor %}{% endfor %}
{% for name, across, items, ty, values in parts %}{% for n in range(items) %}
    var next_{{ name }}{{ n }} = {{ ty }}();
{% endfor %}{% endfor %}
{% if ragged_depth %}
    let last_step = (depth - 1) & -4;
    if (depth > 0) {
{{ fetch_both("0") -}}
    }
{% else %}
{{ fetch_both("0") -}}
{% endif %}
    for (var k0 = 0; k0 < depth; k0 += TILE_K) {
{% for name, across, items, ty, values in parts %}{% for n in range(items) %}
        {
{{ position(n, across) -}}
            let four = {% if values %}{{ values }}(next_{{ name }}{{ n }}, step){% else %}next_{{ name }}{{ n }}{% endif %};
            {% if (n + 1) * threads > across * groups %}if (local_index + {{ n * threads }}u < {{ across * groups }}u) {% endif %}{{ "{" }} {{ name }}_tile[u32(outer) * PITCH + u32(step)] = {% if ragged_depth %}select(vec4<f32>(0.0f), four, k0 + step * 4 < depth){% else %}four{% endif %}; }
        }
{% endfor %}{% endfor %}
        workgroupBarrier();
        let k1 = k0 + TILE_K;
        if (k1 < depth) {
{{ fetch_both("k1") -}}
        }
        if (worker < WORKERS) {
            for (var step = 0u; step < {{ tile_k // 4 }}u; step += {{ together }}u) {
{% for g in range(together) %}
{% for j in range(columns_per_thread) %}
                let b{{ g }}_{{ j }} = right_tile[(column + {{ j }}u * COLUMN_STRIDE) * PITCH + step + {{ g }}u];
{% endfor %}
{% for i in range(rows_per_thread) %}
                let a{{ g }}_{{ i }} = left_tile[(first_row + {{ i }}u * ROW_STRIDE) * PITCH + step + {{ g }}u];
{% endfor %}
{% endfor %}
{% for g in range(together) %}{% for c in ["x", "y", "z", "w"] %}{% for i in range(rows_per_thread) %}{% for j in range(columns_per_thread) %}
                sum{{ i }}_{{ j }} += a{{ g }}_{{ i }}.{{ c }} * b{{ g }}_{{ j }}.{{ c }};
{% endfor %}{% endfor %}{% endfor %}{% endfor %}
            }
        }
        workgroupBarrier();
    }
    if (worker < WORKERS) {
{% for i in range(rows_per_thread) %}{% for j in range(columns_per_thread) %}
        results[(first_row + {{ i }}u * ROW_STRIDE) * {{ tile_n }}u + column + {{ j }}u * COLUMN_STRIDE] = sum{{ i }}_{{ j }};
{% endfor %}{% endfor %}
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
