// Matrix product: finish(m, n, sum over k of left(m, k) * right(k, n)) for every batch entry.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup computes TILE_M x TILE_N elements; {{ tile_k }} steps of k are staged in workgroup memory at a time,
// rows of left along k and rows of right along n. A thread computes {{ rows_per_thread }} rows of {{ groups_per_thread }} x 4
// columns, in registers. The sum runs over k in order, in one accumulator, whatever the tile.
// Statistics of a row of left are combined by four threads a row before the product.

const THREADS = {{ threads }};
const TILE_M = {{ tile_m }};
const TILE_N = {{ tile_n }};
const TILE_K = {{ tile_k }};
const ROW_STRIDE = {{ tile_m // rows_per_thread }};
const GROUP_STRIDE = {{ tile_n // 4 // groups_per_thread }};

{{ declarations -}}
var<workgroup> left_tile: array<vec4<f32>, {{ tile_m * tile_k // 4 }}>;
var<workgroup> right_tile: array<vec4<f32>, {{ tile_k * tile_n // 4 }}>;
{% include "statistics_memory.wgsl" %}

{{ hooks -}}
{% macro along_columns(tile, hook, rows, columns, row0, column0, row_end, column_end, more) %}
        for (var item = local; item < {{ rows * columns // 4 }}; item += THREADS) {
            let row = item / {{ columns // 4 }};
            let column = (item % {{ columns // 4 }}) * 4;
            var value = vec4<f32>(0.0f);
            if ({{ row0 }} + row < {{ row_end }} && {{ column0 }} + column < {{ column_end }}) {
                value = {{ hook }}({{ batch }}{{ row0 }} + row, {{ column0 }} + column{{ more }});
            }
            {{ tile }}[item] = value;
        }
{% endmacro %}
{% macro along_rows(tile, hook, rows, columns, row0, column0, row_end, column_end, more) %}
        for (var item = local; item < {{ rows * columns // 16 }}; item += THREADS) {
            let row = (item % {{ rows // 4 }}) * 4;
            let column = (item / {{ rows // 4 }}) * 4;
            let inside = {{ row0 }} + row < {{ row_end }};
{% for c in range(4) %}
            var value{{ c }} = vec4<f32>(0.0f);
            if (inside && {{ column0 }} + column + {{ c }} < {{ column_end }}) {
                value{{ c }} = {{ hook }}({{ batch }}{{ row0 }} + row, {{ column0 }} + column + {{ c }}{{ more }});
            }
{% endfor %}
            let at = row * {{ columns // 4 }} + (column >> 2u);
{% for c in ["x", "y", "z", "w"] %}
            {{ tile }}[at + {{ loop.index0 * columns // 4 }}] = vec4<f32>(value0.{{ c }}, value1.{{ c }}, value2.{{ c }}, value3.{{ c }});
{% endfor %}
        }
{% endmacro %}
@compute @workgroup_size({{ threads }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let workgroup = i32(group.x + group.y * groups.x);
    if (workgroup >= {{ workgroups }}) {
        return;
    }
    let local = i32(local_index);
{{ body }}
    let columns = {{ n }};
    let depth = {{ k }};
{% include "statistics.wgsl" %}

    let thread_row = local / GROUP_STRIDE;
    let thread_group = local % GROUP_STRIDE;
{% for i in range(rows_per_thread) %}{% for h in range(groups_per_thread) %}
    var sum{{ i }}_{{ h }} = vec4<f32>(0.0f);
{% endfor %}{% endfor %}
    for (var k0 = 0; k0 < depth; k0 += TILE_K) {
{% if left_along_rows %}
{{ along_rows("left_tile", "left", tile_m, tile_k, "m0", "k0", "rows", "depth", left_more) -}}
{% else %}
{{ along_columns("left_tile", "left", tile_m, tile_k, "m0", "k0", "rows", "depth", left_more) -}}
{% endif %}
{% if right_along_rows %}
{{ along_rows("right_tile", "right", tile_k, tile_n, "k0", "n0", "depth", "columns", "") -}}
{% else %}
{{ along_columns("right_tile", "right", tile_k, tile_n, "k0", "n0", "depth", "columns", "") -}}
{% endif %}
        workgroupBarrier();
        for (var step = 0; step < TILE_K / 4; step++) {
{% for i in range(rows_per_thread) %}
            let a{{ i }} = left_tile[(thread_row + {{ i }} * ROW_STRIDE) * (TILE_K / 4) + step];
{% endfor %}
{% for c in ["x", "y", "z", "w"] %}{% set l = loop.index0 %}{% for h in range(groups_per_thread) %}
            let b{{ l }}_{{ h }} = right_tile[(step * 4 + {{ l }}) * (TILE_N / 4) + thread_group + {{ h }} * GROUP_STRIDE];
{% for i in range(rows_per_thread) %}
            sum{{ i }}_{{ h }} += a{{ i }}.{{ c }} * b{{ l }}_{{ h }};
{% endfor %}{% endfor %}{% endfor %}
        }
        workgroupBarrier();
    }
{% for i in range(rows_per_thread) %}

    let m_{{ i }} = m0 + thread_row + {{ i }} * ROW_STRIDE;
    if (m_{{ i }} < rows) {
{% for h in range(groups_per_thread) %}
        let n_{{ h }} = n0 + (thread_group + {{ h }} * GROUP_STRIDE) * 4;
        if (n_{{ h }} < columns) {
            finish({{ batch }}m_{{ i }}, n_{{ h }}, sum{{ i }}_{{ h }});
        }
{% endfor %}
    }
{% endfor %}
}
