// Copies rows of words: for every pair, row `x` of the source becomes row `y` of the target.
//
// Bindings: params (uniform, unused), operand_0 (read, the source), operand_1 (read, the pairs after one of the words of
// a row and the number of pairs), output_0 (read_write, the target).

@group(0) @binding(0) var<uniform> params: array<vec4<i32>, 1>;
@group(0) @binding(1) var<storage, read> operand_0: array<u32>;
@group(0) @binding(2) var<storage, read> operand_1: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> output_0: array<u32>;

@compute @workgroup_size(256)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let words = operand_1[0].x;
    let all = operand_1[0].y * words;
    for (var at = id.x; at < all; at += groups.x * 256u) {
        let pair = operand_1[1u + at / words];
        output_0[pair.y * words + at % words] = operand_0[pair.x * words + at % words];
    }
}
