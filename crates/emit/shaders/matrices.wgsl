{# Types of the matrices of a tile `t`, and how the lanes of a subgroup divide one in memory. #}
{% macro matrix(t, element, use) %}coop_mat{{ t.size }}x{{ t.size }}<{{ element }}, {{ use }}>{% endmacro %}
{% macro left(t) %}{{ matrix(t, "f16", "A") }}{% endmacro %}
{% macro right(t) %}{{ matrix(t, "f16", "B") }}{% endmacro %}
{% macro sums_of(t) %}{{ matrix(t, "f32", "C") }}{% endmacro %}
{# The item of a lane, its row, and its group of four of `width` columns. Items past the last repeat the first ones; `is_item` excludes them. #}
{% macro lane_item(t, n) %}lane + {{ n ~ "u * subgroup_size" if t.varying else n * t.subgroup ~ "u" }}{% endmacro %}
{% macro is_item(t, n, width) %}{{ lane_item(t, n) }} < {{ t.size * width // 4 }}u{% endmacro %}
{% macro lane_row(t, n, width) %}(({{ lane_item(t, n) }}) / {{ width // 4 }}u % {{ t.size }}u){% endmacro %}
{% macro lane_group(t, n, width) %}(({{ lane_item(t, n) }}) % {{ width // 4 }}u){% endmacro %}
{# The start of a subgroup's rows in memory, and the row at the start of that memory. #}
{% macro own_row(t) %}{{ "own_row" if t.varying else "first_row" }}{% endmacro %}
{% macro origin(t) %}{{ "own_i0" if t.varying else "i0" }}{% endmacro %}
