{# A softmax of rows of scores in workgroup memory, one thread per row. #}
{% from "rows_of_floats.wgsl" import count %}
{% macro memory(masked) %}
// The largest score of no keys.
const LOWEST = -3.40282346e38f;
var<workgroup> row_max: array<f32, ROWS>;
// Sums of weights; negative where no key has counted yet.
var<workgroup> row_sum: array<f32, ROWS>;
var<workgroup> row_scale: array<f32, ROWS>;
{% if masked %}
// A bit for each key of a tile that counts, where some do not.
var<workgroup> row_keys: array<atomic<u32>, ROWS>;
{% endif %}
{% endmacro %}
{% macro begin(masked) %}
    if (local < ROWS) {
        row_max[local] = LOWEST;
        row_sum[local] = -1.0f;
{% if masked %}
        atomicStore(&row_keys[local], 0u);
{% endif %}
    }
{% endmacro %}
{# Records the included keys of a row with some hidden keys. #}
{% macro note_keys(i) %}
            let bits{{ i }} = dot(vec4<u32>(kept{{ i }}), vec4<u32>(1u, 2u, 4u, 8u));
            atomicOr(&row_keys[thread_row + {{ i }}u], bits{{ i }} << (thread_group * 4u));
{% endmacro %}
{# Replaces scores by weights, and rescales sums. #}
{% macro soften(t, sum, masked) %}
        if (local < ROWS) {
            let before = row_max[local];
            var high = before;
            for (var step = 0u; step < {{ count(t, "KEYS / 4") }}; step++) {
                let s = row_tile[local_index * PITCH + step];
                high = max(high, max(max(s.x, s.y), max(s.z, s.w)));
            }
            let scale = exp(before - high);
            var total = 0.0f;
            for (var step = 0u; step < {{ count(t, "KEYS / 4") }}; step++) {
                let weight = exp(row_tile[local_index * PITCH + step] - high);
                row_tile[local_index * PITCH + step] = weight;
                total += (weight.x + weight.y) + (weight.z + weight.w);
            }
            var counts = true;
{% if masked %}
            let kept_keys = select(atomicExchange(&row_keys[local], 0u), 0xffffffffu, whole);
{% else %}
            let kept_keys = select((1u << (u32(keys - j0) & 31u)) - 1u, 0xffffffffu, whole);
{% endif %}
            // Keys that do not count differ from those with the lowest score.
            if (!(high > LOWEST)) {
                counts = kept_keys != 0u;
                total = 0.0f;
                for (var step = 0u; step < {{ count(t, "KEYS / 4") }}; step++) {
                    let kept = (vec4<u32>(kept_keys >> (step * 4u)) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>(0u);
                    let weight = select(vec4<f32>(0.0f), row_tile[local_index * PITCH + step], kept);
                    row_tile[local_index * PITCH + step] = weight;
                    total += (weight.x + weight.y) + (weight.z + weight.w);
                }
            }
            let sum = row_sum[local];
            row_max[local] = high;
            row_sum[local] = select(sum, select(sum, 0.0f, sum < 0.0f) * scale + total, counts);
            row_scale[local] = scale;
        }
        workgroupBarrier();
{% for i in range(t.rows_per_thread) %}
        let scale{{ i }} = row_scale[thread_row + {{ i }}u];
{% for chunk in range(sum.chunks) %}
        sum{{ sum.value }}_{{ chunk }}_{{ i }} *= scale{{ i }};
{% endfor %}{% endfor %}
{% endmacro %}
{# The final factor of a row's sums: 0 without included keys, 0 / 0 if all their weights are 0. #}
{% macro share(i) %}
        let total = row_sum[thread_row + {{ i }}u];
        let part = select(1.0f / total, 0.0f, total < 0.0f);
{% endmacro %}
