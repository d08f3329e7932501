//! Slices of permuted results, whose last axis is not the last one of the loop.

use rewire_graph::{DType, HostTensor, Scope, Tensor};
use rewire_tests::backend::Tensors;
use rewire_tests::case::GraphCase;
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;

/// Parts of the last axis: the first entries, the last ones, one, and all.
fn parts(x: &Tensor) -> Vec<(String, Tensor)> {
    let extent = x.width();
    let cuts = [(0, 2), (1, extent - 1), (extent - 1, 1), (0, extent)];
    cuts.map(|(start, len)| (format!("{start}+{len}"), x.slice(x.rank() - 1, start, len))).into()
}

/// Checks each part by itself, as the only output.
fn check(inputs: &Tensors, trace: impl Fn(&Scope) -> Tensor) {
    for number in 0..4 {
        let scope = Scope::new();
        let (name, part) = parts(&trace(&scope)).swap_remove(number);
        let graph = scope.finish(&[(&name, part)]).unwrap();
        GraphCase { graph, inputs: inputs.clone(), parameters: Tensors::new() }.check();
    }
}

fn floats(inputs: &mut Tensors, name: &str, shape: &[usize]) {
    inputs.insert(name.to_owned(), Noise::new(3, name).floats(F32, shape, 1.0));
}

#[test]
fn rows_of_a_product_are_cut_where_they_become_columns() {
    for columns in [1, 2, 10, 70] {
        let mut inputs = Tensors::new();
        floats(&mut inputs, "a", &[4, 3, 8]);
        floats(&mut inputs, "b", &[8, columns]);
        let product = |scope: &Scope| {
            let (a, b) = (
                scope.input("a", F32, &[4.into(), 3.into(), 8.into()]),
                scope.input("b", F32, &[8.into(), columns.into()]),
            );
            a.matmul(&b)
        };
        check(&inputs, |scope| product(scope).permute(&[0, 2, 1]));
        check(&inputs, |scope| product(scope).permute(&[1, 2, 0]));
        check(&inputs, |scope| product(scope).permute(&[0, 2, 1]).reshape(&[(4 * columns).into(), 3.into()]));
    }
}

/// Rows of samples of 3, 0, 5 and 1, each of two heads of three columns.
fn samples(names: &[&str]) -> Tensors {
    let mut inputs = Tensors::new();
    names.iter().for_each(|name| floats(&mut inputs, name, &[9, 2, 3]));
    inputs.insert("lengths".to_owned(), HostTensor::lengths(&[3, 0, 5, 1]));
    inputs
}

#[test]
fn heads_of_sums_of_samples_are_cut_where_they_become_columns() {
    check(&samples(&["x"]), |scope| {
        let rows = scope.lengths("lengths", &scope.size("batch"));
        let x = scope.input("x", F32, &[rows.total.clone(), 2.into(), 3.into()]);
        x.jagged_sum(&rows).permute(&[0, 2, 1])
    });
}

#[test]
fn heads_of_attention_are_cut_where_they_become_columns() {
    for softmax in [false, true] {
        check(&samples(&["q", "k", "v"]), |scope| {
            let rows = scope.lengths("lengths", &scope.size("batch"));
            let shape = [rows.total.clone(), 2.into(), 3.into()];
            let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, F32, &shape));
            let scores = q.scores(&k, &rows, &rows);
            let weights = if softmax { scores.softmax_scores(None, &rows, &rows) } else { scores.silu() };
            weights.weighted_sum(&v, &rows, &rows).permute(&[0, 2, 1])
        });
    }
}
