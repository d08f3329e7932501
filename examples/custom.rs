//! A scalar function of your own: WGSL for GPUs and Rust for the CPU. It becomes a part of the kernel around it.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example custom
//! ```

use rewire::graph::op::Call;
use rewire::graph::pointwise::ScalarFunction;
use rewire::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::error::Error;

/// `x / (scale + |x|)`.
#[derive(Debug, Serialize, Deserialize)]
struct Softsign {
    scale: f32,
}

impl ScalarFunction for Softsign {
    fn name(&self) -> &str {
        "softsign"
    }

    fn attributes(&self) -> Value {
        json!(self)
    }

    fn arguments(&self) -> usize {
        1
    }

    fn wgsl(&self) -> String {
        format!("fn softsign(x: f32) -> f32 {{ return x / ({:?}f + abs(x)); }}", self.scale)
    }

    fn evaluate(&self, x: &[f32]) -> f32 {
        x[0] / (self.scale + x[0].abs())
    }
}

/// Runs a matmul with the function behind it from a stored plan, on the CPU, and on a GPU if there is one.
pub fn main() -> Result<(), Box<dyn Error>> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, (scope.size("rows"), 2));
    let weight = scope.parameter("weight", DType::F32, [3, 2]);
    let y = scope.apply(Call::new(Softsign { scale: 2.0 }), &[&x.linear(&weight, None)]);
    let plan = rewire::lower(&rewire::optimize(scope.finish(&[("y", y)])?)?.0)?;
    println!("{} kernel", plan.steps.len());

    let stored = serde_json::to_string(&plan)?;
    for kernel in [Kernel::Cpu, Kernel::Auto] {
        let registry = Registry::new().with_function::<Softsign>("softsign");
        let options = ModelOptions { kernel, registry, ..ModelOptions::default() };
        let weight = HostTensor::f32([3, 2], &[1.0, 0.0, 0.0, 1.0, -1.0, -1.0])?;
        let model = Model::load(serde_json::from_str(&stored)?, [("weight", weight)], options)?;
        let inputs = Inputs::new().with("x", HostTensor::f32([2, 2], &[2.0, 6.0, -1.0, 0.0])?);
        let outputs = model.session().run(&inputs)?;
        println!("{kernel}: {:.3?}", outputs.get("y").map(HostTensor::to_f32).unwrap_or_default());
    }
    Ok(())
}
