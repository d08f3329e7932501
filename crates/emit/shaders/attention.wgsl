// Jagged attention: finish(i, d, sum over j of weigh(i, j, <query(i), key(j)>) * value(j, d)) for every sample and head.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup has ROWS queries of one head; its threads are 16 x 8, each with {{ rows_per_thread }} rows. Tiles of KEYS keys follow one
// another: scores from chunks of the width staged in workgroup memory, weights where the queries were,
// then values, {{ value_keys }} keys at a time, summed in registers.{{ " The next keys or values are on their way meanwhile." if ahead }} Whether a tile
// counts at all, or wholly, is decided from bounds of the mask over the tile.

const THREADS = 128;
const ROWS = {{ rows }};
const KEYS = 32;
// Keys of many tiles, which may be passed over at once.
const SPAN = KEYS * 16;
const HEADS = {{ heads }};
// Groups of four elements of the width that are staged at once.
const CHUNK = {{ chunk // 4 }};
// Rows of tiles, in groups of four, are padded against bank conflicts.
const PITCH = {{ pitch }};
{% if softmax %}
// The largest score of no keys.
const LOWEST = -3.40282346e38f;
{% endif %}

{{ declarations -}}
// A part of the queries, then weights.
var<workgroup> row_tile: array<vec4<f32>, {{ rows * pitch }}>;
// Keys, then values.
var<workgroup> key_tile: array<vec4<f32>, {{ key_tile }}>;
{% if softmax %}
var<workgroup> row_max: array<f32, {{ rows }}>;
// Sums of weights; negative where no key has counted yet.
var<workgroup> row_sum: array<f32, {{ rows }}>;
var<workgroup> row_scale: array<f32, {{ rows }}>;
{% if masked %}
// A bit for each key of a tile that counts, where some do not.
var<workgroup> row_keys: array<atomic<u32>, {{ rows }}>;
{% endif %}
{% endif %}
{% include "row_bounds_memory.wgsl" %}

{{ hooks -}}
{% from "dot_products.wgsl" import dot_products %}
{% set groups = chunk // 4 %}
{% set key_items = (32 * groups + 127) // 128 %}
{% set query_items = (rows * groups + 127) // 128 %}
{% set value_groups = value_chunks * 8 %}
{% set value_items = (value_keys * value_groups + 127) // 128 %}
{% macro stage_queries(d0) %}
{% for n in range(query_items) %}
            var fetched_query{{ n }} = vec4<f32>(0.0f);
            {
                let item = local + {{ n * 128 }};
                let d = {{ d0 }} + (item % CHUNK) * 4;
                if (item < ROWS * CHUNK{% if width % chunk %} && d < {{ width }}{% endif %}) {
                    fetched_query{{ n }} = owner{{ dot }}(c0, c1, min(i0 + item / CHUNK, rows - 1), d);
                }
            }
{% endfor %}
{% for n in range(query_items) %}
            {
                let item = local + {{ n * 128 }};
{% if (n + 1) * 128 > rows * groups %}
                if (item < ROWS * CHUNK) {
                    row_tile[(item / CHUNK) * PITCH + item % CHUNK] = fetched_query{{ n }};
                }
{% else %}
                row_tile[(item / CHUNK) * PITCH + item % CHUNK] = fetched_query{{ n }};
{% endif %}
            }
{% endfor %}
{% endmacro %}
{% macro fetch_keys(d0) %}
{% for n in range(key_items) %}
            {
                let item = local + {{ n * 128 }};
                let d = {{ d0 }} + (item % CHUNK) * 4;
                // Rows past the last key read that one; their weights are 0.
                let j = min(next + item / CHUNK, keys - 1);
                fetched{{ n }} = vec4<f32>(0.0f);
                if (item < KEYS * CHUNK{% if width % chunk %} && d < {{ width }}{% endif %}) {
                    fetched{{ n }} = other{{ dot }}(c0, c1, j, d);
                }
            }
{% endfor %}
{% endmacro %}
{% macro put_keys() %}
{% for n in range(key_items) %}
            {
                let item = local + {{ n * 128 }};
                let row = item / CHUNK;
                if (item < KEYS * CHUNK) {
                    key_tile[((row % 4) * 8 + row / 4) * PITCH + item % CHUNK] = fetched{{ n }};
                }
            }
{% endfor %}
{% endmacro %}
{% macro fetch_values(k0) %}
{% for n in range(value_items) %}
        {
            let item = local + {{ n * 128 }};
            let d = (item % {{ value_groups }}) * 4;
            let j = min(j0 + {{ k0 }} + item / {{ value_groups }}, keys - 1);
            fetched{{ n }} = vec4<f32>(0.0f);
            if (item < {{ value_keys * value_groups }}{% if columns < value_groups * 4 %} && d < {{ columns }}{% endif %}) {
                fetched{{ n }} = element{{ sum }}(c0, c1, j, d);
            }
        }
{% endfor %}
{% endmacro %}
{% macro put_values() %}
{% for n in range(value_items) %}
        if (local + {{ n * 128 }} < {{ value_keys * value_groups }}) {
            key_tile[local + {{ n * 128 }}] = fetched{{ n }};
        }
{% endfor %}
{% endmacro %}
{% macro note_keys(i) %}
{% if softmax and masked %}
            let bits{{ i }} = dot(vec4<u32>(kept{{ i }}), vec4<u32>(1u, 2u, 4u, 8u));
            atomicOr(&row_keys[thread_row + {{ i }}], bits{{ i }} << u32(thread_group * 4));
{% endif %}
{% endmacro %}
{% include "pair_tile.wgsl" %}
    let thread_row = (local / 8) * {{ rows_per_thread }};
    let thread_group = local % 8;
{% if softmax %}
    if (local < ROWS) {
        row_max[local] = LOWEST;
        row_sum[local] = -1.0f;
{% if masked %}
        atomicStore(&row_keys[local], 0u);
{% endif %}
    }
{% endif %}
{% include "mask.wgsl" %}
{% for chunk in range(value_chunks) %}{% for i in range(rows_per_thread) %}
    var sum{{ chunk }}_{{ i }} = vec4<f32>(0.0f);
{% endfor %}{% endfor %}
{% for n in range([key_items, value_items] | max) %}
    var fetched{{ n }} = vec4<f32>(0.0f);
{% endfor %}

    var next = 0;
    var whole_next = true;
{% if ahead %}
{% include "next_tile.wgsl" %}
    if (next < keys) {
{{ fetch_keys(0) -}}
    }
{% endif %}
    while (next < keys) {
{% if not ahead %}
{% include "next_tile.wgsl" %}
        if (next >= keys) {
            break;
        }
{{ fetch_keys(0) -}}
{% endif %}
        let j0 = next;
        let whole = whole_next;
{% for i in range(rows_per_thread) %}
        var score{{ i }} = vec4<f32>(0.0f);
{% endfor %}
{% for d0 in range(0, width, chunk) %}
        {
            workgroupBarrier();
{{ put_keys() -}}
{{ stage_queries(d0) -}}
            workgroupBarrier();
{% if d0 + chunk < width %}
{{ fetch_keys(d0 + chunk) -}}
{% else %}
{{ fetch_values(0) -}}
{% endif %}
{{ dot_products("score", rows_per_thread) }}
        }
{% endfor %}

        let j = j0 + thread_group * 4;
        // Groups beyond the last key read the last one, and do not count.
        let near = min(j, (keys - 1) & -4);
{% for i in range(rows_per_thread) %}
        let row{{ i }} = min(i0 + thread_row + {{ i }}, rows - 1);
{% endfor %}
{% if guarded %}
{% for i in range(rows_per_thread) %}
        var kept{{ i }} = vec4<bool>(true);
{% endfor %}
        if (!whole) {
            let inside = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
{% for i in range(rows_per_thread) %}
            kept{{ i }} = inside{% if masked %} & keep(c0, c1, row{{ i }}, near, inside){% endif %};
{{ note_keys(i) -}}
{% endfor %}
        }
{% for i in range(rows_per_thread) %}
        score{{ i }} = weigh0(c0, c1, row{{ i }}, near, kept{{ i }}, score{{ i }}).of{{ sum }};
{% endfor %}
{% else %}
{% for i in range(rows_per_thread) %}
        score{{ i }} = weigh0(c0, c1, row{{ i }}, near, vec4<bool>(true), score{{ i }}).of{{ sum }};
{% endfor %}
        if (!whole) {
            let inside = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
{% for i in range(rows_per_thread) %}
            let kept{{ i }} = inside{% if masked %} & keep(c0, c1, row{{ i }}, near, inside){% endif %};
            score{{ i }} = select(vec4<f32>({{ "LOWEST" if softmax else "0.0f" }}), score{{ i }}, kept{{ i }});
{{ note_keys(i) -}}
{% endfor %}
        }
{% endif %}
        workgroupBarrier();
{% for i in range(rows_per_thread) %}
        row_tile[(thread_row + {{ i }}) * PITCH + thread_group] = score{{ i }};
{% endfor %}
{{ put_values() -}}
        workgroupBarrier();
{% if softmax %}
        if (local < ROWS) {
            let before = row_max[local];
            var high = before;
            for (var step = 0; step < KEYS / 4; step++) {
                let s = row_tile[local * PITCH + step];
                high = max(high, max(max(s.x, s.y), max(s.z, s.w)));
            }
            let scale = exp(before - high);
            var total = 0.0f;
            for (var step = 0; step < KEYS / 4; step++) {
                let weight = exp(row_tile[local * PITCH + step] - high);
                row_tile[local * PITCH + step] = weight;
                total += (weight.x + weight.y) + (weight.z + weight.w);
            }
            var counts = true;
{% if masked %}
            let kept_keys = select(atomicExchange(&row_keys[local], 0u), 0xffffffffu, whole);
{% else %}
            let kept_keys = select((1u << (u32(keys - j0) & 31u)) - 1u, 0xffffffffu, whole);
{% endif %}
            // Keys that do not count are told from those with the lowest score.
            if (!(high > LOWEST)) {
                counts = kept_keys != 0u;
                total = 0.0f;
                for (var step = 0; step < KEYS / 4; step++) {
                    let kept = (vec4<u32>(kept_keys >> u32(step * 4)) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>(0u);
                    let weight = select(vec4<f32>(0.0f), row_tile[local * PITCH + step], kept);
                    row_tile[local * PITCH + step] = weight;
                    total += (weight.x + weight.y) + (weight.z + weight.w);
                }
            }
            let sum = row_sum[local];
            row_max[local] = high;
            row_sum[local] = select(sum, select(sum, 0.0f, sum < 0.0f) * scale + total, counts);
            row_scale[local] = scale;
        }
        workgroupBarrier();
{% for i in range(rows_per_thread) %}
        let scale{{ i }} = row_scale[thread_row + {{ i }}];
{% for chunk in range(value_chunks) %}
        sum{{ chunk }}_{{ i }} *= scale{{ i }};
{% endfor %}{% endfor %}
{% endif %}
{% for k0 in range(0, 32, value_keys) %}
{% if k0 %}
        workgroupBarrier();
{{ put_values() -}}
        workgroupBarrier();
{% endif %}
{% if k0 + value_keys < 32 %}
{{ fetch_values(k0 + value_keys) -}}
{% else %}
        next += KEYS;
{% if ahead %}
{% include "next_tile.wgsl" %}
        if (next < keys) {
{{ fetch_keys(0) -}}
        }
{% endif %}
{% endif %}
        for (var step = 0; step < {{ value_keys // 4 }}; step++) {
{% for i in range(rows_per_thread) %}
            let w{{ i }} = row_tile[(thread_row + {{ i }}) * PITCH + step + {{ k0 // 4 }}];
{% endfor %}
{% for chunk in range(value_chunks) %}{% for l in range(4) %}
            let v{{ chunk }}_{{ l }} = key_tile[(step * 4 + {{ l }}) * {{ value_groups }} + {{ chunk * 8 }} + thread_group];
{% for i in range(rows_per_thread) %}
            sum{{ chunk }}_{{ i }} += w{{ i }}.{{ "xyzw"[l] }} * v{{ chunk }}_{{ l }};
{% endfor %}{% endfor %}{% endfor %}
        }
{% endfor %}
    }
{% if softmax %}

    workgroupBarrier();
{% endif %}
{% for i in range(rows_per_thread) %}

    if (i0 + thread_row + {{ i }} < rows) {
{% if softmax %}
        let total = row_sum[thread_row + {{ i }}];
        // Without a key, nothing. Where all keys that count weigh nothing, what 0 / 0 is.
        let part = select(1.0f / total, 0.0f, total < 0.0f);
{% endif %}
{% for chunk in range(value_chunks) %}
        if ({{ chunk * 32 }} + thread_group * 4 < {{ columns }}) {
            finish{{ column }}(c0, c1, i0 + thread_row + {{ i }}, {{ chunk * 32 }} + thread_group * 4, sum{{ chunk }}_{{ i }}{% if softmax %} * part{% endif %});
        }
{% endfor %}
    }
{% endfor %}
}
