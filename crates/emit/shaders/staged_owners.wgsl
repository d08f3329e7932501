{# Loads rows through workgroup memory to the matrices of a subgroup, `rows`, a part of their columns at a time. #}
{% from "matrices.wgsl" import left %}
{% macro place(t, dot, n) %}
        let item = local_index + {{ n * t.threads }}u;
        let row = item / {{ dot.chunk // 4 }}u;
        let group = item % {{ dot.chunk // 4 }}u;
{% endmacro %}
{% macro stage_owners(t, dot) %}
{% set groups = t.rows * dot.chunk // 4 %}
{% for d0 in range(0, dot.depth, dot.chunk) %}{% for n in range(dot.items) %}
    var owner{{ dot.value }}_{{ d0 }}_{{ n }} = vec4<f16>();
    {
{{ place(t, dot, n) -}}
        let d = {{ d0 }} + i32(group) * 4;
{% if dot.width < dot.depth or dot.depth % dot.chunk %}
        if (d < {{ dot.width }}) {
            owner{{ dot.value }}_{{ d0 }}_{{ n }} = owner{{ dot.value }}(c0, c1, min(i0 + i32(row), rows - 1), d);
        }
{% else %}
        owner{{ dot.value }}_{{ d0 }}_{{ n }} = owner{{ dot.value }}(c0, c1, min(i0 + i32(row), rows - 1), d);
{% endif %}
    }
{% endfor %}{% endfor %}
{% for d0 in range(0, dot.depth, dot.chunk) %}
    workgroupBarrier();
{% for n in range(dot.items) %}
    {
{{ place(t, dot, n) -}}
{% if (n + 1) * t.threads > groups %}
        if (item < {{ groups }}u) {
            tile_memory[row * {{ dot.pitch }}u + group] = owner{{ dot.value }}_{{ d0 }}_{{ n }};
        }
{% else %}
        tile_memory[row * {{ dot.pitch }}u + group] = owner{{ dot.value }}_{{ d0 }}_{{ n }};
{% endif %}
    }
{% endfor %}
    workgroupBarrier();
{% for d in range(d0, [d0 + dot.chunk, dot.depth] | min, t.size) %}{% for r in range(t.row_matrices) %}
    let rows{{ dot.value }}_{{ r }}_{{ d }} = coopLoadT<{{ left(t) }}>(&tile_memory[(first_row + {{ r * t.size }}u) * {{ dot.pitch }}u + {{ (d - d0) // 4 }}u], {{ dot.pitch }}u);
{% endfor %}{% endfor %}
{% endfor %}
{% endmacro %}
