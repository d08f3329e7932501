//! Attention to queries, keys and values that are NaN or infinite.

use super::*;
use rewire_graph::{Graph, Ragged};
use rewire_runtime::Session;
use rewire_tests::noise::Noise;

const LENGTHS: [i64; 4] = [5, 70, 0, 33];
const HEADS: usize = 2;
const WIDTH: usize = 8;

/// Rows of all samples.
const ROWS: usize = 108;

fn weights(scope: &Scope, scores: &Tensor, rows: &Ragged, softmax: bool) -> Tensor {
    let keep = rows.row_index(rows, HEADS).ge(&rows.key_index(rows, HEADS));
    match softmax {
        true => scores.softmax_scores(Some(&keep), rows, rows),
        false => keep.select(&scores.silu(), &scope.scalar(F32, 0.0)),
    }
}

/// Causal attention: by sigmoid linear units, or by softmax.
fn attention(dtype: DType, softmax: bool) -> Graph {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let shape = [rows.total.clone(), HEADS.into(), WIDTH.into()];
    let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, dtype, &shape));
    let scores = &q.scores(&k, &rows, &rows) * 0.35;
    let y = weights(&scope, &scores, &rows, softmax).weighted_sum(&v, &rows, &rows);
    scope.finish(&[("y", y)]).unwrap()
}

/// Queries, keys and values, in one of which `value` stands in a row of the second head.
fn inputs(dtype: DType, changed: &str, row: usize, value: f64) -> Tensors {
    let shape = [ROWS, HEADS, WIDTH];
    let tensor = |name: &str| {
        let mut values = Noise::new(2, name).floats(dtype, &shape, 2.0).to_f64();
        if name == changed {
            values[(row * HEADS + 1) * WIDTH + 3] = value;
        }
        (name.to_owned(), HostTensor::from_f64(dtype, shape.to_vec(), &values).unwrap())
    };
    let mut inputs: Tensors = ["q", "k", "v"].map(tensor).into();
    inputs.insert("lengths".to_owned(), HostTensor::lengths(&LENGTHS));
    inputs
}

/// Rows of the second sample: the first, some between, and the last.
const CHANGED: [usize; 4] = [5, 30, 48, 74];

fn kernels_of(graph: &Graph) -> Vec<(String, Session)> {
    let session = |(name, options)| (name, load(graph, &Tensors::new(), options).unwrap());
    kernels().into_iter().map(session).collect()
}

fn y(results: Results) -> Vec<f64> {
    results["y"].to_f64()
}

/// Attention by sigmoid linear units and by softmax, in both types.
fn each(check: impl Fn(bool, DType, &Graph)) {
    for softmax in [false, true] {
        for dtype in [F32, DType::F16] {
            check(softmax, dtype, &attention(dtype, softmax));
        }
    }
}

/// Queries reach their own results, keys those of the queries that see them, and nothing reaches others.
#[test]
fn queries_and_keys_reach_what_sees_them() {
    each(|softmax, dtype, graph| {
        let mut kernels = kernels_of(graph);
        for (changed, row) in ["q", "k"].into_iter().flat_map(|name| CHANGED.map(|row| (name, row))) {
            let values = if softmax { vec![f64::NAN] } else { vec![f64::NAN, f64::INFINITY] };
            for value in values {
                let inputs = inputs(dtype, changed, row, value);
                let expected = y(oracle(graph, &inputs, &Tensors::new()).unwrap());
                for (kernel, session) in &mut kernels {
                    let actual = y(run(session, &inputs).unwrap());
                    let place = (0..actual.len()).find(|&n| is_another_kind(actual[n], expected[n]));
                    let text = place.map(|n| format!("{:?}, not {:?} at {n}", actual[n], expected[n]));
                    assert_eq!(text, None, "{kernel}, softmax {softmax}, {dtype}: {value} in {changed}, row {row}");
                }
            }
        }
    });
}

/// A value that is not a number is in the results of all queries that see it, and in no result of another sample, head or column,
/// which are the same to the bit. A query of the same sample and head that does not see it has NaN or what it has without:
/// by the decomposition, 0 times the value, it is NaN; kernels pass over tiles of which nothing is seen.
#[test]
fn values_reach_what_sees_them() {
    each(|softmax, dtype, graph| {
        let mut kernels: Vec<_> = kernels_of(graph)
            .into_iter()
            .map(|(name, mut session)| {
                let without = y(run(&mut session, &inputs(dtype, "", 0, 0.0)).unwrap());
                (name, session, without)
            })
            .collect();
        for (row, value) in CHANGED.into_iter().flat_map(|row| [(row, f64::NAN), (row, f64::INFINITY)]) {
            let given = inputs(dtype, "v", row, value);
            let meant = y(oracle(graph, &given, &Tensors::new()).unwrap());
            for (kernel, session, without) in &mut kernels {
                let actual = y(run(session, &given).unwrap());
                for (n, &y) in actual.iter().enumerate() {
                    let (at, head, column) = (n / (HEADS * WIDTH), n / WIDTH % HEADS, n % WIDTH);
                    let same_place = (5..75).contains(&at) && head == 1 && column == 3;
                    let (sees, is_same) = (same_place && at >= row, y.to_bits() == without[n].to_bits());
                    let fits = match (sees, same_place) {
                        (true, _) => y.is_nan() || value.is_infinite() && y.is_infinite(),
                        (false, true) => meant[n].is_nan() && (y.is_nan() || is_same),
                        (false, false) => is_same,
                    };
                    assert!(fits, "{kernel}, softmax {softmax}, {dtype}: {value} in row {row}, at {n}: {y}");
                }
            }
        }
    });
}

/// Queries whose mask compares with NaN attend to nothing, and others of the same tile are not affected.
#[test]
fn masks_compare_with_anything() {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let shape = [rows.total.clone(), HEADS.into(), WIDTH.into()];
    let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, F32, &shape));
    let limit = scope.input("limit", F32, std::slice::from_ref(&rows.total));
    let keys = rows.key_index(&rows, HEADS).cast(F32);
    let keep = rows.per_row(&rows, HEADS, &limit).gt(&keys);
    let weights = keep.select(&q.scores(&k, &rows, &rows).silu(), &scope.scalar(F32, 0.0));
    let y = weights.weighted_sum(&v, &rows, &rows);
    let graph = scope.finish(&[("y", y)]).unwrap();
    let mut inputs = inputs(F32, "", 0, 0.0);
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN];
    let limits: Vec<f32> = (0..ROWS).map(|n| if n % 7 == 3 { odd[n % 4] } else { (n * 29 % 71) as f32 }).collect();
    inputs.insert("limit".to_owned(), tensor(&[ROWS], &limits));
    let expected = oracle(&graph, &inputs, &Tensors::new()).unwrap();
    for (name, options) in kernels() {
        let actual = run(&mut load(&graph, &Tensors::new(), options).unwrap(), &inputs).unwrap();
        let tolerance = rewire_tests::compare::Tolerance::SINGLE;
        let found = rewire_tests::compare::differences(&actual, &expected, tolerance);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}
