// Sums over the pairs of rows on cooperative matrices, for every row of one axis, its owner, of every sample and head:
// finish(i, d, sum over j of weigh(i, j, <owner(i), other(j)>..) * other(j, d)..).
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Rows and weights are f16, sums f32: a weight beyond 65504 becomes infinite. A workgroup has ROWS owners of one head. {{ t.split }} subgroups share
// {{ t.row_matrices * t.size }} owners, which they hold in registers, and divide others and columns of results among themselves. Tiles of KEYS others follow
// one another, the next on its way in registers: each is staged once, for products and for sums. Products {{ "become weights in registers" if in_registers else "pass through workgroup memory to become weights" }}.
// Whether a tile counts at all, or wholly, is decided from bounds of the mask over the tile, for many tiles at once by a thread each{{ ", for the owners of each subgroup" if in_registers }}.
{% if t.varying %}
// A subgroup has {{ t.subgroup }} invocations or fewer: then there are more subgroups than parts of the owners, and several compute the same part in
// memory of their own, of which the first writes the results.
{% endif %}
{% if t.softmax %}
// Weights are exponentials of what scores exceed their row's shift by, which results are divided by the sums of.
{% endif %}

enable wgpu_cooperative_matrix;

const THREADS = {{ threads }};
const ROWS = {{ rows }};
const KEYS = {{ t.keys }};
const HEADS = {{ heads }};
// Rows of tiles, in groups of four, are padded against bank conflicts.
{% if in_registers %}
// Others lie in two buffers: a tile is stored while the one before is multiplied{{ ", rows of products one tile earlier, since these are" if t.late }}.
const BUFFER = {{ t.buffer_length }}u;
// Subgroups, and the owners of each.
const PARTS = {{ t.subgroups }};
const PART_ROWS = {{ t.row_matrices * t.size }};
{% else %}
const WEIGHT_PITCH = {{ t.weight_pitch }}u;
{% endif %}
{% if t.varying %}
// Rows of weights, those of each subgroup.
const HELD_ROWS = {{ t.held_rows }};
{% endif %}
const STAGE_PITCH = {{ t.stage_pitch }}u;

{{ declarations -}}
// A part of the owners, then tiles of the others.
var<workgroup> tile_memory: array<vec4<f16>, {{ t.tile_length }}>;
{% if not in_registers %}
var<workgroup> weight_tile: array<vec4<f16>, {{ t.weight_length }}>;
{% endif %}
var<workgroup> stage: array<vec4<f32>, {{ t.stage_length }}>;
{% include "row_bounds_memory.wgsl" %}
{% include "tile_page_memory.wgsl" %}

{{ functions -}}
{% from "matrices.wgsl" import sums_of %}
{% from "online_softmax.wgsl" import elements, memory %}
{% from "results.wgsl" import write_results %}
{% from "staged_owners.wgsl" import stage_owners %}
{% from "staged_rows.wgsl" import fetch, fetched, put %}
{% from "weigh_memory.wgsl" import step as step_in_memory %}
{% from "weigh_registers.wgsl" import follow, products, step, weights %}
{{ memory(masked, not in_registers, "HELD_ROWS" if t.varying else "ROWS") if t.softmax -}}
{% if in_registers %}
{% set size = t.size %}
{% include "matrix_elements.wgsl" %}
{{ elements(sums_of(t), masked, t.sums[0].value) if t.softmax -}}
{{ weights(t, masked) if not t.softmax -}}
{% endif %}
{% macro fetch_all(tiles, first) %}{% for tile in tiles %}{{ fetch(tile, first) -}}{% endfor %}{% endmacro %}
{% macro put_all(tiles, buffer) %}{% for tile in tiles %}{{ put(tile, buffer) -}}{% endfor %}{% endmacro %}
{% set with_lanes = true %}
{% set with_subgroup_size = t.varying %}
{% include "pair_tile.wgsl" %}
{% if t.varying %}
    let is_first = subgroup < {{ t.subgroups }}u;
    let first_row = (subgroup % {{ t.subgroups }}u) * {{ t.row_matrices * t.size }}u;
    let part = 0u;
    let own_row = subgroup * {{ t.row_matrices * t.size }}u;
    let own_i0 = i0 + i32(first_row) - i32(own_row);
{% else %}
    let first_row = (subgroup / {{ t.split }}u) * {{ t.row_matrices * t.size }}u;
    let part = subgroup % {{ t.split }}u;
{% endif %}
    let own_stage = subgroup * {{ t.stages * t.size * t.stage_pitch }}u;
{% if in_registers %}
    let own_i0 = i0 + i32(first_row);
{% endif %}
{% if t.softmax %}
    for (var row = local; row < {{ "HELD_ROWS" if t.varying else "ROWS" }}; row += THREADS) {
        row_shift[row] = LOWEST;
    }
{% endif %}
{% include "mask.wgsl" %}
{% for dot in t.dots %}
{{ stage_owners(t, dot) -}}
{% endfor %}
{% for sum in t.sums %}{% for r in range(t.row_matrices) %}{% for c in range(sum.matrices) %}
    var sum{{ sum.value }}_{{ r }}_{{ c }} = {{ sums_of(t) }}();
{% endfor %}{% endfor %}{% endfor %}
{% if t.softmax %}{% for r in range(t.row_matrices) %}
{% if in_registers %}
    var total{{ r }} = {{ sums_of(t) }}();
{% else %}
{% for n in range(t.stage_items) %}
    var total{{ r }}_{{ n }} = 0.0f;
{% endfor %}
{% endif %}
{% endfor %}{% endif %}
{% for tile in t.early + t.late %}
{{ fetched(tile) -}}
{% endfor %}
{% include "first_tile_of_page.wgsl" %}
    if (next < keys) {
{{ fetch_all(t.early + t.late, "next") -}}
    }
{% if in_registers %}
    workgroupBarrier();
{{ put_all(t.early + t.late, "") -}}
    var buffer = 0u;
    var current = next;
    var counts = counts_next;
    var whole = whole_next;
{% include "next_tile_of_page.wgsl" %}
{% if t.late %}
    if (next < keys) {
{{ fetch_all(t.early, "next") -}}
    }
{{ put_all(t.early, "BUFFER + ") -}}
    var following = next;
    var following_counts = counts_next;
    var following_whole = whole_next;
{% include "next_tile_of_page.wgsl" %}
{% endif %}
    workgroupBarrier();
{% if t.late %}
{% for c in range(t.keys // t.size) %}
{{ products(t, c, "product", "0u") -}}
{% endfor %}
    workgroupBarrier();
{% endif %}
    while (current < keys) {
        let j0 = current;
        let other = BUFFER - buffer;
        if (next < keys) {
{{ fetch_all(t.early, "next") -}}
        }
{% if t.late %}
        if (following < keys) {
{{ fetch_all(t.late, "following") -}}
        }
{% endif %}
        // Each branch has matrices of its own: drivers copy those that are one after a branch.
        if (subgroup_uniform(counts && whole)) {
{{ step(t, "whole") -}}
        } else if (subgroup_uniform(counts)) {
{{ step(t, "part") -}}
        }{% if t.late %} else if (subgroup_uniform(following_counts)) {
{{ follow(t) -}}
        }{% endif %}

{{ put_all(t.early, "buffer + " if t.late else "other + ") -}}
{{ put_all(t.late, "other + ") -}}
        buffer = other;
{% if t.late %}
        current = following;
        counts = following_counts;
        whole = following_whole;
{% endif %}
        {{ "following" if t.late else "current" }} = next;
        {{ "following_" if t.late }}counts = counts_next;
        {{ "following_" if t.late }}whole = whole_next;
{% include "next_tile_of_page.wgsl" %}
        workgroupBarrier();
    }
{% else %}
    while (next < keys) {
        let j0 = next;
        let whole = whole_next;
        workgroupBarrier();
{{ put_all(t.early, "") -}}
        workgroupBarrier();
{% include "next_tile_of_page.wgsl" %}
        if (next < keys) {
{{ fetch_all(t.early, "next") -}}
        }
{{ step_in_memory(t, masked) -}}
    }
{% endif %}

{{ write_results(t) -}}
}
