// Sums over the pairs of rows, for every row of one axis, its owner, of every sample and head:
// finish(i, d, sum over j of weigh(i, j, <owner(i), other(j)>..) * element(j, d)..), and sums of the weights alone.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup has ROWS owners of one head, `rows` of a sample; its threads are {{ threads // t.groups }} x {{ t.groups }}, each with {{ t.rows_per_thread }} owners. A pass over the
// others, `keys` of a sample, takes tiles of KEYS of them: dot products from chunks of columns staged in workgroup memory, weights
// where the owners were, then what is weighted, some others at a time, summed in registers.{{ " The others that follow are on their way meanwhile." if t.ahead and t.held }} Sums of
// weights alone are in workgroup memory, and later passes read them. Tiles of which bounds of the mask show that no pair counts are
// passed over.{{ " All threads share the keys of a sample with one row." if single }}

const THREADS = {{ threads }};
const ROWS = {{ rows }};
const KEYS = {{ t.keys }};
// Keys of many tiles, which may be passed over at once.
const SPAN = KEYS * 16;
const HEADS = {{ heads }};
// Rows of tiles, in groups of four, are padded against bank conflicts.
const PITCH = {{ t.pitch }}u;

{% from "rows_of_floats.wgsl" import accumulate, count, dot_products, fetch_ahead, fetch_now, fetch_owners, put_elements, put_others, put_owners, put_weights %}
{% from "single_row.wgsl" import single_row %}
{% from "softmax_of_rows.wgsl" import begin, memory, note_keys, share, soften %}
{{ declarations -}}
// Columns of the owners, then weights.
var<workgroup> row_tile: array<vec4<f32>, {{ rows * t.pitch }}>;
// Columns of the others.
var<workgroup> key_tile: array<vec4<f32>, {{ t.key_tile }}>;
{% for statistic in statistics %}
var<workgroup> statistic_{{ statistic.value }}: array<f32, {{ rows }}>;
{% endfor %}
{{ memory(masked) if t.softmax -}}
{% include "row_bounds_memory.wgsl" %}

{{ functions -}}
{% macro weigh(pass, i, kept) %}weigh{{ pass.number }}(c0, c1, row{{ i }}, near, {{ kept }}
{%- for dot in pass.dots %}, product{{ dot.value }}_{{ i }}{% endfor %}
{%- for value in pass.reads %}, statistic_{{ value }}[thread_row + {{ i }}u]{% endfor %}){% endmacro %}
{% include "pair_tile.wgsl" %}
    let thread_row = (local_index / {{ t.groups }}u) * {{ t.rows_per_thread }}u;
    let thread_group = local_index % {{ t.groups }}u;
    let row_at = thread_row * PITCH;
    let key_at = thread_group * PITCH;
{{ single_row(single, masked) if single -}}
{% if t.rolled %}
    // Nothing, which drivers do not know.
    let none = u32(min({{ workgroups }}, 0));
{% endif %}
{% for i in range(t.rows_per_thread) %}
    let row{{ i }} = min(i0 + i32(thread_row) + {{ i }}, rows - 1);
{% endfor %}
{% if statistics %}
    if (local < ROWS) {
{% for statistic in statistics %}
        statistic_{{ statistic.value }}[local] = {{ statistic.identity }};
{% endfor %}
    }
{% endif %}
{{ begin(masked) if t.softmax -}}
{% include "mask.wgsl" %}
{% for pass in passes %}{% for sum in pass.sums %}{% for chunk in range(sum.chunks) %}{% for i in range(t.rows_per_thread) %}
    var sum{{ sum.value }}_{{ chunk }}_{{ i }} = vec4<f32>(0.0f);
{% endfor %}{% endfor %}{% endfor %}{% endfor %}
{% for n in range(t.items) %}
    var fetched{{ n }} = vec4<f32>(0.0f);
{% endfor %}
{% for n in range(t.owner_items) %}
    var fetched_owner{{ n }} = vec4<f32>(0.0f);
{% endfor %}
{% for pass in passes %}

    {
    var next = 0;
    var whole_next = true;
{% if t.ahead %}
{% include "next_tile.wgsl" %}
{% if t.held %}
    if (next < keys) {
{{ fetch_ahead(t, pass.first, "next") -}}
    }
{% endif %}
{% endif %}
    while (next < keys) {
{% if not t.ahead %}
{% include "next_tile.wgsl" %}
        if (next >= keys) {
            break;
        }
{{ fetch_ahead(t, pass.first, "next") -}}
{% endif %}
        let j0 = next;
        let whole = whole_next;
{% for dot in pass.dots %}
{% for i in range(t.rows_per_thread) %}
        var product{{ dot.value }}_{{ i }} = vec4<f32>(0.0f);
{% endfor %}
{% for part in dot.parts %}
        {
{{ fetch_now(t, part.own, "j0") -}}
            workgroupBarrier();
{{ put_others(t) -}}
{% if not t.owners_ahead %}
{{ fetch_owners(t, part.own.owner) -}}
{% endif %}
{{ put_owners(t) -}}
            workgroupBarrier();
{{ fetch_ahead(t, part.following, "j0") -}}
{{ dot_products(t, "product" ~ dot.value ~ "_") -}}
        }
{% endfor %}
{% endfor %}

        let j = j0 + i32(thread_group) * 4;
        // Groups beyond the last other read the last one, and do not count.
        let near = min(j, (keys - 1) & -4);
{% for i in range(t.rows_per_thread) %}
{% if t.guarded %}
        var kept{{ i }} = vec4<bool>(true);
{% else %}
        var weights{{ i }} = {{ weigh(pass, i, "vec4<bool>(true)") }};
{% endif %}
{% endfor %}
        if (!whole) {
            let inside = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
{% for i in range(t.rows_per_thread) %}
            {{ "" if t.guarded else "let " }}kept{{ i }} = inside{% if masked %} & keep(c0, c1, row{{ i }}, near, inside){% endif %};
{% if not t.guarded %}{% for sum in pass.sums %}
            weights{{ i }}.of{{ sum.value }} = select(vec4<f32>({{ sum.hidden }}), weights{{ i }}.of{{ sum.value }}, kept{{ i }});
{% endfor %}{% endif %}
{{ note_keys(i) if t.softmax and masked -}}
{% endfor %}
        }
{% if t.guarded %}{% for i in range(t.rows_per_thread) %}
        let weights{{ i }} = {{ weigh(pass, i, "kept" ~ i) }};
{% endfor %}{% endif %}
{% for sum in pass.sums %}
{% for part in sum.parts %}
{{ fetch_now(t, part.own, "j0") -}}
        workgroupBarrier();
{{ put_weights(t, sum, part.at) if part.at % t.weights == 0 -}}
{{ put_elements(t, sum) -}}
        workgroupBarrier();
{% if t.softmax and loop.first %}
{{ soften(t, sum, masked) -}}
{% endif %}
{% if part.is_last %}
        next += KEYS;
{% if t.ahead %}
{% include "next_tile.wgsl" %}
{% if t.held %}
        if (next < keys) {
{{ fetch_ahead(t, pass.first, "next") -}}
        }
{% endif %}
{% endif %}
{% else %}
{{ fetch_ahead(t, part.following, "j0") -}}
{% endif %}
{{ accumulate(t, sum, part.at) -}}
{% else %}
        workgroupBarrier();
{{ put_weights(t, sum, 0) -}}
        workgroupBarrier();
        if (local < ROWS) {
            var total = statistic_{{ sum.value }}[local];
            for (var step = 0u; step < {{ count(t, "KEYS / 4") }}; step++) {
                let weights = row_tile[local_index * PITCH + step];
                total = {{ sum.join }};
            }
            statistic_{{ sum.value }}[local] = total;
        }
{% if sum.is_last %}
        next += KEYS;
{% if t.ahead %}
{% include "next_tile.wgsl" %}
{% if t.held %}
        if (next < keys) {
{{ fetch_ahead(t, pass.first, "next") -}}
        }
{% endif %}
{% endif %}
{% endif %}
{% endfor %}
{% endfor %}
    }
{% if statistics or t.softmax %}
    workgroupBarrier();
{% endif %}
    }
{% endfor %}
{% for column in columns %}{% for i in range(t.rows_per_thread) %}

    if (i0 + i32(thread_row) + {{ i }} < rows) {
{{ share(i) if t.softmax -}}
{% for chunk in range(column.chunks) %}
        if ({{ chunk * t.keys }} + i32(thread_group) * 4 < {{ column.width }}) {
            finish{{ column.axis }}(c0, c1, row{{ i }}, {{ chunk * t.keys }} + i32(thread_group) * 4
{%- for value in column.sums %}, sum{{ value }}_{{ chunk }}_{{ i }}{{ " * part" if t.softmax }}{% endfor %}
{%- for statistic in statistics %}, statistic_{{ statistic.value }}[thread_row + {{ i }}u]{% endfor %});
        }
{% endfor %}
    }
{% endfor %}{% endfor %}
{% if rowwise %}

    if (local < ROWS && i0 + local < rows) {
        finish_row(c0, c1, i0 + local
{%- for statistic in statistics %}, statistic_{{ statistic.value }}[local]{% endfor %});
    }
{% endif %}
}
