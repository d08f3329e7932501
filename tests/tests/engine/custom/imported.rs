//! The custom operators that imported models use.

use rewire_graph::op::{
    Bits, Cell, IntegerProduct, MergeRuns, Op, OrthogonalColumns, QuantizedProduct, Recurrence, SortRuns,
};
use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, options, run, session};
use rewire_tests::noise::Noise;

/// Rows of `keys` in both orders, by passes for rows of up to 2^18 columns.
fn sorting(dtype: DType) -> Graph {
    let scope = Scope::new();
    let keys = scope.input("keys", dtype, [scope.size("rows"), scope.size("columns")]);
    let sorted = |is_descending: bool| {
        let mut order = scope.apply(SortRuns { is_descending }, &[&keys]);
        let mut run = SortRuns::LENGTH;
        while run < 1 << 18 {
            order = scope.apply(MergeRuns { is_descending, run }, &[&keys, &order]);
            run *= MergeRuns::WAYS;
        }
        order
    };
    let outputs = [("up", sorted(false)), ("down", sorted(true))];
    scope.finish(&outputs).unwrap()
}

/// Keys of few values, so that many are equal, with both zeros and NaN among floats.
fn keys(dtype: DType, shape: [usize; 2], noise: &mut Noise) -> HostTensor {
    let values: Vec<i64> = (0..shape[0] * shape[1]).map(|_| noise.below(-40, 40)).collect();
    if dtype == DType::I64 {
        let wide: Vec<i64> = values.iter().map(|value| value << 40).collect();
        return HostTensor::i64(shape, &wide).unwrap();
    }
    let special = |value: i64| match value {
        39 if dtype.is_float() => f64::NAN,
        38 if dtype.is_float() => -0.0,
        value => value as f64,
    };
    HostTensor::from_f64(dtype, shape.to_vec(), &values.into_iter().map(special).collect::<Vec<_>>()).unwrap()
}

/// The order of every row by the sort of the standard library.
fn expected(keys: &HostTensor, is_descending: bool) -> Vec<i64> {
    let columns = keys.shape()[1];
    let values = keys.to_f64();
    let rows = values.chunks(columns.max(1)).flat_map(|row| {
        let mut order: Vec<i64> = (0..columns as i64).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (row[a as usize], row[b as usize]);
            let ascending = a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
            if is_descending { ascending.reverse() } else { ascending }
        });
        order
    });
    rows.collect()
}

#[test]
fn rows_of_any_length_are_sorted_on_every_backend() {
    for dtype in [DType::F32, DType::I32, DType::I64] {
        let (graph, mut noise) = (sorting(dtype), Noise::new(3, "keys"));
        for kernel in [Kernel::Cpu, Kernel::Wgpu].into_iter().filter(|&kernel| options(kernel).is_some()) {
            let mut session = session(&graph, &Tensors::new(), kernel).unwrap().unwrap();
            for shape in [[3, 1], [40, 7], [2, 1024], [3, 1025], [2, 17_000], [0, 5]] {
                let keys = keys(dtype, shape, &mut noise);
                let results = run(&mut session, &[("keys".to_owned(), keys.clone())].into()).unwrap();
                for (name, is_descending) in [("up", false), ("down", true)] {
                    assert!(
                        results[name].to_i64() == expected(&keys, is_descending),
                        "{name} of {shape:?} {dtype} on {kernel}"
                    );
                }
            }
        }
    }
}

#[test]
fn columns_are_orthogonal_and_their_rotation_is_known_on_every_backend() {
    let (rows, columns) = (5, 3);
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [scope.size("matrices"), rows.into(), columns.into()]);
    let y = scope.apply(OrthogonalColumns, &[&x]);
    let graph = scope.finish(&[("y", y)]).unwrap();
    let x = Noise::new(5, "x").floats(DType::F32, &[70, rows, columns], 2.0);
    let given = x.to_f64();
    for kernel in [Kernel::Cpu, Kernel::Wgpu].into_iter().filter(|&kernel| options(kernel).is_some()) {
        let mut session = session(&graph, &Tensors::new(), kernel).unwrap().unwrap();
        let y = run(&mut session, &[("x".to_owned(), x.clone())].into()).unwrap()["y"].to_f64();
        for (x, y) in given.chunks(rows * columns).zip(y.chunks((rows + columns) * columns)) {
            let (turned, rotation) = y.split_at(rows * columns);
            for (a, b) in (0..columns).flat_map(|b| (0..=b).map(move |a| (a, b))) {
                let dot = |matrix: &[f64]| matrix.chunks(columns).map(|row| row[a] * row[b]).sum::<f64>();
                assert!(a == b || dot(turned).abs() < 1e-4, "columns {a} and {b} on {kernel}: {}", dot(turned));
                assert!((dot(rotation) - f64::from(u8::from(a == b))).abs() < 1e-5, "rotation on {kernel}");
            }
            for (row, turned) in x.chunks(columns).zip(turned.chunks(columns)) {
                for (column, turned) in turned.iter().enumerate() {
                    let sum: f64 = row.iter().zip(rotation.chunks(columns)).map(|(x, v)| x * v[column]).sum();
                    assert!((sum - turned).abs() < 1e-4, "{sum} instead of {turned} on {kernel}");
                }
            }
        }
    }
}

#[test]
fn bits_of_floats_are_those_of_integers_on_every_backend() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [scope.size("elements")]);
    let bits = scope.apply(Bits, &[&x]);
    let back = scope.apply(Bits, &[&bits]);
    let graph = scope.finish(&[("bits", bits), ("back", back)]).unwrap();
    let values = [0.0, -0.0, 1.5, -3.25e20, f32::MIN_POSITIVE, f32::INFINITY];
    let expected: Vec<i64> = values.iter().map(|value| i64::from(value.to_bits().cast_signed())).collect();
    for kernel in [Kernel::Cpu, Kernel::Wgpu].into_iter().filter(|&kernel| options(kernel).is_some()) {
        let mut session = session(&graph, &Tensors::new(), kernel).unwrap().unwrap();
        let x = HostTensor::f32([values.len()], &values).unwrap();
        let results = run(&mut session, &[("x".to_owned(), x.clone())].into()).unwrap();
        assert_eq!(results["bits"].to_i64(), expected, "{kernel}");
        assert_eq!(results["back"].to_f64(), x.to_f64(), "{kernel}");
    }
}

/// The states of a layer as one operator, and as many.
fn layer(op: &Recurrence, steps: usize, width: usize) -> Graph {
    let scope = Scope::new();
    let (rows, batch) = (op.cell.gates() * width, scope.size("batch"));
    let operands = [
        scope.input("x", DType::F32, [steps.into(), batch.clone(), rows.into()]),
        scope.parameter("weight", DType::F32, [rows, width]),
        scope.parameter("bias", DType::F32, [rows]),
        scope.input("start", DType::F32, [batch, (op.cell.states() * width).into()]),
    ];
    let y = scope.apply(op.clone(), &operands.each_ref());
    let expected = op.decompose(&scope, &operands).unwrap();
    scope.finish(&[("y", y), ("expected", expected)]).unwrap()
}

#[test]
fn recurrent_layers_scan_their_steps_on_every_backend() {
    let cells: [(Cell, &[usize]); 4] =
        [(Cell::Tanh, &[0]), (Cell::Relu, &[0]), (Cell::Gru, &[1, 0, 2]), (Cell::Lstm, &[0, 2, 3, 1])];
    let mut noise = Noise::new(11, "layers");
    for ((cell, order), (steps, width)) in cells.into_iter().zip([(1, 7), (4, 40), (5, 36), (3, 65)]) {
        for is_backward in [false, true] {
            let op = Recurrence { cell, order: order.to_vec(), is_backward };
            let (graph, rows) = (layer(&op, steps, width), cell.gates() * width);
            let weights = [("weight", vec![rows, width]), ("bias", vec![rows])];
            let weights: Tensors =
                weights.map(|(name, shape)| (name.to_owned(), noise.floats(DType::F32, &shape, 0.3))).into();
            for kernel in [Kernel::Cpu, Kernel::Wgpu].into_iter().filter(|&kernel| options(kernel).is_some()) {
                let mut session = session(&graph, &weights, kernel).unwrap().unwrap();
                for batch in [1, 3, 101, 0] {
                    let x = noise.floats(DType::F32, &[steps, batch, rows], 1.0);
                    let start = noise.floats(DType::F32, &[batch, cell.states() * width], 1.0);
                    let inputs = [("x".to_owned(), x), ("start".to_owned(), start)].into();
                    let results = run(&mut session, &inputs).unwrap();
                    let [y, expected] = ["y", "expected"].map(|name| results[name].to_f64());
                    let worst = y.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(
                        y.len() == expected.len() && worst < 1e-5,
                        "{cell:?} of {batch} rows, {steps} steps, width {width}, backward: {is_backward}, on {kernel}: {worst}"
                    );
                }
            }
        }
    }
}

#[test]
fn floats_are_rounded_to_bytes_and_multiplied_exactly_on_every_backend() {
    let mut noise = Noise::new(13, "bytes");
    // A scale of a power of two, so that every quotient is exact on a GPU as well.
    let scale = 0.03125;
    for (depth, columns) in [(1, 1), (7, 3), (64, 33), (130, 70)] {
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, [scope.size("rows"), depth.into()]);
        let [factor, zero] = ["scale", "zero"].map(|name| scope.input(name, DType::F32, [0; 0]));
        let right = scope.parameter("right", DType::I32, [columns, depth.div_ceil(4)]);
        let y = scope.apply(QuantizedProduct, &[&x, &factor, &zero, &right]);
        let graph = scope.finish(&[("y", y)]).unwrap();
        let bytes: Vec<i8> = (0..columns * depth).map(|_| noise.below(-128, 128) as i8).collect();
        let words = IntegerProduct::words(&bytes, depth);
        let words: Vec<u8> = words.into_iter().flat_map(|word| word.to_ne_bytes()).collect();
        let words = HostTensor::copied(DType::I32, vec![columns, depth.div_ceil(4)], &words).unwrap();
        for kernel in [Kernel::Cpu, Kernel::Wgpu].into_iter().filter(|&kernel| options(kernel).is_some()) {
            let mut session = session(&graph, &[("right".to_owned(), words.clone())].into(), kernel).unwrap().unwrap();
            for (rows, zero) in [(1, 0), (5, 255), (70, 91), (0, 3)] {
                // Ties, and values beyond both limits.
                let doubled: Vec<i64> = (0..rows * depth).map(|_| noise.below(-700, 700)).collect();
                let floats: Vec<f32> = doubled.iter().map(|&x| x as f32 * scale / 2.0).collect();
                let quantized = |x: i64| ((x as f64 / 2.0).round_ties_even() as i64 + zero).clamp(0, 255) - zero;
                let expected: Vec<i64> = doubled
                    .chunks(depth)
                    .flat_map(|row| bytes.chunks(depth).map(move |column| (row, column)))
                    .map(|(row, column)| row.iter().zip(column).map(|(&x, &b)| quantized(x) * i64::from(b)).sum())
                    .collect();
                let scalar = |value: f32| HostTensor::f32([0; 0], &[value]).unwrap();
                let inputs: Tensors = [
                    ("x".to_owned(), HostTensor::f32([rows, depth], &floats).unwrap()),
                    ("scale".to_owned(), scalar(scale)),
                    ("zero".to_owned(), scalar(zero as f32)),
                ]
                .into();
                let y = run(&mut session, &inputs).unwrap()["y"].to_i64();
                assert_eq!(y, expected, "{rows} x {depth} x {columns}, zero point {zero}, on {kernel}");
            }
        }
    }
}
