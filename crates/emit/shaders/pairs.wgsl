// Sums over the pairs of the rows of two ragged axes, for every row of one of them, its owner, of every sample and head:
// finish(i, d, sum over j of weigh(i, j, <owner(i), other(j)>..) * element(j, d)..), and sums of the weights alone.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup has ROWS owners of one head, `rows` of a sample; its threads are 16 x 8, each with {{ rows_per_thread }} owners. A pass over the
// others, `keys` of a sample, takes tiles of KEYS of them: dot products from chunks of columns staged in workgroup memory, weights
// where the owners were, then what is weighted, a chunk of columns at a time, summed in registers. Sums of weights alone are
// in workgroup memory, and later passes read them. Tiles of which bounds of the mask show that no pair counts are passed over.

const THREADS = 128;
const ROWS = {{ rows }};
const KEYS = 32;
// Keys of many tiles, which may be passed over at once.
const SPAN = KEYS * 16;
const HEADS = {{ heads }};
// Groups of four columns that are staged at once.
const CHUNK = 8;
// Rows of tiles, in groups of four, are padded against bank conflicts.
const PITCH = {{ pitch }};

{{ declarations -}}
// Columns of the owners, then weights.
var<workgroup> row_tile: array<vec4<f32>, {{ rows * pitch }}>;
// Columns of the others.
var<workgroup> key_tile: array<vec4<f32>, {{ 32 * pitch }}>;
{% for statistic in statistics %}
var<workgroup> statistic_{{ statistic.value }}: array<f32, {{ rows }}>;
{% endfor %}
{% include "row_bounds_memory.wgsl" %}

{{ hooks -}}
{% from "dot_products.wgsl" import dot_products %}
{% macro multiply(dot) %}
{% for i in range(rows_per_thread) %}
            var product{{ dot.value }}_{{ i }} = vec4<f32>(0.0f);
{% endfor %}
            for (var d0 = 0; d0 < {{ dot.width }}; d0 += CHUNK * 4) {
                workgroupBarrier();
                for (var item = local; item < ROWS * CHUNK; item += THREADS) {
                    let d = d0 + (item % CHUNK) * 4;
                    var fetched = vec4<f32>(0.0f);
                    if (d < {{ dot.width }}) {
                        fetched = owner{{ dot.value }}(c0, c1, min(i0 + item / CHUNK, rows - 1), d);
                    }
                    row_tile[(item / CHUNK) * PITCH + item % CHUNK] = fetched;
                }
                for (var item = local; item < KEYS * CHUNK; item += THREADS) {
                    let d = d0 + (item % CHUNK) * 4;
                    let row = item / CHUNK;
                    var fetched = vec4<f32>(0.0f);
                    if (d < {{ dot.width }}) {
                        fetched = other{{ dot.value }}(c0, c1, min(j0 + row, keys - 1), d);
                    }
                    key_tile[((row % 4) * 8 + row / 4) * PITCH + item % CHUNK] = fetched;
                }
                workgroupBarrier();
{{ dot_products("product" ~ dot.value ~ "_", rows_per_thread) | indent(4, true) }}
            }
{% endmacro %}
{% macro stage(sum, chunk) %}
                for (var item = local; item < KEYS * CHUNK; item += THREADS) {
                    let d = {{ chunk * 32 }} + (item % CHUNK) * 4;
                    let other = j0 + item / CHUNK;
                    var fetched = vec4<f32>(0.0f);
                    if (other < keys && d < {{ sum.width }}) {
                        fetched = element{{ sum.value }}(c0, c1, other, d);
                    }
                    key_tile[item] = fetched;
                }
{% endmacro %}
{% macro accumulate(sum, chunk) %}
                for (var step = 0; step < KEYS / 4; step++) {
{% for i in range(rows_per_thread) %}
                    let w{{ i }} = row_tile[(thread_row + {{ i }}) * PITCH + step];
{% endfor %}
{% for l in range(4) %}
                    let v{{ l }} = key_tile[(step * 4 + {{ l }}) * CHUNK + thread_group];
{% for i in range(rows_per_thread) %}
                    sum{{ sum.value }}_{{ chunk }}_{{ i }} += w{{ i }}.{{ "xyzw"[l] }} * v{{ l }};
{% endfor %}{% endfor %}
                }
{% endmacro %}
{% include "pair_tile.wgsl" %}
    let thread_row = (local / 8) * {{ rows_per_thread }};
    let thread_group = local % 8;
{% for i in range(rows_per_thread) %}
    let row{{ i }} = min(i0 + thread_row + {{ i }}, rows - 1);
{% endfor %}
{% if statistics %}
    if (local < ROWS) {
{% for statistic in statistics %}
        statistic_{{ statistic.value }}[local] = {{ statistic.identity }};
{% endfor %}
    }
{% endif %}
{% include "mask.wgsl" %}
{% for pass in passes %}{% for sum in pass.sums %}{% for chunk in range(sum.chunks) %}{% for i in range(rows_per_thread) %}
    var sum{{ sum.value }}_{{ chunk }}_{{ i }} = vec4<f32>(0.0f);
{% endfor %}{% endfor %}{% endfor %}{% endfor %}
{% for pass in passes %}

    {
        var next = 0;
        var whole_next = true;
        while (next < keys) {
{% include "next_tile.wgsl" %}
            if (next >= keys) {
                break;
            }
            let j0 = next;
{% for dot in pass.dots %}
{{ multiply(dot) -}}
{% endfor %}
            let j = j0 + thread_group * 4;
            // Groups beyond the last other read the last one, and do not count.
            let near = min(j, (keys - 1) & -4);
            let inside = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
{% set number = loop.index0 %}
{% for i in range(rows_per_thread) %}
            var kept{{ i }} = inside;
{% endfor %}
{% if masked %}
            if (!whole_next) {
{% for i in range(rows_per_thread) %}
                kept{{ i }} = inside & keep(c0, c1, row{{ i }}, near, inside);
{% endfor %}
            }
{% endif %}
{% for i in range(rows_per_thread) %}
            let weights{{ i }} = weigh{{ number }}(c0, c1, row{{ i }}, near, kept{{ i }}
{%- for dot in pass.dots %}, product{{ dot.value }}_{{ i }}{% endfor %}
{%- for value in pass.reads %}, statistic_{{ value }}[thread_row + {{ i }}]{% endfor %});
{% endfor %}
{% for sum in pass.sums %}
            {
                workgroupBarrier();
{% for i in range(rows_per_thread) %}
                row_tile[(thread_row + {{ i }}) * PITCH + thread_group] = weights{{ i }}.of{{ sum.value }};
{% endfor %}
{% if sum.chunks %}
{{ stage(sum, 0) -}}
                workgroupBarrier();
{{ accumulate(sum, 0) -}}
{% for chunk in range(1, sum.chunks) %}
                workgroupBarrier();
{{ stage(sum, chunk) -}}
                workgroupBarrier();
{{ accumulate(sum, chunk) -}}
{% endfor %}
{% else %}
                workgroupBarrier();
                if (local < ROWS) {
                    var total = statistic_{{ sum.value }}[local];
                    for (var step = 0; step < KEYS / 4; step++) {
                        let weights = row_tile[local * PITCH + step];
                        total = {{ sum.join }};
                    }
                    statistic_{{ sum.value }}[local] = total;
                }
{% endif %}
            }
{% endfor %}
            next += KEYS;
        }
{% if statistics %}
        workgroupBarrier();
{% endif %}
    }
{% endfor %}
{% for column in columns %}
{% for i in range(rows_per_thread) %}

    if (i0 + thread_row + {{ i }} < rows) {
{% for chunk in range(column.chunks) %}
        if ({{ chunk * 32 }} + thread_group * 4 < {{ column.width }}) {
            finish{{ column.axis }}(c0, c1, row{{ i }}, {{ chunk * 32 }} + thread_group * 4
{%- for value in column.sums %}, sum{{ value }}_{{ chunk }}_{{ i }}{% endfor %}
{%- for statistic in statistics %}, statistic_{{ statistic.value }}[thread_row + {{ i }}]{% endfor %});
        }
{% endfor %}
    }
{% endfor %}
{% endfor %}
{% if rowwise %}

    if (local < ROWS && i0 + local < rows) {
        finish_row(c0, c1, i0 + local
{%- for statistic in statistics %}, statistic_{{ statistic.value }}[local]{% endfor %});
    }
{% endif %}
}
