use super::super::CpuError;
use super::naive::Point;
use super::{
    Compiled, Data, Memory, Operand, body, device, host, pool, run_compiled, run_on_any_threads, symbol, tensor,
};
use proptest::prelude::*;
use rewire_graph::pointwise::{BinaryOp, Dag, ExprId, UnaryOp};
use rewire_graph::{DType, HostTensor, Number, Scalar};
use rewire_graph_rewrite::plan::{Computation, Nest, Output};

/// A loop over `extents` that writes `values` at its coordinates.
fn map(
    dag: Dag,
    operands: Vec<rewire_graph_rewrite::plan::Operand>,
    extents: &[usize],
    values: &[ExprId],
) -> Computation {
    let mut dag = dag;
    let index: Vec<ExprId> = extents.iter().enumerate().map(|(n, &e)| dag.coord(n as u8, Some(e))).collect();
    let dtype = |id| match dag.scalar(id) {
        Scalar::F32 => DType::F32,
        Scalar::I32 => DType::I32,
        Scalar::I64 => DType::I64,
        Scalar::Bool => DType::Bool,
    };
    let shape: Vec<_> = extents.iter().map(|&e| e.into()).collect();
    let output = |(n, &value): (usize, &ExprId)| Output {
        target: n as u16,
        dtype: dtype(value),
        shape: shape.clone(),
        index: index.clone(),
        value,
        columns: None,
    };
    let outputs = values.iter().enumerate().map(output).collect();
    Computation::of(Nest::map(body(dag, operands), shape, outputs)).unwrap()
}

/// Compares all outputs of a map with point by point evaluation.
fn check(kernel: &Computation, data: &[Data], extents: &[usize], tolerance: f64) {
    let out = run_on_any_threads(kernel, data, &vec![]);
    let map = kernel.nest().unwrap();
    for (output, actual) in map.outputs.iter().zip(&out) {
        let (floats, ints) = (actual.to_f64(), actual.to_i64());
        for point in 0..extents.iter().product() {
            let (mut rest, mut coords) = (point, vec![0i64; extents.len()]);
            for (coord, extent) in coords.iter_mut().zip(extents).rev() {
                *coord = (rest % extent) as i64;
                rest /= extent;
            }
            match (Point { dag: &map.body.dag, data, coords: &coords, values: &[] }).evaluate(output.value) {
                Number::Integer(expected) => assert_eq!(ints[point], expected, "at {coords:?}"),
                Number::Float(expected) => {
                    let error = (floats[point] - expected).abs();
                    assert!(
                        error <= tolerance * (1.0 + expected.abs()),
                        "{} not {expected} at {coords:?}",
                        floats[point]
                    );
                }
            }
        }
    }
}

#[test]
fn functions_are_accurate() {
    let values: Vec<f32> = (-4000..4000).map(|n| n as f32 * 0.0251).collect();
    let x = HostTensor::f32(vec![values.len()], &values).unwrap();
    for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(Scalar::F32)) {
        let mut dag = Dag::new();
        let column = dag.coord(0, None);
        let load = dag.load(0, DType::F32, vec![column]);
        let value = dag.unary(op, load);
        let kernel = map(dag, vec![device(DType::F32, vec![values.len().into()])], &[values.len()], &[value]);
        let out = run_on_any_threads(&kernel, &[Data::Device(x.clone())], &vec![]);
        for (x, y) in values.iter().zip(out[0].to_f64()) {
            let expected = op.evaluate(f64::from(*x));
            if expected.abs() > f64::from(f32::MAX) {
                assert!(y.is_infinite(), "{op:?}({x}) = {y}");
            } else if expected.is_nan() {
                assert!(y.is_nan(), "{op:?}({x}) = {y}");
            } else {
                let error = (y - expected).abs() / expected.abs().max(1e-30);
                assert!(error < 4e-7 || (y - expected).abs() < 1e-35, "{op:?}({x}) = {y}, not {expected}");
            }
        }
    }
}

#[test]
fn large_arguments_stay_finite() {
    let values = [-1e30f32, -200.0, -104.5, -89.0, 88.9, 104.0, 1e30, f32::NAN, 0.0, -0.0];
    let x = HostTensor::f32(vec![values.len()], &values).unwrap();
    let mut dag = Dag::new();
    let column = dag.coord(0, None);
    let load = dag.load(0, DType::F32, vec![column]);
    let out = [UnaryOp::Silu, UnaryOp::Sigmoid, UnaryOp::Tanh, UnaryOp::Erf].map(|op| dag.unary(op, load));
    let kernel = map(dag, vec![device(DType::F32, vec![values.len().into()])], &[values.len()], &out);
    let out = run_on_any_threads(&kernel, &[Data::Device(x)], &vec![]);
    let [silu, sigmoid, tanh, erf] = [0, 1, 2, 3].map(|n: usize| out[n].to_f32());
    assert_eq!(silu[0].abs(), 0.0);
    assert!(silu[..7].iter().all(|x| x.is_finite()));
    assert_eq!((silu[6], sigmoid[0], sigmoid[6]), (1e30, 0.0, 1.0));
    assert_eq!((tanh[0], tanh[6], erf[0], erf[6]), (-1.0, 1.0, -1.0, 1.0));
    assert!([silu[7], sigmoid[7], tanh[7], erf[7]].iter().all(|x| x.is_nan()));
}

#[test]
fn a_side_that_is_not_taken_leaves_nothing_of_an_earlier_run() {
    const WIDTH: usize = 40;
    let mut dag = Dag::new();
    let (row, column) = (dag.coord(0, None), dag.coord(1, Some(WIDTH)));
    let taken = dag.load(0, DType::I32, vec![row]);
    let first = dag.binary(BinaryOp::Lt, column, taken);
    let (a, b) = (dag.load(1, DType::F32, vec![row, column]), dag.load(2, DType::F32, vec![row, column]));
    let chosen = dag.select(first, a, b);
    let value = dag.unary(UnaryOp::Neg, chosen);
    let rows = |n| vec![symbol(n), WIDTH.into()];
    let operands = vec![device(DType::I32, vec![symbol(0)]), device(DType::F32, rows(0)), device(DType::F32, rows(1))];
    let output =
        Output { target: 0, dtype: DType::F32, shape: rows(0), index: vec![row, column], value, columns: None };
    let kernel = Computation::of(Nest::map(body(dag, operands), rows(0), vec![output])).unwrap();
    let compiled = Compiled::new(&kernel).unwrap();
    let pool = pool(1);
    // First both sides of the select are read, then only the first one, for more rows than the second operand has.
    for (rows, columns) in [(3, 17), (60, WIDTH)] {
        let (x, y) = (tensor(DType::F32, &[rows, WIDTH], 1), tensor(DType::F32, &[3, WIDTH], 2));
        let taken = HostTensor::from_f64(DType::I32, vec![rows], &vec![columns as f64; rows]).unwrap();
        let data = [taken, x.clone(), y.clone()].map(Data::Device);
        let out = pool.install(|| run_compiled(&compiled, &kernel, &data, &vec![rows as i64, 3]));
        for (n, got) in out[0].to_f64().into_iter().enumerate() {
            let expected = if n % WIDTH < columns { -x.to_f64()[n] } else { -y.to_f64()[n] };
            assert!((got - expected).abs() < 1e-6, "{got} not {expected} at row {}", n / WIDTH);
        }
    }
}

#[test]
fn a_choice_reads_only_what_it_takes() {
    for (left, right) in [(300, 290), (5, 1), (1, 400)] {
        let mut dag = Dag::new();
        let (row, column) = (dag.coord(0, Some(9)), dag.coord(1, Some(left + right)));
        let split = dag.int(left as i64);
        let first = dag.binary(BinaryOp::Lt, column, split);
        let rest = dag.binary(BinaryOp::Sub, column, split);
        let (a, b) = (dag.load(0, DType::F32, vec![row, column]), dag.load(1, DType::F32, vec![row, rest]));
        let a = dag.unary(UnaryOp::Silu, a);
        let joined = dag.select(first, a, b);
        let operands =
            vec![device(DType::F32, vec![9.into(), left.into()]), device(DType::F32, vec![9.into(), right.into()])];
        let data = [Data::Device(tensor(DType::F32, &[9, left], 1)), Data::Device(tensor(DType::F32, &[9, right], 2))];
        check(&map(dag, operands, &[9, left + right], &[joined]), &data, &[9, left + right], 1e-6);
    }
}

#[test]
fn outputs_scatter_and_take_columns() {
    let mut dag = Dag::new();
    let (row, column) = (dag.coord(0, Some(30)), dag.coord(1, Some(50)));
    let x = dag.load(0, DType::F32, vec![row, column]);
    let (start, width) = (dag.int(20), dag.int(5));
    let shifted = dag.binary(BinaryOp::Sub, column, start);
    let (head, within) = (dag.binary(BinaryOp::Div, column, width), dag.binary(BinaryOp::Mod, column, width));
    let output = |target, shape: &[usize], index: Vec<ExprId>, columns| Output {
        target,
        dtype: DType::F32,
        shape: shape.iter().map(|&n| n.into()).collect(),
        index,
        value: x,
        columns,
    };
    let outputs = vec![
        output(0, &[30, 20], vec![row, column], Some((0, 20))),
        output(1, &[30, 30], vec![row, shifted], Some((20, 50))),
        output(2, &[50, 30], vec![column, row], None),
        output(3, &[10, 30, 5], vec![head, row, within], None),
    ];
    let body = body(dag, vec![device(DType::F32, vec![30.into(), 50.into()])]);
    let kernel = Computation::of(Nest::map(body, vec![30.into(), 50.into()], outputs)).unwrap();
    let source = tensor(DType::F32, &[30, 50], 1);
    let out = run_on_any_threads(&kernel, &[Data::Device(source.clone())], &vec![]);
    let (source, out): (Vec<f32>, Vec<Vec<f32>>) = (source.to_f32(), out.iter().map(HostTensor::to_f32).collect());
    for (point, &x) in source.iter().enumerate() {
        let (r, c) = (point / 50, point % 50);
        let split = if c < 20 { out[0][r * 20 + c] } else { out[1][r * 30 + c - 20] };
        assert_eq!([split, out[2][c * 30 + r], out[3][(c / 5 * 30 + r) * 5 + c % 5]], [x; 3]);
    }
}

#[test]
fn parts_of_a_concatenation_are_loops_of_their_own() {
    for (rows, widths) in [(7, [40, 33, 64]), (1, [32, 500, 40]), (0, [64, 32, 32]), (3, [5, 33, 64])] {
        let extents = [rows, widths.iter().sum()];
        let mut dag = Dag::new();
        let [row, column] = [0, 1].map(|axis| dag.coord(axis as u8, Some(extents[axis])));
        let [first, second] = [widths[0], widths[0] + widths[1]].map(|start| dag.int(start as i64));
        let [in_second, in_third] = [first, second].map(|start| dag.binary(BinaryOp::Sub, column, start));
        let a = dag.load(0, DType::F32, vec![row, column]);
        let b = dag.load(1, DType::F32, vec![row, in_second]);
        let c = dag.load(2, DType::F32, vec![in_third, row]);
        let b = dag.unary(UnaryOp::Silu, b);
        let [is_first, is_early] = [first, second].map(|end| dag.binary(BinaryOp::Lt, column, end));
        let early = dag.select(is_first, a, b);
        let joined = dag.select(is_early, early, c);
        let shapes = [[rows, widths[0]], [rows, widths[1]], [widths[2], rows]];
        let operands = shapes.iter().map(|shape| device(DType::F32, shape.iter().map(|&n| n.into()).collect()));
        let kernel = map(dag, operands.collect(), &extents, &[joined, column]);
        let data = shapes.iter().enumerate().map(|(n, shape)| Data::Device(tensor(DType::F32, shape, n as u32)));
        check(&kernel, &data.collect::<Vec<_>>(), &extents, 1e-6);
    }
}

#[test]
fn long_vectors_and_empty_loops() {
    let mut dag = Dag::new();
    let x = dag.coord(0, None);
    let load = dag.load(0, DType::I64, vec![x]);
    let seven = dag.constant(Scalar::I64, -7);
    let value = dag.binary(BinaryOp::Div, load, seven);
    for n in [0usize, 1, 100_001] {
        let values: Vec<i64> = (0..n as i64).map(|n| n * 1_000_000_007 - 50_000_000_000).collect();
        let kernel = map(dag.clone(), vec![device(DType::I64, vec![n.into()])], &[n], &[value]);
        let out = run_on_any_threads(&kernel, &[Data::Device(HostTensor::i64(vec![n], &values).unwrap())], &vec![]);
        let expected: Vec<i64> = values.iter().map(|v| (*v as f64 / -7.0).floor() as i64).collect();
        assert_eq!(out[0].to_i64(), expected);
    }
}

#[test]
fn rows_find_their_samples_and_draw_masks() {
    let mut dag = Dag::new();
    let (row, column) = (dag.coord(0, Some(11)), dag.coord(1, Some(21)));
    let sample = dag.sample(0, row);
    let scalar = dag.load(1, DType::I32, vec![sample]);
    let width = dag.int(21);
    let flat = dag.binary(BinaryOp::Mul, row, width);
    let flat = dag.binary(BinaryOp::Add, flat, column);
    let seed = dag.load(2, DType::I64, vec![]);
    let draw = dag.uniform(seed, flat);
    let operands = vec![host(vec![5.into()]), host(vec![4.into()]), device(DType::I64, vec![])];
    let seed = HostTensor::i64(vec![], &[0x1234_5678_9ABC_DEF0]).unwrap();
    let data = [Data::Host(vec![0, 3, 3, 7, 11]), Data::Host(vec![10, 20, 30, 40]), Data::Device(seed)];
    check(&map(dag, operands, &[11, 21], &[sample, scalar, draw]), &data, &[11, 21], 0.0);
}

/// Builds expressions from a list of choices. All floats stay within a moderate range.
fn random(choices: &[(u8, u16, u16, u16)], extents: &[usize]) -> (Dag, Vec<ExprId>) {
    let mut dag = Dag::new();
    let (row, column) = (dag.coord(0, Some(extents[0])), dag.coord(1, Some(extents[1])));
    let mut ints = vec![row, column, dag.int(3), dag.int(-2), dag.int(i32::MIN.into()), dag.int(0x7fff_fff0)];
    let mut floats =
        vec![dag.load(0, DType::F32, vec![row, column]), dag.load(1, DType::F16, vec![column]), dag.float(0.5)];
    let mut longs = vec![
        dag.load(2, DType::I64, vec![row]),
        dag.constant(Scalar::I64, 1 << 40),
        dag.constant(Scalar::I64, i64::MIN),
    ];
    let mut truths = vec![dag.binary(BinaryOp::Lt, row, column)];
    for &(kind, x, y, z) in choices {
        let pick = |from: &[ExprId], n: u16| from[usize::from(n) % from.len()];
        let (a, b) = (pick(&floats, x), pick(&floats, y));
        let (i, j) = (pick(&ints, x), pick(&ints, y));
        let (l, m) = (pick(&longs, x), pick(&longs, y));
        let (c, d) = (pick(&truths, z), pick(&truths, y));
        match kind % 16 {
            0 | 1 => {
                use UnaryOp::*;
                let bounded = dag.unary(Tanh, a);
                floats.push(dag.unary([Exp, Sigmoid, Silu, Relu, Erf, Neg, Abs, Sin][usize::from(z) % 8], bounded));
            }
            2 | 3 => {
                let op = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Min, BinaryOp::Max][usize::from(z) % 4];
                let sum = dag.binary(op, a, b);
                floats.push(dag.unary(UnaryOp::Sigmoid, sum));
            }
            4 => floats.push(dag.select(c, a, b)),
            5 => ints.push(dag.select(c, i, j)),
            6 => longs.push(dag.select(c, l, m)),
            7 | 8 => {
                use BinaryOp::*;
                let op = [Add, Sub, Mul, Div, Mod, Min, Max, And, Or][usize::from(z) % 9];
                ints.push(dag.binary(op, i, j));
            }
            9 => {
                use BinaryOp::*;
                longs.push(dag.binary([Add, Sub, Mul, Div, Mod, Min, Max, And, Or][usize::from(z) % 9], l, m));
            }
            10 => truths.push(dag.binary([BinaryOp::And, BinaryOp::Or][usize::from(x) % 2], c, d)),
            11 => truths.push(dag.binary([BinaryOp::Le, BinaryOp::Eq, BinaryOp::Ne][usize::from(z) % 3], i, j)),
            12 => truths.push(dag.binary([BinaryOp::Ge, BinaryOp::Gt][usize::from(z) % 2], l, m)),
            13 => truths.push(dag.unary(UnaryOp::Not, c)),
            14 if z % 2 == 0 => longs.push(dag.cast(Scalar::I64, i)),
            14 => ints.push(dag.cast(Scalar::I32, l)),
            _ => {
                // A gather that is in range only where the select reads it.
                let (width, low) = (dag.int(extents[1] as i64), dag.int(0));
                let (above, below) = (dag.binary(BinaryOp::Ge, i, low), dag.binary(BinaryOp::Lt, i, width));
                let inside = dag.binary(BinaryOp::And, above, below);
                let gathered = dag.load(0, DType::F32, vec![row, i]);
                let gathered = dag.unary(UnaryOp::Tanh, gathered);
                floats.push(dag.select(inside, gathered, a));
            }
        }
    }
    let last = |list: &[ExprId]| list[list.len() - 1];
    (dag, vec![last(&floats), last(&ints), last(&longs), last(&truths)])
}

/// Rows and widths: short rows, several tiles of rows, several tiles per row.
const SHAPES: [(usize, usize); 10] =
    [(1, 1), (3, 3), (70, 3), (2, 25), (67, 25), (3, 50), (5, 64), (2, 300), (9, 300), (1, 2100)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_expressions_meet_recursion(
        choices in prop::collection::vec(any::<(u8, u16, u16, u16)>(), 1..40),
        (rows, width) in prop::sample::select(SHAPES.to_vec()),
    ) {
        let (dag, values) = random(&choices, &[rows, width]);
        let operands = vec![
            device(DType::F32, vec![rows.into(), width.into()]),
            device(DType::F16, vec![width.into()]),
            device(DType::I64, vec![rows.into()]),
        ];
        let ids: Vec<i64> = (0..rows as i64).map(|n| n * 3_000_000_000 - 4_000_000_000).collect();
        let data = [
            Data::Device(tensor(DType::F32, &[rows, width], 1)),
            Data::Device(tensor(DType::F16, &[width], 2)),
            Data::Device(HostTensor::i64(vec![rows], &ids).unwrap()),
        ];
        check(&map(dag, operands, &[rows, width], &values), &data, &[rows, width], 2e-5);
    }
}

#[test]
fn heads_split_and_join_in_tiles() {
    for (rows, heads, width) in [(3, 4, 64), (150, 3, 16), (70, 2, 20), (5, 3, 25)] {
        let all = heads * width;
        let mut dag = Dag::new();
        let (row, head, x) = (dag.coord(0, Some(rows)), dag.coord(1, Some(heads)), dag.coord(2, Some(width)));
        let scaled = dag.int(width as i64);
        let scaled = dag.binary(BinaryOp::Mul, head, scaled);
        let column = dag.binary(BinaryOp::Add, scaled, x);
        let flat = dag.load(0, DType::F32, vec![row, column]);
        let split = dag.load(1, DType::F16, vec![row, head, x]);
        let own = dag.load(2, DType::F32, vec![head]);
        let sum = dag.binary(BinaryOp::Add, flat, split);
        let value = dag.binary(BinaryOp::Mul, sum, own);
        let operands = vec![
            device(DType::F32, vec![rows.into(), all.into()]),
            device(DType::F16, vec![rows.into(), heads.into(), width.into()]),
            device(DType::F32, vec![heads.into()]),
        ];
        let data = [
            Data::Device(tensor(DType::F32, &[rows, all], 1)),
            Data::Device(tensor(DType::F16, &[rows, heads, width], 2)),
            Data::Device(tensor(DType::F32, &[heads], 3)),
        ];
        check(&map(dag.clone(), operands.clone(), &[rows, heads, width], &[value]), &data, &[rows, heads, width], 1e-6);

        let mut dag = Dag::new();
        let (row, column) = (dag.coord(0, Some(rows)), dag.coord(1, Some(all)));
        let width_of = dag.int(width as i64);
        let (head, x) = (dag.binary(BinaryOp::Div, column, width_of), dag.binary(BinaryOp::Mod, column, width_of));
        let split = dag.load(1, DType::F16, vec![row, head, x]);
        let own = dag.load(2, DType::F32, vec![head]);
        let value = dag.binary(BinaryOp::Mul, split, own);
        check(&map(dag, operands, &[rows, all], &[value]), &data, &[rows, all], 1e-6);
    }
}

#[test]
fn outputs_share_a_tensor() {
    for (rows, left, right) in [(130, 40, 24), (3, 5, 2100), (1, 64, 64)] {
        let mut dag = Dag::new();
        let (row, column) = (dag.coord(0, Some(rows)), dag.coord(1, Some(left)));
        let shift = dag.int(right as i64);
        let moved = dag.binary(BinaryOp::Add, column, shift);
        let a = dag.load(0, DType::F32, vec![row, column]);
        let b = dag.unary(UnaryOp::Neg, a);
        let output = |index, value, columns| Output {
            target: 0,
            dtype: DType::F16,
            shape: vec![rows.into(), (left + right).into()],
            index,
            value,
            columns,
        };
        let end = left.min(right);
        let outputs = vec![output(vec![row, moved], a, None), output(vec![row, column], b, Some((0, end)))];
        let body = body(dag, vec![device(DType::F32, vec![rows.into(), left.into()])]);
        let kernel = Computation::of(Nest::map(body, vec![rows.into(), left.into()], outputs)).unwrap();
        let source = tensor(DType::F32, &[rows, left], 1);
        let out = run_on_any_threads(&kernel, &[Data::Device(source.clone())], &vec![]).remove(0).to_f64();
        let half = HostTensor::from_f64(DType::F16, vec![rows * left], &source.to_f64()).unwrap().to_f64();
        for (r, row) in out.chunks(left + right).enumerate() {
            assert_eq!(row[right..], half[r * left..][..left]);
            assert!(row[..end].iter().zip(&half[r * left..]).all(|(x, y)| *x == -y));
            assert!(row[end..right].iter().all(|x| x.is_nan()));
        }
    }
}

#[test]
fn wrong_calls_are_errors() {
    let mut dag = Dag::new();
    let column = dag.coord(0, None);
    let value = dag.load(0, DType::F32, vec![column]);
    let kernel = map(dag, vec![device(DType::F32, vec![8.into()])], &[8], &[value]);
    let compiled = Compiled::new(&kernel).unwrap();
    let memory = |dtype, n: usize| Memory::new(dtype, &[n]).unwrap();
    let (good, short, half) = (memory(DType::F32, 8), memory(DType::F32, 7), memory(DType::F16, 8));
    let run = |operands: &[Operand<'_>], out: &mut Memory| compiled.run(operands, &mut [out], &|_| None);
    let mut out = memory(DType::F32, 8);
    assert_eq!(run(&[Operand::Tensor(&good)], &mut out), Ok(()));
    assert!(matches!(run(&[], &mut out), Err(CpuError::Count { what: "operands", .. })));
    for wrong in [Operand::Tensor(&short), Operand::Tensor(&half), Operand::Host(&[1])] {
        assert!(matches!(run(&[wrong], &mut out), Err(CpuError::Mismatch { what: "operand", .. })));
    }
    let error = run(&[Operand::Tensor(&good)], &mut memory(DType::F32, 9)).unwrap_err();
    assert_eq!(error.to_string(), "output 0 must be a tensor of f32 [8], got a tensor of f32 [9]");
    assert!(matches!(Memory::new(DType::I64, &[usize::MAX, 3]), Err(CpuError::Memory { .. })));
}

#[test]
fn values_of_columns_serve_all_rows() {
    // Less than one tile, several tiles, and tiles that end within a row.
    for (rows, width) in [(1, 1), (3, 7), (130, 37), (65, 64), (2, 5000), (200, 2048)] {
        let mut dag = Dag::new();
        let (row, column) = (dag.coord(0, Some(rows)), dag.coord(1, Some(width)));
        let three = dag.int(3);
        let (quotient, rest) = (dag.binary(BinaryOp::Div, column, three), dag.binary(BinaryOp::Mod, column, three));
        let angle = dag.cast(Scalar::F32, quotient);
        let looked_up = dag.load(1, DType::F32, vec![rest]);
        let (sine, cosine) = (dag.unary(UnaryOp::Sin, angle), dag.unary(UnaryOp::Cos, angle));
        let factor = dag.binary(BinaryOp::Mul, sine, looked_up);
        let x = dag.load(0, DType::F32, vec![row, column]);
        let product = dag.binary(BinaryOp::Mul, x, factor);
        let sum = dag.binary(BinaryOp::Add, product, cosine);
        let place = dag.binary(BinaryOp::Mul, row, rest);
        let operands = vec![device(DType::F32, vec![rows.into(), width.into()]), device(DType::F32, vec![3.into()])];
        let kernel = map(dag, operands, &[rows, width], &[sum, place, cosine, rest]);
        let data = [tensor(DType::F32, &[rows, width], 1), tensor(DType::F32, &[3], 2)].map(Data::Device);
        check(&kernel, &data, &[rows, width], 1e-6);
    }
}

#[test]
fn angles_of_any_size_have_a_sine() {
    let values: Vec<f32> = [0.0, 1e-30, 1e-3, 355.0, 710.0, 4095.9, 4096.0, 4096.2, 33_333.3, 1e10, 1e30]
        .into_iter()
        .flat_map(|x: f32| [x, -x])
        .chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN])
        .collect();
    let x = HostTensor::f32(vec![values.len()], &values).unwrap();
    let mut dag = Dag::new();
    let column = dag.coord(0, None);
    let load = dag.load(0, DType::F32, vec![column]);
    let out = [UnaryOp::Sin, UnaryOp::Cos].map(|op| dag.unary(op, load));
    let kernel = map(dag, vec![device(DType::F32, vec![values.len().into()])], &[values.len()], &out);
    let out = run_on_any_threads(&kernel, &[Data::Device(x)], &vec![]);
    for (n, x) in values.into_iter().enumerate() {
        for (out, expected) in out.iter().zip([f64::from(x).sin(), f64::from(x).cos()]) {
            let y = out.to_f32()[n];
            assert_eq!(y.is_nan(), expected.is_nan(), "{x}: {y}");
            assert!(expected.is_nan() || (f64::from(y) - expected).abs() < 2e-7, "{x}: {y}, not {expected}");
            assert!(x != 0.0 || expected != 0.0 || y.to_bits() == x.to_bits(), "the sign of {x}");
        }
    }
}
