use super::super::joined::JoinedMatrix;
use super::{Data, assert_close, body, device, host, run, run_on_any_threads, symbol, tensor};
use rewire_graph::pointwise::{BinaryOp, Dag, ExprId};
use rewire_graph::{DType, HostTensor, Scalar};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, Output, ReduceOp};

/// Number of fields per sample.
const FIELDS: usize = 3;
const WIDTH: usize = 16;
/// Number of columns in the first of the two operands.
const FIRST: usize = 24;

fn summed(op: ReduceOp, axis: u8, factors: Vec<ExprId>) -> Accumulation {
    Accumulation { op, axis, factors, dtype: DType::F32 }
}

/// Sums and maxima of looked-up rows of a table `[40, width]`, per bag.
fn bags(width: usize) -> Computation {
    let mut dag = Dag::new();
    let (bag, column, row) = (dag.coord(0, None), dag.coord(1, Some(width)), dag.coord(2, None));
    let start = dag.load(0, DType::I32, vec![bag]);
    let place = dag.binary(BinaryOp::Add, start, row);
    let id = dag.load(1, DType::I32, vec![place]);
    let value = dag.load(2, DType::F32, vec![id, column]);
    let outputs = [0, 1].map(|n| Output {
        target: n,
        dtype: DType::F32,
        shape: vec![symbol(0), width.into()],
        index: vec![bag, column],
        value: dag.value(n as u8, Scalar::F32),
        columns: None,
    });
    let operands = vec![
        host(vec![symbol(0) + 1.into()]),
        device(DType::I32, vec![symbol(1)]),
        device(DType::F32, vec![40.into(), width.into()]),
    ];
    let mut axes = Axis::points([symbol(0), width.into()]);
    axes.push(Axis::sum(Extent::Ragged { offsets: 0 }));
    let accumulations = [ReduceOp::Sum, ReduceOp::Max].map(|op| summed(op, 2, vec![value])).to_vec();
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: outputs.to_vec() }).unwrap()
}

#[test]
fn bags_meet_plain_loops() {
    for (lengths, width) in [(vec![1; 200], 16), (vec![0, 3, 1, 70, 0, 2], 4), (vec![5, 300], 50), (vec![0], 8)] {
        let offsets: Vec<i64> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let total = *offsets.last().unwrap() as usize;
        let ids: Vec<f64> = (0..total).map(|n| (n * 7 % 40) as f64).collect();
        let data = [
            Data::Host(offsets.clone()),
            Data::Device(HostTensor::from_f64(DType::I32, vec![total], &ids).unwrap()),
            Data::Device(tensor(DType::F32, &[40, width], 1)),
        ];
        let out = run_on_any_threads(&bags(width), &data, &vec![lengths.len() as i64, total as i64]);
        let Data::Device(table) = &data[2] else { unreachable!() };
        let table = table.to_f64();
        let (mut sums, mut largest) = (vec![], vec![]);
        for bag in offsets.windows(2) {
            for column in 0..width {
                let values =
                    ids[bag[0] as usize..bag[1] as usize].iter().map(|id| table[*id as usize * width + column]);
                sums.push(values.clone().sum::<f64>());
                largest.push(values.fold(f64::NEG_INFINITY, f64::max));
            }
        }
        assert_close(&out[0], &sums, 1e-6);
        let found = out[1].to_f64();
        assert!(found == largest, "{found:?} instead of {largest:?}");
    }
}

/// An element of a field of a sample. The fields, `[samples, FIELDS * WIDTH]`, are divided into two operands.
fn field(dag: &mut Dag, sample: ExprId, field: ExprId, column: ExprId) -> ExprId {
    let (width, first) = (dag.int(WIDTH as i64), dag.int(FIRST as i64));
    let start = dag.binary(BinaryOp::Mul, field, width);
    let point = dag.binary(BinaryOp::Add, start, column);
    let rest = dag.binary(BinaryOp::Sub, point, first);
    let is_first = dag.binary(BinaryOp::Lt, point, first);
    let (a, b) = (dag.load(0, DType::F32, vec![sample, point]), dag.load(1, DType::F32, vec![sample, rest]));
    dag.select(is_first, a, b)
}

fn fields(samples: usize) -> (Vec<Data>, Vec<f64>) {
    let rest = FIELDS * WIDTH - FIRST;
    let parts = [tensor(DType::F32, &[samples, FIRST], 1), tensor(DType::F32, &[samples, rest], 2)];
    let [a, b] = [parts[0].to_f64(), parts[1].to_f64()];
    let all = a.chunks(FIRST).zip(b.chunks(rest)).flat_map(|(a, b)| [a, b].concat()).collect();
    (parts.map(Data::Device).to_vec(), all)
}

fn parts() -> Vec<rewire_graph_rewrite::plan::Operand> {
    vec![
        device(DType::F32, vec![symbol(0), FIRST.into()]),
        device(DType::F32, vec![symbol(0), (FIELDS * WIDTH - FIRST).into()]),
    ]
}

#[test]
fn fields_in_parts_are_combined_as_one_line() {
    let mut dag = Dag::new();
    let (sample, column) = (dag.coord(0, None), dag.coord(1, Some(WIDTH)));
    let row = dag.coord(2, Some(FIELDS));
    let value = field(&mut dag, sample, row, column);
    let square = dag.binary(BinaryOp::Mul, value, value);
    let outputs = [0, 1].map(|n| Output {
        target: n,
        dtype: DType::F32,
        shape: vec![symbol(0), WIDTH.into()],
        index: vec![sample, column],
        value: dag.value(n as u8, Scalar::F32),
        columns: None,
    });
    let mut axes = Axis::points([symbol(0), WIDTH.into()]);
    axes.push(Axis::sum(Extent::Dense(FIELDS.into())));
    let accumulations = [value, square].map(|value| summed(ReduceOp::Sum, 2, vec![value])).to_vec();
    let body = body(dag, parts());
    let line = JoinedMatrix::new(&body, value, (2, 1), (FIELDS, WIDTH)).unwrap();
    assert!(line.is_some(), "its elements lie one after the other");
    let kernel = Computation::of(Nest { body, axes, accumulations, outputs: outputs.to_vec() }).unwrap();
    for samples in [1, 7, 500] {
        let (data, all) = fields(samples);
        let out = run_on_any_threads(&kernel, &data, &vec![samples as i64]);
        let sums = |function: fn(f64) -> f64| {
            let of = |sample: &[f64], column: usize| {
                (0..FIELDS).map(|field| function(sample[field * WIDTH + column])).sum::<f64>()
            };
            all.chunks(FIELDS * WIDTH).flat_map(|sample| (0..WIDTH).map(move |column| of(sample, column))).collect()
        };
        let (sums, squares): (Vec<f64>, Vec<f64>) = (sums(|x| x), sums(|x| x * x));
        assert_close(&out[0], &sums, 1e-6);
        assert_close(&out[1], &squares, 1e-6);
    }
}

#[test]
fn products_of_fields_in_parts_meet_plain_loops() {
    let mut dag = Dag::new();
    let (sample, i, j, depth) =
        (dag.coord(0, None), dag.coord(1, Some(FIELDS)), dag.coord(2, Some(FIELDS)), dag.coord(3, Some(WIDTH)));
    let (a, b) = (field(&mut dag, sample, i, depth), field(&mut dag, sample, j, depth));
    let fields_count = dag.int(FIELDS as i64);
    let start = dag.binary(BinaryOp::Mul, i, fields_count);
    let pair = dag.binary(BinaryOp::Add, start, j);
    // The output is transposed.
    let output = Output {
        target: 0,
        dtype: DType::F32,
        shape: vec![(FIELDS * FIELDS).into(), symbol(0)],
        index: vec![pair, sample],
        value: dag.value(0, Scalar::F32),
        columns: None,
    };
    let mut axes = Axis::points([symbol(0), FIELDS.into(), FIELDS.into()]);
    axes.push(Axis::sum(Extent::Dense(WIDTH.into())));
    let accumulations = vec![summed(ReduceOp::Sum, 3, vec![a, b])];
    let kernel =
        Computation::of(Nest { body: body(dag, parts()), axes, accumulations, outputs: vec![output] }).unwrap();
    let whole = {
        let samples = 100;
        let (data, all) = fields(samples);
        let out = run_on_any_threads(&kernel, &data, &vec![samples as i64]).remove(0);
        let dot = |sample: usize, i: usize, j: usize| {
            let row = |n: usize| &all[(sample * FIELDS + n) * WIDTH..][..WIDTH];
            row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum::<f64>()
        };
        let pairs = (0..FIELDS).flat_map(|i| (0..FIELDS).map(move |j| (i, j)));
        let expected: Vec<f64> =
            pairs.flat_map(|(i, j)| (0..samples).map(move |sample| dot(sample, i, j)).collect::<Vec<_>>()).collect();
        assert_close(&out, &expected, 1e-6);
        out.to_f64()
    };
    // The first sample alone.
    let (data, _) = fields(100);
    let cut = |data: &Data| match data {
        Data::Device(t) => {
            let width = t.shape()[1];
            Data::Device(HostTensor::from_bytes(DType::F32, vec![1, width], t.bytes()[..4 * width].to_vec()).unwrap())
        }
        Data::Host(_) => unreachable!(),
    };
    let alone = run(&kernel, &data.iter().map(cut).collect::<Vec<_>>(), &vec![1]).remove(0).to_f64();
    assert_eq!(alone, whole.chunks(100).map(|of_pair| of_pair[0]).collect::<Vec<_>>());
}
