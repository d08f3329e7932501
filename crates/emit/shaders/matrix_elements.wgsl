// What WGSL cannot say of cooperative matrices. Calls of these functions become instructions, and their bodies never run: see
// `spirv` in `crates/emit`. An operation on every element is a function `matrix_each_NAME` beside its `NAME`.
fn matrix_to_f16(sums: coop_mat{{ size }}x{{ size }}<f32, C>) -> coop_mat{{ size }}x{{ size }}<f16, C> {
    return coop_mat{{ size }}x{{ size }}<f16, C>();
}

fn matrix_to_f32(values: coop_mat{{ size }}x{{ size }}<f16, C>) -> coop_mat{{ size }}x{{ size }}<f32, C> {
    return coop_mat{{ size }}x{{ size }}<f32, C>();
}

fn matrix_to_left(sums: coop_mat{{ size }}x{{ size }}<f16, C>) -> coop_mat{{ size }}x{{ size }}<f16, A> {
    return coop_mat{{ size }}x{{ size }}<f16, A>();
}

fn subgroup_uniform(condition: bool) -> bool {
    return true;
}

