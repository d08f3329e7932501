//! Kernels that sum over the rows of a sample or by an index, on the CPU and on the GPU, against the interpreter.

use rewire_graph::op::ReduceOp;
use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor};
use rewire_graph_rewrite::prove::confine;
use rewire_runtime::{Kernel, Session, ThreadPool, ThreadPoolOptions};
use rewire_tests::backend::{Tensors, oracle, plan, run, session};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;

const LENGTHS: [&[usize]; 6] = [&[3, 0, 5, 1, 70], &[7], &[1], &[0, 0, 0], &[0, 300, 4], &[]];

const WIDTHS: [&[usize]; 8] = [&[], &[1], &[25], &[50], &[64], &[130], &[2, 3], &[3, 8]];

/// Half a unit in the last place of a half, twice.
const F16_TOLERANCE: Tolerance = Tolerance { relative: 1e-3, floor: 1.0 };

fn noise(name: &str, dtype: DType, shape: &[usize]) -> HostTensor {
    Noise::new(11, name).floats(dtype, shape, 2.0)
}

fn lengths(lengths: &[usize]) -> HostTensor {
    HostTensor::lengths(&lengths.iter().map(|&n| n as i64).collect::<Vec<_>>())
}

fn integers(values: &[i64]) -> HostTensor {
    HostTensor::from_f64(DType::I32, vec![values.len()], &values.iter().map(|&n| n as f64).collect::<Vec<_>>()).unwrap()
}

fn tensors<const N: usize>(inputs: [(&str, HostTensor); N]) -> Tensors {
    inputs.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

fn on_threads(threads: usize, session: &mut Session, inputs: &Tensors) -> Results {
    let pool = ThreadPool::new(ThreadPoolOptions { threads: Some(threads), ..ThreadPoolOptions::default() }).unwrap();
    pool.install(|| run(session, inputs)).unwrap()
}

/// Holds a graph that is one kernel, called `step`, to the interpreter: its indices are proven, and its results do not
/// depend on the number of threads or on the run.
fn hold(scope: Scope, outputs: &[(&str, Tensor)], step: &str, runs: &[Tensors], tolerance: Tolerance) {
    let graph = scope.finish(outputs).unwrap();
    let mut planned = plan(&graph).unwrap();
    let names: Vec<&str> = planned.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, [step], "{}", graph.text());
    assert!(confine(&mut planned).unwrap().is_empty(), "{}", graph.text());
    let [mut cpu, mut gpu] =
        [Kernel::Cpu, Kernel::Wgpu].map(|kernel| session(&graph, &Tensors::new(), kernel).unwrap());
    for inputs in runs {
        let expected = oracle(&graph, inputs, &Tensors::new()).unwrap();
        let shapes: Vec<_> = inputs.iter().map(|(name, tensor)| (name, tensor.shape())).collect();
        let found = |kernel: Kernel, session: &mut Session, threads: [usize; 2]| {
            let [once, again] = threads.map(|threads| on_threads(threads, session, inputs));
            let wrong = differences(&once, &expected, tolerance);
            assert!(wrong.is_empty(), "{kernel} of {shapes:?}: {wrong:?}\n{}", graph.text());
            let wrong = differences(&again, &once, Tolerance::EXACT);
            assert!(wrong.is_empty(), "{kernel} of {shapes:?}, again: {wrong:?}\n{}", graph.text());
        };
        found(Kernel::Cpu, cpu.as_mut().unwrap(), [1, 3]);
        if let Some(gpu) = &mut gpu {
            found(Kernel::Wgpu, gpu, [1, 1]);
        }
    }
}

fn ragged(scope: &Scope, widths: &[(&str, DType, &[usize])]) -> (Vec<Tensor>, Ragged) {
    let rows = scope.lengths("rows", &scope.size("batch"));
    let of = |&(name, dtype, inner): &(&str, DType, &[usize])| {
        let inner = inner.iter().map(|&n| Dim::from(n));
        scope.input(name, dtype, &std::iter::once(rows.total.clone()).chain(inner).collect::<Vec<_>>())
    };
    (widths.iter().map(of).collect(), rows)
}

fn with_rows(name: &str, dtype: DType, divided: &[usize], inner: &[usize]) -> HostTensor {
    noise(name, dtype, &[&[divided.iter().sum()], inner].concat())
}

#[test]
fn rows_of_samples_are_combined() {
    for inner in WIDTHS {
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
            let scope = Scope::new();
            let (x, rows) = ragged(&scope, &[("x", F32, inner)]);
            let name = ["segment_sum", "segment_max", "segment_min"][op as usize];
            let runs = LENGTHS
                .map(|divided| tensors([("x", with_rows("x", F32, divided, inner)), ("rows", lengths(divided))]));
            hold(scope, &[("y", x[0].segment_reduce(op, &rows))], name, &runs, Tolerance::SINGLE);
        }
    }
}

#[test]
fn sums_of_samples_have_a_prologue_and_an_epilogue() {
    for (width, dtype) in [(25, F32), (64, DType::F16), (1, F32), (50, DType::F16)] {
        let scope = Scope::new();
        let (x, rows) = ragged(&scope, &[("x", dtype, &[width])]);
        let bias = scope.input("bias", F32, &[width.into()]);
        let sums = x[0].cast(F32).silu().segment_reduce(ReduceOp::Sum, &rows);
        let y = &(&sums * 0.5) + &bias;
        let runs = LENGTHS.map(|divided| {
            let x = with_rows("x", dtype, divided, &[width]);
            tensors([("x", x), ("rows", lengths(divided)), ("bias", noise("bias", F32, &[width]))])
        });
        let outputs = [("y", y), ("halves", sums.cast(DType::F16))];
        hold(scope, &outputs, "segment_sum", &runs, F16_TOLERANCE);
    }
}

#[test]
fn products_are_summed_over_the_rows_of_a_sample() {
    for (k, n, dtype) in [(5, 3, F32), (25, 50, F32), (64, 130, F32), (1, 64, F32), (33, 1, F32), (64, 25, DType::F16)]
    {
        let scope = Scope::new();
        let (xy, rows) = ragged(&scope, &[("x", dtype, &[k]), ("y", dtype, &[n])]);
        let y = &xy[0].jagged_jagged_matmul(&xy[1], &rows) * 0.25;
        let runs = LENGTHS.map(|divided| {
            let [x, y] = [("x", k), ("y", n)].map(|(name, width)| with_rows(name, dtype, divided, &[width]));
            tensors([("x", x), ("y", y), ("rows", lengths(divided))])
        });
        hold(scope, &[("z", y)], "jagged_jagged_matmul", &runs, Tolerance::SINGLE);
    }
}

#[test]
fn factors_of_a_product_over_rows_are_computed() {
    let scope = Scope::new();
    let (xy, rows) = ragged(&scope, &[("x", F32, &[18]), ("y", F32, &[35])]);
    let z = (&xy[0].silu() + 1.0).jagged_jagged_matmul(&(&xy[1] - 0.5), &rows);
    let runs = LENGTHS.map(|divided| {
        let [x, y] = [("x", 18), ("y", 35)].map(|(name, width)| with_rows(name, F32, divided, &[width]));
        tensors([("x", x), ("y", y), ("rows", lengths(divided))])
    });
    hold(scope, &[("z", z)], "jagged_jagged_matmul", &runs, Tolerance::SINGLE);
}

/// Indices of some rows: random ones, some outside, all equal, descending, none.
fn indices(results: usize) -> Vec<Vec<i64>> {
    let random = |count: usize| {
        let mut noise = Noise::new(3, "index");
        (0..count).map(|_| noise.below(-2, results as i64 + 3)).collect()
    };
    vec![random(1500), random(13), vec![results as i64 / 2; 200], (0..70).rev().collect(), vec![0], vec![]]
}

#[test]
fn rows_are_summed_by_index() {
    for inner in WIDTHS {
        for results in [1, 9, 200] {
            let scope = Scope::new();
            let rows = scope.size("rows");
            let shape: Vec<Dim> = std::iter::once(rows.clone()).chain(inner.iter().map(|&n| Dim::from(n))).collect();
            // Computed, so that nothing checks it.
            let by = &scope.input("index", DType::I32, &[rows]) + 0.0;
            let sums = scope.input("x", F32, &shape).index_add(&by, &results.into());
            let runs: Vec<Tensors> = indices(results)
                .into_iter()
                .map(|index| {
                    let x = noise("x", F32, &[&[index.len()], inner].concat());
                    tensors([("index", integers(&index)), ("x", x)])
                })
                .collect();
            hold(scope, &[("y", sums)], "index_add", &runs, Tolerance::SINGLE);
        }
    }
}

#[test]
fn sums_by_index_have_a_prologue_and_an_epilogue() {
    for (width, dtype) in [(25, F32), (64, DType::F16), (1, F32)] {
        let scope = Scope::new();
        let (rows, results) = (scope.size("rows"), scope.size("results"));
        let by = &scope.input("index", DType::I32, std::slice::from_ref(&rows)) + 0.0;
        let values = scope.input("x", dtype, &[rows.clone(), width.into()]).cast(F32).silu();
        let sums = values.index_add(&by, &results);
        let old = scope.input("old", F32, &[results, width.into()]);
        let y = &(&sums * -0.5) + &old;
        let mut runs = vec![];
        for results in [1, 9, 300] {
            for index in indices(results) {
                let [x, old] = [("x", dtype, index.len()), ("old", F32, results)]
                    .map(|(name, dtype, rows)| noise(name, dtype, &[rows, width]));
                runs.push(tensors([("index", integers(&index)), ("x", x), ("old", old)]));
            }
        }
        hold(scope, &[("y", y), ("halves", sums.cast(DType::F16))], "index_add", &runs, F16_TOLERANCE);
    }
}
