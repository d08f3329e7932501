// Copies `source` to `target`, four vectors a thread: the bandwidth that other kernels are measured against.
//
// Bindings: params (uniform, unused), operand_0 (read), output_0 (read_write). Both have a multiple of 1024 vectors.

@group(0) @binding(0) var<uniform> params: array<vec4<i32>, 1>;
@group(0) @binding(1) var<storage, read> operand_0: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> output_0: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let first = group.x * 1024u + local;
    output_0[first] = operand_0[first];
    output_0[first + 256u] = operand_0[first + 256u];
    output_0[first + 512u] = operand_0[first + 512u];
    output_0[first + 768u] = operand_0[first + 768u];
}
