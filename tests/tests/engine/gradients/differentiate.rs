//! The gradients of every primitive match difference quotients, and kernels compute them.

use rewire_graph::op::{ReduceOp, ScoreKind, Unfold, Window};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, DifferentiateError, Dim, Graph, HostTensor, Ragged, Scope, Seed, Tensor, differentiate};
use rewire_tests::backend::{Tensors, oracle};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::{Tolerance, difference};
use rewire_tests::noise::Noise;

/// The step of quotients, a power of two, so that it is exact.
const STEP: f64 = 1.0 / 4096.0;

/// The interpreter computes in f64: the remaining error is the third derivative, times `STEP^2 / 6 = 1e-8`, and the
/// rounding of results to f32.
const TOLERANCE: Tolerance = Tolerance { relative: 2e-6, floor: 0.1 };

const LENGTHS: [&[i64]; 4] = [&[3, 0, 2, 1], &[4], &[0, 0], &[]];

/// A model under construction, at its inputs or a step next to them.
struct Model {
    scope: Scope,
    step: f64,
    inputs: Tensors,
    floats: Vec<String>,
}

impl Model {
    fn new(scope: &Scope, step: f64) -> Self {
        Self { scope: scope.clone(), step, inputs: Tensors::new(), floats: vec![] }
    }

    fn x<const N: usize>(&mut self, name: &str, shape: [Dim; N], extents: [usize; N]) -> Tensor {
        self.inputs.insert(name.to_owned(), Noise::new(11, name).floats(DType::F32, &extents, 1.0));
        self.floats.push(name.to_owned());
        let x = self.scope.input(name, DType::F32, &shape);
        match self.step {
            0.0 => x,
            step => x + self.scope.input(&direction(name), DType::F32, &shape) * step,
        }
    }

    fn constant<const N: usize>(&mut self, name: &str, extents: [usize; N]) -> Tensor {
        self.x(name, extents.map(Dim::from), extents)
    }

    fn lengths(&mut self, name: &str, lengths: &[i64]) -> Ragged {
        self.inputs.insert(name.to_owned(), HostTensor::lengths(lengths));
        self.scope.lengths(name, self.scope.size("batch"))
    }
}

fn direction(name: &str) -> String {
    format!("{name} direction")
}

fn total(lengths: &[i64]) -> usize {
    lengths.iter().sum::<i64>() as usize
}

/// The differentiated graph of `y`, with its inputs, and the names of those that it has gradients of.
fn gradients(body: &dyn Fn(&mut Model) -> Tensor) -> (GraphCase, Vec<String>) {
    let scope = Scope::new();
    let mut model = Model::new(&scope, 0.0);
    let y = body(&mut model);
    let Model { mut inputs, floats, .. } = model;
    let graph = scope.finish(&[("y", y)]).unwrap();
    let shape = oracle(&graph, &inputs, &Tensors::new()).unwrap()["y"].shape().to_vec();
    inputs.insert("dy".to_owned(), Noise::new(12, "dy").floats(DType::F32, &shape, 1.0));
    let wanted: Vec<&str> = floats.iter().map(String::as_str).collect();
    let graph = differentiate(&graph, &[("y", Seed::Input("dy"))], &wanted).unwrap();
    (GraphCase { graph, inputs, parameters: Tensors::new() }, floats)
}

/// `(f(x + STEP e) - f(x - STEP e)) / (2 STEP)` for the loss `f(x) = sum(y(x) dy)` and directions `e`.
fn quotient(body: &dyn Fn(&mut Model) -> Tensor) -> Graph {
    let scope = Scope::new();
    let loss = |step: f64| {
        let y = body(&mut Model::new(&scope, step));
        let product = &y * scope.input("dy", DType::F32, y.shape());
        (0..product.rank()).fold(product, |sum, axis| sum.sum(axis)).reshape(())
    };
    let q = (loss(STEP) - loss(-STEP)) * (0.5 / STEP);
    scope.finish(&[("q", q)]).unwrap()
}

fn hold(body: &dyn Fn(&mut Model) -> Tensor) {
    let (case, floats) = gradients(body);
    let actual = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    let graph = quotient(body);
    let zeros = |like: &HostTensor| vec![0.0; like.len()];
    let still = floats.iter().map(|name| {
        let like = &case.inputs[name];
        (direction(name), HostTensor::from_f64(DType::F32, like.shape().to_vec(), &zeros(like)).unwrap())
    });
    let mut inputs = case.inputs.clone();
    inputs.extend(still);
    for name in &floats {
        let like = &case.inputs[name];
        let along = |element: usize| {
            let mut values = zeros(like);
            values[element] = 1.0;
            let mut inputs = inputs.clone();
            inputs.insert(direction(name), HostTensor::from_f64(DType::F32, like.shape().to_vec(), &values).unwrap());
            oracle(&graph, &inputs, &Tensors::new()).unwrap()["q"].to_f64()[0]
        };
        let expected: Vec<f64> = (0..like.len()).map(along).collect();
        let expected = HostTensor::from_f64(DType::F32, like.shape().to_vec(), &expected).unwrap();
        let found = difference(&actual[&format!("grad.{name}")], &expected, TOLERANCE);
        assert_eq!(found, None, "{name}: {}", case.graph.text());
    }
}

/// Holds gradients to quotients, and kernels to the interpreter.
fn check(body: impl Fn(&mut Model) -> Tensor) {
    hold(&body);
    gradients(&body).0.check();
}

#[test]
fn functions_of_one_value() {
    for &op in UnaryOp::ALL {
        if op == UnaryOp::Not {
            continue;
        }
        hold(&|m: &mut Model| {
            let x = m.constant("x", [3, 5]);
            let positive = matches!(op, UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt);
            if positive { (x.square() + 0.5).unary(op) } else { x.unary(op) }
        });
    }
}

#[test]
fn functions_of_two_values_that_are_broadcast() {
    for &op in BinaryOp::ALL {
        if op.is_comparison() || matches!(op, BinaryOp::And | BinaryOp::Or) {
            continue;
        }
        for [a, b] in [[&[3, 5][..], &[3, 5]], [&[3, 1], &[5]], [&[], &[2, 4]], [&[2, 3, 1], &[3, 4]]] {
            hold(&|m: &mut Model| {
                let [a, b] = [("a", a), ("b", b)].map(|(name, extents)| {
                    let flat = m.constant(name, [extents.iter().product()]);
                    let shape: Vec<Dim> = extents.iter().map(|&n: &usize| n.into()).collect();
                    flat.reshape(shape)
                });
                let base = if op == BinaryOp::Pow { a.square() + 0.5 } else { a };
                let divisor = if matches!(op, BinaryOp::Div | BinaryOp::Mod) { b.square() + 0.5 } else { b };
                base.binary(op, &divisor)
            });
        }
    }
}

#[test]
fn choices_conversions_and_values_that_are_used_twice() {
    check(|m| {
        let [a, b] = ["a", "b"].map(|name| m.constant(name, [4, 3]));
        let c = m.constant("c", [3]);
        let chosen = a.gt(&b).select(&(&a * &c), &c);
        chosen.cast(DType::F32) * &a + &a * &b
    });
}

#[test]
fn what_is_detached_has_no_gradient() {
    let scope = Scope::new();
    let [a, b] = ["a", "b"].map(|name| scope.input(name, DType::F32, [3]));
    let graph = scope.finish(&[("out", a.detach() * &b + a.exp().detach())]).unwrap();
    let graph = differentiate(&graph, &[("out", Seed::One)], &["a", "b"]).unwrap();
    let floats = |name: &str| (name.to_owned(), Noise::new(3, name).floats(DType::F32, &[3], 1.0));
    let case = GraphCase { graph, inputs: ["a", "b"].map(floats).into_iter().collect(), parameters: Tensors::new() };
    let outputs = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    assert_eq!((outputs["grad.a"].to_f64(), &outputs["grad.b"]), (vec![0.0; 3], &case.inputs["a"]));
    case.check();
}

#[test]
fn dropout_draws_the_mask_of_its_seed_again() {
    check(|m| {
        let x = m.constant("x", [6, 5]);
        let seed = m.scope.scalar(DType::I64, 77i64);
        x.silu().dropout(0.4, &seed)
    });
}

#[test]
fn what_moves_elements() {
    check(|m| {
        let (n, extents) = (m.scope.size("n"), [3, 4, 6]);
        let x = m.x("x", [n.clone(), 4.into(), 6.into()], extents);
        let y = x.transpose(1, 2).reshape((&n, 24)).slice(1, 5, 12).flip(-1);
        let repeated = y.reshape((&n, 12, 1)).broadcast((n, 12, 2));
        &repeated * &repeated
    });
    check(|m| {
        let (a, b) = (m.scope.size("a"), m.scope.size("b"));
        let x = m.x("x", [a.clone(), 2.into()], [3, 2]);
        let y = m.x("y", [b.clone(), 2.into()], [4, 2]);
        let rows = m.scope.concat(&[&x, &y, &x.exp()], 0);
        let columns = m.scope.concat(&[&rows, &rows.square()], 1);
        columns.tanh()
    });
    check(|m| {
        let b = m.scope.size("b");
        let x = m.x("x", [2.into(), b.clone()], [2, 4]);
        let y = m.x("y", [2.into(), 3.into()], [2, 3]);
        m.scope.concat(&[&y, &x, &y], -1).tanh()
    });
}

#[test]
fn lookups_and_sums_by_index() {
    check(|m| {
        let table = m.constant("table", [5, 3]);
        m.inputs.insert("ids".to_owned(), HostTensor::i64([4, 2], &[0, 4, 4, 1, 4, 0, 2, 1]).unwrap());
        let ids = m.scope.input("ids", DType::I64, (m.scope.size("n"), 2));
        let rows = table.gather(&ids).silu();
        rows.index_add(&ids, 6).square()
    });
}

#[test]
fn patches_of_images() {
    for window in [Window::default(), Window { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 2 }] {
        check(|m| {
            let images = m.scope.size("images");
            let x = m.x("x", [images, 4.into(), 5.into(), 4.into()], [2, 4, 5, 4]);
            m.scope.apply(Unfold { kernel: [3, 2], window: window.clone() }, &[&x]).tanh()
        });
    }
}

#[test]
fn reductions_and_norms() {
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        for axis in 0..2 {
            check(|m| {
                let x = m.constant("x", [4, 5]);
                let y = match op {
                    ReduceOp::Sum => x.sum(axis),
                    ReduceOp::Max => x.max(axis),
                    ReduceOp::Min => x.min(axis),
                };
                &y * &x
            });
        }
        for lengths in LENGTHS {
            check(|m| {
                let rows = m.lengths("rows", lengths);
                let x = m.x("x", [rows.total.clone(), 3.into()], [total(lengths), 3]);
                // The largest of no rows is infinite.
                x.segment_reduce(op, &rows).jagged_broadcast(&rows) * &x
            });
        }
    }
    check(|m| {
        let (x, weight, bias) = (m.constant("x", [3, 7]), m.constant("weight", [7]), m.constant("bias", [7]));
        x.layer_norm(&weight, &bias, 1e-3) + x.rms_norm(&weight, 1e-3).softmax(-1)
    });
}

#[test]
fn rows_of_samples() {
    for lengths in LENGTHS {
        let starts: Vec<i64> = lengths.iter().map(|n| n / 3).collect();
        let counts: Vec<i64> = lengths.iter().map(|n| (n + 1) / 2).collect();
        check(|m| {
            let rows = m.lengths("rows", lengths);
            let (before, kept) = (m.lengths("starts", &starts), m.lengths("kept", &counts));
            let x = m.x("x", [rows.total.clone(), 2.into()], [total(lengths), 2]);
            let y = m.x("y", [kept.total.clone(), 2.into()], [total(&counts), 2]);
            let part = x.jagged_slice(&rows, &before.lengths, &kept) * &y;
            let (both, all) = x.square().jagged_concat(&rows, &part, &kept);
            let padded = both.jagged_to_padded(&all, &3.into(), 0.5);
            padded.padded_to_jagged(&all).tanh() + &both
        });
        check(|m| {
            let rows = m.lengths("rows", lengths);
            let x = m.x("x", [rows.batch.clone(), 2.into()], [lengths.len(), 2]);
            let y = m.x("y", [rows.total.clone(), 2.into()], [total(lengths), 2]);
            (x.jagged_broadcast(&rows) * &y).jagged_mean(&rows).tanh()
        });
    }
}

#[test]
fn products() {
    check(|m| {
        let n = m.scope.size("n");
        let x = m.x("x", [n, 5.into()], [4, 5]);
        let (weight, bias) = (m.constant("weight", [3, 5]), m.constant("bias", [3]));
        x.linear(&weight, Some(&bias)).silu()
    });
    for [a, b] in [[2usize, 2], [1, 3], [3, 1]] {
        check(|m| {
            let (a, b) = (m.constant("a", [a, 4, 3]), m.constant("b", [b, 3, 2]));
            a.matmul(&b)
        });
    }
    check(|m| {
        let (a, b) = (m.constant("a", [2, 4, 3]), m.constant("b", [3, 2]));
        a.matmul(&b).tanh()
    });
    for lengths in LENGTHS {
        check(|m| {
            let rows = m.lengths("rows", lengths);
            let x = m.x("x", [rows.total.clone(), 3.into()], [total(lengths), 3]);
            let dense = m.x("dense", [rows.batch.clone(), 3.into(), 2.into()], [lengths.len(), 3, 2]);
            x.jagged_matmul(&dense, &rows).tanh()
        });
        check(|m| {
            let rows = m.lengths("rows", lengths);
            let x = m.x("x", [rows.total.clone(), 3.into()], [total(lengths), 3]);
            let y = m.x("y", [rows.total.clone(), 2.into()], [total(lengths), 2]);
            x.jagged_jagged_matmul(&y, &rows).tanh()
        });
    }
}

/// Attention of queries to keys, with the map from scores to weights.
fn attention(
    m: &mut Model,
    [rows, keys]: [&[i64]; 2],
    weights: impl Fn(&mut Model, &Tensor, [&Ragged; 2]) -> Tensor,
) -> Tensor {
    let (queries, all_keys) = (total(rows), total(keys));
    let (rows, keys) = (m.lengths("rows", rows), m.lengths("keys", keys));
    let q = m.x("q", [rows.total.clone(), 2.into(), 3.into()], [queries, 2, 3]);
    let k = m.x("k", [keys.total.clone(), 2.into(), 3.into()], [all_keys, 2, 3]);
    let v = m.x("v", [keys.total.clone(), 2.into(), 2.into()], [all_keys, 2, 2]);
    let scores = q.scores(&k, &rows, &keys) * 0.5;
    weights(m, &scores, [&rows, &keys]).weighted_sum(&v, &rows, &keys)
}

const PAIRS: [[&[i64]; 2]; 4] = [[&[2, 0, 3, 2], &[4, 3, 1, 0]], [&[3], &[5]], [&[0, 0], &[0, 2]], [&[], &[]]];

#[test]
fn attention_with_a_mask() {
    for lengths in PAIRS {
        check(|m| {
            attention(m, lengths, |m, scores, [rows, keys]| {
                let kept = rows.row_index(keys, 2).ge(rows.key_index(keys, 2));
                kept.select(&(scores.silu() * 0.25), &m.scope.scalar(DType::F32, 0.0))
            })
        });
    }
}

#[test]
fn attention_by_softmax() {
    for lengths in PAIRS {
        hold(&|m: &mut Model| {
            attention(m, lengths, |_, scores, [rows, keys]| {
                let kept = rows.row_index(keys, 2).ge(rows.key_index(keys, 2));
                scores.softmax_scores(Some(&kept), rows, keys)
            })
        });
    }
}

#[test]
fn values_of_samples_queries_and_keys_in_scores() {
    for lengths in PAIRS {
        hold(&|m: &mut Model| {
            let samples = lengths[0].len();
            let counts = lengths.map(total);
            attention(m, lengths, |m, scores, [rows, keys]| {
                let a = m.x("a", [rows.batch.clone()], [samples]);
                let b = m.x("b", [2.into(), rows.total.clone()], [2, counts[0]]);
                let c = m.x("c", [keys.total.clone()], [counts[1]]);
                let d = m.constant("d", []);
                let sum = rows.per_sample(keys, 2, &a) + rows.per_row(keys, 2, &b) * rows.per_key(keys, 2, &c);
                (scores * &sum + &d).tanh()
            })
        });
    }
}

#[test]
fn sums_of_scores() {
    for lengths in PAIRS {
        for kind in [ScoreKind::Sample, ScoreKind::Row, ScoreKind::Key] {
            hold(&|m: &mut Model| {
                let (queries, all_keys) = (total(lengths[0]), total(lengths[1]));
                let (rows, keys) = (m.lengths("rows", lengths[0]), m.lengths("keys", lengths[1]));
                let q = m.x("q", [rows.total.clone(), 2.into(), 3.into()], [queries, 2, 3]);
                let k = m.x("k", [keys.total.clone(), 2.into(), 3.into()], [all_keys, 2, 3]);
                let scores = q.scores(&k, &rows, &keys).tanh();
                let by_key = scores.weighted_sum_by_key(&q, &rows, &keys).sum(0).sum(1).sum(2).reshape(());
                scores.reduce_scores(ReduceOp::Sum, kind, &rows, &keys).tanh() * by_key
            });
        }
    }
}

#[test]
fn an_output_of_which_nothing_wanted_is_part_has_gradients_of_zero() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [3]);
    let y = scope.input("y", DType::F32, [3]);
    let graph = scope.finish(&[("out", y.exp()), ("other", x.exp())]).unwrap();
    let graph = differentiate(&graph, &[("out", Seed::One)], &["x", "y"]).unwrap();
    let floats = |name: &str| (name.to_owned(), Noise::new(3, name).floats(DType::F32, &[3], 1.0));
    let inputs: Tensors = ["x", "y"].map(floats).into_iter().collect();
    let outputs = oracle(&graph, &inputs, &Tensors::new()).unwrap();
    assert_eq!(outputs["grad.x"].to_f64(), [0.0; 3]);
    assert_eq!(outputs["grad.y"], outputs["out"]);
}

#[test]
fn halves_have_gradients_of_halves() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F16, [4]);
    let graph = scope.finish(&[("out", x.square())]).unwrap();
    let graph = differentiate(&graph, &[("out", Seed::One)], &["x"]).unwrap();
    let inputs = Tensors::from([("x".to_owned(), Noise::new(3, "x").floats(DType::F16, &[4], 1.0))]);
    let gradient = &oracle(&graph, &inputs, &Tensors::new()).unwrap()["grad.x"];
    let doubled: Vec<f64> = inputs["x"].to_f64().iter().map(|x| 2.0 * x).collect();
    assert_eq!((gradient.dtype(), gradient.to_f64()), (DType::F16, doubled));
}

#[test]
fn wrong_names_and_types_are_errors() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [3]);
    let ids = scope.input("ids", DType::I32, [3]);
    let graph = scope.finish(&[("out", x.exp()), ("ids", &ids + 1)]).unwrap();
    let wrong = |output: &str, wanted: &str| differentiate(&graph, &[(output, Seed::One)], &[wanted]).unwrap_err();
    assert!(
        matches!(wrong("nothing", "x"), DifferentiateError::Unknown { name, known } if name == "nothing" && known == ["out", "ids"])
    );
    assert!(matches!(wrong("out", "y"), DifferentiateError::Unknown { name, .. } if name == "y"));
    assert!(matches!(wrong("out", "ids"), DifferentiateError::NotFloats { name, .. } if name == "ids"));
    assert!(matches!(wrong("ids", "x"), DifferentiateError::NotFloats { name, .. } if name == "ids"));
}
