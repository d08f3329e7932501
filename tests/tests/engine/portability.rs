//! Kernels stay within the WebGPU baseline, and use more if the device offers more.

use rewire_emit::emit;
use rewire_graph_rewrite::device::{ReductionTile, SubgroupSizes, Target, ThreadTile, Tile, Tuning};
use rewire_runtime::ModelOptions;
use rewire_tests::backend::{gpu, load, on, oracle, plan, run};
use rewire_tests::build::build;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::program::{Program, compiled, hold};

fn rich() -> Target {
    let (storage_buffers, workgroup_bytes, invocations, binding_bytes) = (64, 48 << 10, 1024, 2 << 30);
    let (subgroup_size, matrix) = (SubgroupSizes::fixed(32), 16);
    Target {
        f16: true,
        int64: true,
        subgroups: true,
        subgroup_size,
        matrix,
        half_sums: true,
        matrix_elements: true,
        workgroup_matrices: invocations,
        integers: true,
        multiprocessors: 132,
        registers: 255,
        software: false,
        storage_buffers,
        workgroup_bytes,
        invocations,
        binding_bytes,
    }
}

fn emits(program: &Program, target: &Target) -> Result<(), String> {
    for step in plan(&build(program)?.graph)?.steps {
        emit(&step.computation, target, &Tuning::default()).map_err(|error| format!("{}: {error}", step.name))?;
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

/// Checks that a device computes the interpreter's results.
fn computes(cases: u32, options: &ModelOptions) {
    hold(compiled(cases), 9, |program| {
        let case = build(program)?;
        let expected = oracle(&case.graph, &case.inputs, &case.parameters)?;
        let mut session = load(&case.graph, &case.parameters, options.clone())?;
        let actual = run(&mut session, &case.inputs)?;
        let found = differences(&actual, &expected, Tolerance::SINGLE);
        if found.is_empty() { Ok(()) } else { Err(format!("{}\n{}", found.join("\n"), case.graph.text())) }
    });
}

#[test]
fn the_baseline_computes_the_same() {
    if let Some(gpu) = gpu() {
        computes(15, &on(gpu.restricted(&Target::BASELINE)));
    }
}

#[test]
fn each_feature_may_be_missing() {
    let Some(gpu) = gpu() else { return };
    let full = gpu.target().clone();
    let missing = [
        Target { f16: false, ..full.clone() },
        Target { int64: false, ..full.clone() },
        Target { subgroups: false, ..full.clone() },
        // Kernels are right for every size of a range.
        Target { subgroup_size: SubgroupSizes { min: 4, max: 64 }, ..full.clone() },
        Target { registers: 0, ..full.clone() },
        Target { matrix: 0, ..full.clone() },
        Target { storage_buffers: 8, ..full.clone() },
        Target { workgroup_bytes: 16 << 10, ..full.clone() },
        Target { invocations: 256, ..full.clone() },
    ];
    for target in missing {
        if target != full {
            computes(4, &on(gpu.restricted(&target)));
        }
    }
}

#[test]
fn workgroups_of_every_size_compute_the_same() {
    let Some(gpu) = gpu() else { return };
    for threads in [32, 128, 1024].into_iter().filter(|threads| *threads <= gpu.target().invocations) {
        let of_map = Tile::Map(ThreadTile { threads, groups_per_thread: 1, rows_per_thread: 1 });
        for tile in [of_map, Tile::Reduction(ReductionTile { threads })] {
            computes(5, &ModelOptions { tuning: tile.into(), ..on(gpu.clone()) });
        }
    }
}

#[test]
fn unchecked_shaders_compute_the_same() {
    if let Some(gpu) = gpu() {
        computes(15, &ModelOptions { checked: false, ..on(gpu) });
    }
}
