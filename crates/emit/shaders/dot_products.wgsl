{# Adds the dot products of a thread's rows and of four keys, over the columns that are staged, to `name`0 and on. #}
{% macro dot_products(name, rows_per_thread) %}
            for (var step = 0; step < CHUNK; step++) {
{% for l in range(4) %}
                let k{{ l }} = key_tile[(thread_group + {{ l * 8 }}) * PITCH + step];
{% endfor %}
{% for i in range(rows_per_thread) %}
                let q{{ i }} = row_tile[(thread_row + {{ i }}) * PITCH + step];
                {{ name }}{{ i }} += vec4<f32>(dot(q{{ i }}, k0), dot(q{{ i }}, k1), dot(q{{ i }}, k2), dot(q{{ i }}, k3));
{% endfor %}
            }
{%- endmacro %}
