use super::naive::Point;
use super::{
    Compiled, Data, Memory, Operand, assert_close, body, device, floats, host, run_on_any_threads, symbol, tensor,
};
use rewire_graph::pointwise::{BinaryOp, Dag, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, HostTensor, Scalar};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, Output, ReduceOp};

/// `silu(a b + bias)`. `b` is `[k, n]`, or `[n, k]` if `transposed`. With `norm`, the mean of each row of `a` is subtracted.
fn dense(dtype: DType, n: usize, k: usize, transposed: bool, norm: bool) -> Computation {
    let mut dag = Dag::new();
    let (row, column, x) = (dag.coord(0, None), dag.coord(1, None), dag.coord(2, None));
    let mut a = dag.load(0, DType::F32, vec![row, x]);
    let mut accumulations = vec![];
    if norm {
        accumulations.push(Accumulation { op: ReduceOp::Sum, axis: 2, factors: vec![a], dtype: DType::F32 });
        let sum = dag.value(0, Scalar::F32);
        let scale = dag.float(1.0 / k as f32);
        let mean = dag.binary(BinaryOp::Mul, sum, scale);
        a = dag.binary(BinaryOp::Sub, a, mean);
    }
    let b = dag.load(1, dtype, if transposed { vec![column, x] } else { vec![x, column] });
    let bias = dag.load(2, DType::F32, vec![column]);
    let sum = dag.value(accumulations.len() as u8, Scalar::F32);
    accumulations.push(Accumulation { op: ReduceOp::Sum, axis: 2, factors: vec![a, b], dtype: DType::F32 });
    let biased = dag.binary(BinaryOp::Add, sum, bias);
    let value = dag.unary(UnaryOp::Silu, biased);
    let output = Output {
        target: 0,
        dtype: DType::F32,
        shape: vec![symbol(0), n.into()],
        index: vec![row, column],
        value,
        columns: None,
    };
    let shape = if transposed { vec![n.into(), k.into()] } else { vec![k.into(), n.into()] };
    let operands =
        vec![device(DType::F32, vec![symbol(0), k.into()]), device(dtype, shape), device(DType::F32, vec![n.into()])];
    let mut axes = Axis::points([symbol(0), n.into()]);
    axes.push(Axis::sum(Extent::Dense(k.into())));
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

fn dense_data(dtype: DType, m: usize, n: usize, k: usize, transposed: bool) -> Vec<Data> {
    let shape = if transposed { [n, k] } else { [k, n] };
    vec![
        Data::Device(tensor(DType::F32, &[m, k], 1)),
        Data::Device(tensor(dtype, &shape, 2)),
        Data::Device(tensor(DType::F32, &[n], 3)),
    ]
}

#[test]
fn rows_in_a_vector_have_the_bits_of_rows_of_a_matrix() {
    for (m, n, k) in [(1, 5, 3), (130, 34, 20), (200, 546, 7)] {
        let matrix = dense(DType::F32, n, k, false, false);
        let mut nest = matrix.nest().unwrap().clone();
        let [row, column] = [0, 1].map(|coord| nest.body.dag.coord(coord, None));
        let width = nest.body.dag.int(n as i64);
        let start = nest.body.dag.binary(BinaryOp::Mul, row, width);
        let place = nest.body.dag.binary(BinaryOp::Add, start, column);
        nest.outputs[0].shape = vec![symbol(0) * n as i64];
        nest.outputs[0].index = vec![place];
        let vector = Computation::of(nest).unwrap();
        let (data, symbols) = (dense_data(DType::F32, m, n, k, false), vec![m as i64]);
        let [a, b] = [matrix, vector].map(|kernel| run_on_any_threads(&kernel, &data, &symbols));
        assert_eq!(a[0].bytes(), b[0].bytes(), "{m} {n} {k}");
    }
}

#[test]
fn transposed_results_have_the_bits_of_rows() {
    for (m, n, k) in [(1, 5, 3), (5, 70, 4), (130, 34, 20), (512, 130, 7)] {
        let matrix = dense(DType::F32, n, k, false, false);
        let mut nest = matrix.nest().unwrap().clone();
        nest.outputs[0].shape.reverse();
        nest.outputs[0].index.reverse();
        let transposed = Computation::of(nest).unwrap();
        let (data, symbols) = (dense_data(DType::F32, m, n, k, false), vec![m as i64]);
        let [a, b] = [matrix, transposed].map(|kernel| run_on_any_threads(&kernel, &data, &symbols)[0].to_f64());
        for (place, value) in b.iter().enumerate() {
            assert_eq!(*value, a[place % m * n + place / m], "{m} {n} {k}");
        }
    }
}

#[test]
fn columns_of_heads_have_the_bits_of_columns_of_a_matrix() {
    for (m, heads, width, k) in [(1, 3, 16, 5), (130, 3, 32, 20), (70, 2, 100, 7), (5, 4, 6, 9)] {
        let n = heads * width;
        let matrix = dense(DType::F32, n, k, false, false);
        let mut nest = matrix.nest().unwrap().clone();
        let dag = &mut nest.body.dag;
        let (row, column) = (dag.coord(0, None), dag.coord(1, Some(n)));
        let size = dag.int(width as i64);
        let [head, within] = [BinaryOp::Div, BinaryOp::Mod].map(|op| dag.binary(op, column, size));
        nest.outputs[0].shape = vec![heads.into(), symbol(0), width.into()];
        nest.outputs[0].index = vec![head, row, within];
        let by_head = Computation::of(nest).unwrap();
        let (data, symbols) = (dense_data(DType::F32, m, n, k, false), vec![m as i64]);
        let [a, b] = [matrix, by_head].map(|kernel| run_on_any_threads(&kernel, &data, &symbols)[0].to_f64());
        for (n, value) in b.iter().enumerate() {
            let (head, row, within) = (n / (m * width), n / width % m, n % width);
            assert_eq!(*value, a[row * heads * width + head * width + within], "{m} {heads} {width} {k}");
        }
    }
}

/// `a b`. A row of `a` is the concatenation of `parts` looked-up rows of a table.
fn looked_up(parts: usize, width: usize, n: usize) -> Computation {
    let (mut dag, k) = (Dag::new(), parts * width);
    let (row, column, x) = (dag.coord(0, None), dag.coord(1, Some(n)), dag.coord(2, Some(k)));
    let size = dag.int(width as i64);
    let [part, within] = [BinaryOp::Div, BinaryOp::Mod].map(|op| dag.binary(op, x, size));
    let id = dag.load(1, DType::I32, vec![row, part]);
    let a = dag.load(0, DType::F32, vec![id, within]);
    let b = dag.load(2, DType::F32, vec![x, column]);
    let value = dag.value(0, Scalar::F32);
    let accumulations = vec![Accumulation { op: ReduceOp::Sum, axis: 2, factors: vec![a, b], dtype: DType::F32 }];
    let shape = vec![symbol(0), n.into()];
    let output = Output { target: 0, dtype: DType::F32, shape, index: vec![row, column], value, columns: None };
    let operands = vec![
        device(DType::F32, vec![symbol(1), width.into()]),
        device(DType::I32, vec![symbol(0), parts.into()]),
        device(DType::F32, vec![k.into(), n.into()]),
    ];
    let mut axes = Axis::points([symbol(0), n.into()]);
    axes.push(Axis::sum(Extent::Dense(k.into())));
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

#[test]
fn rows_of_a_table_side_by_side_are_a_factor() {
    for (m, parts, width, n) in [(1, 3, 8, 5), (150, 20, 16, 70), (65, 5, 12, 3), (40, 4, 3, 17)] {
        let rows = 30;
        let ids: Vec<f64> = (0..m * parts).map(|n| (n * 7 % rows) as f64).collect();
        let data = vec![
            Data::Device(tensor(DType::F32, &[rows, width], 1)),
            Data::Device(HostTensor::from_f64(DType::I32, vec![m, parts], &ids).unwrap()),
            Data::Device(tensor(DType::F32, &[parts * width, n], 2)),
        ];
        let out = run_on_any_threads(&looked_up(parts, width, n), &data, &vec![m as i64, rows as i64]);
        let (table, b) = (floats(&data[0]), floats(&data[2]));
        let a = |row: usize, x: usize| table[ids[row * parts + x / width] as usize * width + x % width];
        let element = |place: usize| (0..parts * width).map(|x| a(place / n, x) * b[x * n + place % n]).sum();
        let expected: Vec<f64> = (0..m * n).map(element).collect();
        assert_close(&out[0], &expected, 3e-6);
    }
}

#[test]
fn dense_products_meet_plain_loops() {
    for (m, n, k) in
        [(1, 1, 1), (1, 64, 50), (130, 25, 25), (64, 50, 1), (300, 1, 33), (5, 200, 600), (0, 8, 8), (3, 4, 0)]
    {
        for (dtype, transposed, norm) in
            [(DType::F32, false, false), (DType::F32, true, true), (DType::F16, true, false), (DType::F16, false, true)]
        {
            let data = dense_data(dtype, m, n, k, transposed);
            let out = run_on_any_threads(&dense(dtype, n, k, transposed, norm), &data, &vec![m as i64]);
            let (a, b, bias) = (floats(&data[0]), floats(&data[1]), floats(&data[2]));
            let mut expected = vec![];
            for i in 0..m {
                let row = &a[i * k..][..k];
                let mean = if norm { row.iter().sum::<f64>() / k as f64 } else { 0.0 };
                for j in 0..n {
                    let b = |x: usize| if transposed { b[j * k + x] } else { b[x * n + j] };
                    let sum = bias[j] + (0..k).map(|x| (row[x] - mean) * b(x)).sum::<f64>();
                    expected.push(sum / (1.0 + (-sum).exp()));
                }
            }
            assert_close(&out[0], &expected, 3e-6);
        }
    }
}

#[test]
fn packed_weights_live_as_long_as_their_contents_or_till_trim() {
    let (m, n, k) = (200, 100, 30);
    let kernel = dense(DType::F16, n, k, false, false);
    let compiled = Compiled::new(&kernel).unwrap();
    let memory = |data: &Data| match data {
        Data::Device(tensor) => Memory::from_host(tensor).unwrap(),
        Data::Host(_) => unreachable!(),
    };
    let data: Vec<Memory> = dense_data(DType::F16, m, n, k, false).iter().map(memory).collect();
    let weights = || data[1].clone().with_known_content();
    let run = |weights: &Memory| {
        let mut out = Memory::new(DType::F32, &[m, n]).unwrap();
        let operands = [&data[0], weights, &data[2]].map(Operand::Tensor);
        compiled.run(&operands, &mut [&mut out], &|_| Some(m as i64)).unwrap();
        out.to_host().unwrap().bytes().to_vec()
    };
    let expected = run(&data[1]);
    assert_eq!(compiled.kept().packed, 0, "what is not a weight is not kept");
    assert!(compiled.kept().scratch > 0);
    let one = (k * n.next_multiple_of(64) * size_of::<f32>()) as u64;
    let (old, new) = (weights(), weights());
    for weights in [&old, &new, &old, &new, &old.clone()] {
        assert_eq!(run(weights), expected);
    }
    assert_eq!(compiled.kept().packed, 2 * one, "a run beside an update packs neither again");
    drop(old);
    assert_eq!((run(&new), compiled.kept().packed), (expected.clone(), one));
    compiled.trim();
    assert_eq!(compiled.kept(), crate::KeptBytes::default());
    assert_eq!((run(&new), compiled.kept().packed), (expected, one));
}

#[test]
fn a_row_does_not_depend_on_its_batch_mates() {
    for (n, k) in [(1, 300), (64, 512), (50, 700), (64, 1), (25, 2), (2, 2), (3, 3), (50, 514)] {
        for transposed in [false, true] {
            let kernel = dense(DType::F32, n, k, transposed, true);
            let rows = tensor(DType::F32, &[400, k], 5);
            let shape = if transposed { [n, k] } else { [k, n] };
            let with = |start: usize, m: usize| {
                let bytes = rows.bytes()[start * k * 4..(start + m) * k * 4].to_vec();
                let a = HostTensor::from_bytes(DType::F32, vec![m, k], bytes).unwrap();
                let (b, bias) = (tensor(DType::F32, &shape, 6), tensor(DType::F32, &[n], 7));
                let data = [Data::Device(a), Data::Device(b), Data::Device(bias)];
                run_on_any_threads(&kernel, &data, &vec![m as i64]).remove(0)
            };
            let whole = with(0, 400);
            for (start, m) in [(0, 1), (17, 1), (100, 2), (51, 3), (94, 4), (130, 77), (399, 1), (200, 200)] {
                assert_eq!(with(start, m).bytes(), &whole.bytes()[start * n * 4..(start + m) * n * 4]);
            }
        }
    }
}

/// `sum over k of a(offsets[s] + m, k) * b(s, k, n)` for every sample.
fn ragged(n: usize, k: usize, computed: bool) -> Computation {
    let mut dag = Dag::new();
    let [sample, row, column, x] = [0, 1, 2, 3].map(|axis| dag.coord(axis, None));
    let offset = dag.load(0, DType::I32, vec![sample]);
    let token = dag.binary(BinaryOp::Add, offset, row);
    let mut a = dag.load(1, DType::F32, vec![token, x]);
    let mut b = dag.load(2, DType::F32, vec![sample, x, column]);
    if computed {
        a = dag.unary(UnaryOp::Tanh, a);
        b = dag.unary(UnaryOp::Neg, b);
    }
    let value = dag.value(0, Scalar::F32);
    let total: Dim = symbol(1);
    let output = Output {
        target: 0,
        dtype: DType::F16,
        shape: vec![total.clone(), n.into()],
        index: vec![token, column],
        value,
        columns: None,
    };
    let operands = vec![
        host(vec![symbol(0) + 1.into()]),
        device(DType::F32, vec![total, k.into()]),
        device(DType::F32, vec![symbol(0), k.into(), n.into()]),
    ];
    let mut axes = Axis::points([symbol(0), n.into()]);
    axes.insert(1, Axis { extent: Extent::Ragged { offsets: 0 }, summed: false });
    axes.push(Axis::sum(Extent::Dense(k.into())));
    let accumulations = vec![Accumulation { op: ReduceOp::Sum, axis: 3, factors: vec![a, b], dtype: DType::F32 }];
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

#[test]
fn ragged_products_meet_plain_loops() {
    let lengths = [3usize, 0, 140, 1, 0];
    for (n, k) in [(8, 8), (25, 50), (1, 3)] {
        for computed in [false, true] {
            let kernel = ragged(n, k, computed);
            let mut offsets = vec![0i64];
            lengths.iter().for_each(|&l| offsets.push(offsets[offsets.len() - 1] + l as i64));
            let data = vec![
                Data::Host(offsets.clone()),
                Data::Device(tensor(DType::F32, &[144, k], 1)),
                Data::Device(tensor(DType::F32, &[5, k, n], 2)),
            ];
            let out = run_on_any_threads(&kernel, &data, &vec![5, 144]);
            let nest = kernel.nest().unwrap();
            let at = |coords: [i64; 4], id: ExprId| {
                Point { dag: &nest.body.dag, data: &data, coords: &coords, values: &[] }.evaluate(id).float()
            };
            let mut expected = vec![];
            for (s, &length) in lengths.iter().enumerate() {
                for i in 0..length {
                    for j in 0..n {
                        let (s, i, j) = (s as i64, i as i64, j as i64);
                        let factors = &nest.accumulations[0].factors;
                        let term = |x: i64| factors.iter().map(|&factor| at([s, i, j, x], factor)).product::<f64>();
                        expected.push((0..k as i64).map(term).sum());
                    }
                }
            }
            assert_close(&out[0], &expected, 1e-3);
        }
    }
}

/// `sum over k of tanh(a(k, m)) * b(k, n)`.
fn turned(m: usize, n: usize) -> Computation {
    let mut dag = Dag::new();
    let [row, column, x] = [0, 1, 2].map(|axis| dag.coord(axis, None));
    let a = dag.load(0, DType::F32, vec![x, row]);
    let a = dag.unary(UnaryOp::Tanh, a);
    let b = dag.load(1, DType::F32, vec![x, column]);
    let value = dag.value(0, Scalar::F32);
    let shape: Vec<Dim> = vec![m.into(), n.into()];
    let output =
        Output { target: 0, dtype: DType::F32, shape: shape.clone(), index: vec![row, column], value, columns: None };
    let operands = [m, n].map(|width| device(DType::F32, vec![symbol(0), width.into()]));
    let mut axes = Axis::points(shape);
    axes.push(Axis::sum(Extent::Dense(symbol(0))));
    let accumulations = vec![Accumulation { op: ReduceOp::Sum, axis: 2, factors: vec![a, b], dtype: DType::F32 }];
    Computation::of(Nest { body: body(dag, operands.to_vec()), axes, accumulations, outputs: vec![output] }).unwrap()
}

#[test]
fn a_computed_factor_may_lie_transposed() {
    for (m, n, k) in [(1, 1, 1), (70, 25, 130), (25, 64, 600), (130, 3, 0), (3, 200, 65)] {
        let data = [m, n].map(|width| Data::Device(tensor(DType::F32, &[k, width], width as u32)));
        let out = run_on_any_threads(&turned(m, n), &data, &vec![k as i64]);
        let (a, b) = (floats(&data[0]), floats(&data[1]));
        let element = |i: usize, j: usize| (0..k).map(|x| a[x * m + i].tanh() * b[x * n + j]).sum::<f64>();
        let expected: Vec<f64> = (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect();
        assert_close(&out[0], &expected, 3e-6);
    }
}

/// `sum over k of a(entry, m, k) * b(entry, k, n)`, plus the row number. `order` permutes the axes of the result; `transposed` swaps axes of factors.
fn small([m, n, k]: [usize; 3], order: [usize; 3], transposed: [bool; 2]) -> Computation {
    let mut dag = Dag::new();
    let [entry, row, column, x] = [0, 1, 2, 3].map(|axis| dag.coord(axis, None));
    let swapped = |[a, b]: [ExprId; 2], swap: bool| if swap { vec![entry, b, a] } else { vec![entry, a, b] };
    let a = dag.load(0, DType::F32, swapped([row, x], transposed[0]));
    let b = dag.load(1, DType::F32, swapped([x, column], transposed[1]));
    let (sum, own) = (dag.value(0, Scalar::F32), dag.cast(Scalar::F32, row));
    let value = dag.binary(BinaryOp::Add, sum, own);
    let (index, extents) = ([entry, row, column], [symbol(0), m.into(), n.into()]);
    let output = Output {
        target: 0,
        dtype: DType::F32,
        shape: order.map(|axis| extents[axis].clone()).to_vec(),
        index: order.map(|axis| index[axis]).to_vec(),
        value,
        columns: None,
    };
    let shape = |[a, b]: [usize; 2], swap: bool| {
        let [a, b] = if swap { [b, a] } else { [a, b] };
        device(DType::F32, vec![symbol(0), a.into(), b.into()])
    };
    let operands = vec![shape([m, k], transposed[0]), shape([k, n], transposed[1])];
    let mut axes = Axis::points(extents);
    axes.push(Axis::sum(Extent::Dense(k.into())));
    let accumulations = vec![Accumulation { op: ReduceOp::Sum, axis: 3, factors: vec![a, b], dtype: DType::F32 }];
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

#[test]
fn small_products_of_a_batch_meet_plain_loops() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 2, 0]];
    for ([m, n, k], entries) in
        [([1, 3, 128], 70), ([21, 16, 21], 5), ([3, 40, 1], 130), ([5, 1, 7], 1), ([2, 2, 2], 0)]
    {
        for (order, transposed) in orders.into_iter().zip([[false, true], [true, false], [false, false]]) {
            let data =
                [(1, m * k), (2, k * n)].map(|(seed, size)| Data::Device(tensor(DType::F32, &[entries, size], seed)));
            let (a, b) = (floats(&data[0]), floats(&data[1]));
            let shaped = |data: &Data, [rows, columns]: [usize; 2], swap: bool| {
                let Data::Device(tensor) = data else { unreachable!() };
                let shape = if swap { vec![entries, columns, rows] } else { vec![entries, rows, columns] };
                Data::Device(HostTensor::from_bytes(DType::F32, shape, tensor.bytes().to_vec()).unwrap())
            };
            let shaped = [shaped(&data[0], [m, k], transposed[0]), shaped(&data[1], [k, n], transposed[1])];
            let out = run_on_any_threads(&small([m, n, k], order, transposed), &shaped, &vec![entries as i64]);
            let extents = [entries, m, n];
            let mut expected = vec![0.0; entries * m * n];
            for e in 0..entries {
                for i in 0..m {
                    for j in 0..n {
                        let a = |x: usize| a[e * m * k + if transposed[0] { x * m + i } else { i * k + x }];
                        let b = |x: usize| b[e * k * n + if transposed[1] { j * k + x } else { x * n + j }];
                        let place = order.iter().fold(0, |place, &axis| place * extents[axis] + [e, i, j][axis]);
                        expected[place] = i as f64 + (0..k).map(|x| a(x) * b(x)).sum::<f64>();
                    }
                }
            }
            assert_close(&out[0], &expected, 3e-6);
        }
    }
}

/// A 3 x 3 convolution of images `[batch, channels, size, size]` with padding 1.
fn convolution(channels: usize, rows: usize, [size, stride]: [usize; 2]) -> Computation {
    let mut dag = Dag::new();
    let [batch, row, place, k] = [0, 1, 2, 3].map(|axis| dag.coord(axis, None));
    let places = (size - 1) / stride + 1;
    let split = |dag: &mut Dag, n: ExprId, divisor: usize| {
        let divisor = dag.int(divisor as i64);
        [BinaryOp::Div, BinaryOp::Mod].map(|op| dag.binary(op, n, divisor))
    };
    let ([channel, within], [y, x]) = (split(&mut dag, k, 9), split(&mut dag, place, places));
    let inner = split(&mut dag, within, 3);
    let (one, zero, end, step) = (dag.int(1), dag.int(0), dag.int(size as i64), dag.int(stride as i64));
    let mut inside = dag.constant(Scalar::Bool, 1);
    let mut index = vec![batch, channel];
    for (start, inner) in [y, x].into_iter().zip(inner) {
        let start = dag.binary(BinaryOp::Mul, start, step);
        let sum = dag.binary(BinaryOp::Add, start, inner);
        let pixel = dag.binary(BinaryOp::Sub, sum, one);
        for (op, bound) in [(BinaryOp::Ge, zero), (BinaryOp::Lt, end)] {
            let holds = dag.binary(op, pixel, bound);
            inside = dag.binary(BinaryOp::And, inside, holds);
        }
        index.push(pixel);
    }
    let (pixel, nothing) = (dag.load(1, DType::F32, index), dag.float(0.0));
    let patch = dag.select(inside, pixel, nothing);
    let weight = dag.load(0, DType::F32, vec![row, k]);
    let value = dag.value(0, Scalar::F32);
    let shape: Vec<Dim> = vec![symbol(0), rows.into(), (places * places).into()];
    let output = Output {
        target: 0,
        dtype: DType::F32,
        shape: shape.clone(),
        index: vec![batch, row, place],
        value,
        columns: None,
    };
    let image = vec![symbol(0), channels.into(), size.into(), size.into()];
    let operands = vec![device(DType::F32, vec![rows.into(), (channels * 9).into()]), device(DType::F32, image)];
    let mut axes = Axis::points(shape);
    axes.push(Axis::sum(Extent::Dense((channels * 9).into())));
    let accumulations =
        vec![Accumulation { op: ReduceOp::Sum, axis: 3, factors: vec![weight, patch], dtype: DType::F32 }];
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

#[test]
fn convolutions_meet_plain_loops() {
    let sizes =
        [(1, 1, 1, 1, 1), (3, 5, 7, 6, 1), (2, 8, 20, 11, 2), (3, 2, 3, 13, 3), (2, 3, 4, 40, 1), (2, 3, 4, 90, 2)];
    for (batch, channels, rows, size, stride) in sizes {
        let images = tensor(DType::F32, &[batch, channels, size, size], 1);
        let data = [Data::Device(tensor(DType::F32, &[rows, channels * 9], 2)), Data::Device(images)];
        let out = run_on_any_threads(&convolution(channels, rows, [size, stride]), &data, &vec![batch as i64]);
        let (weights, images, places) = (floats(&data[0]), floats(&data[1]), (size - 1) / stride + 1);
        let pixel = |b: usize, k: usize, place: usize| {
            let at = |start: usize, inner: usize| (start * stride + inner).checked_sub(1).filter(|&n| n < size);
            let (y, x) = (at(place / places, k % 9 / 3), at(place % places, k % 3));
            y.zip(x).map_or(0.0, |(y, x)| images[((b * channels + k / 9) * size + y) * size + x])
        };
        let mut expected = vec![];
        for (b, row) in (0..batch).flat_map(|b| (0..rows).map(move |row| (b, row))) {
            expected.extend((0..places * places).map(|place| {
                (0..channels * 9).map(|k| weights[row * channels * 9 + k] * pixel(b, k, place)).sum::<f64>()
            }));
        }
        assert_close(&out[0], &expected, 3e-6);
    }
}
