{# Tiles of rows of f16, on their way to workgroup memory in registers. A tile has the name of the function that loads four f16 values
of a row, how many `rows` it has of which `width` in whole matrices (`depth`), their `pitch` and where it begins (`base`), in groups of four,
how many groups each of `threads` loads (`items`), and how many of these are `neighbours`. #}
{% macro place(tile, n) %}
{% set across = tile.depth // 4 // tile.neighbours %}
{% set first = n // tile.neighbours * tile.threads %}
{% if tile.threads % across %}
            let item = local_index + {{ first }}u;
            let row = item / {{ across }}u;
            let group = item % {{ across }}u{% if tile.neighbours == 2 %} * 2u + {{ n % 2 }}u{% endif %};
{% else %}
            let row = local_index / {{ across }}u + {{ first // across }}u;
            let group = local_index % {{ across }}u{% if tile.neighbours == 2 %} * 2u + {{ n % 2 }}u{% endif %};
{% endif %}
{% endmacro %}
{# Loads the rows from `first` on. #}
{% macro fetch(tile, first) %}
{% for n in range(tile.items) %}
        {
{{ place(tile, n) -}}
            let d = i32(group) * 4;
            // Rows past the last one read that one; their weights are 0.
            let j = min({{ first }} + i32(row), keys - 1);
{% if tile.width < tile.depth %}
            fetched_{{ tile.name }}_{{ n }} = vec4<f16>();
            if (d < {{ tile.width }}) {
                fetched_{{ tile.name }}_{{ n }} = {{ tile.name }}(c0, c1, j, d);
            }
{% else %}
            fetched_{{ tile.name }}_{{ n }} = {{ tile.name }}(c0, c1, j, d);
{% endif %}
        }
{% endfor %}
{% endmacro %}
{# Stores the loaded data. #}
{% macro put(tile, buffer) %}
{% for n in range(tile.items) %}
        {
{{ place(tile, n) -}}
{% if (n + 1) * tile.threads > tile.rows * tile.depth // 4 %}
            if (row < {{ tile.rows }}u) {
                tile_memory[{{ buffer }}{{ tile.base }}u + row * {{ tile.pitch }}u + group] = fetched_{{ tile.name }}_{{ n }};
            }
{% else %}
            tile_memory[{{ buffer }}{{ tile.base }}u + row * {{ tile.pitch }}u + group] = fetched_{{ tile.name }}_{{ n }};
{% endif %}
        }
{% endfor %}
{% endmacro %}
{# The registers. #}
{% macro fetched(tile) %}
{% for n in range(tile.items) %}
    var fetched_{{ tile.name }}_{{ n }} = vec4<f16>();
{% endfor %}
{% endmacro %}
