//! The host's work for a run of the demo model on a device that computes nothing.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use rewire::prelude::{Inputs, Kernel, Model, ModelOptions};
use rewire::rank::read_config;
use rewire::{Mapping, lower, optimize};
use rewire_benches::idle_gpu;
use rewire_measure::{Lengths, Shape, Workload};
use std::path::Path;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/demo/model");
const RESULT: &str = "logits";

/// The model with random weights and one user.
fn workload(seed: u64) -> Workload {
    let config = read_config(Path::new(DEMO), Mapping::default()).unwrap();
    let shape = Shape { batch: 1, max_len: 64, len_dist: Lengths::Uniform(8, 64), seed, ..Shape::default() };
    Workload::model("demo", &config, None, &shape).unwrap()
}

fn inputs(seed: u64) -> Inputs {
    let mut inputs: Inputs = workload(seed).inputs.into_iter().collect();
    inputs.keep_on_device(RESULT);
    inputs
}

fn overhead(criterion: &mut Criterion) {
    let gpu = idle_gpu();
    let workload = workload(0);
    let plan = lower(&optimize(workload.graph().unwrap().clone()).unwrap().0).unwrap();
    let options = ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..ModelOptions::default() };
    let mut session = Model::load(plan, &workload.parameters, options).unwrap().session();
    let kernels = session.report().gpu_steps;
    let mut group = criterion.benchmark_group(format!("host of {kernels} kernels"));
    for (name, users) in [("one size", 1), ("sizes that change", 16)] {
        let inputs: Vec<Inputs> = (0..users).map(inputs).collect();
        let mut turn = inputs.iter().cycle();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let outputs = turn.next().map(|inputs| session.run(inputs).unwrap());
                gpu.wait().unwrap();
                outputs
            });
        });
    }
    group.finish();
}

criterion_group!(host, overhead);
criterion_main!(host);
