//! Stored cases of the reference implementation, on every backend.

use rewire_graph_rewrite::optimize;
use rewire_runtime::Kernel;
use rewire_tests::backend::{gpu, oracle, run, session};
use rewire_tests::golden::{Golden, cases, hold, third};

fn check(golden: &Golden, backend: Option<Kernel>) -> Result<(), String> {
    let replay = golden.trace()?;
    let (inputs, parameters) = (golden.inputs(&replay.graph), golden.parameters(&replay.graph));
    let results = match backend {
        None => {
            let (fused, _) = optimize(replay.graph.clone()).map_err(|error| format!("optimize: {error}"))?;
            oracle(&fused, &inputs, &parameters)?
        }
        Some(kernel) => {
            let Some(mut session) = session(&replay.graph, &parameters, kernel)? else { return Ok(()) };
            run(&mut session, &inputs)?
        }
    };
    let relative = match (replay.exact, golden.half) {
        (true, _) => 0.0,
        (_, true) => 3e-3,
        _ => 2e-5,
    };
    let found = golden.differences(&results, relative);
    if found.is_empty() { Ok(()) } else { Err(found.join("\n  ")) }
}

#[test]
fn the_interpreter_meets_the_golden_cases() {
    hold(&cases(), |golden| check(golden, None));
}

#[test]
fn the_cpu_meets_the_golden_cases() {
    hold(&cases(), |golden| check(golden, Some(Kernel::Cpu)));
}

#[test]
fn the_gpu_meets_the_golden_cases() {
    if gpu().is_some() {
        hold(&third(), |golden| check(golden, Some(Kernel::Wgpu)));
    }
}
