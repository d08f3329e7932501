// Multiply-adds in registers: the rate of arithmetic that other kernels are measured against.
//
// Bindings: params (uniform, unused), operand_0 (read), output_0 (read_write): one vector each. A thread does
// 32 multiply-adds in each of 128 rounds, in eight chains that do not wait for each other.

@group(0) @binding(0) var<uniform> params: array<vec4<i32>, 1>;
@group(0) @binding(1) var<storage, read> operand_0: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> output_0: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let factor = operand_0[0];
    let start = f32(local + group.x);
    var a = vec4<f32>(start);
    var b = vec4<f32>(start + 1.0f);
    var c = vec4<f32>(start + 2.0f);
    var d = vec4<f32>(start + 3.0f);
    var e = vec4<f32>(start + 4.0f);
    var f = vec4<f32>(start + 5.0f);
    var g = vec4<f32>(start + 6.0f);
    var h = vec4<f32>(start + 7.0f);
    for (var round = 0; round < 128; round += 1) {
        a = fma(a, factor, factor);
        b = fma(b, factor, factor);
        c = fma(c, factor, factor);
        d = fma(d, factor, factor);
        e = fma(e, factor, factor);
        f = fma(f, factor, factor);
        g = fma(g, factor, factor);
        h = fma(h, factor, factor);
    }
    let total = a + b + c + d + e + f + g + h;
    // Never true, which a compiler cannot know: nothing is written, and nothing is left out.
    if (total.x == -1.0f) {
        output_0[0] = total;
    }
}
