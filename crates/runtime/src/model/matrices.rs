//! The self-test that precedes the first use of a device's cooperative matrices.

use super::{Model, ModelOptions};
use crate::boxed::BoxedFuture;
use crate::device::{RareKernel, RightMatrices};
use crate::{Gpu, Inputs, Kernel, Matrices, RuntimeError, Session};
use rewire_emit::of_family;
use rewire_graph::{DType, Graph, HostTensor, Scope, Seed, differentiate};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::{Plan, Precision, Step};
use rewire_graph_rewrite::schedule::Schedule;
use rewire_graph_rewrite::{lower, optimize};

/// Rows, depth and columns of matmuls, and of matmuls with workgroup-scope matrices. For the latter, a tensor is added
/// to the first columns; the columns from `REST` on are a separate tensor.
const PRODUCT: [usize; 3] = [37, 48, 40];
const WORKGROUP_PRODUCT: [usize; 3] = [150, 72, 264];
const REST: usize = 128;
/// A matmul of integers, whose f16 results are divided by a scale.
const INTEGER_PRODUCT: [usize; 3] = [150, 80, 136];
const INTEGER_SCALE: f64 = 1024.0;
/// Shapes of attention. Kernels of narrow and of wide heads differ; software adapters compile the latter for minutes.
const LENGTHS: [usize; 2] = [37, 50];
const HEADS: usize = 2;
const NARROW: usize = 25;
const WIDE: usize = 100;

/// The device without the features whose results are wrong: its cooperative matrices, their f16 accumulators, or
/// operations on their elements. Some drivers offer features that do not work.
///
/// Tests once per device, and only if a kernel of the plan uses cooperative matrices; tests rare kernels if the plan
/// contains some.
pub(super) async fn tested(gpu: Gpu, plan: &Plan) -> Gpu {
    let kernels: Vec<&Step> = plan.steps.iter().filter(|step| is_cooperative(step, gpu.target())).collect();
    if kernels.is_empty() {
        return gpu;
    }
    let contains = |kernel| kernels.iter().any(|step| rare(step) == Some(kernel));
    let right = right(&gpu, contains).await;
    gpu.with_right_matrices(right)
}

impl Gpu {
    /// Runs the self-test of all matrix kernels now; otherwise it precedes the first use of each kind. Returns the tier that
    /// remains. The test runs once per device.
    ///
    /// ```no_run
    /// use rewire_runtime::{Gpu, MatrixReason, block_on};
    /// let matrices = block_on(Gpu::open(None)?.test_matrices());
    /// assert_ne!(matrices.reason, MatrixReason::WrongResults);
    /// # Ok::<(), rewire_runtime::GpuError>(())
    /// ```
    pub async fn test_matrices(&self) -> Matrices {
        if self.target().matrices_of_subgroups().is_some() {
            right(self, |_| true).await;
        }
        self.matrices()
    }
}

/// Which matrices pass the self-test, including those rare kernels that `contains` selects.
async fn right(gpu: &Gpu, contains: impl Fn(RareKernel) -> bool) -> RightMatrices {
    let right = match gpu.matrices_tested() {
        Some(right) => right,
        None => gpu.set_matrices_tested(test(gpu).await),
    };
    for kernel in [RareKernel::Gradients, RareKernel::Softmax] {
        if right.products && gpu.rare_tested(kernel).is_none() && contains(kernel) {
            let tested = gpu.clone().with_right_matrices(right);
            let (name, is_right) = match kernel {
                RareKernel::Gradients => ("gradients of attention", differentiates_rightly(&tested).await),
                RareKernel::Softmax => ("attention with a softmax", softens_rightly(&tested).await),
            };
            warn(gpu, &format!("cooperative matrices, for {name},"), gpu.set_rare_tested(kernel, is_right));
        }
    }
    gpu.matrices_tested().unwrap_or(right)
}

/// True if the kernel of a step uses cooperative matrices.
fn is_cooperative(step: &Step, target: &Target) -> bool {
    of_family(Tuning::default(), &step.computation, target).matrices == Some(true)
}

/// The kind of a step's kernel, if rare: sums over pairs other than attention are its gradients.
fn rare(step: &Step) -> Option<RareKernel> {
    match step.computation.schedule()? {
        Schedule::PairReduction(pairs) if pairs.softmax => Some(RareKernel::Softmax),
        Schedule::PairReduction(pairs) if pairs.attention().is_none() => Some(RareKernel::Gradients),
        _ => None,
    }
}

fn warn(gpu: &Gpu, what: &str, is_right: bool) {
    if !is_right {
        tracing::warn!("{}: {what} are disabled: the self-test computed wrong results", gpu.name());
    }
}

async fn test(gpu: &Gpu) -> RightMatrices {
    // Without the features that are tested later.
    let plain = gpu.restricted(&Target { matrix_elements: false, workgroup_matrices: 0, ..gpu.target().clone() });
    let multiplies = is_right(&plain, DType::F32, PRODUCT).await;
    let half_sums = multiplies && gpu.target().half_sums && is_right(&plain, DType::F16, PRODUCT).await;
    let shares = gpu.target().workgroup_matrices > 0;
    let elements = multiplies
        && gpu.target().matrix_elements
        && attends_rightly(gpu, NARROW).await
        && (gpu.target().software || attends_rightly(gpu, WIDE).await)
        && (!shares || shares_rightly(gpu).await);
    // Attention has a separate kernel if elements are not computed in registers.
    let products = multiplies && (elements || attends_rightly(&plain, NARROW).await);
    warn(gpu, "cooperative matrices", products);
    warn(gpu, "f16 accumulators", !products || !gpu.target().half_sums || half_sums);
    warn(gpu, "operations on elements of matrices", !products || !gpu.target().matrix_elements || elements);
    let integers = elements && gpu.target().multiplies_integers() && multiplies_integers_rightly(gpu).await;
    warn(gpu, "matrices of integers", !elements || !gpu.target().multiplies_integers() || integers);
    RightMatrices { products, half_sums: products && half_sums, elements, integers }
}

/// Integers that differ in every row and column.
fn numbers(count: usize, factor: usize, modulus: usize) -> Vec<f64> {
    (0..count).map(|n| ((n * factor) % modulus) as f64 - (modulus / 2) as f64).collect()
}

/// Operands of a matmul, and the result.
fn factors([rows, depth, columns]: [usize; 3]) -> [Vec<f64>; 3] {
    let (left, right) = (numbers(rows * depth, 7, 11), numbers(depth * columns, 5, 13));
    let element = |n: usize| (0..depth).map(|k| left[n / columns * depth + k] * right[k * columns + n % columns]).sum();
    let product = (0..rows * columns).map(element).collect();
    [left, right, product]
}

/// Whether a matmul is exact with accumulators of a type that represents all its sums.
async fn is_right(gpu: &Gpu, sums: DType, extents: [usize; 3]) -> bool {
    let [left, right, expected] = factors(extents);
    product(gpu, [&left, &right], sums, extents).await.is_some_and(|product| product == expected)
}

/// Whether a matmul with workgroup-scope matrices is exact, including the epilogue of its columns.
async fn shares_rightly(gpu: &Gpu) -> bool {
    let [rows, _, columns] = WORKGROUP_PRODUCT;
    let [left, right, product] = factors(WORKGROUP_PRODUCT);
    let more = numbers(rows * REST, 3, 17);
    let part = |start: usize, end: usize| {
        (0..rows).flat_map(move |row| (start..end).map(move |column| row * columns + column)).map(|n| product[n])
    };
    let sum: Vec<f64> = part(0, REST).zip(&more).map(|(product, more)| product + more).collect();
    let rest: Vec<f64> = part(REST, columns).collect();
    shared_product(gpu, [&left, &right, &more]).await == Some([sum, rest])
}

fn shared_plan() -> Option<Plan> {
    let [rows, depth, columns] = WORKGROUP_PRODUCT;
    let scope = Scope::new();
    let input = |name, shape: [usize; 2]| scope.input(name, DType::F16, &shape.map(Into::into));
    let product = input("x", [rows, depth]).matmul(&input("w", [depth, columns]));
    let sum = product.slice(1, 0, REST) + &input("more", [rows, REST]);
    let rest = product.slice(1, REST, columns - REST);
    let graph = scope.finish(&[("sum", sum.cast(DType::F16)), ("rest", rest.cast(DType::F16))]).ok()?;
    lower(&optimize(graph).ok()?.0).ok()
}

/// Whether a matmul of integers is exact.
async fn multiplies_integers_rightly(gpu: &Gpu) -> bool {
    let [rows, depth, columns] = INTEGER_PRODUCT;
    let (left, right) = (numbers(rows * depth, 7, 251), numbers(columns * depth, 5, 241));
    let element = |n: usize| -> f64 {
        let pair = |k: usize| left[n / columns * depth + k] * right[n % columns * depth + k];
        (0..depth).map(pair).sum::<f64>() / INTEGER_SCALE
    };
    let expected: Vec<f64> = (0..rows * columns).map(element).collect();
    let multiplied = async || {
        let mut session = load(gpu, integers_plan()?).await?;
        let tensor = |rows: usize, values| HostTensor::from_f64(DType::I8, vec![rows, depth], values).ok();
        let inputs = Inputs::new().with("x", tensor(rows, &left)?).with("w", tensor(columns, &right)?);
        Some(session.run_async(&inputs).await.ok()?.get("y")?.to_f64())
    };
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() <= expected.abs() / 1024.0;
    multiplied().await.is_some_and(|found| found.iter().zip(&expected).all(is_near))
}

fn integers_plan() -> Option<Plan> {
    let [rows, depth, columns] = INTEGER_PRODUCT;
    let scope = Scope::new();
    let input = |name, shape: [usize; 2]| scope.input(name, DType::I8, &shape.map(Into::into));
    let product = input("x", [rows, depth]).matmul(&input("w", [columns, depth]).transpose(0, 1));
    let scaled = &product * (1.0 / INTEGER_SCALE);
    let mut plan = lower(&optimize(scope.finish(&[("y", scaled.cast(DType::F16))]).ok()?).ok()?.0).ok()?;
    plan.store(Precision { sums: Some(DType::I32), ..Precision::default() }, |_| None);
    Some(plan)
}

async fn shared_product(gpu: &Gpu, [left, right, more]: [&[f64]; 3]) -> Option<[Vec<f64>; 2]> {
    let [rows, depth, columns] = WORKGROUP_PRODUCT;
    let mut session = load(gpu, shared_plan()?).await?;
    let tensor = |shape: [usize; 2], values| HostTensor::from_f64(DType::F16, shape.to_vec(), values).ok();
    let inputs = Inputs::new()
        .with("x", tensor([rows, depth], left)?)
        .with("w", tensor([depth, columns], right)?)
        .with("more", tensor([rows, REST], more)?);
    let outputs = session.run_async(&inputs).await.ok()?;
    Some([outputs.get("sum")?.to_f64(), outputs.get("rest")?.to_f64()])
}

fn plan(sums: DType, [rows, depth, columns]: [usize; 3]) -> Option<Plan> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F16, &[rows.into(), depth.into()]);
    let w = scope.input("w", DType::F16, &[depth.into(), columns.into()]);
    let graph = scope.finish(&[("y", x.matmul(&w))]).ok()?;
    let mut plan = lower(&optimize(graph).ok()?.0).ok()?;
    plan.store(Precision { sums: Some(sums), ..Precision::default() }, |_| None);
    Some(plan)
}

/// How attention weights are computed from dot products.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Weights {
    /// The dot products, which are not negative.
    Products,
    /// Softmax of scaled dot products, so that later keys outweigh earlier ones.
    Softmax,
}

/// Scale of dot products before the softmax.
const GAIN: f64 = 4.0;
/// The largest error of a softmax result.
const TOLERANCE: f64 = 4e-3;

/// Whether causal attention of whole numbers, different in every row, column and head, is exact: f16 holds its products, weights and results.
async fn attends_rightly(gpu: &Gpu, width: usize) -> bool {
    let (given, expected) = attended_exactly(width, Weights::Products);
    attention(gpu, width, Weights::Products, given).await.is_some_and(|result| result == expected)
}

/// Whether causal attention with a softmax is as exact as f16 is, with narrow and with wide heads.
async fn softens_rightly(gpu: &Gpu) -> bool {
    let widths = if gpu.target().software { &[NARROW][..] } else { &[NARROW, WIDE] };
    for &width in widths {
        let (given, expected) = attended_exactly(width, Weights::Softmax);
        let result = attention(gpu, width, Weights::Softmax, given).await.unwrap_or_default();
        let near = |(result, expected): (&f64, &f64)| (result - expected).abs() <= TOLERANCE;
        if result.len() != expected.len() || !result.iter().zip(&expected).all(near) {
            return false;
        }
    }
    true
}

/// Queries, keys and values of causal attention, and the expected results.
fn attended_exactly(width: usize, weights: Weights) -> ([Vec<f64>; 3], Vec<f64>) {
    let rows: usize = LENGTHS.iter().sum();
    let number = |n: usize, factor: usize| (n * factor % 7 % 3) as f64 - 1.0;
    let [q, k, v] =
        [5, 11, 13].map(|factor| (0..rows * HEADS * width).map(|n| number(n, factor)).collect::<Vec<f64>>());
    let mut expected = vec![0.0; rows * HEADS * width];
    let mut first = 0;
    for length in LENGTHS {
        for (i, head) in (first..first + length).flat_map(|i| (0..HEADS).map(move |head| (i, head))) {
            let place = |n: usize| (n * HEADS + head) * width;
            let product = |j: usize| (0..width).map(|d| q[place(i) + d] * k[place(j) + d]).sum::<f64>();
            let products: Vec<f64> = (first..=i).map(product).collect();
            let largest = products.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weight = |product: &f64| match weights {
                Weights::Products => product.max(0.0),
                Weights::Softmax => (GAIN * (product - largest)).exp(),
            };
            let total = match weights {
                Weights::Products => 1.0,
                Weights::Softmax => products.iter().map(weight).sum(),
            };
            for (j, product) in (first..).zip(&products) {
                (0..width).for_each(|d| expected[place(i) + d] += weight(product) / total * v[place(j) + d]);
            }
        }
        first += length;
    }
    ([q, k, v], expected)
}

fn attention_plan(width: usize, weights: Weights) -> Option<Plan> {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", LENGTHS.len());
    let shape = [rows.total.clone(), HEADS.into(), width.into()];
    let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F16, &shape));
    let keep = rows.row_index(&rows, HEADS).ge(&rows.key_index(&rows, HEADS));
    let products = q.scores(&k, &rows, &rows);
    let weights = match weights {
        Weights::Products => keep.select(&products.maximum(0.0), &scope.scalar(DType::F32, 0.0)),
        Weights::Softmax => (&products * GAIN).softmax_scores(Some(&keep), &rows, &rows),
    };
    let graph = scope.finish(&[("y", weights.weighted_sum(&v, &rows, &rows))]).ok()?;
    lower(&optimize(graph).ok()?.0).ok()
}

async fn attention(gpu: &Gpu, width: usize, weights: Weights, given: [Vec<f64>; 3]) -> Option<Vec<f64>> {
    let mut session = load(gpu, attention_plan(width, weights)?).await?;
    let given = given.each_ref().map(Vec::as_slice);
    let inputs = attended(width, ["q", "k", "v"].into_iter().zip(given))?;
    Some(session.run_async(&inputs).await.ok()?.get("y")?.to_f64())
}

/// Inputs of attention, one tensor per name, and the lengths.
fn attended<'a>(width: usize, given: impl Iterator<Item = (&'a str, &'a [f64])>) -> Option<Inputs> {
    let mut inputs = Inputs::new().with("lengths", HostTensor::lengths(&LENGTHS.map(|length| length as i64)));
    for (name, values) in given {
        let shape = vec![LENGTHS.iter().sum(), HEADS, width];
        inputs.insert(name, HostTensor::from_f64(DType::F16, shape, values).ok()?);
    }
    Some(inputs)
}

/// Names of the gradients of queries, keys and values.
const GRADIENTS: [&str; 3] = ["grad.q", "grad.k", "grad.v"];

/// Lower bound of weights: integer scores are above or below it, which determines their gradient.
const FLOOR: f64 = 0.5;

/// Whether gradients of causal attention are exact for whole numbers: f16 holds its products, weights and results.
async fn differentiates_rightly(gpu: &Gpu) -> bool {
    let rows: usize = LENGTHS.iter().sum();
    let number = |n: usize, factor: usize| (n * factor % 7 % 3) as f64 - 1.0;
    let given =
        [5, 11, 13, 17].map(|factor| (0..rows * HEADS * NARROW).map(|n| number(n, factor)).collect::<Vec<f64>>());
    let [q, k, v, slope] = &given;
    let mut expected = [(); 3].map(|()| vec![0.0; rows * HEADS * NARROW]);
    let mut first = 0;
    for length in LENGTHS {
        for (i, j) in (first..first + length).flat_map(|i| (first..=i).map(move |j| (i, j))) {
            for head in 0..HEADS {
                let (row, key) = ((i * HEADS + head) * NARROW, (j * HEADS + head) * NARROW);
                let dot = |a: &[f64], b: &[f64]| (0..NARROW).map(|d| a[row + d] * b[key + d]).sum::<f64>();
                let weight = dot(q, k).max(FLOOR);
                let weight_slope = if weight > FLOOR { dot(slope, v) } else { 0.0 };
                for d in 0..NARROW {
                    expected[0][row + d] += weight_slope * k[key + d];
                    expected[1][key + d] += weight_slope * q[row + d];
                    expected[2][key + d] += weight * slope[row + d];
                }
            }
        }
        first += length;
    }
    gradients(gpu, given.each_ref().map(Vec::as_slice)).await.is_some_and(|result| result == expected)
}

/// The backward pass of attention whose weights are its scores, or [`FLOOR`].
fn gradients_plan() -> Option<Plan> {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", LENGTHS.len());
    let shape = [rows.total.clone(), HEADS.into(), NARROW.into()];
    let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F16, &shape));
    let keep = rows.row_index(&rows, HEADS).ge(&rows.key_index(&rows, HEADS));
    let weights = keep.select(&q.scores(&k, &rows, &rows).maximum(FLOOR), &scope.scalar(DType::F32, 0.0));
    let attended = weights.weighted_sum(&v, &rows, &rows).cast(DType::F16);
    let graph = scope.finish(&[("y", attended)]).ok()?;
    let mut graph: Graph = differentiate(&graph, &[("y", Seed::Input("slope"))], &["q", "k", "v"]).ok()?;
    graph.retain_outputs(|name| GRADIENTS.contains(&name));
    lower(&optimize(graph).ok()?.0).ok()
}

async fn gradients(gpu: &Gpu, given: [&[f64]; 4]) -> Option<[Vec<f64>; 3]> {
    let mut session = load(gpu, gradients_plan()?).await?;
    let inputs = attended(NARROW, ["q", "k", "v", "slope"].into_iter().zip(given))?;
    let outputs = session.run_async(&inputs).await.ok()?;
    let [q, k, v] = GRADIENTS.map(|name| outputs.get(name).map(HostTensor::to_f64));
    Some([q?, k?, v?])
}

/// A session of a separate model. `None` if it does not load, or if a device with cooperative matrices runs kernels
/// without them, which the test would not cover.
async fn load(gpu: &Gpu, plan: Plan) -> Option<Session> {
    let vouches = plan.steps.iter().any(|step| is_cooperative(step, gpu.target()));
    if gpu.target().matrices_of_subgroups().is_some() && !vouches {
        return None;
    }
    let options = ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.untested()), ..ModelOptions::default() };
    // Boxed, since loading a model runs the test.
    let loading: BoxedFuture<'static, Result<Model, RuntimeError>> = Box::pin(Model::load_async(plan, (), options));
    Some(loading.await.ok()?.session())
}

async fn product(gpu: &Gpu, [left, right]: [&[f64]; 2], sums: DType, extents: [usize; 3]) -> Option<Vec<f64>> {
    let [rows, depth, columns] = extents;
    let mut session = load(gpu, plan(sums, extents)?).await?;
    let inputs = Inputs::new()
        .with("x", HostTensor::from_f64(DType::F16, vec![rows, depth], left).ok()?)
        .with("w", HostTensor::from_f64(DType::F16, vec![depth, columns], right).ok()?);
    Some(session.run_async(&inputs).await.ok()?.get("y")?.to_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_emit::emit;
    use rewire_graph_rewrite::device::{Extension, SubgroupSizes, Tuning};

    const WEIGHTS: [Weights; 2] = [Weights::Products, Weights::Softmax];

    fn target() -> Target {
        let (workgroup_bytes, invocations, subgroup_size) = (48 << 10, 1024, SubgroupSizes::fixed(32));
        let (f16, subgroups, matrix_elements) = (true, true, true);
        let matrices = Target { matrix: 16, matrix_elements, workgroup_matrices: 256, ..Target::BASELINE };
        Target { f16, subgroups, subgroup_size, workgroup_bytes, invocations, ..matrices }
    }

    #[test]
    fn the_test_runs_what_it_tests() {
        let extensions = |plan: Plan, target: &Target| -> Vec<Option<Extension>> {
            let emitted = plan.steps.iter().map(|step| emit(&step.computation, target, &Tuning::default()));
            emitted.map(|kernel| kernel.unwrap().extension).collect()
        };
        let shared = extensions(shared_plan().unwrap(), &target());
        assert!(matches!(shared[..], [Some(Extension::Workgroup { .. })]), "{shared:?}");
        for (width, weights) in [NARROW, WIDE].into_iter().flat_map(|width| WEIGHTS.map(|weights| (width, weights))) {
            let plan = attention_plan(width, weights).unwrap();
            let kernel = (weights == Weights::Softmax).then_some(RareKernel::Softmax);
            assert!(plan.steps.iter().all(|step| rare(step) == kernel));
            assert_eq!(extensions(plan, &target()), [Some(Extension::Elements)]);
        }
        let plain = Target { matrix_elements: false, workgroup_matrices: 0, ..target() };
        assert_eq!(extensions(plan(DType::F32, PRODUCT).unwrap(), &plain), [None]);
        // AMD: tiles are divided among all subgroups.
        let range = Target { subgroup_size: SubgroupSizes { min: 32, max: 64 }, ..plain.clone() };
        assert!(plan(DType::F32, PRODUCT).unwrap().steps.iter().all(|step| is_cooperative(step, &range)));
        let gradients = gradients_plan().unwrap();
        assert!(
            !gradients.steps.is_empty() && gradients.steps.iter().all(|step| rare(step) == Some(RareKernel::Gradients))
        );
        for target in [plain, target()] {
            let extension = target.matrix_elements.then_some(Extension::Elements);
            assert!(extensions(gradients.clone(), &target).iter().all(|own| *own == extension));
            let products = [plan(DType::F32, PRODUCT), plan(DType::F16, PRODUCT), shared_plan()];
            let attention = WEIGHTS.map(|weights| attention_plan(NARROW, weights));
            for plan in products.into_iter().chain(attention).flatten().chain([gradients.clone()]) {
                let shader = |step: &Step| emit(&step.computation, &target, &Tuning::default()).unwrap().wgsl;
                assert!(plan.steps.iter().all(|step| shader(step).contains("enable wgpu_cooperative_matrix")));
                assert!(plan.steps.iter().all(|step| is_cooperative(step, &target)));
                let unknown = Target { subgroup_size: SubgroupSizes::UNKNOWN, ..target.clone() };
                assert!(!plan.steps.iter().any(|step| is_cooperative(step, &unknown)));
            }
        }
    }

    #[test]
    fn the_test_expects_what_devices_without_matrices_compute() {
        let Ok(gpu) = Gpu::open(None) else { return };
        let gpu = gpu.restricted(&Target {
            matrix: 0,
            matrix_elements: false,
            workgroup_matrices: 0,
            ..gpu.target().clone()
        });
        if gpu.target().f16 {
            assert!(crate::block_on(is_right(&gpu, DType::F32, PRODUCT)));
            assert!([NARROW, WIDE].into_iter().all(|width| crate::block_on(attends_rightly(&gpu, width))));
            assert!(crate::block_on(softens_rightly(&gpu)));
            assert!(crate::block_on(shares_rightly(&gpu)));
            assert!(crate::block_on(differentiates_rightly(&gpu)));
        }
    }
}
