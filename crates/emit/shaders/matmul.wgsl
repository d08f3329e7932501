// Matrix product: finish(m, n, sum over k of left(m, k) * right(k, n)) for every batch entry.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup computes TILE_M x TILE_N elements; {{ tile_k }} steps of k are staged in workgroup memory at a time,
// rows of left along k and rows of right along n{{ ", the next ones on their way in registers" if ahead }}. A thread computes {{ rows_per_thread }} rows of {{ groups_per_thread }} x 4
// columns, in registers. The sum runs over k in order, in one accumulator, whatever the tile.
{% if parts > 1 %}
// {{ parts }} parts of every stage are summed up apart, and added at the end.
{% endif %}
{% if integers %}
// Elements of both are bytes, multiplied as they are stored, four at a time: a step of k is a word of four.
{% endif %}
// Statistics of a row of left are combined by four threads a row before the product.

const THREADS = {{ threads }};
const TILE_M = {{ tile_m }};
const TILE_N = {{ tile_n }};
const TILE_K = {{ tile_k }};
const ROW_STRIDE = {{ tile_m // rows_per_thread }};
const GROUP_STRIDE = {{ tile_n // 4 // groups_per_thread }};

{{ declarations -}}
var<workgroup> left_tile: array<{{ vector }}, {{ tile_m * tile_k // 4 }}>;
var<workgroup> right_tile: array<{{ vector }}, {{ tile_k * tile_n // 4 }}>;
{% if parts > 1 %}
// Sums of the parts after the first.
var<workgroup> part_sums: array<{{ sum }}, {{ (parts - 1) * tile_m * tile_n // 4 }}>;
{% endif %}
{% include "statistics_memory.wgsl" %}

{{ functions -}}
{% macro fetch(name, function, along_rows, rows, columns, row0, column0, row_end, column_end, more) %}
{% set items = rows * columns // (16 if along_rows else 4) %}
{% for n in range((items + threads - 1) // threads) %}
{% for c in range(4 if along_rows else 1) %}
    {{ name }}{{ n }}_{{ c }} = {{ zero }};
{% endfor %}
    {
        let item = local_index + {{ n * threads }}u;
{% if along_rows %}
        let row = i32(item % {{ rows // 4 }}u) * 4;
        let column = {{ column0 }} + i32(item / {{ rows // 4 }}u) * 4;
        let inside = {{ row0 }} + row < {{ row_end }}{% if (n + 1) * threads > items %} && item < {{ items }}u{% endif %};
{% for c in range(4) %}
        if (inside && column + {{ c }} < {{ column_end }}) {
{% if integers %}
{% for l in range(4) %}
            // What lies beyond the last step is multiplied by zeros.
            {{ name }}{{ n }}_{{ c }}[{{ l }}] = {{ function }}({{ batch }}min({{ row0 }} + row + {{ l }}, {{ row_end }} - 1) * 4, column + {{ c }}{{ more }});
{% endfor %}
{% else %}
            {{ name }}{{ n }}_{{ c }} = {{ function }}({{ batch }}{{ row0 }} + row, column + {{ c }}{{ more }});
{% endif %}
        }
{% endfor %}
{% else %}
        let row = i32(item / {{ columns // 4 }}u);
        let column = {{ column0 }} + i32(item % {{ columns // 4 }}u) * 4;
        if ({{ row0 }} + row < {{ row_end }} && column < {{ column_end }}{% if (n + 1) * threads > items %} && item < {{ items }}u{% endif %}) {
{% if integers %}
{% for l in range(4) %}
            if (column + {{ l }} < {{ column_end }}) {
                {{ name }}{{ n }}_0[{{ l }}] = {{ function }}({{ batch }}{{ row0 }} + row, (column + {{ l }}) * 4);
            }
{% endfor %}
{% else %}
            {{ name }}{{ n }}_0 = {{ function }}({{ batch }}{{ row0 }} + row, column{{ more }});
{% endif %}
        }
{% endif %}
    }
{% endfor %}
{% endmacro %}
{% macro put(name, tile, along_rows, rows, columns) %}
{% set items = rows * columns // (16 if along_rows else 4) %}
{% for n in range((items + threads - 1) // threads) %}
        {
            let item = local_index + {{ n * threads }}u;
{% if (n + 1) * threads > items %}
            if (item < {{ items }}u) {
{% endif %}
{% if along_rows %}
            let at = (item % {{ rows // 4 }}u) * {{ columns }}u + item / {{ rows // 4 }}u;
{% for c in ["x", "y", "z", "w"] %}
            {{ tile }}[at + {{ loop.index0 * columns // 4 }}u] = {{ vector }}({{ name }}{{ n }}_0.{{ c }}, {{ name }}{{ n }}_1.{{ c }}, {{ name }}{{ n }}_2.{{ c }}, {{ name }}{{ n }}_3.{{ c }});
{% endfor %}
{% else %}
            {{ tile }}[item] = {{ name }}{{ n }}_0;
{% endif %}
{% if (n + 1) * threads > items %}
            }
{% endif %}
        }
{% endfor %}
{% endmacro %}
{% macro declare(name, along_rows, rows, columns) %}
{% set items = rows * columns // (16 if along_rows else 4) %}
{% for n in range((items + threads - 1) // threads) %}{% for c in range(4 if along_rows else 1) %}
    var {{ name }}{{ n }}_{{ c }} = {{ zero }};
{% endfor %}{% endfor %}
{% endmacro %}
{% macro fetch_left(k0) %}
{% if not left_in_turn %}
{{ fetch("next_left", "left", left_along_rows, tile_m, tile_k, "m0", k0, "rows", "depth", left_more) -}}
{% endif %}
{% endmacro %}
{% macro fetch_right(k0) %}
{{ fetch("next_right", "right", right_along_rows, tile_k, tile_n, k0, "n0", "depth", "columns", "") -}}
{% endmacro %}
{% include "workgroup.wgsl" %}
    let local = i32(local_index);
{{ body }}
    let columns = {{ n }};
{% if integers %}
    let depth = {{ k }} / 4;
{% else %}
    let depth = {{ k }};
{% endif %}
{% include "statistics.wgsl" %}

{% set part_threads = threads // parts %}
{% set part_steps = tile_k // 4 // parts %}
{% if parts > 1 %}
    let part = local_index / {{ part_threads }}u;
    let place = local_index % {{ part_threads }}u;
    let first_step = i32(part) * {{ part_steps }};
{% endif %}
    let thread_row = i32({{ "place" if parts > 1 else "local_index" }} / {{ tile_n // 4 // groups_per_thread }}u);
    let thread_group = i32({{ "place" if parts > 1 else "local_index" }} % {{ tile_n // 4 // groups_per_thread }}u);
{% if rolled %}
    // Nothing, which drivers do not know: they unroll loops of known lengths, and hold in registers what the steps load.
    let none = min({{ workgroups }}, 0);
{% endif %}
{% for i in range(rows_per_thread) %}{% for h in range(groups_per_thread) %}
    var sum{{ i }}_{{ h }} = {{ zero_sum }};
{% endfor %}{% endfor %}
{% set left_items = tile_m * tile_k // 4 %}
{% if not left_in_turn %}
{{ declare("next_left", left_along_rows, tile_m, tile_k) -}}
{% endif %}
{{ declare("next_right", right_along_rows, tile_k, tile_n) -}}
{% if ahead %}
{{ fetch_left("0") -}}
{{ fetch_right("0") -}}
{% endif %}
    for (var k0 = 0; k0 < depth{{ " + none" if rolled }}; k0 += TILE_K) {
{% if not ahead %}
{{ fetch_left("k0") -}}
{% endif %}
{% if not ahead and not in_turn %}
{{ fetch_right("k0") -}}
{% endif %}
{% if left_in_turn %}
        // Computed at one place of the shader, since compilers copy it to each.
        for (var item = local; item < {{ left_items }}; item += THREADS) {
            let row = item / {{ tile_k // 4 }};
            let column = k0 + (item % {{ tile_k // 4 }}) * 4;
            var element = {{ zero }};
            if (m0 + row < rows && column < depth) {
                element = left({{ batch }}m0 + row, column{{ left_more }});
            }
            left_tile[item] = element;
        }
{% else %}
{{ put("next_left", "left_tile", left_along_rows, tile_m, tile_k) -}}
{% endif %}
{% if not ahead and in_turn %}
{{ fetch_right("k0") -}}
{% endif %}
{{ put("next_right", "right_tile", right_along_rows, tile_k, tile_n) -}}
        workgroupBarrier();
{% if ahead %}
        let k1 = k0 + TILE_K;
        if (k1 < depth) {
{{ fetch_left("k1") -}}
{{ fetch_right("k1") -}}
        }
{% endif %}
        for (var step = {{ "first_step" if parts > 1 else "0" }}; step < {{ "first_step + " ~ part_steps if parts > 1 else "TILE_K / 4" }}{{ " + none" if rolled }}; step++) {
{% for i in range(rows_per_thread) %}
            let a{{ i }} = left_tile[(thread_row + {{ i }} * ROW_STRIDE) * (TILE_K / 4) + step];
{% endfor %}
{% for c in ["x", "y", "z", "w"] %}{% set l = loop.index0 %}{% for h in range(groups_per_thread) %}
            let b{{ l }}_{{ h }} = right_tile[(step * 4 + {{ l }}) * (TILE_N / 4) + thread_group + {{ h }} * GROUP_STRIDE];
{% for i in range(rows_per_thread) %}
{% if integers %}
{% for d in ["x", "y", "z", "w"] %}
            sum{{ i }}_{{ h }}.{{ d }} += dot4I8Packed(a{{ i }}.{{ c }}, b{{ l }}_{{ h }}.{{ d }});
{% endfor %}
{% else %}
            sum{{ i }}_{{ h }} += a{{ i }}.{{ c }} * b{{ l }}_{{ h }};
{% endif %}
{% endfor %}{% endfor %}{% endfor %}
        }
        workgroupBarrier();
    }
{% if parts > 1 %}
    if (part > 0u) {
{% for i in range(rows_per_thread) %}{% for h in range(groups_per_thread) %}
        part_sums[((part - 1u) * {{ rows_per_thread * groups_per_thread }}u + {{ i * groups_per_thread + h }}u) * {{ part_threads }}u + place] = sum{{ i }}_{{ h }};
{% endfor %}{% endfor %}
    }
    workgroupBarrier();
    if (part > 0u) {
        return;
    }
{% for p in range(parts - 1) %}{% for i in range(rows_per_thread) %}{% for h in range(groups_per_thread) %}
    sum{{ i }}_{{ h }} += part_sums[{{ (p * rows_per_thread * groups_per_thread + i * groups_per_thread + h) * part_threads }}u + place];
{% endfor %}{% endfor %}{% endfor %}
{% endif %}
{% for i in range(rows_per_thread) %}

    let m_{{ i }} = m0 + thread_row + {{ i }} * ROW_STRIDE;
    if (m_{{ i }} < rows) {
{% for h in range(groups_per_thread) %}
        let n_{{ h }} = n0 + (thread_group + {{ h }} * GROUP_STRIDE) * 4;
        if (n_{{ h }} < columns) {
            finish({{ batch }}m_{{ i }}, n_{{ h }}, {{ "vec4<f32>(" if integers }}sum{{ i }}_{{ h }}{{ ")" if integers }});
        }
{% endfor %}
    }
{% endfor %}
}
