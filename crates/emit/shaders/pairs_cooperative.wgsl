// Sums over the pairs of the rows of two ragged axes on cooperative matrices, for every row of one of them, its owner, of every
// sample and head: finish(i, d, sum over j of weigh(i, j, <owner(i), other(j)>..) * other(j, d)..).
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Rows and weights are f16, sums f32: a weight beyond 65504 becomes infinite. Weights are scaled by powers of two, which take what
// is common to all of them out of the halves; sums are scaled back. A workgroup has ROWS owners of one head, each subgroup
// {{ row_matrices * size }} of them, which it holds in registers with their sums. Tiles of KEYS others follow one another, the next on its way in
// registers: each is staged once, for the products and for the sums. Products {{ "become weights in registers" if in_registers else "pass through workgroup memory, one at a time, to
// become weights" }}. Whether a tile counts at all, or wholly, is decided from bounds of the mask over the tile, for many tiles at once by a
// thread each{{ ", for the owners of each subgroup" if in_registers }}.

enable wgpu_cooperative_matrix;

const THREADS = {{ threads }};
const ROWS = {{ rows }};
const KEYS = {{ keys }};
const HEADS = {{ heads }};
const SUBGROUP = {{ subgroup }}u;
// Rows of tiles, in groups of four, are padded against bank conflicts.
{% if in_registers %}
// Tiles lie in two buffers: one is stored while the one before is multiplied.
const BUFFER = {{ buffer_length }}u;
// Subgroups, and the owners of each.
const PARTS = {{ subgroups }};
const PART_ROWS = {{ row_matrices * size }};
{% else %}
const WEIGHT_PITCH = {{ weight_pitch }}u;
{% endif %}
const STAGE_PITCH = {{ stage_pitch }}u;

{{ declarations -}}
// A part of the owners, then tiles of the others.
var<workgroup> tile_memory: array<vec4<f16>, {{ tile_length }}>;
{% if not in_registers %}
var<workgroup> weight_tile: array<vec4<f16>, {{ weight_length }}>;
{% endif %}
var<workgroup> stage: array<vec4<f32>, {{ stage_length }}>;
{% include "row_bounds_memory.wgsl" %}
{% include "tile_page_memory.wgsl" %}

{{ hooks -}}
{% macro matrix(use, element) %}coop_mat{{ size }}x{{ size }}<{{ element }}, {{ use }}>{% endmacro %}
{% if in_registers %}
{% include "matrix_elements.wgsl" %}
{% set place = "c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32" %}
{% macro products(ty) %}{% for dot in dots %}product{{ dot.value }}: {{ ty }}, {% endfor %}{% endmacro %}
{% for sum in sums %}
// The weight of a pair in a tile of which all do count. Rows past the last owner read that one.
fn weight{{ sum.value }}_of_whole(row: u32, column: u32, {{ products("f32") }}{{ place }}) -> f32 {
    return weigh{{ sum.value }}(c0, c1, min(i0 + i32(row), rows - 1), j0 + i32(column), true{% for dot in dots %}, product{{ dot.value }}{% endfor %});
}

fn matrix_each_weight{{ sum.value }}_of_whole({{ products(matrix("C", "f32")) }}{{ place }}) -> {{ matrix("C", "f32") }} {
    return product{{ dots[0].value }};
}

// The weight of a pair, 0 if it does not count.
fn weight{{ sum.value }}_of_part(row: u32, column: u32, {{ products("f32") }}{{ place }}) -> f32 {
    let i = min(i0 + i32(row), rows - 1);
    let j = min(j0 + i32(column), keys - 1);
{% if masked %}
    let kept = j0 + i32(column) < keys && keep(c0, c1, i, j);
{% else %}
    let kept = j0 + i32(column) < keys;
{% endif %}
    return weigh{{ sum.value }}(c0, c1, i, j, kept{% for dot in dots %}, product{{ dot.value }}{% endfor %});
}

fn matrix_each_weight{{ sum.value }}_of_part({{ products(matrix("C", "f32")) }}{{ place }}) -> {{ matrix("C", "f32") }} {
    return product{{ dots[0].value }};
}

{% endfor %}
{% endif %}
{% from "staged_rows.wgsl" import fetch, fetched, put %}
{% macro add(kind) %}
{% for c in range(keys // size) %}
{% for dot in dots %}
{% for r in range(row_matrices) %}
            var product{{ dot.value }}_{{ r }}_{{ c }} = {{ matrix("C", "f32") }}();
{% endfor %}
{% for d in range(0, dot.depth, size) %}
            let other{{ dot.value }}_{{ c }}_{{ d }} = coopLoad<{{ matrix("B", "f16") }}>(&tile_memory[buffer + {{ dot.base + c * size * dot.tile_pitch + d // 4 }}u], {{ dot.tile_pitch }}u);
{% for r in range(row_matrices) %}
            product{{ dot.value }}_{{ r }}_{{ c }} = coopMultiplyAdd(rows{{ dot.value }}_{{ r }}_{{ d }}, other{{ dot.value }}_{{ c }}_{{ d }}, product{{ dot.value }}_{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endfor %}
{% for sum in sums %}{% for r in range(row_matrices) %}
            let weights{{ sum.value }}_{{ r }}_{{ c }} = matrix_each_weight{{ sum.value }}_of_{{ kind }}({% for dot in dots %}product{{ dot.value }}_{{ r }}_{{ c }}, {% endfor %}c0, c1, own_i0 + {{ r * size }}, j0 + {{ c * size }}, rows, keys);
{% endfor %}{% endfor %}
{% for sum in sums %}
{% for r in range(row_matrices) %}
            let left{{ sum.value }}_{{ r }}_{{ c }} = matrix_to_left(matrix_to_halves(weights{{ sum.value }}_{{ r }}_{{ c }}));
{% endfor %}
{% for d in range(sum.matrices) %}
            let element{{ sum.value }}_{{ c }}_{{ d }} = coopLoadT<{{ matrix("B", "f16") }}>(&tile_memory[buffer + {{ sum.tile_base + c * size * sum.tile_pitch + d * size // 4 }}u], {{ sum.tile_pitch }}u);
{% for r in range(row_matrices) %}
            sum{{ sum.value }}_{{ r }}_{{ d }} = coopMultiplyAdd(left{{ sum.value }}_{{ r }}_{{ c }}, element{{ sum.value }}_{{ c }}_{{ d }}, sum{{ sum.value }}_{{ r }}_{{ d }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
{% set with_lanes = true %}
{% include "pair_tile.wgsl" %}
    let first_row = subgroup * {{ row_matrices * size }}u;
    let own_stage = subgroup * {{ size * stage_pitch }}u;
{% if in_registers %}
    let own_i0 = i0 + i32(first_row);
{% endif %}
{% include "mask.wgsl" %}
{% for dot in dots %}
{% set groups = dot.chunk // 4 %}
{% for d0 in range(0, dot.depth, dot.chunk) %}{% for n in range(dot.items) %}
    var owner{{ dot.value }}_{{ d0 }}_{{ n }} = vec4<f16>();
    {
        let item = local_index + {{ n * threads }}u;
        let d = {{ d0 }} + i32(item % {{ groups }}u) * 4;
{% if dot.width < dot.depth or dot.depth % dot.chunk %}
        if (d < {{ dot.width }}) {
            owner{{ dot.value }}_{{ d0 }}_{{ n }} = owner{{ dot.value }}(c0, c1, min(i0 + i32(item / {{ groups }}u), rows - 1), d);
        }
{% else %}
        owner{{ dot.value }}_{{ d0 }}_{{ n }} = owner{{ dot.value }}(c0, c1, min(i0 + i32(item / {{ groups }}u), rows - 1), d);
{% endif %}
    }
{% endfor %}{% endfor %}
{% for d0 in range(0, dot.depth, dot.chunk) %}
    workgroupBarrier();
{% for n in range(dot.items) %}
    {
        let item = local_index + {{ n * threads }}u;
{% if (n + 1) * threads > rows * groups %}
        if (item < {{ rows * groups }}u) {
            tile_memory[item / {{ groups }}u * {{ dot.pitch }}u + item % {{ groups }}u] = owner{{ dot.value }}_{{ d0 }}_{{ n }};
        }
{% else %}
        tile_memory[item / {{ groups }}u * {{ dot.pitch }}u + item % {{ groups }}u] = owner{{ dot.value }}_{{ d0 }}_{{ n }};
{% endif %}
    }
{% endfor %}
    workgroupBarrier();
{% for d in range(d0, [d0 + dot.chunk, dot.depth] | min, size) %}{% for r in range(row_matrices) %}
    let rows{{ dot.value }}_{{ r }}_{{ d }} = coopLoadT<{{ matrix("A", "f16") }}>(&tile_memory[(first_row + {{ r * size }}u) * {{ dot.pitch }}u + {{ (d - d0) // 4 }}u], {{ dot.pitch }}u);
{% endfor %}{% endfor %}
{% endfor %}
{% endfor %}
{% for sum in sums %}{% for r in range(row_matrices) %}{% for c in range(sum.matrices) %}
    var sum{{ sum.value }}_{{ r }}_{{ c }} = {{ matrix("C", "f32") }}();
{% endfor %}{% endfor %}{% endfor %}
{% for tile in tiles %}
{{ fetched(tile) -}}
{% endfor %}

{% include "first_tile_of_page.wgsl" %}
    if (next < keys) {
{% for tile in tiles %}
{{ fetch(tile, "next") -}}
{% endfor %}
    }
{% if in_registers %}
    workgroupBarrier();
{% for tile in tiles %}
{{ put(tile, "") -}}
{% endfor %}
    workgroupBarrier();
    var buffer = 0u;
    while (next < keys) {
        let j0 = next;
        let counts = counts_next;
        let whole = whole_next;
{% include "next_tile_of_page.wgsl" %}
        if (next < keys) {
{% for tile in tiles %}
{{ fetch(tile, "next") -}}
{% endfor %}
        }
        // Each branch has matrices of its own: drivers copy those that are one after a branch.
        if (subgroup_uniform(counts && whole)) {
{{ add("whole") -}}
        } else if (subgroup_uniform(counts)) {
{{ add("part") -}}
        }
        buffer = BUFFER - buffer;
{% for tile in tiles %}
{{ put(tile, "buffer + ") -}}
{% endfor %}
        workgroupBarrier();
    }
{% else %}
    while (next < keys) {
        let j0 = next;
        let whole = whole_next;
        workgroupBarrier();
{% for tile in tiles %}
{{ put(tile, "") -}}
{% endfor %}
        workgroupBarrier();
{% include "next_tile_of_page.wgsl" %}
        if (next < keys) {
{% for tile in tiles %}
{{ fetch(tile, "next") -}}
{% endfor %}
        }
        let pitch = STAGE_PITCH;
{% for c in range(keys // size) %}
        let stage{{ c }} = own_stage + {{ c * size // 4 }}u;
{% endfor %}
{% for r in range(row_matrices) %}
{% for n in range(stage_items) %}
        let item{{ r }}_{{ n }} = {% if (n + 1) * subgroup > stage_groups %}min(lane + {{ n * subgroup }}u, {{ stage_groups - 1 }}u){% else %}lane + {{ n * subgroup }}u{% endif %};
        let row{{ r }}_{{ n }} = item{{ r }}_{{ n }} / {{ keys // 4 }}u;
        let group{{ r }}_{{ n }} = item{{ r }}_{{ n }} % {{ keys // 4 }}u;
{% endfor %}
{% for dot in dots %}
{% for c in range(keys // size) %}
        var product{{ dot.value }}_{{ r }}_m{{ c }} = {{ matrix("C", "f32") }}();
{% for d in range(0, dot.depth, size) %}
        let other{{ dot.value }}_{{ r }}_{{ c }}_{{ d }} = coopLoad<{{ matrix("B", "f16") }}>(&tile_memory[{{ dot.base + c * size * dot.tile_pitch + d // 4 }}u], {{ dot.tile_pitch }}u);
        product{{ dot.value }}_{{ r }}_m{{ c }} = coopMultiplyAdd(rows{{ dot.value }}_{{ r }}_{{ d }}, other{{ dot.value }}_{{ r }}_{{ c }}_{{ d }}, product{{ dot.value }}_{{ r }}_m{{ c }});
{% endfor %}
        coopStoreT(product{{ dot.value }}_{{ r }}_m{{ c }}, &stage[stage{{ c }}], pitch);
{% endfor %}
        subgroupBarrier();
{% for n in range(stage_items) %}
        let product{{ dot.value }}_{{ r }}_{{ n }} = stage[own_stage + row{{ r }}_{{ n }} * STAGE_PITCH + group{{ r }}_{{ n }}];
{% endfor %}
        subgroupBarrier();
{% endfor %}
{% for n in range(stage_items) %}
        {
            let i = min(i0 + i32(first_row + {{ r * size }}u + row{{ r }}_{{ n }}), rows - 1);
            let j = j0 + i32(group{{ r }}_{{ n }} * 4u);
            // Groups beyond the last other read the last one, and do not count.
            let near = min(j, (keys - 1) & -4);
            var kept = vec4<bool>(true);
            if (!whole) {
                kept = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
{% if masked %}
                kept = kept & keep(c0, c1, i, near, kept);
{% endif %}
            }
            let weights = weigh0(c0, c1, i, near, kept{% for dot in dots %}, product{{ dot.value }}_{{ r }}_{{ n }}{% endfor %});
            let at = (first_row + {{ r * size }}u + row{{ r }}_{{ n }}) * WEIGHT_PITCH + group{{ r }}_{{ n }};
{% for sum in sums %}
            weight_tile[{{ sum.base }}u + at] = vec4<f16>(weights.of{{ sum.value }});
{% endfor %}
        }
{% endfor %}
{% endfor %}
        subgroupBarrier();
{% for k in range(0, keys, size) %}{% for sum in sums %}
{% for r in range(row_matrices) %}
        let weights{{ sum.value }}_{{ r }}_{{ k }} = coopLoadT<{{ matrix("A", "f16") }}>(&weight_tile[{{ sum.base }}u + (first_row + {{ r * size }}u) * WEIGHT_PITCH + {{ k // 4 }}u], WEIGHT_PITCH);
{% endfor %}
{% for c in range(sum.matrices) %}
        let element{{ sum.value }}_{{ c }}_{{ k }} = coopLoadT<{{ matrix("B", "f16") }}>(&tile_memory[{{ sum.tile_base + k * sum.tile_pitch + c * size // 4 }}u], {{ sum.tile_pitch }}u);
{% for r in range(row_matrices) %}
        sum{{ sum.value }}_{{ r }}_{{ c }} = coopMultiplyAdd(weights{{ sum.value }}_{{ r }}_{{ k }}, element{{ sum.value }}_{{ c }}_{{ k }}, sum{{ sum.value }}_{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endfor %}{% endfor %}
    }
{% endif %}

    let pitch = STAGE_PITCH;
    let stage_start = own_stage;
{% for column in columns %}{% for r in range(row_matrices) %}{% for c in range(column.matrices) %}
{% for sum in column.sums %}
    subgroupBarrier();
    coopStoreT(sum{{ sum.value }}_{{ r }}_{{ c }}, &stage[stage_start], pitch);
    subgroupBarrier();
{% for n in range(result_items) %}
    let result{{ sum.value }}_{{ r }}_{{ c }}_{{ n }} = stage[own_stage + (lane + {{ n * subgroup }}u) / {{ size // 4 }}u % {{ size }}u * STAGE_PITCH + (lane + {{ n * subgroup }}u) % {{ size // 4 }}u] * {{ sum.scale }}f;
{% endfor %}
{% endfor %}
{% for n in range(result_items) %}
    {
        let item = lane + {{ n * subgroup }}u;
        let row = item / {{ size // 4 }}u;
        let i = i0 + i32(first_row + {{ r * size }}u + row);
        let d = i32({{ c * size }}u + item % {{ size // 4 }}u * 4u);
        if (row < {{ size }}u && i < rows && d < {{ column.width }}) {
            finish{{ column.axis }}(c0, c1, i, d{% for sum in column.sums %}, result{{ sum.value }}_{{ r }}_{{ c }}_{{ n }}{% endfor %});
        }
    }
{% endfor %}
{% endfor %}{% endfor %}{% endfor %}
}
