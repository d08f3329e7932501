//! Graphs whose expressions grow: kernels end before they exceed their maximum size, and neither time nor recursion is
//! unbounded.

use rewire_emit::emit;
use rewire_graph::limits::{MAX_CHOICES, MAX_LOADS};
use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor, interpret};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_runtime::Kernel;
use rewire_tests::backend::{oracle, plan};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::Tolerance;
use std::collections::HashMap;

const F32: DType = DType::F32;

/// Panics unless the CPU computes the graph correctly. Software drivers are slow for such large kernels.
fn check(case: &GraphCase) {
    let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    assert_eq!(case.differences(Kernel::Cpu, &expected, Tolerance::SINGLE).unwrap(), [""; 0]);
}

/// Rounds in each of which every column is read at two more places.
fn rounds(x: Tensor, scope: &Scope, count: usize) -> Tensor {
    let width = x.width();
    (0..count).fold(x, |x, round| {
        let cut = 1 + 7 * round;
        let turned = scope.concat(&[&x.slice(1, cut, width - cut), &x.slice(1, 0, cut)], 1);
        &(&turned * 0.5) + &x
    })
}

#[test]
fn rounds_of_slices_and_concatenations_are_several_kernels() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 4096.into()]);
    let graph = scope.clone().finish(&[("y", rounds(x, &scope, 12))]).unwrap();
    let case = GraphCase::random(graph, &[("rows", 2)], 5);
    let lowered = plan(&case.graph).unwrap();
    assert!((2..40).contains(&lowered.steps.len()), "{} steps", lowered.steps.len());
    let loads =
        lowered.steps.iter().map(|step| serde_json::to_string(&step.computation).unwrap().matches("\"Load\"").count());
    let most = loads.max().unwrap_or(0);
    assert!((MAX_LOADS / 8..=MAX_LOADS).contains(&most), "{most} loads");
    check(&case);
}

#[test]
fn rounds_before_a_product_and_a_norm_are_several_kernels() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 160.into()]);
    let weight = scope.parameter("weight", F32, &[160.into(), 4.into()]);
    let turned = rounds(x, &scope, 11);
    let outputs = [("product", turned.matmul(&weight)), ("norm", turned.normalize(1e-3))];
    let case = GraphCase::random(scope.finish(&outputs).unwrap(), &[("rows", 3)], 6);
    check(&case);
}

/// `where(c, x, y)` of `where(c, x, y)` of ..., each of another element of `x`.
fn choices(count: usize) -> Graph {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let [x, y] = ["x", "y"].map(|name| scope.input(name, F32, &[rows.clone(), 32.into()]));
    let turned = |n: usize| scope.concat(&[&y.slice(1, n, 32 - n), &y.slice(1, 0, n)], 1);
    let chosen = (0..count).fold(x.clone(), |z, n| {
        x.gt(scope.scalar(F32, n as f64 / count as f64)).select(&turned(1 + n % 31).silu(), &z)
    });
    scope.finish(&[("y", chosen)]).unwrap()
}

#[test]
fn choices_within_one_another_are_several_kernels() {
    let case = GraphCase::random(choices(3 * MAX_CHOICES / 2), &[("rows", 2)], 7);
    assert!(case.steps().len() > 1);
    for step in plan(&case.graph).unwrap().steps {
        emit(&step.computation, &Target::BASELINE, &Tuning::default()).unwrap();
    }
    check(&case);
}

/// Branches that both need an earlier choice.
#[test]
fn choices_that_share_a_side_end() {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let [x, y] = ["x", "y"].map(|name| scope.input(name, F32, &[rows.clone(), 8.into()]));
    let z = (0..40).fold(x.clone(), |z, n| {
        let [one, other] = [n, n + 1].map(|n| y.gt(scope.scalar(F32, f64::from(n) / 40.0)));
        one.select(&z, &other.select(&z, &(&y + f64::from(n)).exp()))
    });
    let case = GraphCase::random(scope.finish(&[("z", z)]).unwrap(), &[("rows", 2)], 8);
    check(&case);
}

/// Values that do not depend on a reduction's loop are searched only once.
#[test]
fn values_read_twice_take_no_more_time() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 8.into()]);
    let y = (0..60).fold(x, |y, _| &(&y + &y) * 0.5);
    let case = GraphCase::random(scope.finish(&[("y", y.clone()), ("sum", y.sum(1))]).unwrap(), &[("rows", 3)], 9);
    check(&case);
}

/// Attention whose mask has this many operators in a row.
fn masked(operators: usize) -> Graph {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", scope.size("samples"));
    let q = scope.input("q", F32, &[rows.total.clone(), 1.into(), 4.into()]);
    let (row, key) = (rows.row_index(&rows, 1), rows.key_index(&rows, 1));
    let mask = (0..operators / 2).fold(row.ge(&key), |mask, n| {
        let other = scope.scalar(DType::I32, n as f64);
        mask.and(key.not_equal(&(&other + &row)))
    });
    let weights = mask.select(&q.scores(&q, &rows, &rows), &scope.scalar(F32, 0.0));
    scope.finish(&[("y", weights.weighted_sum(&q, &rows, &rows))]).unwrap()
}

#[test]
fn masks_of_many_operators_run() {
    let graph = masked(200);
    let q = HostTensor::f32(vec![7, 1, 4], &(0..28).map(|n| (n as f32 * 0.7).sin()).collect::<Vec<_>>()).unwrap();
    let inputs = HashMap::from([("lengths".to_owned(), HostTensor::lengths(&[5, 0, 2])), ("q".to_owned(), q)]);
    GraphCase { graph, inputs, parameters: HashMap::new() }.check();
}

#[test]
fn masks_beyond_a_kernel_are_an_error() {
    for operators in [1200, 4000] {
        let error = plan(&masked(operators)).unwrap_err();
        assert!(error.contains("lower: attention: has ") && error.contains(", more than "), "{error}");
    }
}

#[test]
fn thousands_of_parts_are_joined() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 3.into()]);
    let parts: Vec<Tensor> = (0..3000).map(|n| x.slice(1, n % 3, 1)).collect();
    let joined = scope.concat(&parts.iter().collect::<Vec<_>>(), 1);
    let graph = scope.finish(&[("y", joined)]).unwrap();
    let x = HostTensor::f32(vec![1, 3], &[1.0, 2.0, 3.0]).unwrap();
    let y = &interpret(&graph, &HashMap::from([("x".to_owned(), x)]), &HashMap::new()).unwrap()["y"];
    assert_eq!((y.len(), y.to_f64()[2999], y.to_f64()[1]), (3000, 3.0, 2.0));
}

#[test]
fn layers_are_lowered_alike() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 8.into()]);
    let y = (0..300).fold(x, |x, n| {
        scope.module(&format!("layers.{n}"), |layer| {
            let weight = layer.parameter("weight", F32, &[8.into(), 8.into()]);
            &x + &x.normalize(1e-3).matmul(&weight).silu()
        })
    });
    let case = GraphCase::random(scope.finish(&[("y", y)]).unwrap(), &[("rows", 1)], 10);
    let lowered = plan(&case.graph).unwrap();
    assert_eq!(lowered.steps.len() % 300, 0);
    let first = &lowered.steps[1];
    let alike = lowered.steps.iter().filter(|step| step.computation == first.computation).count();
    assert!(alike >= 298, "{alike} of {}", lowered.steps.len());
    check(&case);
}
