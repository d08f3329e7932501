// Jagged attention: finish(i, d, sum over j of weigh(i, j, <query(i), key(j)>) * value(j, d)) for every sample and head.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A workgroup has ROWS queries of one head; its threads are 16 x 8, each with {{ rows_per_thread }} rows. Tiles of KEYS keys follow one
// another: scores of the tile from chunks of the width staged in workgroup memory, weights into workgroup
// memory, then values in chunks of 32 columns, summed in registers. Whether a tile counts at all, or wholly, is
// decided from bounds of the mask over the tile.

const THREADS = 128;
const ROWS = {{ rows }};
const KEYS = 32;
const HEADS = {{ heads }};
// Groups of four elements of the width that are staged at once.
const CHUNK = {{ chunk // 4 }};
// Rows of tiles are padded against bank conflicts.
const PITCH = 9;
{% if softmax %}
// A score that does not count.
const MASKED = -3.0e38f;
{% endif %}

{{ declarations -}}
var<workgroup> query_tile: array<vec4<f32>, {{ rows * 9 }}>;
// Keys, then values.
var<workgroup> key_tile: array<vec4<f32>, 288>;
var<workgroup> weight_tile: array<vec4<f32>, {{ rows * 9 }}>;
{% if softmax %}
var<workgroup> row_max: array<f32, {{ rows }}>;
var<workgroup> row_sum: array<f32, {{ rows }}>;
var<workgroup> row_scale: array<f32, {{ rows }}>;
{% endif %}
{% include "row_bounds_memory.wgsl" %}

{{ hooks -}}
@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let workgroup = i32(group.x + group.y * groups.x);
    if (workgroup >= {{ workgroups }}) {
        return;
    }
    let local = i32(local_index);
    let tile = workgroup / HEADS;
    let c1 = workgroup - tile * HEADS;
{{ body }}
    let i1 = min(i0 + ROWS, rows) - 1;
    let thread_row = (local / 8) * {{ rows_per_thread }};
    let thread_group = local % 8;
{% if softmax %}
    if (local < ROWS) {
        row_max[local] = MASKED;
        row_sum[local] = 0.0f;
    }
{% endif %}
{% include "row_bounds.wgsl" %}
{{ exact_statements }}
{% for chunk in range(value_chunks) %}{% for i in range(rows_per_thread) %}
    var sum{{ chunk }}_{{ i }} = vec4<f32>(0.0f);
{% endfor %}{% endfor %}

    for (var j0 = 0; j0 < keys; j0 += KEYS) {
{% if masked %}
        let j1 = min(j0 + KEYS, keys) - 1;
{{ tile_statements }}
        if (!possible) {
            continue;
        }
{% endif %}
{% for i in range(rows_per_thread) %}
        var score{{ i }} = vec4<f32>(0.0f);
{% endfor %}
        for (var d0 = 0; d0 < {{ qk_width }}; d0 += CHUNK * 4) {
            for (var item = local; item < ROWS * CHUNK; item += THREADS) {
                let row = item / CHUNK;
                let d = d0 + (item % CHUNK) * 4;
                var element = vec4<f32>(0.0f);
                if (i0 + row < rows && d < {{ qk_width }}) {
                    element = query(c0, c1, i0 + row, d);
                }
                query_tile[row * PITCH + item % CHUNK] = element;
            }
            for (var item = local; item < KEYS * CHUNK; item += THREADS) {
                let row = item / CHUNK;
                let d = d0 + (item % CHUNK) * 4;
                var element = vec4<f32>(0.0f);
                if (j0 + row < keys && d < {{ qk_width }}) {
                    element = key(c0, c1, j0 + row, d);
                }
                key_tile[row * PITCH + item % CHUNK] = element;
            }
            workgroupBarrier();
            for (var step = 0; step < CHUNK; step++) {
{% for l in range(4) %}
                let k{{ l }} = key_tile[(thread_group * 4 + {{ l }}) * PITCH + step];
{% endfor %}
{% for i in range(rows_per_thread) %}
                let q{{ i }} = query_tile[(thread_row + {{ i }}) * PITCH + step];
                score{{ i }} += vec4<f32>(dot(q{{ i }}, k0), dot(q{{ i }}, k1), dot(q{{ i }}, k2), dot(q{{ i }}, k3));
{% endfor %}
            }
            workgroupBarrier();
        }

        let j = j0 + thread_group * 4;
        let inside = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
        // Groups beyond the last key read the last one, and do not count.
        let near = min(j, (keys - 1) & -4);
{% for i in range(rows_per_thread) %}
        let row{{ i }} = min(i0 + thread_row + {{ i }}, rows - 1);
        var kept{{ i }} = inside;
{% if masked %}
        if (!always) {
            kept{{ i }} = inside & keep(c0, c1, row{{ i }}, near, inside);
        }
{% endif %}
        weight_tile[(thread_row + {{ i }}) * PITCH + thread_group] = weigh(c0, c1, row{{ i }}, near, score{{ i }}, kept{{ i }});
{% endfor %}
        workgroupBarrier();
{% if softmax %}
        if (local < ROWS) {
            let before = row_max[local];
            var high = before;
            for (var step = 0; step < KEYS / 4; step++) {
                let s = weight_tile[local * PITCH + step];
                high = max(high, max(max(s.x, s.y), max(s.z, s.w)));
            }
            let scale = exp(max(before - high, -100.0f));
            var total = row_sum[local] * scale;
            for (var step = 0; step < KEYS / 4; step++) {
                let s = weight_tile[local * PITCH + step];
                let weight = select(exp(max(s - high, vec4<f32>(-100.0f))), vec4<f32>(0.0f), s <= vec4<f32>(MASKED));
                weight_tile[local * PITCH + step] = weight;
                total += (weight.x + weight.y) + (weight.z + weight.w);
            }
            row_max[local] = high;
            row_sum[local] = total;
            row_scale[local] = scale;
        }
        workgroupBarrier();
{% for i in range(rows_per_thread) %}
        let scale{{ i }} = row_scale[thread_row + {{ i }}];
{% for chunk in range(value_chunks) %}
        sum{{ chunk }}_{{ i }} *= scale{{ i }};
{% endfor %}{% endfor %}
{% endif %}
{% for chunk in range(value_chunks) %}

        for (var item = local; item < KEYS * 8; item += THREADS) {
            let row = item / 8;
            let d = {{ chunk * 32 }} + (item % 8) * 4;
            var element = vec4<f32>(0.0f);
            if (j0 + row < keys && d < {{ v_width }}) {
                element = value(c0, c1, j0 + row, d);
            }
            key_tile[row * PITCH + item % 8] = element;
        }
        workgroupBarrier();
        for (var step = 0; step < KEYS / 4; step++) {
{% for l in range(4) %}
            let v{{ l }} = key_tile[(step * 4 + {{ l }}) * PITCH + thread_group];
{% endfor %}
{% for i in range(rows_per_thread) %}
            let w{{ i }} = weight_tile[(thread_row + {{ i }}) * PITCH + step];
            sum{{ chunk }}_{{ i }} += w{{ i }}.x * v0;
            sum{{ chunk }}_{{ i }} += w{{ i }}.y * v1;
            sum{{ chunk }}_{{ i }} += w{{ i }}.z * v2;
            sum{{ chunk }}_{{ i }} += w{{ i }}.w * v3;
{% endfor %}
        }
        workgroupBarrier();
{% endfor %}
    }
{% if softmax %}

    workgroupBarrier();
{% endif %}
{% for i in range(rows_per_thread) %}

    if (i0 + thread_row + {{ i }} < rows) {
{% if softmax %}
        let total = row_sum[thread_row + {{ i }}];
        let part = select(0.0f, 1.0f / total, total > 0.0f);
{% endif %}
{% for chunk in range(value_chunks) %}
        if ({{ chunk * 32 }} + thread_group * 4 < {{ v_width }}) {
            finish(c0, c1, i0 + thread_row + {{ i }}, {{ chunk * 32 }} + thread_group * 4, sum{{ chunk }}_{{ i }}{% if softmax %} * part{% endif %});
        }
{% endfor %}
    }
{% endfor %}
}
