//! Functions of a row and its reductions.

use super::*;
use rewire_graph::{Ragged, Seed, differentiate};
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::schedule::Schedule;
use rewire_tests::case::GraphCase;

#[test]
fn softmax_is_one_kernel_with_what_surrounds_it() {
    let plan = plan_of(16, |_, x| vec![&(&(x * 0.5) + 1.0).softmax(1) * 2.0]);
    assert_eq!(names(&plan), ["softmax"]);
}

type Norm = fn(&Tensor, &Tensor, &Tensor) -> Tensor;

/// Layer norm, written in the ways that models write it.
fn layer_norms() -> Vec<(&'static str, Norm)> {
    vec![
        ("normalize", |x, w, b| x.layer_norm(w, b, 1e-5)),
        ("division", |x, w, b| {
            let centered = x - &x.mean(1);
            let deviation = (&centered.square().mean(1) + 1e-5).sqrt();
            &(&(&centered / &deviation) * w) + b
        }),
        ("separate subtractions", |x, w, b| {
            let variance = (x - &x.mean(1)).square().sum(1);
            let scale = (&(&variance / 16.0) + 1e-5).rsqrt();
            &(&(&(x - &x.mean(1)) * &scale) * w) + b
        }),
        ("raw moments", |x, w, b| {
            let variance = &x.square().mean(1) - &x.mean(1).square();
            &(&(&(x - &x.mean(1)) * &(&variance + 1e-5).rsqrt()) * w) + b
        }),
    ]
}

#[test]
fn layer_norm_is_one_kernel_however_it_is_written() {
    for (name, norm) in layer_norms() {
        let plan = plan_of(16, |scope, x| {
            vec![norm(&x.silu(), &weight(scope, "w", &[16]), &weight(scope, "b", &[16])).tanh()]
        });
        assert_eq!(plan.steps.len(), 1, "{name}: {:?}", names(&plan));
        let schedule = plan.steps[0].computation.schedule();
        assert!(matches!(schedule, Some(Schedule::Reduction(_))), "{name}");
    }
}

#[test]
fn norms_whose_statistics_gradients_read_write_what_products_read() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 64.into()]);
    let normed = x.layer_norm(&weight(&scope, "w", &[64]), &weight(&scope, "b", &[64]), 1e-6);
    let y = normed.matmul(&weight(&scope, "m", &[64, 32]));
    let (forward, seeds) = (scope.finish(&[("y", y)]).unwrap(), [("y", Seed::Input("dy"))]);
    let graph = differentiate(&forward, &seeds, &["x", "w", "b", "m"]).unwrap();
    for storage in [F32, DType::F16] {
        let (fused, _) = Pipeline::default().for_storage(storage).run(graph.clone()).unwrap();
        let plan = lower(&fused).unwrap();
        assert!(!names(&plan).contains(&"pointwise"), "{storage}: {:?}", names(&plan));
    }
    GraphCase::random(graph, &[("rows", 37)], 5).check();
}

#[test]
fn norms_with_a_residual_or_a_gate_are_one_kernel() {
    let plan = plan_of(16, |scope, x| {
        let (w, b) = (weight(scope, "w", &[16]), weight(scope, "b", &[16]));
        vec![x + &x.swish_layer_norm(&w, &b, 1e-6), x.rms_norm(&w, 1e-6)]
    });
    assert!(plan.steps.len() <= 2, "{:?}", names(&plan));
}

type RowFunction = fn(&Scope, &Tensor) -> Tensor;

/// Functions of a row whose reductions read one another, with the name of their kernel.
const ROW_FUNCTIONS: [(&str, RowFunction); 8] = [
    ("rms_norm", |scope, x| x.rms_norm(&weight(scope, "w", &[25]), 1e-6)),
    // The logarithm of a sum of exponentials, and the log softmax.
    ("softmax", |_, x| &(x - &x.max(1)).exp().sum(1).log() + &x.max(1)),
    ("softmax", |_, x| {
        let shifted = x - &x.max(1);
        &shifted - &shifted.exp().sum(1).log()
    }),
    // Softmax pooling.
    ("softmax", |scope, x| (&x.softmax(1) * &scope.input("values", F32, x.shape())).sum(1)),
    // A norm of a norm, the softmax of a norm, the product of a norm with a vector.
    ("layer_norm", |scope, x| normed(scope, x).rms_norm(&weight(scope, "v", &[25]), 1e-6)),
    ("softmax", |scope, x| normed(scope, x).softmax(1)),
    ("layer_norm", |scope, x| (&normed(scope, x) * &weight(scope, "v", &[25])).sum(1)),
    // The cosine of two rows.
    ("reduce", |scope, x| {
        let unit = |x: &Tensor| x / &x.square().sum(1).sqrt().clamp(Some(1e-6), None);
        (&unit(x) * &unit(&scope.input("y", F32, x.shape()))).sum(1)
    }),
];

fn normed(scope: &Scope, x: &Tensor) -> Tensor {
    x.layer_norm(&weight(scope, "w", &[25]), &weight(scope, "b", &[25]), 1e-6)
}

#[test]
fn reductions_of_a_row_that_read_one_another_are_one_kernel() {
    for (number, (name, function)) in ROW_FUNCTIONS.iter().enumerate() {
        let plan = plan_of(25, |scope, x| vec![function(scope, x)]);
        assert_eq!(names(&plan), [*name], "function {number}");
    }
}

#[test]
fn a_gate_of_one_column_is_a_reduction_of_the_row_it_scales() {
    let plan = plan_of(25, |scope, x| vec![x * &linear(scope, "gate", x, 1).sigmoid()]);
    assert_eq!(names(&plan), ["reduce"]);
}

#[test]
fn rows_that_products_of_halves_would_search_for_are_stored() {
    let names_of = |storage: DType, model: &dyn Fn(&Scope, &Tensor, &Ragged) -> Tensor| {
        let scope = Scope::new();
        let rows = scope.lengths("lengths", scope.size("batch"));
        let x = scope.input("x", F32, &[rows.total.clone(), 64.into()]);
        let y = model(&scope, &x, &rows);
        let pipeline = Pipeline::default().for_storage(storage);
        let mut plan = lower(&pipeline.run(scope.finish(&[("y", y)]).unwrap()).unwrap().0).unwrap();
        plan.store_floats_as(storage);
        names(&plan).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let other = |scope: &Scope, rows: &Ragged| {
        let other = scope.lengths("other_lengths", rows.batch.clone());
        (scope.input("other", F32, &[other.total.clone(), 64.into()]), other)
    };
    let left = |scope: &Scope, x: &Tensor, rows: &Ragged| {
        let (y, others) = other(scope, rows);
        linear(scope, "a", &x.jagged_concat(rows, &y, &others).0, 128).silu()
    };
    let residual = |scope: &Scope, x: &Tensor, rows: &Ragged| {
        let (y, others) = other(scope, rows);
        &linear(scope, "a", &y, 64) + &x.jagged_tail(rows, &others)
    };
    // Rows are picked before the product.
    let picked = |scope: &Scope, x: &Tensor, rows: &Ragged| {
        let (_, others) = other(scope, rows);
        linear(scope, "a", x, 64).jagged_tail(rows, &others)
    };
    for model in [&left as &dyn Fn(&Scope, &Tensor, &Ragged) -> Tensor, &residual, &picked] {
        assert_eq!(names_of(DType::F16, model), ["pointwise", "addmm"]);
        assert_eq!(names_of(F32, model), ["addmm"]);
    }
    // The norm that searches for the rows as well stores them.
    let normed = |scope: &Scope, x: &Tensor, rows: &Ragged| {
        let (_, others) = other(scope, rows);
        let x = x.jagged_tail(rows, &others);
        let (w, b) = (weight(scope, "w", &[64]), weight(scope, "b", &[64]));
        &linear(scope, "a", &x.layer_norm(&w, &b, 1e-5), 64) + &x
    };
    assert_eq!(names_of(DType::F16, &normed), ["layer_norm", "addmm"]);
}
