// Matrix product of cooperative matrices: finish(m, n, sum over k of left(m, k) * right(k, n)) for every batch entry.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Operands are f16, sums {{ sum }}. A workgroup computes TILE_M x TILE_N elements, each of its {{ subgroup_rows }} x {{ subgroup_columns }}
// subgroups {{ matrices_m }} x {{ matrices_n }} matrices of SIZE x SIZE. TILE_K steps of k are staged in workgroup memory at a time; the
// {{ prefetch_stages }} stages after that are on their way, in registers. Results reach finish through {{ stage_matrices }} matrices of workgroup memory a subgroup; what it
// reads is loaded {{ rounds_ahead }} rounds of them ahead{{ ", and f16 values of each result's own during the last stages, in the registers of those that do not follow" if streamed }}.
// The sum runs over k in order, SIZE steps at a time, whatever the tile.
// Statistics of a row of left are combined by four threads a row before the product.
{% if varying %}
// A subgroup has {{ subgroup }} invocations or fewer: then there are more subgroups than parts of the tile, and several compute the same part, of which
// the first writes the results.
{% endif %}

enable wgpu_cooperative_matrix;

const THREADS = {{ threads }};
const TILE_M = {{ tile_m }};
const TILE_N = {{ tile_n }};
const TILE_K = {{ tile_k }};
const SIZE = {{ size }};
const SUBGROUP = {{ subgroup }}u;
// Rows of tiles, in groups of four, are padded against bank conflicts.
const LEFT_PITCH = {{ left.pitch }}u;
const RIGHT_PITCH = {{ right.pitch }}u;
const STAGE_PITCH = {{ stage_pitch }}u;

{{ declarations -}}
var<workgroup> left_tile: array<vec4<f16>, {{ left.outer * left.pitch }}>;
var<workgroup> right_tile: array<vec4<f16>, {{ right.outer * right.pitch }}>;
var<workgroup> stage: array<vec4<{{ sum }}>, {{ stage_length }}>;
{% include "statistics_memory.wgsl" %}

{{ functions -}}
{% macro origin(name, operand, first, limit) %}
    let {{ name }}_outer = local / {{ operand.inner // 4 }};
    let {{ name }}_inner = (local % {{ operand.inner // 4 }}) * 4;
    let {{ name }}_at = u32({{ name }}_outer) * {{ operand.pitch }}u + u32({{ name }}_inner >> 2u);
{% for i in range(operand.items) %}
{% if operand.along_depth %}
    let {{ name }}_free{{ i }} = min({{ first }} + {{ name }}_outer + {{ i * operand.step }}, {{ limit }} - 1);
{% elif i == 0 %}
    let {{ name }}_free0 = min({{ first }} + {{ name }}_inner, ({{ limit }} - 1) & -4);
{% endif %}
{% endfor %}
{% endmacro %}
{% macro fetch(name, operand, stage) %}
{% for i in range(operand.items) %}
{% set free = name ~ "_free" ~ (i if operand.along_depth else 0) %}
        {
{% if operand.along_depth %}
            let k = next + {{ name }}_inner;
{% if name == "left" and stats %}
            let row = left_outer + {{ i * operand.step }};
{% endif %}
{% else %}
            let k = next + {{ name }}_outer + {{ i * operand.step }};
{% if name == "left" and stats %}
            let row = left_inner;
{% endif %}
{% endif %}
{% if ragged_depth %}
            let near = min(k, {{ "(depth - 1) & -4" if operand.along_depth else "depth - 1" }});
{% else %}
            let near = k;
{% endif %}
{% if name == "left" %}
            let value = left({{ batch }}{{ free }}, near{{ left_more }});
{% else %}
            let value = right({{ batch }}near, {{ free }});
{% endif %}
            {{ name }}{{ stage }}_{{ i }} = {% if ragged_depth %}select(vec4<f16>(), value, k < depth){% else %}value{% endif %};
        }
{% endfor %}
{% endmacro %}
{% set staged = "stage[stage0 + row * STAGE_PITCH + column]" %}
{% set staged = staged if sum == "f32" else "vec4<f32>(" ~ staged ~ ")" %}
{% macro item(n, round) %}
        let item = {{ n if varying else "lane + " ~ n * subgroup ~ "u" }};
        let row = item / {{ size * stage_matrices // 4 }}u;
        let column = item % {{ size * stage_matrices // 4 }}u;
        let m = m0 + i32(subgroup_m + {{ round[0] * size }}u + row);
        let n = n0 + i32(subgroup_n + {{ round[1] * size }}u + column * 4u);
{% endmacro %}
{# The register of an invocation's group of four results: the registers of the stages in flight, in order. #}
{% macro register(number) %}
{%- set of_stage = left.items + right.items %}
{%- set at = number % of_stage %}
{{- ("left" if at < left.items else "right") ~ number // of_stage ~ "_" ~ (at if at < left.items else at - left.items) -}}
{% endmacro %}
{% macro load_streamed(stage) %}
{% for round in rounds %}
{% set at = loop.index0 %}
{% for n in range(stage_items) %}
{% if (at * stage_items + n) // (left.items + right.items) == stage %}
        {
{{ item(n, round) -}}
            {{ register(at * stage_items + n) }} = streamed({{ batch }}min(m, rows - 1), min(n, (columns - 1) & -4));
        }
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro load_ahead(round, place) %}
{% for n in range(stage_items) %}
    {
{{ item(n, round) -}}
        ahead{{ place }}_{{ n }} = ahead({{ batch }}min(m, rows - 1), min(n, (columns - 1) & -4));
    }
{% endfor %}
{% endmacro %}
{% set with_lanes = true %}
{% set with_subgroup_size = varying %}
{% include "workgroup.wgsl" %}
    let local = i32(local_index);
{{ body }}
    let columns = {{ n }};
    let depth = {{ k }};
{% include "statistics.wgsl" %}

{% set part = "part" if varying else "subgroup" %}
{% if varying %}
    let part = subgroup % {{ subgroup_rows * subgroup_columns }}u;
    let is_first = subgroup == part;
{% endif %}
    let subgroup_m = ({{ part }} / {{ subgroup_columns }}u) * {{ matrices_m * size }}u;
    let subgroup_n = ({{ part }} % {{ subgroup_columns }}u) * {{ matrices_n * size }}u;
{{ origin("left", left, "m0", "rows") -}}
{{ origin("right", right, "n0", "columns") -}}
{% for stage in range(prefetch_stages) %}
{% for i in range(left.items) %}
    var left{{ stage }}_{{ i }} = vec4<f16>();
{% endfor %}
{% for i in range(right.items) %}
    var right{{ stage }}_{{ i }} = vec4<f16>();
{% endfor %}
{% endfor %}
{% for i in range(matrices_m) %}{% for j in range(matrices_n) %}
    var sum{{ i }}_{{ j }} = coop_mat{{ size }}x{{ size }}<{{ sum }}, C>();
{% endfor %}{% endfor %}
{% for stage in range(prefetch_stages) %}
    {{ "if (depth > 0) " if maybe_empty }}{
        let next = {{ stage * tile_k }};
{{ fetch("left", left, stage) -}}
{{ fetch("right", right, stage) -}}
    }
{% endfor %}
    for (var k0 = 0; k0 < depth; k0 += {{ tile_k * prefetch_stages }}) {
{% for stage in range(prefetch_stages) %}
        workgroupBarrier();
{% for i in range(left.items) %}
        left_tile[left_at + {{ i * left.step * left.pitch }}u] = left{{ stage }}_{{ i }};
{% endfor %}
{% for i in range(right.items) %}
        right_tile[right_at + {{ i * right.step * right.pitch }}u] = right{{ stage }}_{{ i }};
{% endfor %}
        {% if not ragged_depth %}if (k0 + {{ (prefetch_stages + stage) * tile_k }} < depth) {% endif %}{
            let next = k0 + {{ (prefetch_stages + stage) * tile_k }};
{{ fetch("left", left, stage) -}}
{{ fetch("right", right, stage) -}}
        }{% if streamed %} else {
{{ load_streamed(stage) -}}
        }{% endif %}

        workgroupBarrier();
{% for step in range(0, tile_k, size) %}
{% for i in range(matrices_m) %}
{% if left.along_depth %}
        let a{{ stage }}_{{ step }}_{{ i }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, A>>(&left_tile[(subgroup_m + {{ i * size }}u) * LEFT_PITCH + {{ step // 4 }}u], LEFT_PITCH);
{% else %}
        let a{{ stage }}_{{ step }}_{{ i }} = coopLoad<coop_mat{{ size }}x{{ size }}<f16, A>>(&left_tile[{{ step * left.pitch }}u + (subgroup_m >> 2u) + {{ i * size // 4 }}u], LEFT_PITCH);
{% endif %}
{% endfor %}
{% for j in range(matrices_n) %}
{% if right.along_depth %}
        let b{{ stage }}_{{ step }}_{{ j }} = coopLoad<coop_mat{{ size }}x{{ size }}<f16, B>>(&right_tile[(subgroup_n + {{ j * size }}u) * RIGHT_PITCH + {{ step // 4 }}u], RIGHT_PITCH);
{% else %}
        let b{{ stage }}_{{ step }}_{{ j }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, B>>(&right_tile[{{ step * right.pitch }}u + (subgroup_n >> 2u) + {{ j * size // 4 }}u], RIGHT_PITCH);
{% endif %}
{% for i in range(matrices_m) %}
        sum{{ i }}_{{ j }} = coopMultiplyAdd(a{{ stage }}_{{ step }}_{{ i }}, b{{ stage }}_{{ step }}_{{ j }}, sum{{ i }}_{{ j }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
    }

    let pitch = STAGE_PITCH;
{% for h in range(stage_matrices) %}
    let stage{{ h }} = {{ part }} * {{ size * stage_pitch }}u + {{ h * size // 4 }}u;
{% endfor %}
{% for place in range(rounds_ahead) %}
{% for n in range(stage_items) %}
    var ahead{{ place }}_{{ n }}: Ahead;
{% endfor %}
{{ load_ahead(rounds[place], place) -}}
{% endfor %}
{% for round in rounds %}
{% set at = loop.index0 %}
{% set place = at % rounds_ahead if rounds_ahead else 0 %}
{% for h in range(stage_matrices) %}
    coopStoreT(sum{{ round[0] }}_{{ round[1] + h }}, &stage[stage{{ h }}], pitch);
{% endfor %}
    {{ "workgroupBarrier" if varying else "subgroupBarrier" }}();
{% if varying %}
    for (var first = lane; is_first && first < {{ size * size * stage_matrices // 4 }}u; first += subgroup_size) {
{{ item("first", round) -}}
        if (m < rows && n < columns) {
            finish({{ batch }}m, n, {{ staged }});
        }
    }
{% endif %}
{% for n in range(stage_items if rounds_ahead else 0) %}
    let loaded{{ at }}_{{ n }} = ahead{{ place }}_{{ n }};
{% endfor %}
{{ load_ahead(rounds[at + rounds_ahead], place) if rounds_ahead and at + rounds_ahead < (rounds | length) -}}
{% for n in range(0 if varying else stage_items) %}
    {
{{ item(n, round) -}}
        if (row < {{ size }}u && m < rows && n < columns) {
            finish({{ batch }}m, n, {{ staged }}{{ ", loaded" ~ at ~ "_" ~ n if rounds_ahead }}{{ ", " ~ register(at * stage_items + n) if streamed }});
        }
    }
{% endfor %}
    {{ "workgroupBarrier" if varying else "subgroupBarrier" }}();
{% endfor %}
}
