//! Kernels of golden cases through naga's writers for Metal, Direct3D 12 and Vulkan.

use crate::emitted::{cases, plans};
use naga::back::spv;
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use rewire_emit::{EmitError, emit};
use rewire_graph_rewrite::device::{SubgroupSizes, Target, Tuning};
use std::collections::HashSet;
use writers::{to_hlsl, to_metal};

#[path = "../../../crates/emit/tests/emission/writers.rs"]
mod writers;

type Writer = fn(&naga::Module, &ModuleInfo) -> Result<(), String>;

/// What WebGPU has at least, an Apple GPU by Metal with matrices of 8 by 8, Direct3D 12 with subgroups of 4 to 128, and RDNA 3 by Vulkan
/// with subgroups of 32 or 64 and matrices of 16 by 16.
fn targets() -> [(&'static str, Target, &'static [Writer]); 4] {
    let offered =
        Target { f16: true, subgroups: true, workgroup_bytes: 32 << 10, invocations: 1024, ..Target::BASELINE };
    let apple = Target { subgroup_size: SubgroupSizes::fixed(32), matrix: 8, registers: 76, ..offered.clone() };
    let direct3d = Target { subgroup_size: SubgroupSizes { min: 4, max: 128 }, ..offered.clone() };
    let rdna = Target { subgroup_size: SubgroupSizes { min: 32, max: 64 }, matrix: 16, registers: 192, ..offered };
    [
        ("baseline", Target::BASELINE, &[to_metal, to_hlsl]),
        ("Metal", apple, &[to_metal]),
        ("Direct3D 12", direct3d, &[to_hlsl]),
        ("RDNA 3", rdna, &[to_spirv]),
    ]
}

fn to_spirv(module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    let options = spv::Options { lang_version: (1, 6), fake_missing_bindings: true, ..Default::default() };
    spv::write_vec(module, info, &options, None).map(drop).map_err(|error| error.to_string())
}

fn translate(wgsl: &str, writers: &[Writer]) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|error| error.emit_to_string(wgsl))?;
    writers.iter().try_for_each(|write| write(&module, &info))
}

#[test]
fn metal_direct3d_and_vulkan_take_the_kernels_of_golden_cases() {
    let (mut known, mut with_matrices) = (HashSet::new(), 0);
    for path in cases(false) {
        let (_, plans) = plans(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for step in plans.iter().flat_map(|plan| &plan.steps) {
            for (name, target, writers) in targets() {
                let wgsl = match emit(&step.computation, &target, &Tuning::default()) {
                    Ok(kernel) => kernel.wgsl,
                    // The runtime splits a step of more bindings than there are.
                    Err(EmitError::Limit { .. }) => continue,
                    Err(error) => panic!("{}, {} for {name}: {error}", path.display(), step.name),
                };
                if known.insert(wgsl.clone()) {
                    translate(&wgsl, writers)
                        .unwrap_or_else(|e| panic!("{}, {}: {e}\n{wgsl}", path.display(), step.name));
                    with_matrices += usize::from(wgsl.contains("coopMultiplyAdd"));
                }
            }
        }
    }
    assert!(known.len() > 500 && with_matrices > 5, "{} kernels, {with_matrices} on matrices", known.len());
}
