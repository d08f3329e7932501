//! State that a session keeps between runs: a moving average per feature, saved to a file and continued by another session.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example states
//! ```

use rewire::prelude::*;
use rewire::weights::{Weights, serialize};
use std::error::Error;

const FEATURES: usize = 3;

/// The mean of every feature, and the average that a run continues: `0.9 average + 0.1 mean`.
fn trace() -> Result<Graph, rewire::GraphError> {
    let scope = Scope::new();
    let rows = scope.input("rows", DType::F32, (scope.size("count"), FEATURES));
    let average = scope.state("average", DType::F32, [1, FEATURES]);
    let next = &average * 0.9 + rows.mean(0) * 0.1;
    scope.set_state("average", &next);
    scope.finish(&[("centred", rows - &next)])
}

/// Rows that differ from run to run.
fn rows(run: usize) -> Result<Inputs, Box<dyn Error>> {
    let rows = HostTensor::generate([2, FEATURES], {
        let mut n = 0;
        move || {
            n += 1;
            (run * n) as f32
        }
    })?;
    Ok(Inputs::new().with("rows", rows))
}

/// Runs one session three times, and another twice more from its state.
pub fn main() -> Result<(), Box<dyn Error>> {
    let plan = rewire::lower(&rewire::optimize(trace()?)?.0)?;
    let model = Model::load(plan, (), ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() })?;
    let mut session = model.session();
    for run in 1..=3 {
        session.run(&rows(run)?)?;
        println!("run {run}: {:.3?}", session.state("average")?.to_f32());
    }

    let file = serialize(&session.states()?, &Default::default())?;
    let (saved, mut other) = (Weights::parse(file)?, model.session());
    for name in saved.names() {
        other.set_state(name, saved.get(name)?.ok_or("a state is missing")?)?;
    }
    for run in 4..=5 {
        other.run(&rows(run)?)?;
        println!("run {run}: {:.3?}", other.state("average")?.to_f32());
    }
    println!("the first session still has {:.3?}", session.state("average")?.to_f32());
    Ok(())
}
