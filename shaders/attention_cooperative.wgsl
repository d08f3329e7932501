// Jagged attention of cooperative matrices: finish(i, d, sum over j of weigh(i, j, <query(i), key(j)>) * value(j, d)) for every
// sample and head.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Queries, keys, values and weights are f16, sums f32. A workgroup has ROWS queries of one head. {{ split }} subgroups share
// {{ row_matrices * size }} queries, which they hold in registers, and divide keys and columns of the result among themselves. Tiles of KEYS keys follow one
// another, the next on its way in registers: scores pass through workgroup memory to become weights. Whether a tile counts at
// all, or wholly, is decided from bounds of the mask over the tile.

const THREADS = {{ threads }};
const ROWS = {{ rows }};
const KEYS = {{ keys }};
const HEADS = {{ heads }};
const SUBGROUP = {{ subgroup }}u;
// Rows of tiles, in groups of four, are padded against bank conflicts.
const QUERY_PITCH = {{ query_pitch }}u;
const KEY_PITCH = {{ key_pitch }}u;
const VALUE_PITCH = {{ value_pitch }}u;
const WEIGHT_PITCH = {{ weight_pitch }}u;
const STAGE_PITCH = {{ stage_pitch }}u;
// Where values begin, after the keys.
const VALUES = {{ keys * key_pitch }}u;

{{ declarations -}}
// A part of the queries, then keys and values.
var<workgroup> tile_memory: array<vec4<f16>, {{ tile_length }}>;
var<workgroup> weight_tile: array<vec4<f16>, {{ rows * weight_pitch }}>;
var<workgroup> stage: array<vec4<f32>, {{ stage_length }}>;
{% include "row_bounds_memory.wgsl" %}

{{ hooks -}}
{% macro find_tile() %}
    while (next < keys) {
        let j0 = next;
        let j1 = min(j0 + KEYS, keys) - 1;
{{ tile_statements }}
        if (possible) {
            whole_next = always;
            break;
        }
        next += KEYS;
    }
{% endmacro %}
{% macro fetch(name, items, groups, width) %}
{% for n in range(items) %}
        {
            let item = local + {{ n }} * THREADS;
            let j = next + item / {{ groups }};
            let d = (item % {{ groups }}) * 4;
{% if name == "value" %}
            if (j < keys && d < {{ width }}) {
                fetched_value{{ n }} = vec4<f16>(value(c0, c1, j, d));
            } else {
                fetched_value{{ n }} = vec4<f16>();
            }
{% elif width < groups * 4 %}
            fetched_key{{ n }} = vec4<f16>();
            if (d < {{ width }}) {
                fetched_key{{ n }} = vec4<f16>(key(c0, c1, min(j, keys - 1), d));
            }
{% else %}
            fetched_key{{ n }} = vec4<f16>(key(c0, c1, min(j, keys - 1), d));
{% endif %}
        }
{% endfor %}
{% endmacro %}
{% macro put(name, items, groups, base) %}
{% for n in range(items) %}
        {
            let item = local + {{ n }} * THREADS;
{% if (n + 1) * threads > keys * groups %}
            if (item < {{ keys * groups }}) {
                tile_memory[{{ base }}u32(item / {{ groups }}) * {{ name | upper }}_PITCH + u32(item % {{ groups }})] = fetched_{{ name }}{{ n }};
            }
{% else %}
            tile_memory[{{ base }}u32(item / {{ groups }}) * {{ name | upper }}_PITCH + u32(item % {{ groups }})] = fetched_{{ name }}{{ n }};
{% endif %}
        }
{% endfor %}
{% endmacro %}
@compute @workgroup_size({{ threads }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let workgroup = i32(group.x + group.y * groups.x);
    if (workgroup >= {{ workgroups }}) {
        return;
    }
    let local = i32(local_index);
    let tile = workgroup / HEADS;
    let c1 = workgroup - tile * HEADS;
{{ body }}
    let i1 = min(i0 + ROWS, rows) - 1;
    let first_row = (subgroup / {{ split }}u) * {{ row_matrices * size }}u;
    let part = subgroup % {{ split }}u;
    let own_stage = subgroup * {{ stage_rows * size * stage_pitch }}u;
{% include "row_bounds.wgsl" %}
{{ exact_statements }}
{% for d0 in range(0, depth, chunk) %}
    workgroupBarrier();
    for (var item = local; item < ROWS * {{ chunk // 4 }}; item += THREADS) {
        let row = item / {{ chunk // 4 }};
        let d = {{ d0 }} + (item % {{ chunk // 4 }}) * 4;
        var element = vec4<f32>(0.0f);
        if (d < {{ qk_width }}) {
            element = query(c0, c1, min(i0 + row, rows - 1), d);
        }
        tile_memory[u32(row) * QUERY_PITCH + u32(item % {{ chunk // 4 }})] = vec4<f16>(element);
    }
    workgroupBarrier();
{% for d in range(d0, [d0 + chunk, depth] | min, size) %}{% for r in range(row_matrices) %}
    let query{{ r }}_{{ d }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, A>>(&tile_memory[(first_row + {{ r * size }}u) * QUERY_PITCH + {{ (d - d0) // 4 }}u], QUERY_PITCH);
{% endfor %}{% endfor %}
{% endfor %}
{% for r in range(row_matrices) %}{% for c in range(columns) %}
    var sum{{ r }}_{{ c }} = coop_mat{{ size }}x{{ size }}<f32, C>();
{% endfor %}{% endfor %}
{% for n in range(key_items) %}
    var fetched_key{{ n }} = vec4<f16>();
{% endfor %}
{% for n in range(value_items) %}
    var fetched_value{{ n }} = vec4<f16>();
{% endfor %}

    var next = 0;
    var whole_next = true;
{{ find_tile() -}}
    if (next < keys) {
{{ fetch("key", key_items, depth // 4, qk_width) -}}
{{ fetch("value", value_items, value_depth // 4, v_width) -}}
    }
    while (next < keys) {
        let j0 = next;
        let whole = whole_next;
        workgroupBarrier();
{{ put("key", key_items, depth // 4, "") -}}
{{ put("value", value_items, value_depth // 4, "VALUES + ") -}}
        workgroupBarrier();
        next += KEYS;
{{ find_tile() -}}
        if (next < keys) {
{{ fetch("key", key_items, depth // 4, qk_width) -}}
{{ fetch("value", value_items, value_depth // 4, v_width) -}}
        }
{% for r in range(row_matrices) %}{% for c in range(part_keys // size) %}
        var score{{ r }}_{{ c }} = coop_mat{{ size }}x{{ size }}<f32, C>();
{% endfor %}{% endfor %}
{% for d in range(0, depth, size) %}{% for c in range(part_keys // size) %}
        let key{{ c }}_{{ d }} = coopLoad<coop_mat{{ size }}x{{ size }}<f16, B>>(&tile_memory[(part * {{ part_keys }}u + {{ c * size }}u) * KEY_PITCH + {{ d // 4 }}u], KEY_PITCH);
{% for r in range(row_matrices) %}
        score{{ r }}_{{ c }} = coopMultiplyAdd(query{{ r }}_{{ d }}, key{{ c }}_{{ d }}, score{{ r }}_{{ c }});
{% endfor %}
{% endfor %}{% endfor %}
        let pitch = STAGE_PITCH;
{% for r0 in range(0, row_matrices, stage_rows) %}
{% for r in range(stage_rows) %}{% for c in range(part_keys // size) %}
        let stage{{ r0 + r }}_{{ c }} = own_stage + {{ r * size * stage_pitch + c * size // 4 }}u;
        coopStoreT(score{{ r0 + r }}_{{ c }}, &stage[stage{{ r0 + r }}_{{ c }}], pitch);
{% endfor %}{% endfor %}
        subgroupBarrier();
        for (var item = lane; item < {{ stage_rows * size * part_keys // 4 }}u; item += SUBGROUP) {
            let row = item / {{ part_keys // 4 }}u;
            let group_of_keys = item % {{ part_keys // 4 }}u;
            let weight_row = first_row + {{ r0 * size }}u + row;
            let i = min(i0 + i32(weight_row), rows - 1);
            let j = j0 + i32(part * {{ part_keys }}u + group_of_keys * 4u);
            let inside = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
            // Groups beyond the last key read the last one, and do not count.
            let near = min(j, (keys - 1) & -4);
            var kept = inside;
{% if masked %}
            if (!whole) {
                kept = inside & keep(c0, c1, i, near, inside);
            }
{% endif %}
            let weight = weigh(c0, c1, i, near, stage[own_stage + row * STAGE_PITCH + group_of_keys], kept);
            let limit = vec4<f32>(65504.0f);
            weight_tile[weight_row * WEIGHT_PITCH + part * {{ part_keys // 4 }}u + group_of_keys] = vec4<f16>(clamp(weight, -limit, limit));
        }
        {{ "workgroupBarrier" if split > 1 and r0 + stage_rows == row_matrices else "subgroupBarrier" }}();
{% endfor %}
{% for k in range(0, keys, size) %}
{% for r in range(row_matrices) %}
        let weight{{ r }}_{{ k }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, A>>(&weight_tile[(first_row + {{ r * size }}u) * WEIGHT_PITCH + {{ k // 4 }}u], WEIGHT_PITCH);
{% endfor %}
{% for c in range(columns) %}
        let value{{ c }}_{{ k }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, B>>(&tile_memory[VALUES + {{ k }}u * VALUE_PITCH + part * {{ columns * size // 4 }}u + {{ c * size // 4 }}u], VALUE_PITCH);
{% for r in range(row_matrices) %}
        sum{{ r }}_{{ c }} = coopMultiplyAdd(weight{{ r }}_{{ k }}, value{{ c }}_{{ k }}, sum{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endfor %}
    }

    let pitch = STAGE_PITCH;
    let stage_start = own_stage;
{% for r in range(row_matrices) %}{% for c in range(columns) %}
    subgroupBarrier();
    coopStoreT(sum{{ r }}_{{ c }}, &stage[stage_start], pitch);
    subgroupBarrier();
    for (var item = lane; item < {{ size * size // 4 }}u; item += SUBGROUP) {
        let row = item / {{ size // 4 }}u;
        let column = item % {{ size // 4 }}u;
        let i = i0 + i32(first_row + {{ r * size }}u + row);
        let d = i32(part * {{ columns * size }}u + {{ c * size }}u + column * 4u);
        if (i < rows && d < {{ v_width }}) {
            finish(c0, c1, i, d, stage[own_stage + row * STAGE_PITCH + column]);
        }
    }
{% endfor %}{% endfor %}
}
