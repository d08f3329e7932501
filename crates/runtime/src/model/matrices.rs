//! The self-test that goes before the first use of a device's cooperative matrices.

use super::{Model, ModelOptions};
use crate::device::RightMatrices;
use crate::{Gpu, Inputs, Kernel, RuntimeError};
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::emit::Target;
use rewire_graph_rewrite::plan::{Plan, Precision};
use rewire_graph_rewrite::{lower, optimize};
use std::pin::Pin;

const ROWS: usize = 37;
const DEPTH: usize = 48;
const COLUMNS: usize = 40;
/// Of attention.
const LENGTHS: [usize; 2] = [37, 50];
const HEADS: usize = 2;
const WIDTH: usize = 25;

/// The device, without its cooperative matrices, or without their sums of halves or operations on their elements, where results of them
/// are wrong: drivers offer broken ones.
///
/// Tests once a device, and only where the plan stores halves.
pub(super) async fn tested(gpu: Gpu, plan: &Plan) -> Gpu {
    let halves = plan.buffers.iter().any(|buffer| buffer.dtype == DType::F16);
    if gpu.target().matrix == 0 || !halves {
        return gpu;
    }
    let right = match gpu.matrices_tested() {
        Some(right) => right,
        None => gpu.set_matrices_tested(test(&gpu).await),
    };
    let target = gpu.target();
    let usable = Target {
        matrix: if right.products { target.matrix } else { 0 },
        half_sums: target.half_sums && right.half_sums,
        matrix_elements: target.matrix_elements && right.elements,
        ..target.clone()
    };
    if usable == *target { gpu } else { gpu.restricted(&usable) }
}

async fn test(gpu: &Gpu) -> RightMatrices {
    let products = is_right(gpu, DType::F32).await;
    let half_sums = products && gpu.target().half_sums && is_right(gpu, DType::F16).await;
    let elements = products && gpu.target().matrix_elements && attends_rightly(gpu).await;
    let warn = |what: &str, is_right: bool| {
        if !is_right {
            tracing::warn!("{}: {what} are off, results of them were wrong", gpu.name());
        }
    };
    warn("cooperative matrices", products);
    warn("sums of halves", !products || !gpu.target().half_sums || half_sums);
    warn("operations on elements of matrices", !products || !gpu.target().matrix_elements || elements);
    RightMatrices { products, half_sums, elements }
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

/// Whether causal attention of whole numbers, different in every row, column and head, is exact: halves hold its products, weights and results.
async fn attends_rightly(gpu: &Gpu) -> bool {
    let rows: usize = LENGTHS.iter().sum();
    let number = |n: usize, factor: usize| (n * factor % 7 % 3) as f64 - 1.0;
    let [q, k, v] =
        [5, 11, 13].map(|factor| (0..rows * HEADS * WIDTH).map(|n| number(n, factor)).collect::<Vec<f64>>());
    let mut expected = vec![0.0; rows * HEADS * WIDTH];
    let mut first = 0;
    for length in LENGTHS {
        for (i, j) in (first..first + length).flat_map(|i| (first..=i).map(move |j| (i, j))) {
            for head in 0..HEADS {
                let (row, key) = ((i * HEADS + head) * WIDTH, (j * HEADS + head) * WIDTH);
                let product: f64 = (0..WIDTH).map(|d| q[row + d] * k[key + d]).sum();
                (0..WIDTH).for_each(|d| expected[row + d] += product.max(0.0) * v[key + d]);
            }
        }
        first += length;
    }
    attention(gpu, [&q, &k, &v]).await.is_some_and(|result| result == expected)
}

/// Attention whose weights are products that are not negative.
fn attention_plan() -> Option<Plan> {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", LENGTHS.len());
    let shape = [rows.total.clone(), HEADS.into(), WIDTH.into()];
    let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F16, &shape));
    let keep = rows.row_index(&rows, HEADS).ge(&rows.key_index(&rows, HEADS));
    let weights = keep.select(&q.scores(&k, &rows, &rows).maximum(0.0), &scope.scalar(DType::F32, 0.0));
    let graph = scope.finish(&[("y", weights.weighted_sum(&v, &rows, &rows))]).ok()?;
    lower(&optimize(graph).ok()?.0).ok()
}

async fn attention(gpu: &Gpu, [q, k, v]: [&[f64]; 3]) -> Option<Vec<f64>> {
    let mut session = load(gpu.untested(), attention_plan()?).await.ok()?.session();
    let shape = vec![LENGTHS.iter().sum(), HEADS, WIDTH];
    let tensor = |values| HostTensor::from_f64(DType::F16, shape.clone(), values).ok();
    let inputs = Inputs::new()
        .with("q", tensor(q)?)
        .with("k", tensor(k)?)
        .with("v", tensor(v)?)
        .with("lengths", HostTensor::lengths(&LENGTHS.map(|length| length as i64)));
    Some(session.run_async(&inputs).await.ok()?.get("y")?.to_f64())
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
