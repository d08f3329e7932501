use super::naive::Point;
use super::{Data, assert_close, body, device, host, run_on_any_threads, symbol, tensor};
use rewire_graph::pointwise::{BinaryOp, Dag, ExprId, UnaryOp};
use rewire_graph::{DType, HostTensor, Scalar};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, Output, ReduceOp};

const HEADS: usize = 3;

// The axes after the sample axis, which is 0.
const ROW: u8 = 1;
const HEAD: u8 = 2;
const COLUMN: u8 = 3;
const KEY: u8 = 4;
const DEPTH: u8 = 5;

/// `silu(qk / 8) / 100`, causal with a window; the last `targets` keys are visible only to themselves.
fn kernel(dtype: DType, qk: usize, v: usize, masked: bool, softmax: bool) -> Computation {
    attention(dtype, [qk, v], softmax, |dag, sample, _, i, j| masked.then(|| mask(dag, sample, i, j)))
}

/// [`kernel`] with a mask computed from sample, head, row and key.
fn attention(
    dtype: DType,
    [qk, v]: [usize; 2],
    softmax: bool,
    mask: impl FnOnce(&mut Dag, ExprId, ExprId, ExprId, ExprId) -> Option<ExprId>,
) -> Computation {
    let mut dag = Dag::new();
    let (sample, head) = (dag.coord(0, None), dag.coord(HEAD, Some(HEADS)));
    let [i, j, depth, value_column] = [ROW, KEY, DEPTH, COLUMN].map(|axis| dag.coord(axis, None));
    let offset = dag.load(0, DType::I32, vec![sample]);
    let [row, key] = [i, j].map(|at| dag.binary(BinaryOp::Add, offset, at));
    let element = |dag: &mut Dag, operand: u16, [row, x]: [ExprId; 2], width: usize| {
        let width = dag.int(width as i64);
        let column = dag.binary(BinaryOp::Mul, head, width);
        let column = dag.binary(BinaryOp::Add, column, x);
        dag.load(operand, dtype, vec![row, column])
    };
    let (q, k) = (element(&mut dag, 1, [row, depth], qk), element(&mut dag, 2, [key, depth], qk));
    let value = element(&mut dag, 3, [key, value_column], v);
    let score = score(&mut dag, softmax);
    let mask = mask(&mut dag, sample, head, i, j);
    let mut accumulations =
        vec![Accumulation { op: ReduceOp::Sum, axis: DEPTH, factors: vec![q, k], dtype: DType::F32 }];
    let weight =
        if softmax { share(&mut dag, mask, score, &mut accumulations) } else { hide(&mut dag, mask, score, 0.0) };
    let sum = dag.value(accumulations.len() as u8, Scalar::F32);
    accumulations.push(Accumulation { op: ReduceOp::Sum, axis: KEY, factors: vec![weight, value], dtype: DType::F32 });
    let width = dag.int(v as i64);
    let column = dag.binary(BinaryOp::Mul, head, width);
    let column = dag.binary(BinaryOp::Add, column, value_column);
    let output = Output {
        target: 0,
        dtype: DType::F32,
        shape: vec![symbol(1), (HEADS * v).into()],
        index: vec![row, column],
        value: sum,
        columns: None,
    };
    let tensor = |width: usize| device(dtype, vec![symbol(1), (HEADS * width).into()]);
    let operands = vec![host(vec![symbol(0) + 1.into()]), tensor(qk), tensor(qk), tensor(v), host(vec![symbol(0)])];
    let ragged = || Extent::Ragged { offsets: 0 };
    let mut axes = Axis::points([symbol(0), HEADS.into(), v.into()]);
    axes.insert(1, Axis { extent: ragged(), summed: false });
    axes.extend([ragged(), Extent::Dense(qk.into())].map(Axis::sum));
    Computation::of(Nest { body: body(dag, operands), axes, accumulations, outputs: vec![output] }).unwrap()
}

/// Selects `score` for visible pairs and `hidden` for masked ones.
fn hide(dag: &mut Dag, mask: Option<ExprId>, score: ExprId, hidden: f32) -> ExprId {
    let hidden = mask.map(|_| dag.float(hidden));
    mask.zip(hidden).map_or(score, |(mask, hidden)| dag.select(mask, score, hidden))
}

/// The softmax weight of a pair.
fn share(dag: &mut Dag, mask: Option<ExprId>, score: ExprId, accumulations: &mut Vec<Accumulation>) -> ExprId {
    let [largest, total] = [1, 2].map(|position| dag.value(position, Scalar::F32));
    let shifted = dag.binary(BinaryOp::Sub, score, largest);
    let exp = dag.unary(UnaryOp::Exp, shifted);
    for (op, element, hidden) in [(ReduceOp::Max, score, f32::NEG_INFINITY), (ReduceOp::Sum, exp, 0.0)] {
        accumulations.push(Accumulation {
            op,
            axis: KEY,
            factors: vec![hide(dag, mask, element, hidden)],
            dtype: DType::F32,
        });
    }
    let share = dag.binary(BinaryOp::Div, exp, total);
    hide(dag, mask, share, 0.0)
}

fn score(dag: &mut Dag, softmax: bool) -> ExprId {
    let dot = dag.value(0, Scalar::F32);
    let scale = dag.float(0.125);
    let scaled = dag.binary(BinaryOp::Mul, dot, scale);
    if softmax {
        return scaled;
    }
    let silu = dag.unary(UnaryOp::Silu, scaled);
    let norm = dag.float(0.01);
    dag.binary(BinaryOp::Mul, silu, norm)
}

fn mask(dag: &mut Dag, sample: ExprId, i: ExprId, j: ExprId) -> ExprId {
    let causal = dag.binary(BinaryOp::Ge, i, j);
    let window = dag.int(150);
    let distance = dag.binary(BinaryOp::Sub, i, j);
    let near = dag.binary(BinaryOp::Lt, distance, window);
    let history = dag.load(4, DType::I32, vec![sample]);
    let past = dag.binary(BinaryOp::Lt, j, history);
    let own = dag.binary(BinaryOp::Eq, i, j);
    let seen = dag.binary(BinaryOp::Or, past, own);
    let both = dag.binary(BinaryOp::And, causal, near);
    dag.binary(BinaryOp::And, both, seen)
}

fn expected(kernel: &Computation, data: &[Data], lengths: &[usize]) -> Vec<f64> {
    let nest = kernel.nest().unwrap();
    let [dot, statistics @ .., sum] = &nest.accumulations[..] else { panic!("no attention") };
    let (&[q, k], &[weight, v]) = (&dot.factors[..], &sum.factors[..]) else { panic!("no attention") };
    let [v_width, qk_width] = [COLUMN, DEPTH]
        .map(|axis| nest.axes[usize::from(axis)].extent.dense().and_then(|width| width.as_const()).unwrap());
    let at = |coords: &[i64], values: &[f64], id: ExprId| {
        Point { dag: &nest.body.dag, data, coords, values }.evaluate(id).float()
    };
    let tokens: usize = lengths.iter().sum();
    let width = HEADS * v_width;
    let (mut out, mut base) = (vec![0.0; tokens * width], 0);
    for (s, &n) in lengths.iter().enumerate() {
        for h in 0..HEADS {
            // Coordinates: row, value column, key, and depth of the dot product.
            let at = |[i, d, j, x]: [usize; 4], values: &[f64], id: ExprId| {
                at(&[s, i, h, d, j, x].map(|coord| coord as i64), values, id)
            };
            let panel = |width: usize, element: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
                (0..n).map(|row| (0..width).map(|x| element(row, x)).collect()).collect()
            };
            let q = panel(qk_width, &|i, x| at([i, 0, 0, x], &[], q));
            let k = panel(qk_width, &|j, x| at([0, 0, j, x], &[], k));
            let v = panel(v_width, &|j, d| at([0, d, j, 0], &[], v));
            for i in 0..n {
                let dots: Vec<f64> = k.iter().map(|k| q[i].iter().zip(k).map(|(a, b)| a * b).sum()).collect();
                let elements = |values: &[f64], id: ExprId| -> Vec<f64> {
                    let values = |j: usize| [&[dots[j]][..], values].concat();
                    (0..n).map(|j| at([i, 0, j, 0], &values(j), id)).collect()
                };
                let mut values = vec![];
                for statistic in statistics {
                    let elements = elements(&values, statistic.factors[0]);
                    values.push(match statistic.op {
                        ReduceOp::Sum => elements.iter().sum(),
                        ReduceOp::Max => elements.into_iter().fold(f64::MIN, f64::max),
                        ReduceOp::Min => elements.into_iter().fold(f64::MAX, f64::min),
                    });
                }
                let weights = elements(&values, weight);
                for d in 0..v_width {
                    let sum: f64 = weights.iter().zip(&v).map(|(w, v)| w * v[d]).sum();
                    out[(base + i) * width + h * v_width + d] = sum;
                }
            }
        }
        base += n;
    }
    out
}

fn data(dtype: DType, lengths: &[usize], qk: usize, v: usize, seeds: &[u32]) -> Vec<Data> {
    let joined = |width: usize, salt: u32| {
        let parts =
            lengths.iter().zip(seeds).flat_map(|(&n, &seed)| tensor(dtype, &[n, HEADS * width], seed + salt).to_f64());
        let values: Vec<f64> = parts.collect();
        Data::Device(HostTensor::from_f64(dtype, vec![lengths.iter().sum(), HEADS * width], &values).unwrap())
    };
    let mut offsets = vec![0];
    lengths.iter().for_each(|&n| offsets.push(offsets[offsets.len() - 1] + n as i64));
    let history = lengths.iter().map(|&n| (n as i64 - 5).max(0)).collect();
    vec![Data::Host(offsets), joined(qk, 100), joined(qk, 200), joined(v, 300), Data::Host(history)]
}

#[test]
fn ragged_attention_meets_plain_loops() {
    for (dtype, qk, v, masked, softmax) in [
        (DType::F32, 16, 16, true, false),
        (DType::F32, 25, 7, true, true),
        (DType::F16, 8, 12, true, false),
        (DType::F32, 1, 1, false, true),
        (DType::F32, 4, 50, false, false),
    ] {
        let lengths = [0, 1, 70, 3, 0, 133];
        let kernel = kernel(dtype, qk, v, masked, softmax);
        let data = data(dtype, &lengths, qk, v, &[1, 2, 3, 4, 5, 6]);
        let symbols = vec![6, lengths.iter().sum::<usize>() as i64];
        let out = run_on_any_threads(&kernel, &data, &symbols);
        assert_close(&out[0], &expected(&kernel, &data, &lengths), 3e-6);
    }
}

#[test]
fn a_mask_may_depend_on_the_head() {
    let kernel = attention(DType::F32, [16, 16], false, |dag, sample, head, i, j| {
        let mask = mask(dag, sample, i, j);
        let distance = dag.binary(BinaryOp::Sub, i, j);
        let step = dag.int(17);
        let window = dag.binary(BinaryOp::Mul, head, step);
        let near = dag.binary(BinaryOp::Le, distance, window);
        Some(dag.binary(BinaryOp::And, mask, near))
    });
    let lengths = [70, 133];
    let data = data(DType::F32, &lengths, 16, 16, &[1, 2]);
    let out = run_on_any_threads(&kernel, &data, &vec![2, 203]);
    assert_close(&out[0], &expected(&kernel, &data, &lengths), 3e-6);
}

/// Masks of samples of one length are shared only between samples of which the mask reads the same.
#[test]
fn a_mask_may_depend_on_the_sample() {
    let by_number = attention(DType::F32, [16, 16], false, |dag, sample, _, i, j| {
        let distance = dag.binary(BinaryOp::Sub, i, j);
        let step = dag.int(19);
        let window = dag.binary(BinaryOp::Mul, sample, step);
        Some(dag.binary(BinaryOp::Le, distance, window))
    });
    let lengths = [60; 5];
    for kernel in [kernel(DType::F32, 16, 16, true, false), by_number] {
        let mut data = data(DType::F32, &lengths, 16, 16, &[1, 2, 3, 4, 5]);
        data[4] = Data::Host(vec![58, 21, 21, 0, 58]);
        let out = run_on_any_threads(&kernel, &data, &vec![5, 300]);
        assert_close(&out[0], &expected(&kernel, &data, &lengths), 3e-6);
    }
}

#[test]
fn long_samples_are_cut_into_spans() {
    let lengths = [1100];
    for softmax in [false, true] {
        for masked in [false, true] {
            let kernel = kernel(DType::F32, 2, 1, masked, softmax);
            let data = data(DType::F32, &lengths, 2, 1, &[9]);
            let out = run_on_any_threads(&kernel, &data, &vec![1, 1100]);
            assert_close(&out[0], &expected_fast(masked, softmax, &data, 1100), 3e-6);
        }
    }
}

/// As `expected`, for one sample, without evaluating expressions.
fn expected_fast(masked: bool, softmax: bool, data: &[Data], n: usize) -> Vec<f64> {
    let flat = |d: &Data| match d {
        Data::Device(t) => t.to_f64(),
        Data::Host(_) => vec![],
    };
    let (q, k, v) = (flat(&data[1]), flat(&data[2]), flat(&data[3]));
    let mut out = vec![0.0; n * HEADS];
    for h in 0..HEADS {
        for i in 0..n {
            let counts = |j: usize| !masked || (i >= j && i - j < 150 && (j + 5 < n || i == j));
            let dot = |j: usize| 0.125 * (0..2).map(|x| q[i * 6 + h * 2 + x] * k[j * 6 + h * 2 + x]).sum::<f64>();
            let keys: Vec<usize> = (0..n).filter(|&j| counts(j)).collect();
            let weight = |s: f64| if softmax { s.exp() } else { 0.01 * s / (1.0 + (-s).exp()) };
            let total: f64 = if softmax { keys.iter().map(|&j| weight(dot(j))).sum() } else { 1.0 };
            out[i * HEADS + h] = keys.iter().map(|&j| weight(dot(j)) * v[j * HEADS + h]).sum::<f64>() / total;
        }
    }
    out
}

#[test]
fn a_sample_does_not_depend_on_its_batch_mates() {
    let kernel = kernel(DType::F32, 16, 25, true, false);
    let alone = run_on_any_threads(&kernel, &data(DType::F32, &[90], 16, 25, &[7]), &vec![1, 90]);
    let lengths = [200, 90, 11];
    let mates = run_on_any_threads(&kernel, &data(DType::F32, &lengths, 16, 25, &[1, 7, 3]), &vec![3, 301]);
    let row = HEADS * 25 * 4;
    assert_eq!(alone[0].bytes(), &mates[0].bytes()[200 * row..290 * row]);
}

#[test]
fn samples_of_any_lengths_may_share_a_mask() {
    let kernel = attention(DType::F32, [16, 16], false, |dag, _, _, i, j| {
        let [back, ahead] = [-20, 30].map(|n| dag.int(n));
        let distance = dag.binary(BinaryOp::Sub, j, i);
        let [after, before] = [(back, distance), (distance, ahead)].map(|(a, b)| dag.binary(BinaryOp::Le, a, b));
        Some(dag.binary(BinaryOp::And, after, before))
    });
    let (lengths, seeds) = ([48, 133, 70, 11, 96, 95, 133, 127], [1, 2, 3, 4, 5, 6, 7, 8]);
    let data_of = |lengths: &[usize], seeds: &[u32]| data(DType::F32, lengths, 16, 16, seeds);
    let (tokens, all) = (lengths.iter().sum::<usize>(), data_of(&lengths, &seeds));
    let out = run_on_any_threads(&kernel, &all, &vec![lengths.len() as i64, tokens as i64]);
    assert_close(&out[0], &expected(&kernel, &all, &lengths), 3e-6);
    let (row, mut first) = (HEADS * 16 * 4, 0);
    for (length, seed) in lengths.into_iter().zip(seeds) {
        let alone = run_on_any_threads(&kernel, &data_of(&[length], &[seed]), &vec![1, length as i64]);
        assert_eq!(alone[0].bytes(), &out[0].bytes()[first * row..][..length * row], "{length} rows");
        first += length;
    }
}

/// Adds an output with the sums of weights to a kernel, which makes it a pair reduction other than attention.
fn with_totals(kernel: Computation) -> Computation {
    let Computation::Nest(kernel) = kernel else { panic!("no nest") };
    let mut nest = kernel.into_nest();
    let weight = nest.accumulations[1].factors[0];
    let (head, value) = (nest.body.dag.coord(HEAD, Some(HEADS)), nest.body.dag.value(2, Scalar::F32));
    let index = vec![nest.outputs[0].index[0], head];
    let shape = vec![symbol(1), HEADS.into()];
    nest.accumulations.push(Accumulation { op: ReduceOp::Sum, axis: KEY, factors: vec![weight], dtype: DType::F32 });
    nest.outputs.push(Output { target: 1, dtype: DType::F32, shape, index, value, columns: None });
    Computation::of(nest).unwrap()
}

#[test]
fn a_beginning_does_not_depend_on_the_rest() {
    let causal = |window: Option<i64>| {
        move |dag: &mut Dag, _: ExprId, _: ExprId, i: ExprId, j: ExprId| {
            let past = dag.binary(BinaryOp::Ge, i, j);
            let near = window.map(|window| {
                let (distance, window) = (dag.binary(BinaryOp::Sub, i, j), dag.int(window));
                dag.binary(BinaryOp::Lt, distance, window)
            });
            Some(near.map_or(past, |near| dag.binary(BinaryOp::And, past, near)))
        }
    };
    let whole = 530;
    for (width, window) in [([16, 16], None), ([25, 7], Some(5)), ([2, 1], Some(20))] {
        let kernel = |softmax| attention(DType::F32, width, softmax, causal(window));
        for (name, kernel) in
            [("attention", kernel(false)), ("softmax", kernel(true)), ("pairs", with_totals(kernel(false)))]
        {
            let of = |rows: usize| {
                let data = data(DType::F32, &[rows], width[0], width[1], &[7]);
                run_on_any_threads(&kernel, &data, &vec![1, rows as i64])
            };
            let all = of(whole);
            for rows in [1, 2, 3, 4, 15, 16, 17, 18, 19, 24, 25, 26, 27, 40, 72, 90, 513, 514, 515] {
                for (output, (few, all)) in of(rows).iter().zip(&all).enumerate() {
                    let bytes = few.bytes();
                    assert!(
                        bytes == &all.bytes()[..bytes.len()],
                        "{name} {output}: {rows} rows, {width:?}, {window:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_batch_of_nothing_does_nothing() {
    let kernel = kernel(DType::F32, 16, 16, true, false);
    for lengths in [vec![], vec![0, 0]] {
        let data = data(DType::F32, &lengths, 16, 16, &[1, 2]);
        assert!(run_on_any_threads(&kernel, &data, &vec![lengths.len() as i64, 0])[0].is_empty());
    }
}
