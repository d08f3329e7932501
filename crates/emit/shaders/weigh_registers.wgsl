{# Scores of a tile of pairs, replaced by weights in the registers of the dot products, and their contribution to sums. `t` is the tile. #}
{% from "online_softmax.wgsl" import combine, largest_of %}
{% from "matrices.wgsl" import lane_group, lane_row, right, sums_of %}
{% set place = "c0: i32, c1: i32, i0: i32, j0: i32, rows: i32, keys: i32" %}
{% macro parameters(t, ty) %}{% for dot in t.dots %}product{{ dot.value }}: {{ ty }}, {% endfor %}{% endmacro %}
{% macro arguments(t) %}{% for dot in t.dots %}, product{{ dot.value }}{% endfor %}{% endmacro %}
{# The functions that compute the weight of a matrix element. #}
{% macro weights(t, masked) %}
{% for sum in t.sums %}
// The weight of a pair in a tile of which all do count. Rows past the last owner read that one.
fn weight{{ sum.value }}_of_whole(row: u32, column: u32, {{ parameters(t, "f32") }}{{ place }}) -> f32 {
    return weigh{{ sum.value }}(c0, c1, min(i0 + i32(row), rows - 1), j0 + i32(column), true{{ arguments(t) }});
}

// The weight of a pair, 0 if it does not count.
fn weight{{ sum.value }}_of_part(row: u32, column: u32, {{ parameters(t, "f32") }}{{ place }}) -> f32 {
    let i = min(i0 + i32(row), rows - 1);
    let j = min(j0 + i32(column), keys - 1);
    let kept = j0 + i32(column) < keys{{ " && keep(c0, c1, i, j)" if masked }};
    return weigh{{ sum.value }}(c0, c1, i, j, kept{{ arguments(t) }});
}

{% for kind in ["whole", "part"] %}
fn matrix_each_weight{{ sum.value }}_of_{{ kind }}({{ parameters(t, sums_of(t)) }}{{ place }}) -> {{ sums_of(t) }} {
    return product{{ t.dots[0].value }};
}

{% endfor %}
{% endfor %}
{% endmacro %}
{# Products of a matrix of others of a tile, from `buffer` on. #}
{% macro products(t, c, name, buffer) %}
{% for dot in t.dots %}
{% for r in range(t.row_matrices) %}
            var {{ name }}{{ dot.value }}_{{ r }}_{{ c }} = {{ sums_of(t) }}();
{% endfor %}
{% for d in range(0, dot.depth, t.size) %}
            let other{{ dot.value }}_{{ c }}_{{ d }} = coopLoad<{{ right(t) }}>(&tile_memory[{{ buffer }} + {{ dot.base + c * t.size * dot.tile_pitch + d // 4 }}u], {{ dot.tile_pitch }}u);
{% for r in range(t.row_matrices) %}
            {{ name }}{{ dot.value }}_{{ r }}_{{ c }} = coopMultiplyAdd(rows{{ dot.value }}_{{ r }}_{{ d }}, other{{ dot.value }}_{{ c }}_{{ d }}, {{ name }}{{ dot.value }}_{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
{# Where a matrix of pairs lies. #}
{% macro place_of(t, r, c) %}c0, c1, own_i0 + {{ r * t.size }}, j0 + {{ c * t.size }}, rows, keys{% endmacro %}
{% macro each_weight(t, sum, r, c, kind) %}matrix_each_weight{{ sum.value }}_of_{{ kind }}({% for dot in t.dots %}product{{ dot.value }}_{{ r }}_{{ c }}, {% endfor %}{{ place_of(t, r, c) }}){% endmacro %}
{# Adds what weighs a matrix of others. Weights of several sums are computed together, since they share much. #}
{% macro add(t, c, kind) %}
{% set several = t.sums | length > 1 %}
{% if several %}{% for sum in t.sums %}{% for r in range(t.row_matrices) %}
            let weights{{ sum.value }}_{{ r }}_{{ c }} = {{ each_weight(t, sum, r, c, kind) }};
{% endfor %}{% endfor %}{% endif %}
{% for sum in t.sums %}
{% for r in range(t.row_matrices) %}
{% if t.softmax %}
            let weights{{ sum.value }}_{{ r }}_{{ c }} = matrix_each_exponential_of(excess{{ r }}_{{ c }});
            total{{ r }} = total{{ r }} + weights{{ sum.value }}_{{ r }}_{{ c }};
{% elif not several %}
            let weights{{ sum.value }}_{{ r }}_{{ c }} = {{ each_weight(t, sum, r, c, kind) }};
{% endif %}
            let left{{ sum.value }}_{{ r }}_{{ c }} = matrix_to_left(matrix_to_f16(weights{{ sum.value }}_{{ r }}_{{ c }}));
{% endfor %}
{% for d in range(sum.matrices) %}
            let element{{ sum.value }}_{{ c }}_{{ d }} = coopLoadT<{{ right(t) }}>(&tile_memory[buffer + {{ sum.tile_base + c * t.size * sum.tile_pitch + d * t.size // 4 }}u], {{ sum.tile_pitch }}u);
{% for r in range(t.row_matrices) %}
            sum{{ sum.value }}_{{ r }}_{{ d }} = coopMultiplyAdd(left{{ sum.value }}_{{ r }}_{{ c }}, element{{ sum.value }}_{{ c }}_{{ d }}, sum{{ sum.value }}_{{ r }}_{{ d }});
{% endfor %}
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro add_all(t, kind) %}
{% for c in range(t.keys // t.size) %}
{{ add(t, c, kind) -}}
{% endfor %}
{% endmacro %}
{# Adds the contribution of a tile of scores. If a row's shift is raised first, branches have separate matrices. #}
{% macro soften(t, kind) %}
{% set score = "product" ~ t.dots[0].value %}
{% set sum = t.sums[0] %}
{% for r in range(t.row_matrices) %}{% for c in range(t.keys // t.size) %}
            let excess{{ r }}_{{ c }} = matrix_each_excess_of_{{ kind }}({{ score }}_{{ r }}_{{ c }}, {{ place_of(t, r, c) }}, first_row + {{ r * t.size }}u);
{% endfor %}{% endfor %}
            // Not by the largest, since NaN in one row must not hide what exceeds the shift of another.
            var exceeds = false;
{% for r in range(t.row_matrices) %}{% for c in range(t.keys // t.size) %}{% for n in range(t.elements_held) %}
            exceeds = exceeds | (matrix_element(excess{{ r }}_{{ c }}, {{ n }}u) > MOST_EXCESS);
{% endfor %}{% endfor %}{% endfor %}
            if (subgroup_uniform(subgroupAny(exceeds))) {
                let pitch = STAGE_PITCH;
{% for r in range(t.row_matrices) %}
{% for n in range(t.element_items) %}
                var largest{{ r }}_{{ n }} = LOWEST;
{% endfor %}
{% for c in range(t.keys // t.size) %}
                {{ t.branch_barrier }}
                coopStoreT(matrix_each_score_of_part({{ score }}_{{ r }}_{{ c }}, {{ place_of(t, r, c) }}), &stage[own_stage], pitch);
                {{ t.branch_barrier }}
{% for n in range(t.element_items) %}
                let four{{ r }}_{{ c }}_{{ n }} = stage[own_stage + {{ lane_row(t, n, t.size) }} * STAGE_PITCH + {{ lane_group(t, n, t.size) }}];
                largest{{ r }}_{{ n }} = max(largest{{ r }}_{{ n }}, {{ largest_of("four" ~ r ~ "_" ~ c ~ "_" ~ n) }});
{% endfor %}
{% endfor %}
{% for n in range(t.element_items) %}
{{ combine("largest" ~ r ~ "_" ~ n, "max", t.size // 4) -}}
                if ({{ lane_group(t, n, t.size) }} == 0u) {
                    raise(first_row + {{ r * t.size }}u + {{ lane_row(t, n, t.size) }}, largest{{ r }}_{{ n }});
                }
{% endfor %}
{% endfor %}
                {{ t.branch_barrier }}
{% for r in range(t.row_matrices) %}
{% for c in range(t.keys // t.size) %}
                let excess{{ r }}_{{ c }} = matrix_each_excess_of_{{ kind }}({{ score }}_{{ r }}_{{ c }}, {{ place_of(t, r, c) }}, first_row + {{ r * t.size }}u);
{% endfor %}
{% for d in range(sum.matrices) %}
                sum{{ sum.value }}_{{ r }}_{{ d }} = matrix_each_rescaled(sum{{ sum.value }}_{{ r }}_{{ d }}, first_row + {{ r * t.size }}u);
{% endfor %}
                total{{ r }} = matrix_each_rescaled(total{{ r }}, first_row + {{ r * t.size }}u);
{% endfor %}
{{ add_all(t, kind) -}}
            } else {
{{ add_all(t, kind) -}}
            }
{% endmacro %}
{# The products of the tile that follows. #}
{% macro follow(t) %}
{% for c in range(t.keys // t.size) %}
{{ products(t, c, "following", "other") -}}
{% for dot in t.dots %}{% for r in range(t.row_matrices) %}
            product{{ dot.value }}_{{ r }}_{{ c }} = following{{ dot.value }}_{{ r }}_{{ c }};
{% endfor %}{% endfor %}
{% endfor %}
{% endmacro %}
{# What a tile adds, and the products of the one that follows. #}
{% macro step(t, kind) %}
{% for c in range(t.keys // t.size) %}
{{ products(t, c, "product", "buffer") if not t.late -}}
{{ add(t, c, kind) if not t.softmax -}}
{% endfor %}
{{ soften(t, kind) if t.softmax -}}
{{ follow(t) if t.late -}}
{% endmacro %}
