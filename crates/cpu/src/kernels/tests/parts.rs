//! Matmuls whose left rows are concatenated parts, or rows of several batch entries.

use super::{Data, assert_close, body, device, run_on_any_threads, symbol, tensor};
use rewire_graph::pointwise::{BinaryOp, Dag};
use rewire_graph::{DType, HostTensor, Scalar};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, Output, ReduceOp};

/// `[x, y, x - y, z] b`. The left operand is `[m, 3 width + 5]`; rows of `x` and `y` are looked up.
fn side_by_side(width: usize, n: usize) -> Computation {
    let k = 3 * width + 5;
    let mut dag = Dag::new();
    let (row, column, x) = (dag.coord(0, None), dag.coord(1, Some(n)), dag.coord(2, Some(k)));
    let ids = [0, 1].map(|operand| dag.load(operand, DType::I32, vec![row]));
    let starts = [1, 2, 3].map(|part| dag.int((part * width) as i64));
    let from = starts.map(|start| dag.binary(BinaryOp::Sub, x, start));
    let before = starts.map(|start| dag.binary(BinaryOp::Lt, x, start));
    let first = dag.load(2, DType::F32, vec![ids[0], x]);
    let second = dag.load(2, DType::F32, vec![ids[1], from[0]]);
    let [a, b] = ids.map(|id| dag.load(2, DType::F32, vec![id, from[1]]));
    let difference = dag.binary(BinaryOp::Sub, a, b);
    let last = dag.load(3, DType::F32, vec![row, from[2]]);
    let chosen = dag.select(before[2], difference, last);
    let chosen = dag.select(before[1], second, chosen);
    let left = dag.select(before[0], first, chosen);
    let right = dag.load(4, DType::F32, vec![x, column]);
    let value = dag.value(0, Scalar::F32);
    let output = Output {
        target: 0,
        dtype: DType::F32,
        shape: vec![symbol(0), n.into()],
        index: vec![row, column],
        value,
        columns: None,
    };
    let rows = || vec![symbol(0)];
    let operands = vec![
        device(DType::I32, rows()),
        device(DType::I32, rows()),
        device(DType::F32, vec![9.into(), width.into()]),
        device(DType::F32, vec![symbol(0), 5.into()]),
        device(DType::F32, vec![k.into(), n.into()]),
    ];
    let accumulations =
        vec![Accumulation { op: ReduceOp::Sum, axis: 2, factors: vec![left, right], dtype: DType::F32 }];
    let mut axes = Axis::points([symbol(0), n.into()]);
    axes.push(Axis::sum(Extent::Dense(k.into())));
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

#[test]
fn parts_of_a_row_may_share_their_loads() {
    for (m, width, n) in [(1, 4, 3), (130, 16, 20), (33, 7, 64)] {
        let k = 3 * width + 5;
        let ids = [5, 3].map(|step| (0..m).map(|row| (row * step % 9) as f64).collect::<Vec<_>>());
        let id = |ids: &Vec<f64>| HostTensor::from_f64(DType::I32, vec![m], ids).unwrap();
        let floats =
            [tensor(DType::F32, &[9, width], 1), tensor(DType::F32, &[m, 5], 2), tensor(DType::F32, &[k, n], 3)];
        let [table, rest, right] = [0, 1, 2].map(|at: usize| floats[at].to_f64());
        let data: Vec<Data> = ids.iter().map(id).chain(floats).map(Data::Device).collect();
        let out = run_on_any_threads(&side_by_side(width, n), &data, &vec![m as i64]);
        let mut expected = vec![0.0; m * n];
        for row in 0..m {
            let of = |part: usize, at: usize| table[ids[part][row] as usize * width + at];
            let left = (0..k).map(|x| match x / width {
                0 => of(0, x),
                1 => of(1, x - width),
                2 => of(0, x - 2 * width) - of(1, x - 2 * width),
                _ => rest[row * 5 + x - 3 * width],
            });
            let left: Vec<f64> = left.collect();
            for column in 0..n {
                expected[row * n + column] = (0..k).map(|x| left[x] * right[x * n + column]).sum();
            }
        }
        assert_close(&out[0], &expected, 1e-6);
    }
}

/// `a[entry, row] b + c[row, entry]`, of shape `[entries, m, n]`, or `[m, entries, n]` if `turned`. All entries share `b`.
fn batched(m: usize, n: usize, k: usize, turned: bool) -> Computation {
    let mut dag = Dag::new();
    let [entry, row, column, x] =
        [(0, None), (1, Some(m)), (2, Some(n)), (3, Some(k))].map(|(axis, extent)| dag.coord(axis, extent));
    let a = dag.load(0, DType::F32, vec![entry, row, x]);
    let b = dag.load(1, DType::F32, vec![x, column]);
    let c = dag.load(2, DType::F32, vec![row, entry]);
    let sum = dag.value(0, Scalar::F32);
    let value = dag.binary(BinaryOp::Add, sum, c);
    let (shape, index) = match turned {
        false => (vec![symbol(0), m.into(), n.into()], vec![entry, row, column]),
        true => (vec![m.into(), symbol(0), n.into()], vec![row, entry, column]),
    };
    let output = Output { target: 0, dtype: DType::F32, shape, index, value, columns: None };
    let operands = vec![
        device(DType::F32, vec![symbol(0), m.into(), k.into()]),
        device(DType::F32, vec![k.into(), n.into()]),
        device(DType::F32, vec![m.into(), symbol(0)]),
    ];
    let accumulations = vec![Accumulation { op: ReduceOp::Sum, axis: 3, factors: vec![a, b], dtype: DType::F32 }];
    let mut axes = Axis::points([symbol(0), m.into(), n.into()]);
    axes.push(Axis::sum(Extent::Dense(k.into())));
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

#[test]
fn entries_that_share_an_operand_are_rows_of_one_matrix() {
    for (entries, m, n, k) in [(1, 1, 5, 3), (50, 16, 70, 20), (13, 50, 33, 8), (0, 4, 3, 2), (7, 3, 600, 9)] {
        let shapes = [vec![entries, m, k], vec![k, n], vec![m, entries]];
        let data = [1, 2, 3].map(|n: usize| tensor(DType::F32, &shapes[n - 1], n as u32));
        let [a, b, c] = [0, 1, 2].map(|n: usize| data[n].to_f64());
        let data = data.map(Data::Device);
        let at = |entry: usize, row: usize, column: usize| {
            let sum: f64 = (0..k).map(|x| a[(entry * m + row) * k + x] * b[x * n + column]).sum();
            sum + c[row * entries + entry]
        };
        for turned in [false, true] {
            let out = run_on_any_threads(&batched(m, n, k, turned), &data, &vec![entries as i64]);
            let rows = (0..entries * m)
                .map(|at| if turned { (at % entries.max(1), at / entries.max(1)) } else { (at / m, at % m) });
            let expected: Vec<f64> = rows
                .flat_map(|(entry, row)| (0..n).map(move |column| (entry, row, column)))
                .map(|(e, r, c)| at(e, r, c))
                .collect();
            assert_close(&out[0], &expected, 1e-6);
        }
    }
}
