//! The self-test that goes before the first use of a device's cooperative matrices.

use super::{Model, ModelOptions};
use crate::{Gpu, Inputs, Kernel, RuntimeError};
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::emit::Target;
use rewire_graph_rewrite::plan::{Plan, Precision};
use rewire_graph_rewrite::{lower, optimize};
use std::pin::Pin;

const ROWS: usize = 37;
const DEPTH: usize = 48;
const COLUMNS: usize = 40;

/// The device, without its cooperative matrices, or without their sums of halves, where a product of them is wrong: drivers offer
/// broken ones.
///
/// Tests once a device, and only where the plan stores halves.
pub(super) async fn tested(gpu: Gpu, plan: &Plan) -> Gpu {
    let halves = plan.buffers.iter().any(|buffer| buffer.dtype == DType::F16);
    if gpu.target().matrix == 0 || !halves {
        return gpu;
    }
    let [right, right_in_halves] = match gpu.matrices_tested() {
        Some(right) => right,
        None => {
            let right = is_right(&gpu, DType::F32).await;
            let right_in_halves = right && gpu.target().half_sums && is_right(&gpu, DType::F16).await;
            if !right {
                tracing::warn!("{}: cooperative matrices are off, a product of them was wrong", gpu.name());
            } else if gpu.target().half_sums && !right_in_halves {
                tracing::warn!("{}: sums of halves are off, a product with them was wrong", gpu.name());
            }
            gpu.set_matrices_tested([right, right_in_halves])
        }
    };
    let target = gpu.target();
    let (matrix, half_sums) = (if right { target.matrix } else { 0 }, right_in_halves);
    match (matrix, half_sums) == (target.matrix, target.half_sums) {
        true => gpu,
        false => gpu.restricted(&Target { matrix, half_sums, ..target.clone() }),
    }
}

/// Whether a product of whole numbers, different in every row and column, is exact with sums of a type, which holds them all.
async fn is_right(gpu: &Gpu, sums: DType) -> bool {
    let number = |n: usize, factor: usize, modulus: usize| ((n * factor) % modulus) as f64 - (modulus / 2) as f64;
    let left: Vec<f64> = (0..ROWS * DEPTH).map(|n| number(n, 7, 11)).collect();
    let right: Vec<f64> = (0..DEPTH * COLUMNS).map(|n| number(n, 5, 13)).collect();
    let element = |n: usize| (0..DEPTH).map(|k| left[n / COLUMNS * DEPTH + k] * right[k * COLUMNS + n % COLUMNS]).sum();
    let expected: Vec<f64> = (0..ROWS * COLUMNS).map(element).collect();
    product(gpu, [&left, &right], sums).await.is_some_and(|product| product == expected)
}

fn plan(sums: DType) -> Option<Plan> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F16, &[ROWS.into(), DEPTH.into()]);
    let w = scope.input("w", DType::F16, &[DEPTH.into(), COLUMNS.into()]);
    let graph = scope.finish(&[("y", x.matmul(&w))]).ok()?;
    let mut plan = lower(&optimize(graph).ok()?.0).ok()?;
    plan.store(Precision { sums: Some(sums), ..Precision::default() }, |_| false);
    Some(plan)
}

/// A model of its own, boxed, since loading a model is what asks for the test.
fn load(gpu: Gpu, plan: Plan) -> Pin<Box<dyn Future<Output = Result<Model, RuntimeError>> + Send>> {
    let options = ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..ModelOptions::default() };
    Box::pin(Model::load_async(plan, (), options))
}

async fn product(gpu: &Gpu, [left, right]: [&[f64]; 2], sums: DType) -> Option<Vec<f64>> {
    let mut session = load(gpu.untested(), plan(sums)?).await.ok()?.session();
    let inputs = Inputs::new()
        .with("x", HostTensor::from_f64(DType::F16, vec![ROWS, DEPTH], left).ok()?)
        .with("w", HostTensor::from_f64(DType::F16, vec![DEPTH, COLUMNS], right).ok()?);
    Some(session.run_async(&inputs).await.ok()?.get("y")?.to_f64())
}
