//! Padding, computation of padded rows, and removal of the padding.

use rewire_graph::op::Role;
use rewire_graph::{DType, Dim, Graph, HostTensor, Ragged, Scope, Tensor, interpret};
use rewire_graph_rewrite::passes::{Pipeline, Report};
use std::collections::HashMap;

const HEADS: usize = 2;
const WIDTH: usize = 3;

/// Rows of samples, padded to `longest`.
struct Padded {
    scope: Scope,
    rows: Ragged,
    longest: Dim,
}

impl Padded {
    fn new() -> Self {
        let scope = Scope::new();
        let batch = scope.size("batch");
        let offsets = scope.host_input("offsets", &[batch + 1.into()]);
        let rows = Ragged::from_offsets(&offsets);
        let longest = scope.size("longest");
        // Every size must be an extent of an input.
        scope.input("positions", DType::F32, std::slice::from_ref(&longest));
        scope.input("scale", DType::F32, std::slice::from_ref(&rows.batch));
        Self { scope, rows, longest }
    }

    fn jagged(&self, name: &str, width: usize) -> Tensor {
        self.scope.input(name, DType::F32, &[self.rows.total.clone(), width.into()])
    }

    fn pad(&self, x: &Tensor, fill: f64) -> Tensor {
        x.jagged_to_padded(&self.rows, &self.longest, fill)
    }

    /// Heads of padded rows, `[batch, heads, longest, width]`.
    fn heads(&self, name: &str, fill: f64) -> Tensor {
        let x = self.pad(&self.jagged(name, HEADS * WIDTH), fill);
        let shape = [self.rows.batch.clone(), self.longest.clone(), HEADS.into(), WIDTH.into()];
        x.reshape(&shape).permute(&[0, 2, 1, 3])
    }

    /// Positions `[longest]`.
    fn positions(&self) -> Tensor {
        self.scope.host_iota(self.longest.clone()).cast(DType::I64)
    }

    /// Weighted sums over the padded keys of each sample. Weights depend on the distance and on biases per head, row
    /// and sample.
    fn attention(&self, fill: f64) -> Tensor {
        let [q, k, v] = [("q", 0.5), ("k", 0.0), ("v", fill)].map(|(name, fill)| self.heads(name, fill));
        let positions = self.positions();
        let [rows, keys] = [[self.longest.clone(), 1.into()], [1.into(), self.longest.clone()]];
        let [rows, keys] = [rows, keys].map(|shape| positions.reshape(&shape));
        let slopes = self.scope.input("slopes", DType::F32, [HEADS, 1, 1]);
        let scale = self.scope.input("scale", DType::F32, std::slice::from_ref(&self.rows.batch));
        let scale = scale.reshape(&[self.rows.batch.clone(), 1.into(), 1.into(), 1.into()]);
        let bias = self.pad(&self.jagged("bias", 1), 0.0);
        let bias = bias.reshape(&[self.rows.batch.clone(), 1.into(), self.longest.clone(), 1.into()]);
        let near = (&rows - &keys).cast(DType::F32) * slopes + bias;
        let weights = (&(q.matmul(&k.transpose(2, 3)) * scale) + &near).silu() * rows.ge(&keys).cast(DType::F32);
        let shape = [self.rows.batch.clone(), self.longest.clone(), (HEADS * WIDTH).into()];
        weights.matmul(&v).permute(&[0, 2, 1, 3]).reshape(&shape)
    }

    fn finish(self, y: &Tensor) -> Graph {
        let y = y.padded_to_jagged(&self.rows);
        self.scope.finish(&[("y", y)]).unwrap()
    }
}

/// Values for samples of these lengths.
fn values(graph: &Graph, lengths: &[usize], longest: usize) -> HashMap<String, HostTensor> {
    let total: usize = lengths.iter().sum();
    let ends = lengths.iter().scan(0, |end, &length| {
        *end += length;
        Some(*end as f64)
    });
    let offsets: Vec<f64> = std::iter::once(0.0).chain(ends).collect();
    let floats = |name: &str, shape: &[usize]| {
        let seed = name.bytes().map(f32::from).sum::<f32>();
        let count: usize = shape.iter().product();
        let elements: Vec<f32> = (0..count).map(|n| ((n as f32 + seed) * 1.7).sin()).collect();
        (name.to_owned(), HostTensor::f32(shape, &elements).unwrap())
    };
    let rows = [("q", HEADS * WIDTH), ("k", HEADS * WIDTH), ("v", HEADS * WIDTH), ("bias", 1), ("x", 4)];
    let mut values: HashMap<String, HostTensor> =
        rows.iter().map(|(name, width)| floats(name, &[total, *width])).collect();
    values.extend([
        floats("slopes", &[HEADS, 1, 1]),
        floats("scale", &[lengths.len()]),
        floats("weight", &[4, 5]),
        floats("table", &[longest, 5]),
        floats("positions", &[longest]),
    ]);
    let offsets = HostTensor::from_f64(DType::I32, vec![offsets.len()], &offsets).unwrap();
    values.insert("offsets".to_owned(), offsets);
    values.retain(|name, _| graph.ids().any(|id| graph.role(id).and_then(Role::name) == Some(name)));
    values
}

/// The rewritten graph, after checking that it computes the same for short, long and empty samples.
fn checked(graph: &Graph) -> (Graph, Report) {
    let (rewritten, report) = Pipeline::default().explain().run(graph.clone()).unwrap();
    for (lengths, longest) in [(&[3, 0, 5, 1][..], 5), (&[4], 4), (&[7, 2], 5), (&[2, 1], 6), (&[0, 0], 3)] {
        let values = values(graph, lengths, longest);
        let [expected, actual] =
            [graph, &rewritten].map(|graph| interpret(graph, &values, &HashMap::new()).unwrap()["y"].to_f64());
        assert_eq!(expected.len(), actual.len());
        for (a, b) in actual.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b} of {lengths:?} to {longest}");
        }
    }
    (rewritten, report)
}

/// True if a graph pads rows after the rules.
fn is_padded(graph: &Graph) -> bool {
    Pipeline::default().up_to(2).run(graph.clone()).unwrap().0.counts().contains_key("jagged_to_padded")
}

#[test]
fn attention_between_padding_and_its_removal_loops_over_the_rows_of_each_sample() {
    let padded = Padded::new();
    let y = padded.attention(0.0);
    let graph = padded.finish(&y);
    let (rewritten, _) = checked(&graph);
    assert!(!is_padded(&graph));
    let kernels = rewritten.ids().filter(|&id| matches!(rewritten.role(id), Some(Role::Fused(_)))).count();
    assert_eq!((kernels, rewritten.counts().get("attention")), (1, Some(&1)));
}

#[test]
fn functions_of_padded_rows_are_functions_of_rows() {
    let padded = Padded::new();
    let x = padded.pad(&padded.jagged("x", 4), 2.0);
    let weight = padded.scope.input("weight", DType::F32, [4, 5]);
    let table = padded.scope.input("table", DType::F32, &[padded.longest.clone(), 5.into()]);
    let y = &x.matmul(&weight) + &table;
    let y = &y - &y.sum(2);
    let graph = padded.finish(&y.tanh());
    checked(&graph);
    assert!(!is_padded(&graph));
}

#[test]
fn keys_that_are_padded_with_other_values_stay() {
    let padded = Padded::new();
    let y = padded.attention(1.0);
    let graph = padded.finish(&y);
    let (_, report) = checked(&graph);
    assert!(is_padded(&graph));
    let missed = report.passes.iter().flat_map(|pass| &pass.near_misses);
    let reasons: Vec<&str> =
        missed.filter(|near| near.rule == "padding and back").map(|near| near.reason.as_str()).collect();
    assert_eq!(reasons, ["the summed rows of a sample are not padded with zeros"]);
}

#[test]
fn sums_over_the_rows_of_a_sample_stay() {
    let padded = Padded::new();
    let x = padded.pad(&padded.jagged("x", 4), 2.0);
    let y = &x - &x.sum(1);
    let graph = padded.finish(&y);
    checked(&graph);
    assert!(is_padded(&graph));
}

#[test]
fn a_padded_product_that_is_also_a_result_stays() {
    let padded = Padded::new();
    let x = padded.pad(&padded.jagged("x", 4), 0.0);
    let weight = padded.scope.input("weight", DType::F32, [4, 5]);
    let product = x.matmul(&weight);
    let y = product.exp().padded_to_jagged(&padded.rows);
    let graph = padded.scope.finish(&[("y", y), ("padded", product)]).unwrap();
    checked(&graph);
    assert!(is_padded(&graph));
}
