{# Tiles of rows of f32 in workgroup memory, and what multiply-adds make of them. `t` is the tile of a workgroup. #}
{# Loads one of the `items` of a block: four elements of row `row` of it, from `column` on, if there are any. #}
{% macro fetch_item(t, n, name, function, block, row) %}
{% set all = block.rows * block.groups %}
{% set conditions = ["item < " ~ all ~ "u"] if (n + 1) * t.threads > all else [] %}
{% set conditions = conditions + ["d < " ~ block.width] if block.column + block.groups * 4 > block.width else conditions %}
            {
                let item = local_index + {{ n * t.threads }}u;
                let d = {{ block.column }} + i32(item % {{ block.groups }}u) * 4;
                let row = {{ row }};
{% if conditions %}
                {{ name }}{{ n }} = vec4<f32>(0.0f);
                if ({% for condition in conditions %}{{ condition }}{{ " && " if not loop.last }}{% endfor %}) {
                    {{ name }}{{ n }} = {{ function }}(c0, c1, row, d);
                }
{% else %}
                {{ name }}{{ n }} = {{ function }}(c0, c1, row, d);
{% endif %}
            }
{% endmacro %}
{# Loads what is staged next of the others from row `first` on: columns of a product, with those of the owners, or elements of a sum. A `piece` has
the function that loads four of a row, the width of rows, the first column, or the first of some rows, of which `groups` of four are loaded each. #}
{% macro fetch(t, piece, first) %}
{% for n in range(piece.items) %}
{# Rows past the last one read that one; their weights are 0. #}
{{ fetch_item(t, n, "fetched", piece.function, piece, "min(" ~ first ~ " + " ~ piece.row ~ " + i32(item / " ~ piece.groups ~ "u), keys - 1)") -}}
{% endfor %}
{{ fetch_owners(t, piece.owner) if piece.owner and t.owners_ahead -}}
{% endmacro %}
{# Loads columns of the owners. #}
{% macro fetch_owners(t, owner) %}
{% for n in range(t.owner_items) %}
{{ fetch_item(t, n, "fetched_owner", owner.function, owner, "min(i0 + i32(item / " ~ owner.groups ~ "u), rows - 1)") -}}
{% endfor %}
{% endmacro %}
{# Loads it one piece ahead, or with few registers when it is stored. #}
{% macro fetch_ahead(t, piece, first) %}{{ fetch(t, piece, first) if t.held }}{% endmacro %}
{% macro fetch_now(t, piece, first) %}{{ fetch(t, piece, first) if not t.held }}{% endmacro %}
{# A statement for item `n` of a thread, of `all`. #}
{% macro for_item(t, n, all, statement) %}
{% if (n + 1) * t.threads > all %}
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
{% set all = t.keys * groups %}
{% for n in range((all + t.threads - 1) // t.threads) %}
            {
                let item = local_index + {{ n * t.threads }}u;
                let row = item / {{ groups }}u;
{{ for_item(t, n, all, "key_tile[((row % 4u) * " ~ t.groups ~ "u + row / 4u) * PITCH + item % " ~ groups ~ "u] = fetched" ~ n ~ ";") -}}
            }
{% endfor %}
{% endmacro %}
{# Stores columns of the rows. #}
{% macro put_owners(t) %}
{% set groups = t.chunk // 4 %}
{% for n in range(t.owner_items) %}
            {
                let item = local_index + {{ n * t.threads }}u;
{{ for_item(t, n, t.rows * groups, "row_tile[(item / " ~ groups ~ "u) * PITCH + item % " ~ groups ~ "u] = fetched_owner" ~ n ~ ";") -}}
            }
{% endfor %}
{% endmacro %}
{# The trip count of a loop. Drivers unroll loops with known trip counts, and hold the loads of all steps in registers. #}
{% macro count(t, steps) %}{{ steps }}{{ " + none" if t.rolled }}{% endmacro %}
{# Adds the dot products of a thread's rows with four keys, over the staged columns, to `name`0 and following. #}
{% macro dot_products(t, name) %}
            for (var step = 0u; step < {{ count(t, t.chunk // 4 ~ "u") }}; step++) {
{% for l in range(4) %}
                let k{{ l }} = key_tile[key_at + {{ "step + " if t.rolled }}{{ l * t.groups }}u * PITCH{{ " + step" if not t.rolled }}];
{% endfor %}
{% for i in range(t.rows_per_thread) %}
                let q{{ i }} = row_tile[row_at + {{ i }}u * PITCH + step];
{% for l in range(4) %}{% for d in range(4) %}
                {{ name }}{{ i }}.{{ "xyzw"[l] }} += q{{ i }}.{{ "xyzw"[d] }} * k{{ l }}.{{ "xyzw"[d] }};
{% endfor %}{% endfor %}
{% endfor %}
            }
{% endmacro %}
{# Stores the weights of as many of the other rows as fit, from row `k0` of the tile on. #}
{% macro put_weights(t, sum, k0) %}
{% if t.keys > t.weights %}
        if (thread_group / {{ t.weights // 4 }}u == {{ k0 // t.weights }}u) {
{% for i in range(t.rows_per_thread) %}
            row_tile[row_at + {{ i }}u * PITCH + thread_group % {{ t.weights // 4 }}u] = weights{{ i }}.of{{ sum.value }};
{% endfor %}
        }
{% else %}
{% for i in range(t.rows_per_thread) %}
        row_tile[row_at + {{ i }}u * PITCH + thread_group] = weights{{ i }}.of{{ sum.value }};
{% endfor %}
{% endif %}
{% endmacro %}
{# Stores elements of the other rows. #}
{% macro put_elements(t, sum) %}
{% for n in range(sum.items) %}
        {
            let item = local_index + {{ n * t.threads }}u;
{{ for_item(t, n, sum.keys * sum.chunks * t.groups, "key_tile[item] = fetched" ~ n ~ ";") -}}
        }
{% endfor %}
{% endmacro %}
{# Adds the staged elements with their weights, from row `k0` of the tile on: four keys a step, or one where registers hold no more. #}
{% macro accumulate(t, sum, k0) %}
{% if sum.by_key %}
        for (var key = 0u; key < {{ count(t, sum.keys ~ "u") }}; key++) {
{% for i in range(t.rows_per_thread) %}
            let w{{ i }} = row_tile[row_at + {{ i }}u * PITCH + key / 4u + {{ k0 % t.weights // 4 }}u][key % 4u];
{% endfor %}
            let element_at = key * {{ sum.chunks * t.groups }}u + thread_group;
{% for chunk in range(sum.chunks) %}
            let v{{ chunk }} = key_tile[element_at + {{ chunk * t.groups }}u];
{% for i in range(t.rows_per_thread) %}
            sum{{ sum.value }}_{{ chunk }}_{{ i }} += w{{ i }} * v{{ chunk }};
{% endfor %}{% endfor %}
        }
{% else %}
        for (var step = 0u; step < {{ count(t, sum.keys // 4 ~ "u") }}; step++) {
{% for i in range(t.rows_per_thread) %}
            let w{{ i }} = row_tile[row_at + {{ i }}u * PITCH + step + {{ k0 % t.weights // 4 }}u];
{% endfor %}
            let element_at = step * {{ 4 * sum.chunks * t.groups }}u + thread_group;
{% for chunk in range(sum.chunks) %}{% for l in range(4) %}
            let v{{ chunk }}_{{ l }} = key_tile[element_at + {{ l * sum.chunks * t.groups + chunk * t.groups }}u];
{% for i in range(t.rows_per_thread) %}
            sum{{ sum.value }}_{{ chunk }}_{{ i }} += w{{ i }}.{{ "xyzw"[l] }} * v{{ chunk }}_{{ l }};
{% endfor %}{% endfor %}{% endfor %}
        }
{% endif %}
{% endmacro %}
