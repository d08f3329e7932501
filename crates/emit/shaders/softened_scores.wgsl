{# The exponentials of a tile of scores that passed through workgroup memory, and what they add to their rows. #}
{% macro staged_product(r, n) %}stage[own_stage + {{ staged_row(n) }} * STAGE_PITCH + {{ r * keys // 4 }}u + {{ staged_group }}]{% endmacro %}
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
        let row{{ r }}_{{ n }} = first_row + {{ r * size }}u + {{ staged_row(n) }};
        let i{{ r }}_{{ n }} = min(i0 + i32(row{{ r }}_{{ n }}), rows - 1);
        let j{{ r }}_{{ n }} = j0 + i32({{ staged_group }} * 4u);
        // Groups beyond the last key read the last one, and do not count.
        let near{{ r }}_{{ n }} = min(j{{ r }}_{{ n }}, (keys - 1) & -4);
{% if guarded %}
        var kept{{ r }}_{{ n }} = vec4<bool>(true);
{% else %}
        let product{{ r }}_{{ n }} = {{ staged_product(r, n) }};
        let kept{{ r }}_{{ n }} = vec4<bool>(true);
        var excess{{ r }}_{{ n }} = {{ weight(r, n) }} - row_shift[row{{ r }}_{{ n }}];
{% endif %}
{% endfor %}{% endfor %}
        if (!whole) {
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
            let inside{{ r }}_{{ n }} = (j{{ r }}_{{ n }} + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
            let counts{{ r }}_{{ n }} = inside{{ r }}_{{ n }}{% if masked %} & keep(c0, c1, i{{ r }}_{{ n }}, near{{ r }}_{{ n }}, inside{{ r }}_{{ n }}){% endif %};
{% if guarded %}
            kept{{ r }}_{{ n }} = counts{{ r }}_{{ n }};
{% else %}
            excess{{ r }}_{{ n }} = select(vec4<f32>(LOWEST), excess{{ r }}_{{ n }}, counts{{ r }}_{{ n }});
{% endif %}
{% endfor %}{% endfor %}
        }
        var most = vec4<f32>(LOWEST);
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
{% if guarded %}
        let product{{ r }}_{{ n }} = {{ staged_product(r, n) }};
        var excess{{ r }}_{{ n }} = select(vec4<f32>(LOWEST), {{ weight(r, n) }} - row_shift[row{{ r }}_{{ n }}], kept{{ r }}_{{ n }});
{% endif %}
        most = max(most, excess{{ r }}_{{ n }});
{% endfor %}{% endfor %}
        while (subgroupAny(any(most > vec4<f32>(MOST_EXCESS)))) {
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
            let counted{{ r }}_{{ n }} = excess{{ r }}_{{ n }} != vec4<f32>(LOWEST);
            let again{{ r }}_{{ n }} = {{ staged_product(r, n) }};
            let scored{{ r }}_{{ n }} = weigh(c0, c1, i{{ r }}_{{ n }}, near{{ r }}_{{ n }}, again{{ r }}_{{ n }}, counted{{ r }}_{{ n }});
            var largest{{ r }}_{{ n }} = {{ largest_of("scored" ~ r ~ "_" ~ n) }};
{{ combine("largest" ~ r ~ "_" ~ n, "max", keys // 4) -}}
            if ({{ staged_group }} == 0u) {
                raise(row{{ r }}_{{ n }}, largest{{ r }}_{{ n }});
            }
{% endfor %}{% endfor %}
            {{ branch_barrier }}
            // Nothing lies above its row's shift now.
            most = vec4<f32>(LOWEST);
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
            total{{ r }}_{{ n }} *= row_scale[row{{ r }}_{{ n }}];
            excess{{ r }}_{{ n }} = select(vec4<f32>(LOWEST), scored{{ r }}_{{ n }} - row_shift[row{{ r }}_{{ n }}], counted{{ r }}_{{ n }});
{% endfor %}{% endfor %}
            {{ branch_barrier }}
{% for r in range(row_matrices) %}{% for c in range(columns) %}
            coopStoreT(sum{{ r }}_{{ c }}, &stage[own_stage], pitch);
            {{ branch_barrier }}
{% for n in range(element_items) %}
            stage[own_stage + {{ element_row(n) }} * STAGE_PITCH + {{ element_group }}] *= row_scale[first_row + {{ r * size }}u + {{ element_row(n) }}];
{% endfor %}
            {{ branch_barrier }}
            sum{{ r }}_{{ c }} = coopLoadT<{{ sums }}>(&stage[own_stage], pitch);
            {{ branch_barrier }}
{% endfor %}{% endfor %}
        }
{% for r in range(row_matrices) %}{% for n in range(stage_items) %}
        let weight{{ r }}_{{ n }} = exp(excess{{ r }}_{{ n }});
        total{{ r }}_{{ n }} += {{ sum_of("weight" ~ r ~ "_" ~ n) }};
        weight_tile[row{{ r }}_{{ n }} * WEIGHT_PITCH + {{ staged_group }}] = vec4<f16>(weight{{ r }}_{{ n }});
{% endfor %}{% endfor %}
