//! Sums by sample, by index and over pairs, as loops.

use rewire_graph::op::{ReduceOp, ScoreKind};
use rewire_graph::{DType, HostTensor, Ragged, Scope, Tensor};
use rewire_tests::backend::{Tensors, oracle};
use rewire_tests::compare::{Tolerance, difference};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;

/// The interpreter sums in double precision, as these loops do.
const TOLERANCE: Tolerance = Tolerance { relative: 1e-6, floor: 1e-3 };

const LENGTHS: [&[usize]; 6] = [&[3, 0, 5, 1], &[7], &[1], &[0, 0, 0], &[0, 4], &[]];

const OPS: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min];

fn combine(op: ReduceOp, values: impl Iterator<Item = f64>) -> f64 {
    match op {
        ReduceOp::Sum => values.fold(0.0, |a, b| a + b),
        ReduceOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
    }
}

fn noise(name: &str, shape: &[usize]) -> HostTensor {
    Noise::new(11, name).floats(F32, shape, 2.0)
}

fn lengths(lengths: &[usize]) -> HostTensor {
    HostTensor::lengths(&lengths.iter().map(|&n| n as i64).collect::<Vec<_>>())
}

/// The rows of every sample.
fn samples(lengths: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut end = 0;
    lengths
        .iter()
        .map(|n| {
            end += n;
            end - n..end
        })
        .collect()
}

fn hold(scope: Scope, y: Tensor, inputs: &[(&str, HostTensor)], shape: &[usize], expected: &[f64]) {
    let graph = scope.finish(&[("y", y)]).unwrap();
    let inputs: Tensors = inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
    let actual = oracle(&graph, &inputs, &Tensors::new()).unwrap();
    let expected = HostTensor::from_f64(F32, shape.to_vec(), expected).unwrap();
    assert_eq!(difference(&actual["y"], &expected, TOLERANCE), None, "{}", graph.text());
}

#[test]
fn products_are_summed_over_the_rows_of_a_sample() {
    let (k, n) = (5, 3);
    for divided in LENGTHS {
        let total: usize = divided.iter().sum();
        let (x, y) = (noise("x", &[total, k]), noise("y", &[total, n]));
        let (a, b) = (x.to_f64(), y.to_f64());
        let mut expected = vec![];
        for rows in samples(divided) {
            for i in 0..k {
                for j in 0..n {
                    expected.push(rows.clone().map(|row| a[row * k + i] * b[row * n + j]).sum());
                }
            }
        }
        let scope = Scope::new();
        let rows = scope.lengths("rows", &scope.size("batch"));
        let of = |name, width: usize| scope.input(name, F32, &[rows.total.clone(), width.into()]);
        let out = of("x", k).jagged_jagged_matmul(&of("y", n), &rows);
        hold(scope, out, &[("x", x), ("y", y), ("rows", lengths(divided))], &[divided.len(), k, n], &expected);
    }
}

#[test]
fn a_dense_product_sums_over_any_number_of_rows() {
    let (k, n) = (4, 3);
    for total in [0, 1, 17] {
        let (x, y) = (noise("x", &[total, k]), noise("y", &[total, n]));
        let (a, b) = (x.to_f64(), y.to_f64());
        let product = |at: usize| (0..total).map(|row| a[row * k + at / n] * b[row * n + at % n]).sum();
        let expected: Vec<f64> = (0..k * n).map(product).collect();
        let scope = Scope::new();
        let rows = scope.size("rows");
        let of = |name, width: usize| scope.input(name, F32, &[rows.clone(), width.into()]);
        let out = of("x", k).permute(&[1, 0]).matmul(&of("y", n));
        hold(scope, out, &[("x", x), ("y", y)], &[k, n], &expected);
    }
}

#[test]
fn the_rows_of_a_sample_are_combined() {
    for op in OPS {
        for divided in LENGTHS {
            for inner in [&[][..], &[3], &[2, 3]] {
                let (total, width) = (divided.iter().sum::<usize>(), inner.iter().product::<usize>());
                let x = noise("x", &[&[total], inner].concat());
                let values = x.to_f64();
                let element =
                    |rows: std::ops::Range<usize>, i: usize| combine(op, rows.map(|row| values[row * width + i]));
                let expected: Vec<f64> = samples(divided)
                    .into_iter()
                    .flat_map(|rows| (0..width).map(move |i| (rows.clone(), i)))
                    .map(|(rows, i)| element(rows, i))
                    .collect();
                let scope = Scope::new();
                let rows = scope.lengths("rows", &scope.size("batch"));
                let axes = inner.iter().map(|&n| n.into());
                let axes: Vec<_> = std::iter::once(rows.total.clone()).chain(axes).collect();
                let out = scope.input("x", F32, &axes).segment_reduce(op, &rows);
                let shape = [&[divided.len()], inner].concat();
                hold(scope, out, &[("x", x), ("rows", lengths(divided))], &shape, &expected);
            }
        }
    }
}

/// Sums by an index of any shape and type that is computed, so that nothing checks it.
fn sum_by_index(dtype: DType, outer: &[usize], inner: &[usize], rows: usize, far: i64) {
    let (count, width) = (outer.iter().product::<usize>(), inner.iter().product::<usize>());
    let values = noise("values", &[outer, inner].concat());
    let index = Noise::new(3, "index").integers(dtype, outer, -2, rows as i64 + 3);
    let mut expected = vec![0.0; rows * width];
    for from in 0..count {
        let row = (index.to_i64()[from] * far).clamp(0, rows as i64 - 1) as usize;
        (0..width).for_each(|i| expected[row * width + i] += values.to_f64()[from * width + i]);
    }
    let scope = Scope::new();
    let outer: Vec<_> = (0..outer.len()).map(|axis| scope.size(&format!("outer {axis}"))).collect();
    let axes = outer.iter().cloned().chain(inner.iter().map(|&n| n.into())).collect::<Vec<_>>();
    let by = &scope.input("index", dtype, &outer) * far as f64;
    let out = scope.input("values", F32, &axes).index_add(&by, &rows.into());
    hold(scope, out, &[("values", values), ("index", index)], &[&[rows], inner].concat(), &expected);
}

#[test]
fn values_are_summed_by_index() {
    for dtype in [DType::I32, DType::I64] {
        for rows in [1, 2, 9] {
            sum_by_index(dtype, &[13], &[3], rows, 1);
            sum_by_index(dtype, &[2, 5], &[2, 3], rows, 1);
            sum_by_index(dtype, &[6], &[], rows, 1);
            sum_by_index(dtype, &[0], &[3], rows, 1);
        }
    }
    sum_by_index(DType::I64, &[40], &[1], 4, 1 << 33);
}

#[test]
fn sums_by_index_have_as_many_rows_as_another_tensor() {
    for rows in [0, 1, 5] {
        let scope = Scope::new();
        let like = scope.input("like", F32, &[scope.size("rows")]);
        let index = scope.input("index", DType::I32, &[scope.size("n")]);
        let sums = scope.input("values", F32, &[index.dim(0), 2.into()]).index_add(&(&index * 1.0), &like.dim(0));
        let n = if rows == 0 { 0 } else { 4 };
        let index = Noise::new(2, "index").integers(DType::I32, &[n], 0, rows as i64);
        let values = noise("values", &[n, 2]);
        let mut expected = vec![0.0; rows * 2];
        for (at, &row) in index.to_i64().iter().enumerate() {
            (0..2).for_each(|i| expected[row as usize * 2 + i] += values.to_f64()[at * 2 + i]);
        }
        let inputs = [("like", noise("like", &[rows])), ("index", index), ("values", values)];
        hold(scope, sums, &inputs, &[rows, 2], &expected);
    }
}

#[test]
fn an_index_of_a_sum_that_is_an_input_is_checked() {
    let scope = Scope::new();
    let index = scope.input("index", DType::I32, &[scope.size("n")]);
    let sums = scope.input("values", F32, &[index.dim(0)]).index_add(&index, &3.into());
    let graph = scope.finish(&[("y", sums)]).unwrap();
    let with = |ids: &[i64]| {
        let index =
            HostTensor::from_f64(DType::I32, vec![2], &ids.iter().map(|&id| id as f64).collect::<Vec<_>>()).unwrap();
        let inputs = Tensors::from([("index".to_owned(), index), ("values".to_owned(), noise("values", &[2]))]);
        oracle(&graph, &inputs, &Tensors::new())
    };
    assert!(with(&[0, 2]).is_ok());
    let error = with(&[0, 3]).unwrap_err();
    assert!(error.contains("`index`"), "{error}");
}

const PAIRS: [&[(usize, usize)]; 6] =
    [&[(3, 4), (0, 2), (5, 1), (2, 0)], &[(4, 7)], &[(1, 1)], &[(0, 0), (0, 0)], &[(6, 2), (1, 9)], &[]];

/// Scores of random queries and keys `[n, heads, 2]`, and the summed values, by sample, head, query and key.
struct Pairs {
    divided: &'static [(usize, usize)],
    heads: usize,
}

impl Pairs {
    fn lengths(&self) -> [Vec<usize>; 2] {
        let (rows, keys) = self.divided.iter().copied().unzip();
        [rows, keys]
    }

    fn totals(&self) -> [usize; 2] {
        self.lengths().map(|lengths| lengths.iter().sum())
    }

    fn inputs(&self) -> Vec<(&'static str, HostTensor)> {
        let [rows, keys] = self.lengths();
        let [queries, all_keys] = self.totals();
        vec![
            ("q", noise("q", &[queries, self.heads, 2])),
            ("k", noise("k", &[all_keys, self.heads, 2])),
            ("rows", lengths(&rows)),
            ("keys", lengths(&keys)),
        ]
    }

    fn trace(&self, scope: &Scope) -> (Tensor, Ragged, Ragged) {
        let batch = scope.size("batch");
        let (rows, keys) = (scope.lengths("rows", &batch), scope.lengths("keys", &batch));
        let of = |name, rows: &Ragged| scope.input(name, F32, &[rows.total.clone(), self.heads.into(), 2.into()]);
        (of("q", &rows).scores(&of("k", &keys), &rows, &keys), rows, keys)
    }

    /// Calls `visit` with head, sample, query, key and score of every pair.
    fn each(&self, mut visit: impl FnMut(usize, [usize; 3], f64)) {
        let inputs = self.inputs();
        let (q, k) = (inputs[0].1.to_f64(), inputs[1].1.to_f64());
        let [rows, keys] = self.lengths().map(|lengths| samples(&lengths));
        for (sample, (rows, keys)) in rows.into_iter().zip(keys).enumerate() {
            for row in rows {
                for key in keys.clone() {
                    for head in 0..self.heads {
                        let [a, b] = [row, key].map(|n| (n * self.heads + head) * 2);
                        visit(head, [sample, row, key], q[a] * k[b] + q[a + 1] * k[b + 1]);
                    }
                }
            }
        }
    }
}

#[test]
fn values_are_summed_over_pairs_by_query_and_by_key() {
    let (heads, width) = (2, 3);
    for divided in PAIRS {
        let pairs = Pairs { divided, heads };
        let [rows, keys] = pairs.totals();
        for by_key in [false, true] {
            let (count, summed) = if by_key { (keys, rows) } else { (rows, keys) };
            let v = noise("v", &[summed, heads, width]);
            let values = v.to_f64();
            let mut expected = vec![0.0; count * heads * width];
            pairs.each(|head, [_, row, key], score| {
                let (to, from) = if by_key { (key, row) } else { (row, key) };
                for d in 0..width {
                    expected[(to * heads + head) * width + d] += score * values[(from * heads + head) * width + d];
                }
            });
            let scope = Scope::new();
            let (scores, rows, keys) = pairs.trace(&scope);
            let total = if by_key { &rows.total } else { &keys.total };
            let of = scope.input("v", F32, &[total.clone(), heads.into(), width.into()]);
            let out = match by_key {
                true => scores.weighted_sum_by_key(&of, &rows, &keys),
                false => scores.weighted_sum(&of, &rows, &keys),
            };
            let inputs = [pairs.inputs(), vec![("v", v)]].concat();
            hold(scope, out, &inputs, &[count, heads, width], &expected);
        }
    }
}

#[test]
fn scores_are_combined_over_pairs() {
    let heads = 2;
    for divided in PAIRS {
        let pairs = Pairs { divided, heads };
        let [rows, keys] = pairs.totals();
        for op in OPS {
            for (place, (kind, count)) in
                [(ScoreKind::Sample, divided.len()), (ScoreKind::Row, rows), (ScoreKind::Key, keys)]
                    .into_iter()
                    .enumerate()
            {
                let mut expected = vec![combine(op, std::iter::empty()); heads * count];
                pairs.each(|head, of, score| {
                    let value = &mut expected[head * count + of[place]];
                    *value = combine(op, [*value, score].into_iter());
                });
                let scope = Scope::new();
                let (scores, rows, keys) = pairs.trace(&scope);
                let out = scores.reduce_scores(op, kind, &rows, &keys);
                hold(scope, out, &pairs.inputs(), &[heads, count], &expected);
            }
        }
    }
}
