{# Tiles of rows of f32 in workgroup memory, and what multiply-adds make of them. `t` is the tile of a workgroup of 128 threads. #}
{# Loads what is staged next of the others from row `first` on: columns of a product, or elements of a sum. A `piece` has the hook that loads
four of a row, the width of rows, the first column, or the first of some rows, of which `groups` of four are loaded each. #}
{% macro fetch(t, piece, first) %}
{% for n in range(piece.items) %}
            {
                let item = local + {{ n * 128 }};
                let d = {{ piece.column }} + (item % {{ piece.groups }}) * 4;
                // Rows past the last one read that one; their weights are 0.
                let j = min({{ first }} + {{ piece.row }} + item / {{ piece.groups }}, keys - 1);
                fetched{{ n }} = vec4<f32>(0.0f);
                if (item < {{ piece.rows * piece.groups }}{% if piece.column + piece.groups * 4 > piece.width %} && d < {{ piece.width }}{% endif %}) {
                    fetched{{ n }} = {{ piece.hook }}(c0, c1, j, d);
                }
            }
{% endfor %}
{% endmacro %}
{# Stores columns of others, four of them side by side. #}
{% macro put_others(t) %}
{% for n in range((8 * t.chunk + 127) // 128) %}
            {
                let item = local + {{ n * 128 }};
                let row = item / CHUNK;
                if (item < KEYS * CHUNK) {
                    key_tile[((row % 4) * 8 + row / 4) * PITCH + item % CHUNK] = fetched{{ n }};
                }
            }
{% endfor %}
{% endmacro %}
{# Loads and stores columns of the owners. #}
{% macro stage_owners(t, dot, d0) %}
{% set groups = t.chunk // 4 %}
{% set items = (t.rows * groups + 127) // 128 %}
{% for n in range(items) %}
            var fetched_owner{{ n }} = vec4<f32>(0.0f);
            {
                let item = local + {{ n * 128 }};
                let d = {{ d0 }} + (item % CHUNK) * 4;
                if (item < ROWS * CHUNK{% if d0 + t.chunk > dot.width %} && d < {{ dot.width }}{% endif %}) {
                    fetched_owner{{ n }} = owner{{ dot.value }}(c0, c1, min(i0 + item / CHUNK, rows - 1), d);
                }
            }
{% endfor %}
{% for n in range(items) %}
            {
                let item = local + {{ n * 128 }};
                if (item < ROWS * CHUNK) {
                    row_tile[(item / CHUNK) * PITCH + item % CHUNK] = fetched_owner{{ n }};
                }
            }
{% endfor %}
{% endmacro %}
{# Adds the dot products of a thread's rows and of four keys, over the columns that are staged, to `name`0 and on. #}
{% macro dot_products(t, name) %}
            for (var step = 0; step < CHUNK; step++) {
{% for l in range(4) %}
                let k{{ l }} = key_tile[(thread_group + {{ l * 8 }}) * PITCH + step];
{% endfor %}
{% for i in range(t.rows_per_thread) %}
                let q{{ i }} = row_tile[(thread_row + {{ i }}) * PITCH + step];
                {{ name }}{{ i }} += vec4<f32>(dot(q{{ i }}, k0), dot(q{{ i }}, k1), dot(q{{ i }}, k2), dot(q{{ i }}, k3));
{% endfor %}
            }
{% endmacro %}
{# Stores elements of others. #}
{% macro put_elements(sum) %}
{% for n in range(sum.items) %}
        if (local + {{ n * 128 }} < {{ sum.keys * sum.chunks * 8 }}) {
            key_tile[local + {{ n * 128 }}] = fetched{{ n }};
        }
{% endfor %}
{% endmacro %}
{# Adds the elements that are staged, from other `k0` of the tile on, as they are weighed. #}
{% macro accumulate(t, sum, k0) %}
        for (var step = 0; step < {{ sum.keys // 4 }}; step++) {
{% for i in range(t.rows_per_thread) %}
            let w{{ i }} = row_tile[(thread_row + {{ i }}) * PITCH + step + {{ k0 // 4 }}];
{% endfor %}
{% for chunk in range(sum.chunks) %}{% for l in range(4) %}
            let v{{ chunk }}_{{ l }} = key_tile[(step * 4 + {{ l }}) * {{ sum.chunks * 8 }} + {{ chunk * 8 }} + thread_group];
{% for i in range(t.rows_per_thread) %}
            sum{{ sum.value }}_{{ chunk }}_{{ i }} += w{{ i }}.{{ "xyzw"[l] }} * v{{ chunk }}_{{ l }};
{% endfor %}{% endfor %}{% endfor %}
        }
{% endmacro %}
