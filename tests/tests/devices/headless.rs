//! Sessions without a display: batches, large and empty inputs, many shapes, and wrong inputs.

use rewire_graph::{DType, Dim, Graph, HostTensor, Ragged, Scope, Tensor};
use rewire_runtime::wgpu::Features;
use rewire_runtime::{Detail, Inputs, Kernel, Lane, Session};
use rewire_tests::backend::{Tensors, gpu, oracle, run, session};
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;
const WIDTH: usize = 24;

/// The kernels that this machine can run.
fn kernels() -> Vec<Kernel> {
    let gpu = gpu().map(|_| Kernel::Wgpu);
    std::iter::once(Kernel::Cpu).chain(gpu).collect()
}

fn weight(scope: &Scope, name: &str, shape: &[usize]) -> Tensor {
    scope.parameter(name, F32, shape.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>())
}

/// Two layers of sequential transduction units, a lookup, and a result a sample.
fn model(heads: usize) -> (Graph, Tensors) {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", scope.size("batch"));
    let ids = scope.input("ids", DType::U32, std::slice::from_ref(&rows.total));
    let mut x = weight(&scope, "table", &[40, WIDTH]).gather(&ids);
    for layer in 0..2 {
        x = scope.module(&format!("layers.{layer}"), |scope| layer_of(scope, &x, &rows, heads));
    }
    let one = Ragged::from_lengths(&rows.lengths.binary_scalar(rewire_graph::pointwise::BinaryOp::Min, 1.0));
    let last = x.jagged_tail(&rows, &one).softmax(1);
    let graph = scope.finish(&[("all", x), ("last", last)]).unwrap();
    let parameters = parameters(&graph);
    (graph, parameters)
}

fn layer_of(scope: &Scope, x: &Tensor, rows: &Ragged, heads: usize) -> Tensor {
    let width = WIDTH / heads;
    let normed = x.layer_norm(&weight(scope, "w", &[WIDTH]), &weight(scope, "b", &[WIDTH]), 1e-5);
    let uvqk = &normed.matmul(&weight(scope, "uvqk", &[WIDTH, 4 * WIDTH])) + &weight(scope, "beta", &[4 * WIDTH]);
    let parts = uvqk.split_columns(&[WIDTH; 4]);
    let split = |t: &Tensor| t.reshape(&[rows.total.clone(), heads.into(), width.into()]);
    let weights = &(&split(&parts[2]).scores(&split(&parts[3]), rows, rows) * 0.3).silu() * 0.1;
    let mask = rows.row_index(rows, heads).ge(rows.key_index(rows, heads));
    let attended = mask.select(&weights, &scope.scalar(F32, 0.0)).weighted_sum(&split(&parts[1]), rows, rows);
    let attended = attended.reshape(&[rows.total.clone(), WIDTH.into()]);
    let gated = &parts[0].silu() * &attended.normalize(1e-4);
    x + &scope.concat(&[&attended, &gated], 1).matmul(&weight(scope, "out", &[2 * WIDTH, WIDTH]))
}

fn parameters(graph: &Graph) -> Tensors {
    graph
        .ids()
        .filter_map(|id| {
            let parameter = graph.node(id)?.op.downcast_ref::<rewire_graph::op::Parameter>()?;
            let shape: Vec<usize> = parameter.ty.shape.iter().map(|dim| dim.as_const().unwrap()).collect();
            let values = Noise::new(1, &parameter.name).floats(F32, &shape, 0.4);
            Some((parameter.name.clone(), values))
        })
        .collect()
}

/// Rows of a user, computed only from the user's number.
fn user(number: u64, length: i64) -> Vec<u32> {
    let mut noise = Noise::new(number, "user");
    (0..length).map(|_| noise.below(0, 40) as u32).collect()
}

fn batch(users: &[(u64, i64)]) -> Tensors {
    let ids: Vec<u32> = users.iter().flat_map(|&(number, length)| user(number, length)).collect();
    let lengths: Vec<i64> = users.iter().map(|&(_, length)| length).collect();
    Tensors::from([
        ("lengths".to_owned(), HostTensor::lengths(&lengths)),
        ("ids".to_owned(), HostTensor::u32(vec![ids.len()], &ids).unwrap()),
    ])
}

fn load(graph: &Graph, parameters: &Tensors, kernel: Kernel) -> Session {
    session(graph, parameters, kernel).unwrap().unwrap()
}

/// The rows of every user of a batch.
fn by_user(results: &Results, users: &[(u64, i64)]) -> Vec<Vec<f32>> {
    let all = results["all"].to_f32();
    let mut start = 0;
    users
        .iter()
        .map(|&(_, length)| {
            let end = start + length as usize * WIDTH;
            let rows = all[start..end].to_vec();
            start = end;
            rows
        })
        .collect()
}

#[test]
fn a_user_does_not_depend_on_who_shares_the_batch() {
    let users = [(3, 5), (1, 0), (4, 70), (2, 1), (9, 33), (5, 16), (6, 2)];
    let mut shuffled = users;
    shuffled.reverse();
    shuffled.swap(1, 4);
    for heads in [1, 2] {
        let (graph, parameters) = model(heads);
        for kernel in kernels() {
            let mut session = load(&graph, &parameters, kernel);
            let together = by_user(&run(&mut session, &batch(&users)).unwrap(), &users);
            let mixed = by_user(&run(&mut session, &batch(&shuffled)).unwrap(), &shuffled);
            for (position, &one) in users.iter().enumerate() {
                let alone = run(&mut session, &batch(&[one])).unwrap()["all"].to_f32();
                assert_eq!(alone, together[position], "{kernel}, {heads} heads: user {one:?} alone and in a batch");
                let other = shuffled.iter().position(|&other| other == one).unwrap();
                assert_eq!(mixed[other], together[position], "{kernel}, {heads} heads: user {one:?} in another order");
            }
        }
    }
}

#[test]
fn sessions_of_one_device_run_on_several_threads() {
    let (graph, parameters) = model(1);
    let users = [(3, 5), (1, 0), (4, 20)];
    for kernel in kernels() {
        let expected = run(&mut load(&graph, &parameters, kernel), &batch(&users)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut session = load(&graph, &parameters, kernel);
                    for _ in 0..100 {
                        let found = run(&mut session, &batch(&users)).unwrap();
                        assert_eq!(found["all"].to_f32(), expected["all"].to_f32(), "{kernel}");
                    }
                });
            }
        });
    }
}

#[test]
fn one_session_runs_at_growing_and_shrinking_shapes() {
    let (graph, parameters) = model(2);
    let shapes: Vec<Vec<(u64, i64)>> = vec![
        vec![(1, 3)],
        vec![(1, 3), (2, 40), (3, 17)],
        vec![],
        vec![(4, 0), (5, 0)],
        (0..30).map(|n| (n, (n as i64 * 7) % 23)).collect(),
        vec![(6, 1)],
        vec![(7, 130)],
        vec![(1, 3)],
        (0..9).map(|n| (n, 9)).collect(),
    ];
    for kernel in kernels() {
        let mut session = load(&graph, &parameters, kernel);
        for (position, users) in shapes.iter().enumerate() {
            let inputs = batch(users);
            let expected = oracle(&graph, &inputs, &parameters).unwrap();
            let actual = run(&mut session, &inputs).unwrap();
            let found = differences(&actual, &expected, Tolerance::SINGLE);
            assert!(found.is_empty(), "{kernel}, run {position}: {found:?}");
            if position == 5 {
                session.trim();
            }
        }
    }
}

#[test]
fn equal_runs_give_equal_bits() {
    let (graph, parameters) = model(2);
    let inputs = batch(&[(1, 30), (2, 7), (3, 0)]);
    for kernel in kernels() {
        let mut session = load(&graph, &parameters, kernel);
        let first = run(&mut session, &inputs).unwrap();
        let again = run(&mut session, &inputs).unwrap();
        let fresh = run(&mut load(&graph, &parameters, kernel), &inputs).unwrap();
        assert_eq!(first, again, "{kernel}");
        assert_eq!(first, fresh, "{kernel}");
    }
}

/// Rows enough that a workgroup a row, or 64 elements a workgroup, exceed the 65535 of one grid dimension.
#[test]
fn grids_beyond_one_dimension_are_complete() {
    let count = 70_001;
    for (name, model) in large_models() {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), 64.into()]);
        let y = model(&scope, &x);
        let graph = scope.finish(&[("y", y)]).unwrap();
        let parameters = parameters(&graph);
        let inputs = Tensors::from([("x".to_owned(), Noise::new(5, "x").floats(F32, &[count, 64], 1.0))]);
        let mut results = kernels().into_iter().map(|kernel| {
            let results = run(&mut load(&graph, &parameters, kernel), &inputs).unwrap();
            (kernel, results)
        });
        let (_, expected) = results.next().unwrap();
        for row in [0, 1, 65_534, 65_535, 65_536, count - 1] {
            let part = Tensors::from([("x".to_owned(), rows(&inputs["x"], row))]);
            let one = Results::from([("y".to_owned(), rows(&expected["y"], row))]);
            let found = differences(&one, &oracle(&graph, &part, &parameters).unwrap(), Tolerance::SINGLE);
            assert!(found.is_empty(), "{name}, row {row}: {found:?}");
        }
        for (kernel, actual) in results {
            let found = differences(&actual, &expected, Tolerance::SINGLE);
            assert!(found.is_empty(), "{name} on {kernel}: {found:?}");
        }
    }
}

type Model = fn(&Scope, &Tensor) -> Tensor;

fn large_models() -> Vec<(&'static str, Model)> {
    vec![
        ("pointwise", |_, x| &x.silu() * 2.0),
        ("reduction", |_, x| x.softmax(1)),
        ("row sums", |_, x| x.sum(1)),
        ("product", |scope, x| x.matmul(&weight(scope, "w", &[64, 5])).relu()),
    ]
}

fn rows(tensor: &HostTensor, row: usize) -> HostTensor {
    let width = tensor.shape()[1];
    HostTensor::f32(vec![1, width], &tensor.to_f32()[row * width..(row + 1) * width]).unwrap()
}

#[test]
fn very_many_samples_are_complete() {
    let (graph, parameters) = model(1);
    let users: Vec<(u64, i64)> = (0..66_000).map(|n| (n, i64::from(n % 1000 == 3))).collect();
    let few: Vec<(u64, i64)> = users.iter().copied().filter(|user| user.1 > 0).collect();
    for kernel in kernels() {
        let mut session = load(&graph, &parameters, kernel);
        let all = run(&mut session, &batch(&users)).unwrap();
        assert_eq!(all["all"], run(&mut session, &batch(&few)).unwrap()["all"], "{kernel}");
    }
}

#[test]
fn extreme_values_stay_finite() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 4.into()]);
    let outputs: [(&str, Tensor); 5] = [
        ("silu", x.silu()),
        ("sigmoid", x.sigmoid()),
        ("tanh", x.tanh()),
        ("softmax", x.softmax(1)),
        ("gelu", x.gelu_tanh()),
    ];
    let graph = scope.finish(&outputs).unwrap();
    let values =
        [-3e38, -1e5, -100.0, -89.0, -88.0, -20.0, -1e-30, 0.0, 1e-30, 20.0, 88.0, 89.0, 100.0, 1e5, 1e12, 1e18];
    let x = HostTensor::f32(vec![4, 4], &values.map(|v: f64| v as f32)).unwrap();
    let inputs = Tensors::from([("x".to_owned(), x)]);
    let expected = oracle(&graph, &inputs, &Tensors::new()).unwrap();
    for kernel in kernels() {
        let actual = run(&mut load(&graph, &Tensors::new(), kernel), &inputs).unwrap();
        for (name, tensor) in &actual {
            let (a, b) = (tensor.to_f64(), expected[name].to_f64());
            for (a, b) in a.iter().zip(&b).filter(|(_, b)| b.is_finite()) {
                assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "{kernel}, {name}: {a} instead of {b}");
            }
        }
    }
}

#[test]
fn wrong_inputs_are_named() {
    let (graph, parameters) = model(2);
    let good = batch(&[(1, 3), (2, 2)]);
    let with = |name: &str, tensor: HostTensor| {
        let mut inputs = good.clone();
        inputs.insert(name.to_owned(), tensor);
        inputs
    };
    let mut missing = good.clone();
    missing.remove("ids");
    let wrong = [
        ("a missing input", "ids", missing),
        ("too few rows", "ids", with("ids", HostTensor::u32(vec![4], &[1, 2, 3, 4]).unwrap())),
        ("another rank", "ids", with("ids", HostTensor::u32(vec![5, 1], &[1; 5]).unwrap())),
        ("another type", "ids", with("ids", HostTensor::f32(vec![5], &[1.0; 5]).unwrap())),
        ("negative lengths", "length", with("lengths", HostTensor::lengths(&[-1, 6]))),
        ("lengths of floats", "lengths", with("lengths", HostTensor::f32(vec![2], &[3.0, 2.0]).unwrap())),
        ("lengths of another rank", "lengths", with("lengths", HostTensor::i64(vec![2, 1], &[3, 2]).unwrap())),
    ];
    for kernel in kernels() {
        let mut session = load(&graph, &parameters, kernel);
        for (what, name, inputs) in &wrong {
            let error = run(&mut session, inputs).expect_err(what);
            assert!(error.contains(name), "{kernel}, {what}: {error}");
        }
        assert!(run(&mut session, &good).is_ok(), "{kernel}: a session stays usable after errors");
    }
}

#[test]
fn descending_offsets_are_an_error() {
    let scope = Scope::new();
    let rows = scope.offsets("offsets");
    let x = scope.input("x", F32, &[rows.total.clone(), 2.into()]);
    let graph =
        scope.finish(&[("y", &x + &rows.position().cast(F32).reshape(&[rows.total.clone(), 1.into()]))]).unwrap();
    for kernel in kernels() {
        let mut session = load(&graph, &Tensors::new(), kernel);
        for offsets in [&[0, 3, 2, 4][..], &[1, 2, 3, 5], &[]] {
            let x = HostTensor::f32(vec![4, 2], &[0.0; 8]).unwrap();
            let inputs = Tensors::from([("offsets".to_owned(), HostTensor::lengths(offsets)), ("x".to_owned(), x)]);
            assert!(run(&mut session, &inputs).is_err(), "{kernel}: {offsets:?}");
        }
    }
}

#[test]
fn a_timed_run_has_a_span_a_step_and_the_same_results() {
    let (graph, parameters) = model(2);
    let inputs = batch(&[(1, 30), (2, 0), (3, 17)]);
    for kernel in kernels() {
        let mut session = session(&graph, &parameters, kernel).unwrap().unwrap();
        let expected = run(&mut session, &inputs).unwrap();
        let bound: Inputs = inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        let counts = session.counts(&bound).unwrap();
        assert_eq!(counts.len(), session.plan().steps.len());
        assert!(counts.iter().all(|count| count.read > 0 && count.written > 0), "{counts:?}");
        let features = gpu().filter(|_| kernel == Kernel::Wgpu).map(|gpu| gpu.device().features());
        let clocked = features.is_some_and(|features| features.contains(Features::TIMESTAMP_QUERY));
        for detail in [Detail::Passes, Detail::Steps] {
            let (outputs, profile) = session.run_timed(&bound, detail).unwrap();
            for (name, tensor) in &expected {
                assert_eq!(outputs.get(name), Some(tensor), "{kernel} {detail:?} {name}");
            }
            assert_eq!(profile.gpu.is_some(), clocked, "{kernel} {detail:?}");
            assert_eq!(profile.cpu.is_zero(), kernel == Kernel::Wgpu);
            let lane = if kernel == Kernel::Wgpu { Lane::Gpu } else { Lane::Cpu };
            let steps = profile.spans.iter().filter(|span| span.lane == lane && span.step.is_some()).count();
            let timed = kernel == Kernel::Cpu || (clocked && detail == Detail::Steps);
            assert_eq!(steps, if timed { counts.len() } else { 0 }, "{kernel} {detail:?} {:?}", profile.spans);
            assert!(profile.spans.iter().any(|span| span.lane == Lane::Host && span.name == "sizes"));
        }
    }
}
