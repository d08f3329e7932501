{{ operator }}

// An operator of a user's own, above, called for every invocation of every workgroup.
//
// Bindings: params (uniform), sizes and operand_N (read), output_0 (read_write), behind functions that take logical indices.

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
    {{ run }}(workgroup, i32(local));
}
