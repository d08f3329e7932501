//! Masks are compared with their definitions for every pair.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, HostTensor, Scope, Tensor, interpret};
use rewire_hstu::ops::{
    Attention, IntervalMask, Pairs, SemiLocal, StandardMask, build_sla_func_tensor, delta_hstu_mha, hstu_mha,
};
use std::collections::HashMap;

/// Length and number of targets of each sample.
const SAMPLES: [(i64, i64); 6] = [(9, 2), (0, 0), (12, 3), (7, 0), (5, 4), (2, 1)];
const WIDTH: usize = 12;

/// The keys that every row attends to. All scores are 1, and the value of a key identifies it.
fn seen(mask: impl Fn(&Scope, &Pairs, &Tensor) -> Tensor, last: Option<i64>) -> Vec<Vec<bool>> {
    let scope = Scope::new();
    let batch = scope.size("samples");
    let keys = scope.lengths("lengths", &batch);
    let rows = if last.is_some() { scope.lengths("last", &batch) } else { keys.clone() };
    let targets = scope.host_input("num_targets", &[batch]);
    let q = scope.scalar(DType::F32, 1.0).broadcast(&[rows.total.clone(), 1.into(), 1.into()]);
    let k = scope.scalar(DType::F32, 1.0).broadcast(&[keys.total.clone(), 1.into(), 1.into()]);
    let v = scope.input("v", DType::F32, &[keys.total.clone(), 1.into(), WIDTH.into()]);
    let attention = Attention::new(1.0, 1);
    let mask = |pairs: &Pairs| mask(&scope, pairs, &targets);
    let out = match last {
        Some(_) => delta_hstu_mha(&scope, [&q, &k, &v], &rows, &keys, &attention, mask),
        None => hstu_mha(&scope, [&q, &k, &v], &rows, &attention, mask),
    };
    let graph = scope.finish(&[("out", out)]).unwrap();
    let (lengths, targets): (Vec<i64>, Vec<i64>) = SAMPLES.into_iter().unzip();
    let total: i64 = lengths.iter().sum();
    let names: Vec<f32> = lengths
        .iter()
        .flat_map(|&n| (0..n).flat_map(|key| (0..WIDTH as i64).map(move |at| if at == key { 1.0 } else { 0.0 })))
        .collect();
    let mut inputs = HashMap::from([
        ("lengths".to_owned(), HostTensor::lengths(&lengths)),
        ("num_targets".to_owned(), HostTensor::lengths(&targets)),
        ("v".to_owned(), HostTensor::f32(vec![total as usize, 1, WIDTH], &names).unwrap()),
    ]);
    if let Some(last) = last {
        let last: Vec<i64> = lengths.iter().enumerate().map(|(n, &len)| len.min(last + n as i64)).collect();
        inputs.insert("last".to_owned(), HostTensor::lengths(&last));
    }
    let out = interpret(&graph, &inputs, &HashMap::new()).unwrap()["out"].to_f64();
    out.chunks(WIDTH).map(|row| row.iter().map(|&weight| weight > 0.0).collect()).collect()
}

/// The standard mask of a pair.
fn visible(mask: &StandardMask, n: i64, targets: i64, i: i64, j: i64) -> bool {
    let context = mask.contextual_seq_len as i64;
    let end = if context > 0 { n - context + 1 - targets } else { n - targets };
    let id = |i: i64| if context > 0 { (i - context + 1).max(0) } else { i }.min(end);
    let distance = if mask.causal { id(i) - id(j) } else { (id(i) - id(j)).abs() };
    let mut visible = i == j || distance > 0;
    if mask.max_attn_len > 0 {
        let full = mask.min_full_attn_seq_len as i64;
        visible = visible && (distance <= mask.max_attn_len as i64 || full > 0 && id(i) >= end - full);
    }
    visible || context > 0 && id(i) == 0 && id(j) < end
}

fn expected(visible: impl Fn(i64, i64, i64, i64) -> bool) -> Vec<Vec<bool>> {
    let row = |n, targets, i| (0..WIDTH as i64).map(|j| j < n && visible(n, targets, i, j)).collect();
    SAMPLES
        .iter()
        .flat_map(|&(n, targets)| (0..n).map(move |i| (n, targets, i)))
        .map(|(n, t, i)| row(n, t, i))
        .collect()
}

#[test]
fn standard_masks_meet_their_definition() {
    for causal in [true, false] {
        for max_attn_len in [0, 1, 3] {
            for contextual_seq_len in [0, 1, 4] {
                for min_full_attn_seq_len in [0, 2] {
                    let mask = StandardMask {
                        causal,
                        num_targets: None,
                        max_attn_len,
                        contextual_seq_len,
                        min_full_attn_seq_len,
                    };
                    let traced = |_: &Scope, pairs: &Pairs, targets: &Tensor| {
                        StandardMask { num_targets: Some(targets.clone()), ..mask.clone() }.trace(pairs)
                    };
                    let reference = |n, targets, i, j| visible(&mask, n, targets, i, j);
                    assert_eq!(seen(traced, None), expected(reference), "{mask:?}");
                }
            }
        }
    }
}

#[test]
fn last_rows_of_uneven_number_see_what_they_see_among_all() {
    let mask = StandardMask { max_attn_len: 4, contextual_seq_len: 3, ..StandardMask::default() };
    let traced = |_: &Scope, pairs: &Pairs, targets: &Tensor| {
        StandardMask { num_targets: Some(targets.clone()), ..mask.clone() }.trace(pairs)
    };
    let (all, last) = (seen(traced, None), seen(traced, Some(2)));
    let mut kept = vec![];
    let mut start = 0;
    for (n, (length, _)) in SAMPLES.into_iter().enumerate() {
        let end = start + length as usize;
        kept.extend_from_slice(&all[end - length.min(2 + n as i64) as usize..end]);
        start = end;
    }
    assert_eq!(last, kept);
}

#[test]
fn semi_local_masks_are_those_of_their_intervals() {
    for (sla_k1, sla_k2, contextual_seq_len) in [(3, 2, 0), (0, 4, 0), (5, 0, 0), (2, 1, 4), (1, 0, 0)] {
        let semi_local =
            |targets: &Tensor| SemiLocal { sla_k1, sla_k2, contextual_seq_len, num_targets: Some(targets.clone()) };
        let direct = |_: &Scope, pairs: &Pairs, targets: &Tensor| semi_local(targets).trace(pairs);
        let by_intervals = |scope: &Scope, pairs: &Pairs, targets: &Tensor| {
            let rows = rewire_graph::Ragged::from_lengths(pairs.lengths());
            let attn_func = build_sla_func_tensor(scope, &rows, 1, &semi_local(targets));
            IntervalMask { attn_func }.trace(pairs)
        };
        assert_eq!(seen(direct, None), seen(by_intervals, None), "{sla_k1} {sla_k2} {contextual_seq_len}");
    }
}
