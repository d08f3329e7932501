//! Attention over dense rows, in the forms that exporters emit.

use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor, interpret};
use rewire_graph_rewrite::schedule::{PairReduction, Schedule};
use rewire_graph_rewrite::{lower, optimize};
use std::collections::HashMap;

const HEADS: usize = 4;

/// Queries, keys and values, and a mask `[batch, 1, rows, rows]`.
fn operands(scope: &Scope) -> ([Tensor; 3], Tensor) {
    let (batch, rows) = (scope.size("batch"), scope.size("rows"));
    let shape = [batch.clone(), HEADS.into(), rows.clone(), 8.into()];
    let keep = scope.input("keep", DType::I32, &[batch, 1.into(), rows.clone(), rows]);
    (["q", "k", "v"].map(|name| scope.input(name, DType::F32, &shape)), keep.binary_scalar(BinaryOp::Gt, 0))
}

/// Attention with masked scores; the result is 0 for queries without keys.
fn masked(written: &str) -> Graph {
    let scope = Scope::new();
    let ([q, k, v], keep) = operands(&scope);
    let [hidden, zero] = [f64::NEG_INFINITY, 0.0].map(|value| scope.scalar(DType::F32, value));
    let scores = q.matmul(&k.transpose(2, 3)) * 0.5;
    let scores = match written {
        "selected" => keep.select(&scores, &hidden),
        "filled" => keep.unary(UnaryOp::Not).select(&hidden, &scores),
        _ => scores + keep.select(&zero, &hidden),
    };
    let is_hidden = |x: &Tensor| x.binary_scalar(BinaryOp::Eq, f64::NEG_INFINITY);
    let none = match written {
        "decomposed" => {
            let shown = is_hidden(&scores).unary(UnaryOp::Not).cast(DType::F32);
            shown.max(3).binary_scalar(BinaryOp::Gt, 0.5).unary(UnaryOp::Not)
        }
        _ => is_hidden(&scores.max(3)),
    };
    let y = none.select(&zero, &scores.softmax(3)).matmul(&v);
    scope.finish(&[("y", y)]).unwrap()
}

/// Attention whose weights are a function of each score, times the mask.
fn weighted() -> Graph {
    let scope = Scope::new();
    let ([q, k, v], keep) = operands(&scope);
    let weights = (q.matmul(&k.transpose(2, 3)) * 0.5).silu() * keep.cast(DType::F32);
    scope.finish(&[("y", weights.matmul(&v))]).unwrap()
}

/// Operands for which the second query of every sample has no key.
fn values(batch: usize, rows: usize) -> HashMap<String, HostTensor> {
    let tensor = |(name, seed): (&str, f32)| {
        let elements = (0..batch * HEADS * rows * 8).map(|n| ((n as f32 + seed) * 1.7).sin() * 2.0);
        let shape = vec![batch, HEADS, rows, 8];
        (name.to_owned(), HostTensor::f32(shape, &elements.collect::<Vec<_>>()).unwrap())
    };
    let mut values = HashMap::from([("q", 0.3), ("k", 7.1), ("v", 4.9)].map(tensor));
    let keep = (0..batch * rows * rows).map(|n| if n / rows % rows == 1 { 0.0 } else { f64::from(n % 3 != 1) });
    let keep = HostTensor::from_f64(DType::I32, vec![batch, 1, rows, rows], &keep.collect::<Vec<_>>()).unwrap();
    values.insert("keep".to_owned(), keep);
    values
}

/// The only kernel of a graph, after checking that it computes the same.
fn pairs(graph: &Graph) -> PairReduction {
    let (fused, _) = optimize(graph.clone()).unwrap();
    for (batch, rows) in [(1, 1), (3, 5), (2, 9)] {
        let values = values(batch, rows);
        let [expected, actual] =
            [graph, &fused].map(|graph| interpret(graph, &values, &HashMap::new()).unwrap()["y"].to_f64());
        for (a, b) in actual.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{batch} samples of {rows}: {a} instead of {b}");
        }
    }
    let plan = lower(&fused).unwrap();
    assert_eq!(plan.steps.len(), 1);
    match plan.steps[0].computation.schedule() {
        Some(Schedule::PairReduction(pairs)) => pairs.clone(),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn softmax_of_masked_scores_is_one_kernel_that_knows_the_mask() {
    for written in ["selected", "filled", "added", "decomposed"] {
        let pairs = pairs(&masked(written));
        assert!(pairs.softmax && pairs.mask.is_some(), "{written}: {pairs:?}");
    }
}

#[test]
fn attention_without_a_softmax_is_one_kernel() {
    assert!(!pairs(&weighted()).softmax);
}
