//! Softmax attention: the patterns that become one kernel, and that every backend agrees.

use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor};
use rewire_graph_rewrite::schedule::Schedule;
use rewire_tests::backend::{Tensors, plan};
use rewire_tests::case::GraphCase;
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;
const SIZES: &[(&str, usize)] = &[("batch", 3), ("rows", 37), ("keys", 45)];

/// The operators between the matmuls.
type Between = fn(&Scope, &Tensor) -> Tensor;

/// Attention of `[batch.., rows, 12]` to `[batch.., keys, 12]`.
fn attention(batch: fn(&Scope) -> Vec<Dim>, between: Between) -> GraphCase {
    let scope = Scope::new();
    let (batch, rows, keys) = (batch(&scope), scope.size("rows"), scope.size("keys"));
    let shape = |rows: &Dim, width: usize| [batch.clone(), vec![rows.clone(), width.into()]].concat();
    let q = scope.input("q", F32, &shape(&rows, 12));
    let k = scope.input("k", F32, &shape(&keys, 12));
    let v = scope.input("v", F32, &shape(&keys, 25));
    let scores = q.matmul(&k.transpose(k.rank() - 2, k.rank() - 1));
    let weights = between(&scope, &scores);
    let y = weights.matmul(&v);
    GraphCase::random(scope.finish(&[("y", y)]).unwrap(), SIZES, 3)
}

fn softmax(x: &Tensor) -> Tensor {
    x.softmax(x.rank() - 1)
}

fn one_kernel(case: &GraphCase) {
    let plan = plan(&case.graph).unwrap();
    assert_eq!(plan.steps.len(), 1, "{:?}\n{}", case.steps(), case.graph.text());
    match plan.steps[0].computation.schedule() {
        Some(Schedule::PairReduction(schedule)) => assert!(schedule.softmax),
        other => panic!("{other:?}"),
    }
    assert_eq!(case.steps(), ["softmax_attention"]);
}

#[test]
fn dense_attention_is_one_kernel_whatever_lies_between() {
    let between: [Between; 5] = [
        |_, s| softmax(s),
        |_, s| softmax(&(s * 0.25)),
        |scope, s| {
            let bias = scope.input("bias", F32, &[s.dim(s.rank() - 2), s.dim(s.rank() - 1)]);
            softmax(&(&(s * 0.3) + &bias))
        },
        |scope, s| {
            let keep = scope.input("keep", F32, &[s.dim(s.rank() - 2), s.dim(s.rank() - 1)]);
            let kept = keep.gt(&scope.scalar(F32, -0.5));
            softmax(&kept.select(&(s * 0.3), &scope.scalar(F32, -1e4)))
        },
        |_, s| softmax(&(&s.tanh() * 3.0)),
    ];
    for between in between {
        let case = attention(|scope| vec![scope.size("batch"), 2.into()], between);
        one_kernel(&case);
        case.check();
    }
}

/// 0 in place of NaN, as exporters write the softmax of rows without a score.
fn guarded(scope: &Scope, weights: &Tensor) -> Tensor {
    weights.not_equal(weights).select(&scope.scalar(F32, 0.0), weights)
}

/// Masks of a number of keys, nothing, or all keys, by row.
fn hidden(row: usize, key: usize) -> f64 {
    let hides = [key > row, false, true, key.is_multiple_of(3)][row % 4];
    if hides { f64::NEG_INFINITY } else { -0.1 * (key % 5) as f64 }
}

#[test]
fn attention_is_one_kernel_where_a_softmax_that_is_nan_counts_as_0() {
    let between: [Between; 4] = [
        |scope, s| guarded(scope, &softmax(&(s * 0.3))),
        |scope, s| {
            let keep = scope.input("keep", F32, &[s.dim(s.rank() - 2), s.dim(s.rank() - 1)]);
            let [shown, lowest] = [0.0, f64::from(f32::MIN)].map(|value| scope.scalar(F32, value));
            guarded(scope, &softmax(&(&(s * 0.3) + &keep.gt(&scope.scalar(F32, 0.5)).select(&shown, &lowest))))
        },
        |scope, s| {
            let mask = scope.input("mask", F32, &[s.dim(s.rank() - 2), s.dim(s.rank() - 1)]);
            guarded(scope, &softmax(&(&(s * 0.3) + &mask)))
        },
        // A mask of many operators, among them a reduction.
        |scope, s| {
            let mask = scope.input("mask", F32, &[s.dim(s.rank() - 2), s.dim(s.rank() - 1), 3.into()]);
            let ways = (0..40).fold(mask.clone(), |x, n| &(&x * 0.5) + &(&x - f64::from(n)).tanh());
            let bias = ways.sum(2).reshape(&[s.dim(s.rank() - 2), s.dim(s.rank() - 1)]);
            guarded(scope, &softmax(&(&(s * 0.3) + &bias)))
        },
    ];
    for (n, between) in between.into_iter().enumerate() {
        let mut case = attention(|scope| vec![scope.size("batch"), 2.into()], between);
        match n {
            2 => drop(case.inputs.insert("mask".to_owned(), table(37, 45, hidden))),
            3 => assert_eq!(case.steps().last().map(String::as_str), Some("softmax_attention")),
            _ => {}
        }
        if n != 3 {
            one_kernel(&case);
        }
        case.check();
    }
}

#[test]
fn dense_attention_has_any_number_of_leading_axes() {
    let batches: [fn(&Scope) -> Vec<Dim>; 6] = [
        |_| vec![],
        |scope| vec![scope.size("batch")],
        |_| vec![4.into()],
        |_| vec![1.into(), 1.into()],
        |_| vec![2.into(), 1.into(), 3.into()],
        |scope| vec![2.into(), scope.size("batch")],
    ];
    for batch in batches {
        let case = attention(batch, |_, s| softmax(&(s * 0.5)));
        one_kernel(&case);
        case.check();
    }
}

#[test]
fn few_rows_and_keys_are_attended_to() {
    for (rows, keys) in [(1, 1), (1, 70), (33, 1), (0, 4)] {
        let case = attention(|_| vec![2.into()], |_, s| softmax(&(s * 0.5)));
        let case = GraphCase::random(case.graph, &[("rows", rows), ("keys", keys)], 5);
        case.check();
    }
}

/// Heads that are split from and joined to columns, as in a transformer layer.
#[test]
fn a_layer_of_multi_head_attention_is_three_kernels() {
    let scope = Scope::new();
    let (batch, rows) = (scope.size("batch"), scope.size("rows"));
    let x = scope.input("x", F32, &[batch.clone(), rows.clone(), 24.into()]);
    let weight = scope.parameter("qkv", F32, &[72.into(), 24.into()]);
    let parts = x.linear(&weight, None).split_columns(&[24, 24, 24]);
    let heads = |x: &Tensor| x.reshape(&[batch.clone(), rows.clone(), 3.into(), 8.into()]).permute(&[0, 2, 1, 3]);
    let scores = &heads(&parts[0]).matmul(&heads(&parts[1]).transpose(2, 3)) * 0.35;
    let attended = softmax(&scores).matmul(&heads(&parts[2])).permute(&[0, 2, 1, 3]);
    let joined = attended.reshape(&[batch.clone(), rows.clone(), 24.into()]);
    let y = &x + &joined.linear(&scope.parameter("out", F32, &[24.into(), 24.into()]), None);
    let case = GraphCase::random(scope.finish(&[("y", y)]).unwrap(), SIZES, 7);
    assert_eq!(case.steps(), ["matmul", "softmax_attention", "addmm"]);
    case.check();
}

#[test]
fn what_is_not_the_softmax_of_rows_is_no_attention() {
    let between: [Between; 3] = [
        |_, s| s.softmax(s.rank() - 2),
        |_, s| {
            let exp = s.exp();
            &exp / &(&exp.sum(s.rank() - 1) + &s.max(s.rank() - 1))
        },
        |_, s| softmax(s).sigmoid(),
    ];
    for between in between {
        let case = attention(|_| vec![2.into()], between);
        assert!(!case.steps().contains(&"softmax_attention".to_owned()), "{:?}", case.steps());
        case.check();
    }
}

/// A scale of all weights is one of the result.
#[test]
fn scaled_weights_are_attention() {
    let case = attention(|_| vec![2.into()], |_, s| &softmax(s) * 2.0);
    one_kernel(&case);
    case.check();
}

#[test]
fn weights_that_are_an_output_are_kept() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 8.into()]);
    let weights = softmax(&x.matmul(&x.transpose(0, 1)));
    let y = weights.matmul(&x);
    let case = GraphCase::random(scope.finish(&[("weights", weights), ("y", y)]).unwrap(), SIZES, 9);
    case.check();
}

/// Jagged attention with the softmax of the keys that `keep` chooses.
fn jagged(lengths: &[i64], keep: impl Fn(&Scope, &Ragged) -> Option<Tensor>) -> GraphCase {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let names = [("q", 8), ("k", 8), ("v", 25)];
    let [q, k, v] = names.map(|(name, width)| scope.input(name, F32, &[rows.total.clone(), 2.into(), width.into()]));
    let keep = keep(&scope, &rows);
    let weights = (&q.scores(&k, &rows, &rows) * 0.35).softmax_scores(keep.as_ref(), &rows, &rows);
    let y = &weights.weighted_sum(&v, &rows, &rows) * 2.0;
    let total = lengths.iter().sum::<i64>() as usize;
    let mut inputs: Tensors =
        names.map(|(name, width)| (name.to_owned(), Noise::new(2, name).floats(F32, &[total, 2, width], 2.0))).into();
    inputs.insert("lengths".to_owned(), HostTensor::lengths(lengths));
    GraphCase { graph: scope.finish(&[("y", y)]).unwrap(), inputs, parameters: Tensors::new() }
}

#[test]
fn jagged_softmax_attention_is_one_kernel() {
    let keeps: [fn(&Scope, &Ragged) -> Option<Tensor>; 3] = [
        |_, _| None,
        |_, rows| Some(rows.row_index(rows, 2).ge(&rows.key_index(rows, 2))),
        // No key counts for the first rows of a sample.
        |scope, rows| {
            let behind = &rows.row_index(rows, 2) - &scope.scalar(DType::I32, 3.0);
            Some(behind.gt(&rows.key_index(rows, 2)))
        },
    ];
    for keep in keeps {
        for lengths in [vec![37, 0, 1, 64], vec![1], vec![0, 0], vec![]] {
            let case = jagged(&lengths, keep);
            one_kernel(&case);
            case.check();
        }
    }
}

/// Fill values of masked scores, by row.
fn fill(row: usize, key: usize) -> f64 {
    let (lowest, next) = (f64::from(f32::MIN), f64::from(f32::MIN.next_up()));
    match row % 9 {
        0 => lowest,
        1 => [lowest, -1e9][key % 2],
        2 => f64::NEG_INFINITY,
        3 => [f64::NEG_INFINITY, lowest][usize::from(key > 40)],
        4 => [lowest, next][usize::from(key == 33)],
        5 => -3e38,
        6 => [lowest, f64::NAN][usize::from(key == 3)],
        7 => [-1.0, f64::INFINITY][usize::from(key == 37)],
        _ => -1e4,
    }
}

/// Where scores stay, by row: nowhere, in a few places, everywhere.
fn stays(row: usize, key: usize) -> f64 {
    let stays = [false, (row + key).is_multiple_of(7), key == 44, true][(row / 9) % 4];
    if stays { 1.0 } else { -1.0 }
}

fn table(rows: usize, keys: usize, entry: fn(usize, usize) -> f64) -> HostTensor {
    let values: Vec<f64> = (0..rows * keys).map(|at| entry(at / keys, at % keys)).collect();
    HostTensor::from_f64(F32, vec![rows, keys], &values).unwrap()
}

#[test]
fn rows_that_keep_nothing_mean_what_the_softmax_of_their_fill_means() {
    let mut case = attention(
        |_| vec![2.into()],
        |scope, s| {
            let shape = [s.dim(s.rank() - 2), s.dim(s.rank() - 1)];
            let (keep, fill) = (scope.input("keep", F32, &shape), scope.input("fill", F32, &shape));
            softmax(&keep.gt(&scope.scalar(F32, 0.0)).select(&(s * 0.3), &fill))
        },
    );
    one_kernel(&case);
    case.inputs.insert("keep".to_owned(), table(37, 45, stays));
    case.inputs.insert("fill".to_owned(), table(37, 45, fill));
    case.check();
}

#[test]
fn rows_that_keep_nothing_take_the_mean_of_the_values() {
    let case = attention(
        |_| vec![2.into()],
        |scope, s| {
            let keep = scope.input("keep", F32, &[s.dim(s.rank() - 2), s.dim(s.rank() - 1)]);
            softmax(&keep.gt(&scope.scalar(F32, 2.0)).select(s, &scope.scalar(F32, f32::MIN)))
        },
    );
    one_kernel(&case);
    case.check();
}

#[test]
fn scores_that_count_are_told_from_keys_that_do_not() {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let total = rows.total.clone();
    let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, F32, &[total.clone(), 2.into(), 8.into()]));
    let [low, high, gate] = ["low", "high", "gate"].map(|name| scope.input(name, F32, std::slice::from_ref(&total)));
    // Causal, with no key for some rows; a flag of the row selects the key's own score.
    let gate = rows.per_row(&rows, 2, &gate).gt(&scope.scalar(F32, 0.0));
    let keep = rows.row_index(&rows, 2).ge(&rows.key_index(&rows, 2)).and(&gate);
    let own = rows.per_row(&rows, 2, &high).gt(&scope.scalar(F32, 0.0));
    let scores = own.select(&q.scores(&k, &rows, &rows), &rows.per_key(&rows, 2, &low));
    let y = scores.softmax_scores(Some(&keep), &rows, &rows).weighted_sum(&v, &rows, &rows);
    let lengths = [70i64, 0, 3, 1, 40, 1];
    let count = lengths.iter().sum::<i64>() as usize;
    let lows = [f64::NEG_INFINITY, f32::MIN.into(), -1.0, f64::NEG_INFINITY, f32::MIN.into()];
    let vector = |entry: &dyn Fn(usize) -> f64| {
        HostTensor::from_f64(F32, vec![count], &(0..count).map(entry).collect::<Vec<_>>()).unwrap()
    };
    let mut inputs: Tensors =
        ["q", "k", "v"].map(|name| (name.to_owned(), Noise::new(4, name).floats(F32, &[count, 2, 8], 1.0))).into();
    inputs.insert("lengths".to_owned(), HostTensor::lengths(&lengths));
    inputs.insert("low".to_owned(), vector(&|key| lows[(key / 36) % 5]));
    inputs.insert("high".to_owned(), vector(&|row| [-1.0, -1.0, 1.0][row % 3]));
    inputs.insert("gate".to_owned(), vector(&|row| [1.0, 1.0, 1.0, -1.0][row % 4]));
    let case = GraphCase { graph: scope.finish(&[("y", y)]).unwrap(), inputs, parameters: Tensors::new() };
    one_kernel(&case);
    case.check();
}

#[test]
fn samples_that_keep_nothing_do_not_see_the_longest_one() {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let x = scope.input("x", F32, &[rows.total.clone(), 3.into()]);
    let kept = x.gt(&scope.scalar(F32, 0.0)).select(&x, &scope.scalar(F32, f32::MIN));
    let graph = scope.finish(&[("y", kept.jagged_softmax(&rows))]).unwrap();
    let values: Vec<f64> = (0..24).map(|n| if n < 6 { -1.0 } else { f64::from(n) / 7.0 }).collect();
    let inputs = Tensors::from([
        ("x".to_owned(), HostTensor::from_f64(F32, vec![8, 3], &values).unwrap()),
        ("lengths".to_owned(), HostTensor::lengths(&[2, 5, 0, 1])),
    ]);
    let case = GraphCase { graph, inputs, parameters: Tensors::new() };
    case.check();
    let y = rewire_graph::interpret(&case.graph, &case.inputs, &case.parameters).unwrap()["y"].to_f64();
    assert_eq!(y[..6], [0.5; 6]);
}
