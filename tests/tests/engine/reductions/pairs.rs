//! Sums over pairs of queries and keys: the patterns that become one kernel, and that every backend agrees.

use rewire_graph::op::{ReduceOp, ScoreKind};
use rewire_graph::{DType, HostTensor, Ragged, Scope, Tensor};
use rewire_graph_rewrite::plan::Step;
use rewire_graph_rewrite::prove::confine;
use rewire_graph_rewrite::schedule::Schedule;
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, kernels, plan, run, session};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::gradients::{Attention, Shape, Traced, Weights};
use rewire_tests::noise::Noise;

const HSTU: Weights = Weights::Silu { divisor: 7.0 };

fn shape(lengths: &[(usize, usize)], heads: usize, (width, value_width): (usize, usize), causal: bool) -> Shape {
    Shape { lengths: lengths.to_vec(), heads, width, value_width, causal }
}

/// Lengths that no tile divides, samples without rows, keys or either, one sample, none at all.
fn shapes() -> Vec<Shape> {
    vec![
        shape(&[(37, 70), (0, 3), (1, 1), (65, 33), (5, 0), (0, 0)], 2, (25, 50), false),
        shape(&[(70, 70), (1, 1), (33, 33)], 3, (16, 16), true),
        shape(&[(1, 1)], 1, (1, 130), true),
        shape(&[(40, 200)], 1, (130, 1), true),
        shape(&[(0, 0), (0, 0)], 2, (4, 8), false),
        shape(&[], 1, (8, 8), true),
    ]
}

/// Checks a case of a number, that its indices are proven, and that it is these kernels, in any order.
fn check(case: &GraphCase, number: usize, expected: &[&str]) {
    let mut steps = case.steps();
    steps.sort();
    assert_eq!(steps, expected, "{}", case.graph.text());
    let mut plan = plan(&case.graph).unwrap();
    let is_over_pairs = |step: &Step| matches!(step.computation.schedule(), Some(Schedule::PairReduction(_)));
    assert!(plan.steps.iter().all(is_over_pairs));
    assert!(confine(&mut plan).unwrap().is_empty(), "{}", case.graph.text());
    case.check_on(kernels(number));
}

#[test]
fn the_gradients_of_hstu_attention_are_two_kernels() {
    for (seed, shape) in shapes().into_iter().enumerate() {
        check(&shape.gradients(HSTU, seed as u64), seed, &["attention_by_key", "attention_by_row"]);
    }
}

/// The logarithms of sums and the means of slopes are separate kernels; with those, gradients of keys and of values together
/// would need more bindings than are guaranteed.
#[test]
fn the_gradients_of_softmax_attention_are_five_kernels() {
    let steps =
        ["attention_by_key", "attention_by_key", "attention_by_row", "score_reduce_by_row", "score_reduce_by_row"];
    for (seed, shape) in shapes().into_iter().enumerate() {
        check(&shape.gradients(Weights::Softmax, seed as u64), seed, &steps);
    }
}

/// One bool per pair.
type Mask = fn(&Scope, &Ragged, &Ragged) -> Tensor;

#[test]
fn masks_hide_pairs_from_gradients() {
    let masks: [Mask; 4] = [
        // A window of ten keys.
        |scope, rows, keys| {
            let (i, j) = (rows.row_index(keys, 2), rows.key_index(keys, 2));
            i.ge(&j).and(&(&i - &scope.scalar(DType::I32, 10.0)).le(&j))
        },
        // Targets, the last five, attend to themselves and to earlier rows.
        |scope, rows, keys| {
            let (i, j) = (rows.row_index(keys, 2), rows.key_index(keys, 2));
            i.equal(&j).or(&i.minimum(&scope.scalar(DType::I32, 60.0)).gt(&j.minimum(&scope.scalar(DType::I32, 60.0))))
        },
        // Keys that a row, and rows that a key, admits.
        |scope, rows, keys| {
            let zero = scope.scalar(DType::F32, 0.0);
            let row = scope.input("row_gate", DType::F32, std::slice::from_ref(&rows.total));
            let key = scope.input("key_gate", DType::F32, std::slice::from_ref(&keys.total));
            rows.per_row(keys, 2, &row).gt(&zero).and(&rows.per_key(keys, 2, &key).gt(&zero))
        },
        // No pair at all.
        |scope, rows, keys| rows.row_index(keys, 2).gt(&scope.scalar(DType::I32, 10_000.0)),
    ];
    for (seed, mask) in masks.into_iter().enumerate() {
        for (number, weights) in [HSTU, Weights::Softmax].into_iter().enumerate() {
            let shape = shape(&[(90, 70), (0, 3), (33, 64), (5, 0)], 2, (12, 20), false);
            let mut traced = shape.trace(weights);
            let attention = &mut traced.attention;
            attention.mask = Some(mask(&traced.scope, &attention.rows, &attention.keys));
            let gradients = attention.backward(&traced.scope, traced.qkv.each_ref(), &traced.dout);
            let outputs: Vec<_> = ["dq", "dk", "dv"].into_iter().zip(gradients).collect();
            let (graph, mut inputs) = (traced.scope.finish(&outputs).unwrap(), shape.inputs(seed as u64));
            for (name, total) in [("row_gate", 128), ("key_gate", 137)] {
                if graph.text().contains(name) {
                    inputs.insert(name.to_owned(), Noise::new(9, name).floats(DType::F32, &[total], 1.0));
                }
            }
            let kernels = kernels(2 * seed + number);
            GraphCase { graph, inputs, parameters: Tensors::new() }.check_on(kernels);
        }
    }
}

#[test]
fn scores_are_combined_by_row_and_by_key() {
    for (seed, shape) in shapes().into_iter().enumerate() {
        for kind in [ScoreKind::Row, ScoreKind::Key] {
            let traced = shape.trace(HSTU);
            let attention = &traced.attention;
            let scores = traced.qkv[0].scores(&traced.qkv[1], &attention.rows, &attention.keys);
            let kept = attention
                .mask
                .as_ref()
                .map_or_else(|| scores.clone(), |mask| mask.select(&scores, &traced.scope.scalar(DType::F32, 0.0)));
            let outputs = [("sum", ReduceOp::Sum), ("max", ReduceOp::Max)]
                .map(|(name, op)| (name, kept.reduce_scores(op, kind, &attention.rows, &attention.keys)));
            let inputs = shape.inputs(seed as u64);
            let case = GraphCase { graph: traced.scope.finish(&outputs).unwrap(), inputs, parameters: Tensors::new() };
            check(&case, seed, &[if kind == ScoreKind::Row { "score_reduce_by_row" } else { "score_reduce_by_key" }]);
        }
    }
}

#[test]
fn rows_of_halves_have_gradients() {
    for (number, weights) in [HSTU, Weights::Softmax].into_iter().enumerate() {
        let shape = shape(&[(37, 70), (0, 3), (65, 33)], 2, (25, 50), false);
        let Traced { scope, attention, qkv, dout } = shape.trace(weights);
        let inputs = shape.inputs(5);
        let halves = Scope::new();
        let batch = halves.size("batch");
        let (rows, keys) = (halves.lengths("rows", &batch), halves.lengths("keys", &batch));
        let attention = Attention { rows, keys, ..attention };
        let [q, k, v, dout] = [("q", &qkv[0]), ("k", &qkv[1]), ("v", &qkv[2]), ("dout", &dout)].map(|(name, like)| {
            let total = if name == "k" || name == "v" { &attention.keys.total } else { &attention.rows.total };
            halves.input(name, DType::F16, &[total.clone(), like.dim(1), like.dim(2)])
        });
        drop(scope);
        let gradients = attention.backward(&halves, [&q, &k, &v], &dout);
        let outputs: Vec<_> = ["dq", "dk", "dv"].into_iter().zip(gradients).collect();
        let inputs = inputs.into_iter().map(|(name, tensor)| match tensor.dtype() {
            DType::F32 => (name, HostTensor::from_f64(DType::F16, tensor.shape().to_vec(), &tensor.to_f64()).unwrap()),
            _ => (name, tensor),
        });
        let inputs = inputs.collect();
        GraphCase { graph: halves.finish(&outputs).unwrap(), inputs, parameters: Tensors::new() }
            .check_on(kernels(number));
    }
}

/// Distances beyond the table take its first and its last row.
#[test]
fn scores_take_values_of_a_table_by_an_index_a_pair() {
    for (number, shape) in shapes().into_iter().enumerate() {
        let Traced { scope, attention: Attention { rows, keys, mask, .. }, qkv: [q, k, v], .. } =
            shape.trace(Weights::Softmax);
        let table = scope.input("table", DType::F32, [7, shape.heads]);
        let distance = rows.key_index(&keys, shape.heads) - rows.row_index(&keys, shape.heads);
        let scores = q.scores(&k, &rows, &keys) + table.gather_scores(&(distance + 3));
        let y = scores.softmax_scores(mask.as_ref(), &rows, &keys).weighted_sum(&v, &rows, &keys);
        let mut inputs = shape.inputs(number as u64);
        inputs.insert("table".to_owned(), Noise::new(5, "table").floats(DType::F32, &[7, shape.heads], 1.0));
        let case = GraphCase { graph: scope.finish(&[("y", y)]).unwrap(), inputs, parameters: Tensors::new() };
        check(&case, number, &["softmax_attention"]);
    }
}

#[test]
fn gradients_are_the_same_bits_in_every_run() {
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        for weights in [HSTU, Weights::Softmax] {
            let case = shapes()[0].gradients(weights, 3);
            let Some(mut session) = session(&case.graph, &case.parameters, kernel).unwrap() else { continue };
            let first = run(&mut session, &case.inputs).unwrap();
            for _ in 0..3 {
                let again = run(&mut session, &case.inputs).unwrap();
                assert_eq!(differences(&again, &first, Tolerance::EXACT), Vec::<String>::new());
            }
        }
    }
}
