use super::naive::Point;
use super::{Data, assert_close, body, device, host, run_on_any_threads, symbol, tensor};
use rewire_graph::pointwise::{BinaryOp, Dag, ExprId, UnaryOp};
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::plan::{Attention, Kernel, Output, RowRange};

const HEADS: usize = 3;

/// `silu(qk / 8) / 100`, causal with a window and the last `targets` keys seen only by themselves.
fn kernel(dtype: DType, qk: usize, v: usize, masked: bool, softmax: bool) -> Kernel {
    let mut dag = Dag::new();
    let (sample, head) = (dag.coord(0, None), dag.coord(1, Some(HEADS)));
    let (i, x) = (dag.coord(2, None), dag.coord(3, None));
    let offset = dag.load(0, DType::I32, vec![sample]);
    let row = dag.binary(BinaryOp::Add, offset, i);
    let element = |dag: &mut Dag, operand: u16, width: usize| {
        let width = dag.int(width as i64);
        let column = dag.binary(BinaryOp::Mul, head, width);
        let column = dag.binary(BinaryOp::Add, column, x);
        dag.load(operand, dtype, vec![row, column])
    };
    let (q, k, value) = (element(&mut dag, 1, qk), element(&mut dag, 2, qk), element(&mut dag, 3, v));
    let score = score(&mut dag, softmax);
    let mask = masked.then(|| mask(&mut dag, sample, i, x));
    let sum = dag.value(0, rewire_graph::Scalar::F32);
    let width = dag.int(v as i64);
    let column = dag.binary(BinaryOp::Mul, head, width);
    let column = dag.binary(BinaryOp::Add, column, x);
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
    Kernel::Attention(Attention {
        body: body(dag, operands),
        samples: symbol(0),
        heads: HEADS,
        qk_width: qk,
        v_width: v,
        rows: RowRange::Ragged { offsets: 0 },
        keys: RowRange::Ragged { offsets: 0 },
        q,
        k,
        v: value,
        score,
        mask,
        softmax,
        outputs: vec![output],
    })
}

fn score(dag: &mut Dag, softmax: bool) -> ExprId {
    let dot = dag.value(0, rewire_graph::Scalar::F32);
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

fn expected(kernel: &Kernel, data: &[Data], lengths: &[usize]) -> Vec<f64> {
    let Kernel::Attention(kernel) = kernel else { panic!("no attention") };
    let at = |coords: &[i64], values: &[f64], id: ExprId| {
        Point { dag: &kernel.body.dag, data, coords, values }.evaluate(id).float()
    };
    let tokens: usize = lengths.iter().sum();
    let width = HEADS * kernel.v_width;
    let (mut out, mut base) = (vec![0.0; tokens * width], 0);
    for (s, &n) in lengths.iter().enumerate() {
        for h in 0..HEADS {
            let panel = |id: ExprId, width: usize| -> Vec<Vec<f64>> {
                let row =
                    |i: usize| (0..width).map(|x| at(&[s as i64, h as i64, i as i64, x as i64], &[], id)).collect();
                (0..n).map(row).collect()
            };
            let (q, k, v) =
                (panel(kernel.q, kernel.qk_width), panel(kernel.k, kernel.qk_width), panel(kernel.v, kernel.v_width));
            for i in 0..n {
                let weight = |j: usize| -> Option<f64> {
                    let coords = [s as i64, h as i64, i as i64, j as i64];
                    let counts = kernel.mask.is_none_or(|mask| at(&coords, &[], mask) != 0.0);
                    let dot: f64 = q[i].iter().zip(&k[j]).map(|(a, b)| a * b).sum();
                    counts.then(|| at(&coords, &[dot], kernel.score))
                };
                let mut weights: Vec<Option<f64>> = (0..n).map(weight).collect();
                if kernel.softmax {
                    let largest = weights.iter().flatten().fold(f64::MIN, |a, &b| a.max(b));
                    weights.iter_mut().flatten().for_each(|w| *w = (*w - largest).exp());
                    let sum: f64 = weights.iter().flatten().sum();
                    weights.iter_mut().flatten().for_each(|w| *w /= sum);
                }
                for d in 0..kernel.v_width {
                    let sum: f64 = weights.iter().zip(&v).map(|(w, v)| w.unwrap_or(0.0) * v[d]).sum();
                    out[(base + i) * width + h * kernel.v_width + d] = sum;
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
    let Kernel::Attention(mut attention) = kernel(DType::F32, 16, 16, true, false) else { panic!("no attention") };
    let dag = &mut attention.body.dag;
    let (head, i, j) = (dag.coord(1, Some(HEADS)), dag.coord(2, None), dag.coord(3, None));
    let distance = dag.binary(BinaryOp::Sub, i, j);
    let step = dag.int(17);
    let window = dag.binary(BinaryOp::Mul, head, step);
    let near = dag.binary(BinaryOp::Le, distance, window);
    attention.mask = attention.mask.map(|mask| dag.binary(BinaryOp::And, mask, near));
    let (kernel, lengths) = (Kernel::Attention(attention), [70, 133]);
    let data = data(DType::F32, &lengths, 16, 16, &[1, 2]);
    let out = run_on_any_threads(&kernel, &data, &vec![2, 203]);
    assert_close(&out[0], &expected(&kernel, &data, &lengths), 3e-6);
}

#[test]
fn long_samples_are_cut_into_spans() {
    let lengths = [1100];
    for softmax in [false, true] {
        for masked in [false, true] {
            let kernel = kernel(DType::F32, 2, 1, masked, softmax);
            let data = data(DType::F32, &lengths, 2, 1, &[9]);
            let out = run_on_any_threads(&kernel, &data, &vec![1, 1100]);
            assert_close(&out[0], &expected_fast(&kernel, &data, 1100), 3e-6);
        }
    }
}

/// As `expected`, for one sample: the loads are taken apart once.
fn expected_fast(kernel: &Kernel, data: &[Data], n: usize) -> Vec<f64> {
    let Kernel::Attention(attention) = kernel else { panic!("no attention") };
    let flat = |d: &Data| match d {
        Data::Device(t) => t.to_f64(),
        Data::Host(_) => vec![],
    };
    let (q, k, v) = (flat(&data[1]), flat(&data[2]), flat(&data[3]));
    let mut out = vec![0.0; n * HEADS];
    for h in 0..HEADS {
        for i in 0..n {
            let counts = |j: usize| attention.mask.is_none() || (i >= j && i - j < 150 && (j + 5 < n || i == j));
            let dot = |j: usize| 0.125 * (0..2).map(|x| q[i * 6 + h * 2 + x] * k[j * 6 + h * 2 + x]).sum::<f64>();
            let keys: Vec<usize> = (0..n).filter(|&j| counts(j)).collect();
            let weight = |s: f64| if attention.softmax { s.exp() } else { 0.01 * s / (1.0 + (-s).exp()) };
            let total: f64 = if attention.softmax { keys.iter().map(|&j| weight(dot(j))).sum() } else { 1.0 };
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
fn a_batch_of_nothing_does_nothing() {
    let kernel = kernel(DType::F32, 16, 16, true, false);
    for lengths in [vec![], vec![0, 0]] {
        let data = data(DType::F32, &lengths, 16, 16, &[1, 2]);
        assert!(run_on_any_threads(&kernel, &data, &vec![lengths.len() as i64, 0])[0].is_empty());
    }
}
