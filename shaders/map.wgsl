// Pointwise: outputs[...] = f(loads) at every point of a loop.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A thread computes groups of four neighbouring points of the last coordinate, or one point where nothing aligns.

{{ declarations -}}
{{ hooks -}}
@compute @workgroup_size({{ threads }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let workgroup = i32(group.x + group.y * groups.x);
    if (workgroup >= {{ workgroups }}) {
        return;
    }
{{ body }}
}
