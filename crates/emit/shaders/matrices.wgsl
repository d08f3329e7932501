{# Types of the matrices of a tile `t`, and how the lanes of a subgroup share one that lies in memory. #}
{% macro matrix(t, element, use) %}coop_mat{{ t.size }}x{{ t.size }}<{{ element }}, {{ use }}>{% endmacro %}
{% macro left(t) %}{{ matrix(t, "f16", "A") }}{% endmacro %}
{% macro right(t) %}{{ matrix(t, "f16", "B") }}{% endmacro %}
{% macro sums_of(t) %}{{ matrix(t, "f32", "C") }}{% endmacro %}
{# The row, and the group of four of `width` columns, that a lane takes. #}
{% macro lane_row(t, n, width) %}((lane + {{ n * t.subgroup }}u) / {{ width // 4 }}u % {{ t.size }}u){% endmacro %}
{% macro lane_group(t, n, width) %}((lane + {{ n * t.subgroup }}u) % {{ width // 4 }}u){% endmacro %}
