//! Kernels stay within the WebGPU baseline, and use more where there is more.

use rewire_graph_rewrite::emit::{Target, Tuning, emit};
use rewire_runtime::{Kernel, SessionOptions};
use rewire_tests::backend::{load, oracle, plain_gpu, plan, run};
use rewire_tests::build::build;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::program::{Program, hold};

fn rich() -> Target {
    let (storage_buffers, workgroup_bytes, invocations, binding_bytes) = (64, 48 << 10, 1024, 2 << 30);
    Target { f16: true, subgroups: true, storage_buffers, workgroup_bytes, invocations, binding_bytes }
}

fn emits(program: &Program, target: &Target) -> Result<(), String> {
    for step in plan(&build(program)?.graph)?.steps {
        emit(&step.kernel, target, &Tuning::default()).map_err(|error| format!("{}: {error}", step.name))?;
    }
    Ok(())
}

#[test]
fn every_kernel_validates_within_the_baseline() {
    hold(60, 10, |program| emits(program, &Target::BASELINE));
}

#[test]
fn every_kernel_validates_on_a_large_device() {
    hold(60, 10, |program| emits(program, &rich()));
}

#[test]
fn a_device_without_features_computes_the_same() {
    let Some(gpu) = plain_gpu() else { return };
    hold(40, 9, |program| {
        let case = build(program)?;
        let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
        let options =
            SessionOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), checked: true, ..SessionOptions::default() };
        let mut session = load(&case.graph, &case.parameters, options)?;
        let actual = run(&mut session, &case.inputs)?;
        let found = differences(&actual, &expected, Tolerance::SINGLE);
        if found.is_empty() { Ok(()) } else { Err(format!("{}\n{}", found.join("\n"), case.graph.text())) }
    });
}

#[test]
fn unchecked_shaders_compute_the_same() {
    let Some(gpu) = rewire_tests::backend::gpu() else { return };
    hold(40, 9, |program| {
        let case = build(program)?;
        let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
        let options = SessionOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..SessionOptions::default() };
        let actual = run(&mut load(&case.graph, &case.parameters, options)?, &case.inputs)?;
        let found = differences(&actual, &expected, Tolerance::SINGLE);
        if found.is_empty() { Ok(()) } else { Err(format!("{}\n{}", found.join("\n"), case.graph.text())) }
    });
}
