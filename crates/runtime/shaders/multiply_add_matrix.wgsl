// Multiply-adds of cooperative matrices in registers: the rate that f16 matmuls are measured against.
//
// Bindings: params (uniform, zeros), operand_0 (read), output_0 (read_write): one vector each. A subgroup does eight products
// of SIZE x SIZE matrices in each of 128 rounds, into sums that do not wait for each other.

enable f16;
enable wgpu_cooperative_matrix;

const SIZE = {{ size }};
const VECTORS = SIZE * SIZE / 4;

@group(0) @binding(0) var<uniform> params: array<vec4<i32>, 1>;
@group(0) @binding(1) var<storage, read> operand_0: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> output_0: array<vec4<f32>>;

var<workgroup> operands: array<vec4<f16>, 6 * VECTORS>;
var<workgroup> sums: array<vec4<f32>, 8 * VECTORS>;

@compute @workgroup_size({{ threads }})
fn main(@builtin(local_invocation_index) local: u32) {
    for (var at = local; at < 6u * u32(VECTORS); at += {{ threads }}u) {
        operands[at] = vec4<f16>(operand_0[0] * f32(at));
    }
    workgroupBarrier();
{% for i in range(2) %}
    let left{{ i }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, A>>(&operands[{{ i }} * VECTORS], u32(SIZE / 4));
{% endfor %}
{% for j in range(4) %}
    let right{{ j }} = coopLoadT<coop_mat{{ size }}x{{ size }}<f16, B>>(&operands[{{ 2 + j }} * VECTORS], u32(SIZE / 4));
{% endfor %}
{% for n in range(8) %}
    var sum{{ n }} = coop_mat{{ size }}x{{ size }}<f32, C>();
{% endfor %}
    for (var round = 0; round < 128; round += 1) {
{% for n in range(8) %}
        sum{{ n }} = coopMultiplyAdd(left{{ n % 2 }}, right{{ n // 2 }}, sum{{ n }});
{% endfor %}
    }
    // Never true, which a compiler cannot know: nothing is written, and nothing is left out.
    if (params[0].x == 1) {
        let pitch = u32(SIZE / 4);
{% for n in range(8) %}
        let at{{ n }} = {{ n }}u * u32(VECTORS);
        coopStoreT(sum{{ n }}, &sums[at{{ n }}], pitch);
{% endfor %}
        workgroupBarrier();
        output_0[0] = sums[local];
    }
}
