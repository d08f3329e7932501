//! Kernels of golden cases through naga's writers for Metal, Direct3D 12 and Vulkan.

use crate::emitted::{cases, plans};
use naga::back::{hlsl::ShaderModel, spv};
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use rewire_emit::{EmitError, emit};
use rewire_graph_rewrite::device::{SubgroupSizes, Target, Tuning};
use rewire_tests::golden::stored;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};
use writers::{hlsl, to_hlsl, to_metal};

#[path = "../../../crates/emit/tests/emission/writers.rs"]
mod writers;

type Writer = fn(&naga::Module, &ModuleInfo) -> Result<(), String>;

/// What WebGPU has at least, an Apple GPU by Metal with matrices of 8 by 8, Direct3D 12 with subgroups of 4 to 128, and RDNA 3 by Vulkan
/// with subgroups of 32 or 64 and matrices of 16 by 16.
fn targets() -> [(&'static str, Target, &'static [Writer]); 4] {
    let offered =
        Target { f16: true, subgroups: true, workgroup_bytes: 32 << 10, invocations: 1024, ..Target::BASELINE };
    let apple = Target { subgroup_size: SubgroupSizes::fixed(32), matrix: 8, registers: 60, ..offered.clone() };
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

fn parse(wgsl: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|error| error.emit_to_string(wgsl))?;
    Ok((module, info))
}

fn translate(wgsl: &str, writers: &[Writer]) -> Result<(), String> {
    let (module, info) = parse(wgsl)?;
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

/// Operations that vkd3d's compiler lacks: atomics of storage buffers, which store f16 without `shader-f16`.
const MISSING: &str = "is not defined on type 'RWByteAddressBuffer'";

/// Kernels of each schedule that are compiled, which takes a second each.
const MOST: usize = 8;

/// True if the compiler takes a shader, false if the shader needs what the compiler lacks.
fn compiles(call: &str, shader: &str) -> Result<bool, String> {
    let mut call = call.split_whitespace();
    let mut compiler = Command::new(call.next().unwrap());
    compiler.args(call).args(["-x", "hlsl", "-p", "cs_5_1", "-e", "main", "-b", "dxbc-tpf"]);
    let mut child = compiler.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(shader.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(true),
        false if text.contains(MISSING) => Ok(false),
        false => Err(text),
    }
}

#[test]
#[ignore = "needs vkd3d-compiler; `cargo xtask families tested` runs it"]
fn the_compiler_of_vkd3d_takes_kernels_of_every_schedule() {
    let call = std::env::var("REWIRE_TEST_VKD3D").expect("REWIRE_TEST_VKD3D has the command of vkd3d-compiler");
    let mut cases = stored();
    cases.dedup_by(|one, other| one.parent() == other.parent());
    let (mut known, mut schedules, mut taken) = (HashSet::new(), BTreeMap::new(), 0);
    for path in cases {
        let (_, plans) = plans(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for step in plans.iter().flat_map(|plan| &plan.steps) {
            let Ok(kernel) = emit(&step.computation, &Target::BASELINE, &Tuning::default()) else { continue };
            let count = schedules.entry(step.computation.schedule().map(|schedule| schedule.name())).or_insert(0);
            if *count == MOST || !known.insert(kernel.wgsl.clone()) {
                continue;
            }
            *count += 1;
            let shader = parse(&kernel.wgsl).and_then(|(module, info)| hlsl(&module, &info, ShaderModel::V5_1));
            let compiled = shader.and_then(|shader| compiles(&call, &shader));
            taken += usize::from(compiled.unwrap_or_else(|e| panic!("{}, {}: {e}", path.display(), step.name)));
        }
    }
    eprintln!("{taken} of {} kernels compile: {schedules:?}", known.len());
    assert!(
        schedules.len() > 4 && 2 * taken > known.len(),
        "{taken} of {} kernels compile: {schedules:?}",
        known.len()
    );
}
