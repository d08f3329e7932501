{# A sample with one row: all threads share its keys, SHARE at a time, and the row's bits do not depend on other samples. #}
{% macro single_row(single, masked) %}
    if (rows == 1) {
        for (var item = local; item < {{ (single.depth + 3) // 4 }}; item += THREADS) {
            row_tile[item] = owner{{ single.dot }}(c0, c1, 0, item * 4);
        }
        let part = i32(local_index % 8u);
        let key_slot = local_index / 8u;
        let value_column = i32(local_index % {{ single.groups }}u) * 4;
        let first_step = local_index / {{ single.groups }}u * {{ single.steps }}u;
        var high = LOWEST;
        var total = 0.0f;
        var mixed = vec4<f32>(0.0f);
        var counted = 0.0f;
        for (var j0 = 0; j0 < keys; j0 += {{ single.share }}) {
            workgroupBarrier();
            for (var half = 0; half < 2; half++) {
                let j = j0 + i32(key_slot) * 8 + half * 4;
                var products = vec4<f32>(0.0f);
{% for chunk in range(single.chunks) %}
                {
                    let d = {{ chunk * 32 }} + part * 4;
                    {{ "if (d < " ~ single.depth ~ ") " if single.depth % 32 else "" }}{
                        let q = row_tile[u32(d) >> 2u];
{% for l in range(4) %}
                        products.{{ "xyzw"[l] }} += dot(q, other{{ single.dot }}(c0, c1, min(j + {{ l }}, keys - 1), d));
{% endfor %}
                    }
                }
{% endfor %}
                key_tile[(key_slot * 2u + u32(half)) * 8u + u32(part)] = products;
            }
            workgroupBarrier();
            let j = j0 + local * 4;
            var kept = vec4<bool>(false);
            var scores = vec4<f32>(LOWEST);
            if (local < {{ single.share // 4 }}) {
                kept = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
                let near = min(j, (keys - 1) & -4);
{% if masked %}
                kept &= keep(c0, c1, 0, near, kept);
{% endif %}
                let at = local_index * 8u;
                let product = ((key_tile[at] + key_tile[at + 1u]) + (key_tile[at + 2u] + key_tile[at + 3u]))
                    + ((key_tile[at + 4u] + key_tile[at + 5u]) + (key_tile[at + 6u] + key_tile[at + 7u]));
                scores = select(vec4<f32>(LOWEST), weigh0(c0, c1, 0, near, kept, product).of{{ single.sum }}, kept);
                row_tile[{{ single.scores }}u + local_index] = scores;
                counted = select(counted, 1.0f, any(kept));
            }
            workgroupBarrier();
            let before = high;
            for (var step = 0u; step < {{ single.share // 4 }}u; step++) {
                let s = row_tile[{{ single.scores }}u + step];
                high = max(high, max(max(s.x, s.y), max(s.z, s.w)));
            }
            if (local < {{ single.share // 4 }}) {
                row_tile[{{ single.weights }}u + local_index] = select(vec4<f32>(0.0f), exp(scores - high), kept);
            }
            workgroupBarrier();
            let scale = exp(before - high);
            total *= scale;
            mixed *= scale;
            for (var step = 0u; step < {{ single.steps }}u; step += {{ single.together }}u) {
                let j = j0 + i32(first_step + step) * 4;
                if (j < keys{{ " && value_column < " ~ single.width if single.width < single.groups * 4 }}) {
{% for s in range(single.together) %}{% for l in range(4) %}
                    let element{{ s }}_{{ l }} = element{{ single.sum }}(c0, c1, min(j + {{ s * 4 + l }}, keys - 1), value_column);
{% endfor %}{% endfor %}
{% for s in range(single.together) %}
                    let w{{ s }} = row_tile[{{ single.weights }}u + first_step + step + {{ s }}u];
                    if (j + {{ s * 4 }} < keys) {
{% for l in range(4) %}
                        mixed += w{{ s }}.{{ "xyzw"[l] }} * element{{ s }}_{{ l }};
{% endfor %}
                    }
{% endfor %}
                }
{% for s in range(single.together) %}
                {
                    let w = row_tile[{{ single.weights }}u + first_step + step + {{ s }}u];
                    total += (w.x + w.y) + (w.z + w.w);
                }
{% endfor %}
            }
        }
        workgroupBarrier();
        key_tile[local_index] = mixed;
        key_tile[{{ single.threads }}u + local_index] = vec4<f32>(total, counted, 0.0f, 0.0f);
        workgroupBarrier();
        if (value_column < {{ single.width }} && local_index < {{ single.groups }}u) {
            for (var group = {{ single.groups }}u; group < {{ single.threads }}u; group += {{ single.groups }}u) {
                mixed += key_tile[group + local_index];
                total += key_tile[{{ single.threads }}u + group].x;
            }
            var kept = 0.0f;
            for (var item = 0u; item < {{ single.share // 4 }}u; item++) {
                kept += key_tile[{{ single.threads }}u + item].y;
            }
            // 0 without included keys, 0 / 0 if all their weights are 0.
            let part = select(0.0f, 1.0f / total, kept > 0.0f);
            finish{{ single.column }}(c0, c1, 0, value_column, mixed * part);
        }
        return;
    }
{% endmacro %}
