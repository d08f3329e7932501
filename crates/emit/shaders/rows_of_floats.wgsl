{# Tiles of rows of f32 in workgroup memory, and what multiply-adds make of them. `t` is the tile of a workgroup of 128 threads. #}
{# Loads what is staged next of the others from row `first` on: columns of a product, or elements of a sum. A `piece` has the function that loads
four of a row, the width of rows, the first column, or the first of some rows, of which `groups` of four are loaded each. #}
{% macro fetch(t, piece, first) %}
{% for n in range(piece.items) %}
{% set all = piece.rows * piece.groups %}
{% set conditions = ["item < " ~ all ~ "u"] if (n + 1) * 128 > all else [] %}
{% set conditions = conditions + ["d < " ~ piece.width] if piece.column + piece.groups * 4 > piece.width else conditions %}
            {
                let item = local_index + {{ n * 128 }}u;
                let d = {{ piece.column }} + i32(item % {{ piece.groups }}u) * 4;
                // Rows past the last one read that one; their weights are 0.
                let j = min({{ first }} + {{ piece.row }} + i32(item / {{ piece.groups }}u), keys - 1);
{% if conditions %}
                fetched{{ n }} = vec4<f32>(0.0f);
                if ({% for condition in conditions %}{{ condition }}{{ " && " if not loop.last }}{% endfor %}) {
                    fetched{{ n }} = {{ piece.function }}(c0, c1, j, d);
                }
{% else %}
                fetched{{ n }} = {{ piece.function }}(c0, c1, j, d);
{% endif %}
            }
{% endfor %}
{% endmacro %}
{# Loads it one piece ahead, or with few registers when it is stored. #}
{% macro fetch_ahead(t, piece, first) %}{{ fetch(t, piece, first) if t.held }}{% endmacro %}
{% macro fetch_now(t, piece, first) %}{{ fetch(t, piece, first) if not t.held }}{% endmacro %}
{# A statement for an item of `all`, for 128 threads from `first` on. #}
{% macro for_item(first, all, statement) %}
{% if first + 128 > all %}
                if (item < {{ all }}u) {
                    {{ statement }}
                }
{% else %}
                {{ statement }}
{% endif %}
{% endmacro %}
{# Stores columns of the other rows, four rows side by side. #}
{% macro put_others(t) %}
{% set groups = t.chunk // 4 %}
{% for n in range((8 * t.chunk + 127) // 128) %}
            {
                let item = local_index + {{ n * 128 }}u;
                let row = item / {{ groups }}u;
{{ for_item(n * 128, 8 * t.chunk, "key_tile[((row % 4u) * 8u + row / 4u) * PITCH + item % " ~ groups ~ "u] = fetched" ~ n ~ ";") -}}
            }
{% endfor %}
{% endmacro %}
{# Loads and stores columns of the rows. #}
{% macro stage_owners(t, dot, d0) %}
{% set groups = t.chunk // 4 %}
{% set all = t.rows * groups %}
{% set items = (all + 127) // 128 %}
{% for n in range(items) %}
            var fetched_owner{{ n }} = vec4<f32>(0.0f);
            {
                let item = local_index + {{ n * 128 }}u;
                let d = {{ d0 }} + i32(item % {{ groups }}u) * 4;
                if (item < {{ all }}u{% if d0 + t.chunk > dot.width %} && d < {{ dot.width }}{% endif %}) {
                    fetched_owner{{ n }} = owner{{ dot.value }}(c0, c1, min(i0 + i32(item / {{ groups }}u), rows - 1), d);
                }
            }
{% endfor %}
{% for n in range(items) %}
            {
                let item = local_index + {{ n * 128 }}u;
{{ for_item(n * 128, all, "row_tile[(item / " ~ groups ~ "u) * PITCH + item % " ~ groups ~ "u] = fetched_owner" ~ n ~ ";") -}}
            }
{% endfor %}
{% endmacro %}
{# The trip count of a loop. Drivers unroll loops with known trip counts, and hold the loads of all steps in registers. #}
{% macro count(t, steps) %}{{ steps }}{{ " + none" if t.rolled }}{% endmacro %}
{# Adds the dot products of a thread's rows with four keys, over the staged columns, to `name`0 and following. #}
{% macro dot_products(t, name) %}
            for (var step = 0u; step < {{ count(t, t.chunk // 4 ~ "u") }}; step++) {
{% for i in range(t.rows_per_thread) %}
                let q{{ i }} = row_tile[row_at + {{ i }}u * PITCH + step];
{% endfor %}
{% for l in range(4) %}
                let k{{ l }} = key_tile[key_at + {{ "step + " if t.rolled }}{{ l * 8 }}u * PITCH{{ " + step" if not t.rolled }}];
{% for i in range(t.rows_per_thread) %}
                {{ name }}{{ i }}.{{ "xyzw"[l] }} += dot(q{{ i }}, k{{ l }});
{% endfor %}
{% endfor %}
            }
{% endmacro %}
{# Stores elements of the other rows. #}
{% macro put_elements(sum) %}
{% for n in range(sum.items) %}
        {
            let item = local_index + {{ n * 128 }}u;
{{ for_item(n * 128, sum.keys * sum.chunks * 8, "key_tile[item] = fetched" ~ n ~ ";") -}}
        }
{% endfor %}
{% endmacro %}
{# Adds the staged elements with their weights, from row `k0` of the tile on: four keys a step, or one where registers hold no more. #}
{% macro accumulate(t, sum, k0) %}
{% if sum.by_key %}
        for (var key = 0u; key < {{ count(t, sum.keys ~ "u") }}; key++) {
{% for i in range(t.rows_per_thread) %}
            let w{{ i }} = row_tile[row_at + {{ i }}u * PITCH + key / 4u + {{ k0 // 4 }}u][key % 4u];
{% endfor %}
            let element_at = key * {{ sum.chunks * 8 }}u + thread_group;
{% for chunk in range(sum.chunks) %}
            let v{{ chunk }} = key_tile[element_at + {{ chunk * 8 }}u];
{% for i in range(t.rows_per_thread) %}
            sum{{ sum.value }}_{{ chunk }}_{{ i }} += w{{ i }} * v{{ chunk }};
{% endfor %}{% endfor %}
        }
{% else %}
        for (var step = 0u; step < {{ count(t, sum.keys // 4 ~ "u") }}; step++) {
{% for i in range(t.rows_per_thread) %}
            let w{{ i }} = row_tile[row_at + {{ i }}u * PITCH + step + {{ k0 // 4 }}u];
{% endfor %}
            let element_at = step * {{ 4 * sum.chunks * 8 }}u + thread_group;
{% for chunk in range(sum.chunks) %}{% for l in range(4) %}
            let v{{ chunk }}_{{ l }} = key_tile[element_at + {{ l * sum.chunks * 8 + chunk * 8 }}u];
{% for i in range(t.rows_per_thread) %}
            sum{{ sum.value }}_{{ chunk }}_{{ i }} += w{{ i }}.{{ "xyzw"[l] }} * v{{ chunk }}_{{ l }};
{% endfor %}{% endfor %}{% endfor %}
        }
{% endif %}
{% endmacro %}
