// Jagged attention of cooperative matrices: finish(i, d, sum over j of weigh(i, j, <query(i), key(j)>) * value(j, d)) for every
// sample and head.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Queries, keys, values and weights are f16, sums f32: a weight beyond 65504 becomes infinite. A workgroup has ROWS queries of one head. {{ split }} subgroups share
// {{ row_matrices * size }} queries, which they hold in registers, and divide keys and columns of the result among themselves. Tiles of KEYS keys follow one
// another, the next on its way in registers: scores {{ "become weights in registers" if in_registers else "pass through workgroup memory to become weights" }}. Whether a tile counts at
// all, or wholly, is decided from bounds of the mask over the tile, for many tiles at once by a thread each{{ ", for the queries of each subgroup" if in_registers }}.
{% if softmax %}
// Weights are exponentials of what scores exceed their row's shift by, which results are divided by the sums of.
{% endif %}

enable wgpu_cooperative_matrix;

const THREADS = {{ threads }};
const ROWS = {{ rows }};
const KEYS = {{ keys }};
const HEADS = {{ heads }};
const SUBGROUP = {{ subgroup }}u;
// Rows of tiles, in groups of four, are padded against bank conflicts.
const QUERY_PITCH = {{ query_pitch }}u;
const KEY_PITCH = {{ key_tile.pitch }}u;
const VALUE_PITCH = {{ value_tile.pitch }}u;
{% if in_registers %}
// Keys and values lie in two buffers: a tile is stored while the one before is multiplied{{ ", its keys one tile earlier, since scores are" if scores_ahead }}.
const BUFFER = {{ buffer_length }}u;
// Subgroups, and the queries of each.
const PARTS = {{ subgroups }};
const PART_ROWS = {{ row_matrices * size }};
{% else %}
const WEIGHT_PITCH = {{ weight_pitch }}u;
{% endif %}
const STAGE_PITCH = {{ stage_pitch }}u;

{{ declarations -}}
// A part of the queries, then keys and values.
var<workgroup> tile_memory: array<vec4<f16>, {{ tile_length }}>;
{% if not in_registers %}
var<workgroup> weight_tile: array<vec4<f16>, {{ rows * weight_pitch }}>;
{% endif %}
var<workgroup> stage: array<vec4<f32>, {{ stage_length }}>;
{% include "row_bounds_memory.wgsl" %}
{% include "tile_page_memory.wgsl" %}

{{ hooks -}}
{% set sums = "coop_mat" ~ size ~ "x" ~ size ~ "<f32, C>" %}
{% from "online_softmax.wgsl" import add_up, combine, elements, largest_of, memory, sum_of %}
{{ memory(masked, not in_registers) if softmax -}}
{% if in_registers %}
{% include "matrix_elements.wgsl" %}
{% if softmax %}
{{ elements(sums, masked) -}}
{% else %}
// The weight of a pair in a tile of which all do count. Rows past the last query read that one.
fn weight_of_whole(row: u32, column: u32, product: f32, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32) -> f32 {
    return weigh(c0, c1, min(i0 + i32(row), rows - 1), j0 + i32(column), product, true);
}

fn matrix_each_weight_of_whole(products: {{ sums }}, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32) -> {{ sums }} {
    return products;
}

// The weight of a pair, 0 if it does not count.
fn weight_of_part(row: u32, column: u32, product: f32, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32) -> f32 {
    let i = min(i0 + i32(row), rows - 1);
    let j = min(j0 + i32(column), keys - 1);
{% if masked %}
    let kept = j0 + i32(column) < keys && keep(c0, c1, i, j);
{% else %}
    let kept = j0 + i32(column) < keys;
{% endif %}
    return weigh(c0, c1, i, j, product, kept);
}

fn matrix_each_weight_of_part(products: {{ sums }}, c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32) -> {{ sums }} {
    return products;
}

{% endif %}
{% endif %}
{% from "staged_rows.wgsl" import fetch, fetched, put %}
{% macro at_most(text, beyond, count) %}{% if beyond %}min({{ text }}, {{ count - 1 }}u){% else %}{{ text }}{% endif %}{% endmacro %}
{# The row and the group of four keys of a tile that a lane takes. #}
{% macro staged_row(n) %}((lane + {{ n * subgroup }}u) / {{ keys // 4 }}u % {{ size }}u){% endmacro %}
{% set staged_group = "(lane % " ~ keys // 4 ~ "u)" %}
{% macro weight(r, n) %}weigh(c0, c1, i{{ r }}_{{ n }}, near{{ r }}_{{ n }}, product{{ r }}_{{ n }}, kept{{ r }}_{{ n }}){% endmacro %}
{# The row and the group of four columns of a matrix in memory that a lane takes. #}
{% macro element_row(n) %}((lane + {{ n * subgroup }}u) / {{ size // 4 }}u % {{ size }}u){% endmacro %}
{% set element_group = "(lane % " ~ size // 4 ~ "u)" %}
{# Scores of a matrix of keys of a tile, from `buffer` on. #}
{% macro multiply(c, score, buffer) %}
{% for r in range(row_matrices) %}
            var {{ score }}{{ r }}_{{ c }} = {{ sums }}();
{% endfor %}
{% for d in range(0, depth, size) %}
            let key{{ c }}_{{ d }} = coopLoad<coop_mat{{ size }}x{{ size }}<f16, B>>(&tile_memory[{{ buffer }} + {{ c * size * key_tile.pitch + d // 4 }}u], KEY_PITCH);
{% for r in range(row_matrices) %}
            {{ score }}{{ r }}_{{ c }} = coopMultiplyAdd(query{{ r }}_{{ d }}, key{{ c }}_{{ d }}, {{ score }}{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endmacro %}
{# Where a matrix of scores lies. #}
{% macro place(r, c) %}c0, c1, own_i0 + {{ r * size }}, j0 + {{ c * size }}, rows, keys{% endmacro %}
{# Adds the values of a matrix of keys, weighted. #}
{% macro add(c, kind) %}
{% for r in range(row_matrices) %}
{% if softmax %}
            let exponential{{ r }}_{{ c }} = matrix_each_exponential_of(excess{{ r }}_{{ c }});
            total{{ r }} = total{{ r }} + exponential{{ r }}_{{ c }};
            let weights{{ r }}_{{ c }} = matrix_to_left(matrix_to_halves(exponential{{ r }}_{{ c }}));
{% else %}
            let weights{{ r }}_{{ c }} = matrix_to_left(matrix_to_halves(matrix_each_weight_of_{{ kind }}(score{{ r }}_{{ c }}, c0, c1, own_i0 + {{ r * size }}, j0 + {{ c * size }}, rows, keys)));
{% endif %}
{% endfor %}
{% for d in range(columns) %}
            let value{{ c }}_{{ d }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, B>>(&tile_memory[buffer + {{ value_tile.base + c * size * value_tile.pitch + d * size // 4 }}u], VALUE_PITCH);
{% for r in range(row_matrices) %}
            sum{{ r }}_{{ d }} = coopMultiplyAdd(weights{{ r }}_{{ c }}, value{{ c }}_{{ d }}, sum{{ r }}_{{ d }});
{% endfor %}
{% endfor %}
{% endmacro %}
{# Adds those of all keys of a tile. #}
{% macro add_all(kind) %}
{% for c in range(keys // size) %}
{{ add(c, kind) -}}
{% endfor %}
{% endmacro %}
{# Adds what a tile of scores gives. Where a row's shift is raised first, branches have matrices of their own. #}
{% macro soften(kind) %}
{% for r in range(row_matrices) %}{% for c in range(keys // size) %}
            let excess{{ r }}_{{ c }} = matrix_each_excess_of_{{ kind }}(score{{ r }}_{{ c }}, {{ place(r, c) }}, first_row + {{ r * size }}u);
{% endfor %}{% endfor %}
            var most = LOWEST;
{% for r in range(row_matrices) %}{% for c in range(keys // size) %}{% for n in range(elements_held) %}
            most = max(most, matrix_element(excess{{ r }}_{{ c }}, {{ n }}u));
{% endfor %}{% endfor %}{% endfor %}
            if (subgroup_uniform(subgroupAny(most > MOST_EXCESS))) {
                let pitch = STAGE_PITCH;
{% for r in range(row_matrices) %}
{% for n in range(element_items) %}
                var largest{{ r }}_{{ n }} = LOWEST;
{% endfor %}
{% for c in range(keys // size) %}
                {{ branch_barrier }}
                coopStoreT(matrix_each_score_of_part(score{{ r }}_{{ c }}, {{ place(r, c) }}), &stage[own_stage], pitch);
                {{ branch_barrier }}
{% for n in range(element_items) %}
                let four{{ r }}_{{ c }}_{{ n }} = stage[own_stage + {{ element_row(n) }} * STAGE_PITCH + {{ element_group }}];
                largest{{ r }}_{{ n }} = max(largest{{ r }}_{{ n }}, {{ largest_of("four" ~ r ~ "_" ~ c ~ "_" ~ n) }});
{% endfor %}
{% endfor %}
{% for n in range(element_items) %}
{{ combine("largest" ~ r ~ "_" ~ n, "max", size // 4) -}}
                if ({{ element_group }} == 0u) {
                    raise(first_row + {{ r * size }}u + {{ element_row(n) }}, largest{{ r }}_{{ n }});
                }
{% endfor %}
{% endfor %}
                {{ branch_barrier }}
{% for r in range(row_matrices) %}
{% for c in range(keys // size) %}
                let excess{{ r }}_{{ c }} = matrix_each_excess_of_{{ kind }}(score{{ r }}_{{ c }}, {{ place(r, c) }}, first_row + {{ r * size }}u);
{% endfor %}
{% for d in range(columns) %}
                sum{{ r }}_{{ d }} = matrix_each_rescaled(sum{{ r }}_{{ d }}, first_row + {{ r * size }}u);
{% endfor %}
                total{{ r }} = matrix_each_rescaled(total{{ r }}, first_row + {{ r * size }}u);
{% endfor %}
{{ add_all(kind) -}}
            } else {
{{ add_all(kind) -}}
            }
{% endmacro %}
{# The scores of the tile that follows. #}
{% macro follow() %}
{% for c in range(keys // size) %}
{{ multiply(c, "following", "other") -}}
{% for r in range(row_matrices) %}
            score{{ r }}_{{ c }} = following{{ r }}_{{ c }};
{% endfor %}
{% endfor %}
{% endmacro %}
{# What a tile adds, and the scores of the one that follows. #}
{% macro step(kind) %}
{% for c in range(keys // size) %}
{{ multiply(c, "score", "buffer") if not scores_ahead -}}
{{ add(c, kind) if not softmax -}}
{% endfor %}
{{ soften(kind) if softmax -}}
{{ follow() if scores_ahead -}}
{% endmacro %}
{# What the sums of a row are multiplied by in the end: without a key, nothing. Where all keys weigh nothing, what 0 / 0 is. #}
{% macro finish_total(r, n, row, group, lanes) %}
{{ add_up("total" ~ r ~ "_" ~ n, lanes) -}}
    if ({{ group }} == 0u) {
        let row = first_row + {{ r * size }}u + {{ row }};
        row_scale[row] = 1.0f / total{{ r }}_{{ n }};
        if (total{{ r }}_{{ n }} == 0.0f && !attends(c0, c1, min(i0 + i32(row), rows - 1), keys)) {
            row_scale[row] = 0.0f;
        }
    }
{% endmacro %}
{% set with_lanes = true %}
{% include "pair_tile.wgsl" %}
    let first_row = (subgroup / {{ split }}u) * {{ row_matrices * size }}u;
    let part = subgroup % {{ split }}u;
    let own_stage = subgroup * {{ size * stage_pitch }}u;
{% if in_registers %}
    let own_i0 = i0 + i32(first_row);
{% endif %}
{% if softmax %}
    for (var row = local; row < ROWS; row += THREADS) {
        row_shift[row] = LOWEST;
    }
{% endif %}
{% include "mask.wgsl" %}
{% for d0 in range(0, depth, chunk) %}{% for n in range(query_items) %}
    var fetched_query{{ d0 }}_{{ n }} = vec4<f16>();
    {
        let item = local_index + {{ n * threads }}u;
        let row = i32(item / {{ chunk // 4 }}u);
        let d = {{ d0 }} + i32(item % {{ chunk // 4 }}u) * 4;
{% if depth > qk_width or depth % chunk %}
        if (d < {{ qk_width }}) {
            fetched_query{{ d0 }}_{{ n }} = query(c0, c1, min(i0 + row, rows - 1), d);
        }
{% else %}
        fetched_query{{ d0 }}_{{ n }} = query(c0, c1, min(i0 + row, rows - 1), d);
{% endif %}
    }
{% endfor %}{% endfor %}
{% for d0 in range(0, depth, chunk) %}
    workgroupBarrier();
{% for n in range(query_items) %}
    {
        let item = local_index + {{ n * threads }}u;
{% if (n + 1) * threads > rows * chunk // 4 %}
        if (item < {{ rows * chunk // 4 }}u) {
            tile_memory[item / {{ chunk // 4 }}u * QUERY_PITCH + item % {{ chunk // 4 }}u] = fetched_query{{ d0 }}_{{ n }};
        }
{% else %}
        tile_memory[item / {{ chunk // 4 }}u * QUERY_PITCH + item % {{ chunk // 4 }}u] = fetched_query{{ d0 }}_{{ n }};
{% endif %}
    }
{% endfor %}
    workgroupBarrier();
{% for d in range(d0, [d0 + chunk, depth] | min, size) %}{% for r in range(row_matrices) %}
    let query{{ r }}_{{ d }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, A>>(&tile_memory[(first_row + {{ r * size }}u) * QUERY_PITCH + {{ (d - d0) // 4 }}u], QUERY_PITCH);
{% endfor %}{% endfor %}
{% endfor %}
{% for r in range(row_matrices) %}{% for c in range(columns) %}
    var sum{{ r }}_{{ c }} = coop_mat{{ size }}x{{ size }}<f32, C>();
{% endfor %}{% endfor %}
{% if softmax %}{% for r in range(row_matrices) %}
{% if in_registers %}
    var total{{ r }} = {{ sums }}();
{% else %}
{% for n in range(stage_items) %}
    var total{{ r }}_{{ n }} = 0.0f;
{% endfor %}
{% endif %}
{% endfor %}{% endif %}
{{ fetched(key_tile) -}}
{{ fetched(value_tile) -}}
{% include "first_tile_of_page.wgsl" %}
    if (next < keys) {
{{ fetch(key_tile, "next") -}}
{{ fetch(value_tile, "next") -}}
    }
{% if in_registers %}
    workgroupBarrier();
{{ put(key_tile, "") -}}
{{ put(value_tile, "") -}}
    var buffer = 0u;
    var current = next;
    var counts = counts_next;
    var whole = whole_next;
{% include "next_tile_of_page.wgsl" %}
{% if scores_ahead %}
    if (next < keys) {
{{ fetch(key_tile, "next") -}}
    }
{{ put(key_tile, "BUFFER + ") -}}
    var following = next;
    var following_counts = counts_next;
    var following_whole = whole_next;
{% include "next_tile_of_page.wgsl" %}
{% endif %}
    workgroupBarrier();
{% if scores_ahead %}
{% for c in range(keys // size) %}
{{ multiply(c, "score", "0u") -}}
{% endfor %}
    workgroupBarrier();
{% endif %}
    while (current < keys) {
        let j0 = current;
        let other = BUFFER - buffer;
        if (next < keys) {
{{ fetch(key_tile, "next") -}}
{{ fetch(value_tile, "next") if not scores_ahead -}}
        }
{% if scores_ahead %}
        if (following < keys) {
{{ fetch(value_tile, "following") -}}
        }
{% endif %}
        // Each branch has matrices of its own: drivers copy those that are one after a branch.
        if (subgroup_uniform(counts && whole)) {
{{ step("whole") -}}
        } else if (subgroup_uniform(counts)) {
{{ step("part") -}}
        }{% if scores_ahead %} else if (subgroup_uniform(following_counts)) {
{{ follow() -}}
        }{% endif %}

{{ put(key_tile, "buffer + " if scores_ahead else "other + ") -}}
{{ put(value_tile, "other + ") -}}
        buffer = other;
{% if scores_ahead %}
        current = following;
        counts = following_counts;
        whole = following_whole;
{% endif %}
        {{ "following" if scores_ahead else "current" }} = next;
        {{ "following_" if scores_ahead }}counts = counts_next;
        {{ "following_" if scores_ahead }}whole = whole_next;
{% include "next_tile_of_page.wgsl" %}
        workgroupBarrier();
    }
{% else %}
    while (next < keys) {
        let j0 = next;
        let whole = whole_next;
        workgroupBarrier();
{{ put(key_tile, "") -}}
{{ put(value_tile, "") -}}
        workgroupBarrier();
{% include "next_tile_of_page.wgsl" %}
        if (next < keys) {
{{ fetch(key_tile, "next") -}}
{{ fetch(value_tile, "next") -}}
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
{% for r in range(row_matrices) %}{% for c in range(part_keys // size) %}
        let stage{{ r }}_{{ c }} = own_stage + {{ (r * part_keys + c * size) // 4 }}u;
        coopStoreT(score{{ r }}_{{ c }}, &stage[stage{{ r }}_{{ c }}], pitch);
{% endfor %}{% endfor %}
        subgroupBarrier();
{% if softmax %}
{% include "softened_scores.wgsl" %}
{% else %}
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
        let item{{ r }}_{{ n }} = {{ at_most("lane + " ~ n ~ "u * SUBGROUP", (n + 1) * subgroup > stage_groups, stage_groups) }};
        let row{{ r }}_{{ n }} = item{{ r }}_{{ n }} / {{ part_keys // 4 }}u;
        let group{{ r }}_{{ n }} = item{{ r }}_{{ n }} % {{ part_keys // 4 }}u;
        let product{{ r }}_{{ n }} = stage[own_stage + row{{ r }}_{{ n }} * STAGE_PITCH + {{ r * part_keys // 4 }}u + group{{ r }}_{{ n }}];
        let i{{ r }}_{{ n }} = min(i0 + i32(first_row + {{ r * size }}u + row{{ r }}_{{ n }}), rows - 1);
        let j{{ r }}_{{ n }} = j0 + i32(part * {{ part_keys }}u + group{{ r }}_{{ n }} * 4u);
        // Groups beyond the last key read the last one, and do not count.
        let near{{ r }}_{{ n }} = min(j{{ r }}_{{ n }}, (keys - 1) & -4);
        {{ "var kept" if guarded else "let kept" }}{{ r }}_{{ n }} = vec4<bool>(true);
{% if not guarded %}
        var weight{{ r }}_{{ n }} = {{ weight(r, n) }};
{% endif %}
{% endfor %}{% endfor %}
        if (!whole) {
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
            let inside{{ r }}_{{ n }} = (j{{ r }}_{{ n }} + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
{% if masked %}
            let counts{{ r }}_{{ n }} = inside{{ r }}_{{ n }} & keep(c0, c1, i{{ r }}_{{ n }}, near{{ r }}_{{ n }}, inside{{ r }}_{{ n }});
{% else %}
            let counts{{ r }}_{{ n }} = inside{{ r }}_{{ n }};
{% endif %}
{% if guarded %}
            kept{{ r }}_{{ n }} = counts{{ r }}_{{ n }};
{% else %}
            weight{{ r }}_{{ n }} = select(vec4<f32>(), weight{{ r }}_{{ n }}, counts{{ r }}_{{ n }});
{% endif %}
{% endfor %}{% endfor %}
        }
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
{% if guarded %}
        let weight{{ r }}_{{ n }} = {{ weight(r, n) }};
{% endif %}
        weight_tile[(first_row + {{ r * size }}u + row{{ r }}_{{ n }}) * WEIGHT_PITCH + part * {{ part_keys // 4 }}u + group{{ r }}_{{ n }}] = vec4<f16>(weight{{ r }}_{{ n }});
{% endfor %}{% endfor %}
{% endif %}
        {{ "workgroupBarrier" if split > 1 else "subgroupBarrier" }}();
{% for k in range(0, keys, size) %}
{% for r in range(row_matrices) %}
        let weights{{ r }}_{{ k }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, A>>(&weight_tile[(first_row + {{ r * size }}u) * WEIGHT_PITCH + {{ k // 4 }}u], WEIGHT_PITCH);
{% endfor %}
{% for c in range(columns) %}
        let value{{ c }}_{{ k }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, B>>(&tile_memory[{{ value_tile.base }}u + {{ k }}u * VALUE_PITCH + part * {{ columns * size // 4 }}u + {{ c * size // 4 }}u], VALUE_PITCH);
{% for r in range(row_matrices) %}
        sum{{ r }}_{{ c }} = coopMultiplyAdd(weights{{ r }}_{{ k }}, value{{ c }}_{{ k }}, sum{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endfor %}
    }
{% endif %}

    let pitch = STAGE_PITCH;
{% if softmax %}
{% for r in range(row_matrices) %}
{% if in_registers %}
    subgroupBarrier();
    coopStoreT(total{{ r }}, &stage[own_stage], pitch);
    subgroupBarrier();
{% for n in range(element_items) %}
    let four{{ r }}_{{ n }} = stage[own_stage + {{ element_row(n) }} * STAGE_PITCH + {{ element_group }}];
    var total{{ r }}_{{ n }} = {{ sum_of("four" ~ r ~ "_" ~ n) }};
{{ finish_total(r, n, element_row(n), element_group, size // 4) -}}
{% endfor %}
{% else %}
{% for n in range(stage_items) %}
{{ finish_total(r, n, staged_row(n), staged_group, keys // 4) -}}
{% endfor %}
{% endif %}
{% endfor %}
{% endif %}
{% for h in range(result_matrices) %}
    let result_start{{ h }} = own_stage + {{ h * size // 4 }}u;
{% endfor %}
{% for r in range(row_matrices) %}{% for c in range(0, columns, result_matrices) %}
    subgroupBarrier();
{% for h in range(result_matrices) %}
    coopStoreT(sum{{ r }}_{{ c + h }}, &stage[result_start{{ h }}], pitch);
{% endfor %}
    subgroupBarrier();
{% for n in range((size * size * result_matrices // 4 + subgroup - 1) // subgroup) %}
    {
        let item = lane + {{ n * subgroup }}u;
        let row = item / {{ size * result_matrices // 4 }}u;
        let column = item % {{ size * result_matrices // 4 }}u;
        let i = i0 + i32(first_row + {{ r * size }}u + row);
        let d = i32(part * {{ columns * size }}u + {{ c * size }}u + column * 4u);
        if (row < {{ size }}u && i < rows && d < {{ v_width }}) {
            finish(c0, c1, i, d, stage[own_stage + row * STAGE_PITCH + column]{% if softmax %} * row_scale[first_row + {{ r * size }}u + row]{% endif %});
        }
    }
{% endfor %}
{% endfor %}{% endfor %}
}
