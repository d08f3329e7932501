{# Results of a subgroup's rows, which pass through workgroup memory. Those of a softmax are divided by the sums of its weights. #}
{% from "matrices.wgsl" import lane_group, lane_item, lane_row, origin, own_row %}
{% from "online_softmax.wgsl" import add_up, sum_of %}
{# The final factor of a row's sums: 0 without included pairs, 0 / 0 if all their weights are 0. #}
{% macro finish_total(t, r, n, width) %}
{{ add_up("total" ~ r ~ "_" ~ n, width // 4) -}}
    if ({{ lane_group(t, n, width) }} == 0u) {
        let row = {{ own_row(t) }} + {{ r * t.size }}u + {{ lane_row(t, n, width) }};
        row_scale[row] = 1.0f / total{{ r }}_{{ n }};
        if (total{{ r }}_{{ n }} == 0.0f && !attends(c0, c1, min({{ origin(t) }} + i32(row), rows - 1), keys)) {
            row_scale[row] = 0.0f;
        }
    }
{% endmacro %}
{% macro finish_totals(t) %}
{% for r in range(t.row_matrices) %}
{% if t.in_registers %}
    subgroupBarrier();
    coopStoreT(total{{ r }}, &stage[own_stage], pitch);
    subgroupBarrier();
{% for n in range(t.element_items) %}
    let four{{ r }}_{{ n }} = stage[own_stage + {{ lane_row(t, n, t.size) }} * STAGE_PITCH + {{ lane_group(t, n, t.size) }}];
    var total{{ r }}_{{ n }} = {{ sum_of("four" ~ r ~ "_" ~ n) }};
{{ finish_total(t, r, n, t.size) -}}
{% endfor %}
{% else %}
{% for n in range(t.stage_items) %}
{{ finish_total(t, r, n, t.keys) -}}
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}
{# Writes columns of results, `result_matrices` of them at once. #}
{% macro write_columns(t, column, r, c) %}
{% set width = t.size * t.result_matrices %}
{% set items = (t.size * width // 4 + t.smallest - 1) // t.smallest %}
{% for sum in column.sums %}
    subgroupBarrier();
{% for h in range(t.result_matrices) %}
    coopStoreT(sum{{ sum.value }}_{{ r }}_{{ c + h }}, &stage[result_start{{ h }}], pitch);
{% endfor %}
    subgroupBarrier();
{% for n in range(items) %}
    let result{{ sum.value }}_{{ r }}_{{ c }}_{{ n }} = stage[own_stage + {{ lane_row(t, n, width) }} * STAGE_PITCH + {{ lane_group(t, n, width) }}]{{ sum.scale }}{% if t.softmax %} * row_scale[{{ own_row(t) }} + {{ r * t.size }}u + {{ lane_row(t, n, width) }}]{% endif %};
{% endfor %}
{% endfor %}
{% for n in range(items) %}
    {
        let item = {{ lane_item(t, n) }};
        let row = item / {{ width // 4 }}u;
        let i = i0 + i32(first_row + {{ r * t.size }}u + row);
        let d = i32(part * {{ column.matrices * t.size }}u + {{ c * t.size }}u + item % {{ width // 4 }}u * 4u);
        if ({{ "is_first && " if t.varying }}row < {{ t.size }}u && i < rows && d < {{ column.width }}) {
            finish{{ column.axis }}(c0, c1, i, d{% for sum in column.sums %}, result{{ sum.value }}_{{ r }}_{{ c }}_{{ n }}{% endfor %});
        }
    }
{% endfor %}
{% endmacro %}
{% macro write_results(t) %}
    let pitch = STAGE_PITCH;
{{ finish_totals(t) if t.softmax -}}
{% for h in range(t.result_matrices) %}
    let result_start{{ h }} = own_stage + {{ h * t.size // 4 }}u;
{% endfor %}
{% for column in t.columns %}{% for r in range(t.row_matrices) %}{% for c in range(0, column.matrices, t.result_matrices) %}
{{ write_columns(t, column, r, c) -}}
{% endfor %}{% endfor %}{% endfor %}
{% endmacro %}
