use super::{Data, assert_close, body, device, run_on_any_threads, symbol, tensor};
use rewire_graph::pointwise::{BinaryOp, Dag, UnaryOp};
use rewire_graph::{DType, HostTensor, Scalar};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Nest, Output, ReduceOp};

/// Layer norm times `u`, with the mean and the largest element of each row.
pub(in super::super) fn layer_norm(dtype: DType, width: usize) -> Computation {
    let mut dag = Dag::new();
    let (row, column) = (dag.coord(0, None), dag.coord(1, Some(width)));
    let x = dag.load(0, dtype, vec![row, column]);
    let inverse = dag.float(1.0 / width as f32);
    let (sum, square) = (dag.value(0, Scalar::F32), dag.value(1, Scalar::F32));
    let mean = dag.binary(BinaryOp::Mul, sum, inverse);
    let centred = dag.binary(BinaryOp::Sub, x, mean);
    let squared = dag.binary(BinaryOp::Mul, centred, centred);
    let variance = dag.binary(BinaryOp::Mul, square, inverse);
    let epsilon = dag.float(1e-5);
    let variance = dag.binary(BinaryOp::Add, variance, epsilon);
    let deviation = dag.unary(UnaryOp::Rsqrt, variance);
    let normal = dag.binary(BinaryOp::Mul, centred, deviation);
    let weight = dag.load(2, DType::F32, vec![column]);
    let weighted = dag.binary(BinaryOp::Mul, normal, weight);
    let u = dag.load(1, dtype, vec![row, column]);
    let value = dag.binary(BinaryOp::Mul, weighted, u);
    let largest = dag.value(2, Scalar::F32);
    let full = vec![symbol(0), width.into()];
    let output = Output { target: 0, dtype, shape: full.clone(), index: vec![row, column], value, columns: None };
    let row_output = |target, value| Output {
        target,
        dtype: DType::F32,
        shape: vec![symbol(0)],
        index: vec![row],
        value,
        columns: None,
    };
    let operands =
        vec![device(dtype, full.clone()), device(dtype, full.clone()), device(DType::F32, vec![width.into()])];
    let combined = |op, value| Accumulation { op, axis: 1, factors: vec![value], dtype: DType::F32 };
    Computation::of(Nest {
        body: body(dag, operands),
        axes: Axis::points(full),
        accumulations: vec![combined(ReduceOp::Sum, x), combined(ReduceOp::Sum, squared), combined(ReduceOp::Max, x)],
        outputs: vec![output, row_output(1, mean), row_output(2, largest)],
    })
    .unwrap()
}

fn data(dtype: DType, rows: usize, width: usize) -> Vec<Data> {
    let full = [rows, width];
    vec![
        Data::Device(tensor(dtype, &full, 1)),
        Data::Device(tensor(dtype, &full, 2)),
        Data::Device(tensor(DType::F32, &[width], 3)),
    ]
}

#[test]
fn layer_norms_meet_plain_loops() {
    for dtype in [DType::F32, DType::F16] {
        for (rows, width) in [(1, 1), (7, 25), (33, 50), (200, 64), (3, 256), (5, 700), (0, 8)] {
            let data = data(dtype, rows, width);
            let out = run_on_any_threads(&layer_norm(dtype, width), &data, &vec![rows as i64]);
            let [Data::Device(x), Data::Device(u), Data::Device(w)] = &data[..] else { panic!("three tensors") };
            let (x, u, w) = (x.to_f64(), u.to_f64(), w.to_f64());
            let (mut expected, mut means, mut largest) = (vec![], vec![], vec![]);
            for (x, u) in x.chunks(width).zip(u.chunks(width)) {
                let mean = x.iter().sum::<f64>() / width as f64;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
                expected.extend((0..width).map(|c| (x[c] - mean) / (variance + 1e-5).sqrt() * w[c] * u[c]));
                means.push(mean);
                largest.push(x.iter().fold(f64::MIN, |a, &b| a.max(b)));
            }
            if width > 1 {
                assert_close(&out[0], &expected, if dtype == DType::F32 { 2e-6 } else { 1e-3 });
            }
            assert_close(&out[1], &means, 1e-6);
            assert_close(&out[2], &largest, 0.0);
        }
    }
}

#[test]
fn a_row_depends_neither_on_its_position_nor_on_other_rows() {
    for width in [50, 1, 3, 8, 16, 31, 32, 33] {
        let kernel = layer_norm(DType::F32, width);
        let data = data(DType::F32, 1000, width);
        let whole = run_on_any_threads(&kernel, &data, &vec![1000]);
        let size = width * size_of::<f32>();
        for rows in [1, 3] {
            let cut = |data: &Data| match data {
                Data::Device(t) if t.shape() == [1000, width] => {
                    let bytes = t.bytes()[700 * size..][..rows * size].to_vec();
                    Data::Device(HostTensor::from_bytes(DType::F32, vec![rows, width], bytes).unwrap())
                }
                other => other.clone(),
            };
            let part = run_on_any_threads(&kernel, &data.iter().map(cut).collect::<Vec<_>>(), &vec![rows as i64]);
            assert_eq!(part[0].bytes(), &whole[0].bytes()[700 * size..][..rows * size], "{rows} rows of {width}");
        }
    }
}
