//! The self-test that goes before the first use of a device's cooperative matrices.

use super::{Model, ModelOptions};
use crate::{Gpu, Inputs, Kernel, RuntimeError};
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::emit::Target;
use rewire_graph_rewrite::plan::Plan;
use rewire_graph_rewrite::{lower, optimize};
use std::pin::Pin;

const ROWS: usize = 37;
const DEPTH: usize = 48;
const COLUMNS: usize = 40;

/// The device, without its cooperative matrices where a product of them is wrong: drivers offer broken ones.
///
/// Tests once a device, and only where the plan stores halves.
pub(super) async fn tested(gpu: Gpu, plan: &Plan) -> Gpu {
    let halves = plan.buffers.iter().any(|buffer| buffer.dtype == DType::F16);
    if gpu.target().matrix == 0 || !halves {
        return gpu;
    }
    let right = match gpu.matrices_tested() {
        Some(right) => right,
        None => {
            let right = is_right(&gpu).await;
            if !right {
                tracing::warn!("{}: cooperative matrices are off, a product of them was wrong", gpu.name());
            }
            gpu.set_matrices_tested(right)
        }
    };
    if right { gpu } else { gpu.restricted(&Target { matrix: 0, ..gpu.target().clone() }) }
}

/// Whether a product of whole numbers, different in every row and column, is exact.
async fn is_right(gpu: &Gpu) -> bool {
    let number = |n: usize, factor: usize, modulus: usize| ((n * factor) % modulus) as f64 - (modulus / 2) as f64;
    let left: Vec<f64> = (0..ROWS * DEPTH).map(|n| number(n, 7, 11)).collect();
    let right: Vec<f64> = (0..DEPTH * COLUMNS).map(|n| number(n, 5, 13)).collect();
    let element = |n: usize| (0..DEPTH).map(|k| left[n / COLUMNS * DEPTH + k] * right[k * COLUMNS + n % COLUMNS]).sum();
    let expected: Vec<f64> = (0..ROWS * COLUMNS).map(element).collect();
    product(gpu, &left, &right).await.is_some_and(|product| product == expected)
}

fn plan() -> Option<Plan> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F16, &[ROWS.into(), DEPTH.into()]);
    let w = scope.input("w", DType::F16, &[DEPTH.into(), COLUMNS.into()]);
    let graph = scope.finish(&[("y", x.matmul(&w))]).ok()?;
    lower(&optimize(graph).ok()?.0).ok()
}

/// A model of its own, boxed, since loading a model is what asks for the test.
fn load(gpu: Gpu, plan: Plan) -> Pin<Box<dyn Future<Output = Result<Model, RuntimeError>> + Send>> {
    let options = ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..ModelOptions::default() };
    Box::pin(Model::load_async(plan, (), options))
}

async fn product(gpu: &Gpu, left: &[f64], right: &[f64]) -> Option<Vec<f64>> {
    let mut session = load(gpu.untested(), plan()?).await.ok()?.session();
    let inputs = Inputs::new()
        .with("x", HostTensor::from_f64(DType::F16, vec![ROWS, DEPTH], left).ok()?)
        .with("w", HostTensor::from_f64(DType::F16, vec![DEPTH, COLUMNS], right).ok()?);
    Some(session.run_async(&inputs).await.ok()?.get("y")?.to_f64())
}
