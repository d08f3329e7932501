//! Cases that are not golden: null attributes, dropout, counts that exceed the lengths of their samples.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, HostTensor, interpret};
use rewire_verify::replay::{Replay, ReplayError, trace};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

fn replay(op: &str, attrs: &Value, tensors: &[(&str, DType, &[usize])]) -> Result<Replay, ReplayError> {
    let types: BTreeMap<_, _> =
        tensors.iter().map(|(name, dtype, shape)| (format!("in.{name}"), (*dtype, shape.to_vec()))).collect();
    trace(op, attrs, &types)
}

const GATED: [(&str, DType, &[usize]); 4] = [
    ("x", DType::F32, &[7, 10]),
    ("u", DType::F32, &[7, 10]),
    ("weight", DType::F32, &[10]),
    ("bias", DType::F32, &[10]),
];

const LAYER: [(&str, DType, &[usize]); 2] = [("x", DType::F32, &[7, 10]), ("x_offsets", DType::I64, &[4])];

fn heads(rows: usize) -> [(&'static str, DType, Vec<usize>); 4] {
    [
        ("q", DType::F32, vec![rows, 2, 3]),
        ("k", DType::F32, vec![rows, 2, 3]),
        ("v", DType::F32, vec![rows, 2, 5]),
        ("seq_offsets", DType::I64, vec![3]),
    ]
}

fn attention(op: &str, attrs: &Value, with: &[(&'static str, DType, Vec<usize>)]) -> Result<Replay, ReplayError> {
    let tensors: Vec<_> = heads(7).into_iter().chain(with.iter().cloned()).collect();
    let borrowed: Vec<_> = tensors.iter().map(|(name, dtype, shape)| (*name, *dtype, shape.as_slice())).collect();
    replay(op, attrs, &borrowed)
}

#[test]
fn dropout_that_acts_is_unsupported() {
    let gated = |training: bool, ratio: f64| {
        let attrs = json!({ "eps": 1e-6, "num_heads": 2, "dropout_ratio": ratio, "training": training });
        replay("norm_mul_dropout", &attrs, &GATED)
    };
    assert!(matches!(gated(true, 0.3), Err(ReplayError::Unsupported { .. })));
    assert!(gated(true, 0.0).is_ok() && gated(false, 0.3).is_ok());
    let layer = |mode: &str, ratio: Option<f64>| {
        let init = json!({
            "embedding_dim": 10, "num_heads": 2, "hidden_dim": 5, "attention_dim": 3, "output_dropout_ratio": ratio,
        });
        replay("STULayer", &json!({ "init": init, "call": { "max_seq_len": 9 }, "mode": mode }), &LAYER)
    };
    assert!(matches!(layer("train", Some(0.1)), Err(ReplayError::Unsupported { .. })));
    assert!(matches!(layer("train", None), Err(ReplayError::Unsupported { .. })), "the default is to drop");
    assert!(layer("train", Some(0.0)).is_ok() && layer("eval", None).is_ok());
    let mha = |training: bool| {
        let attrs = json!({ "alpha": 0.5, "max_seq_len": 9, "dropout_pr": 0.2, "training": training });
        attention("hstu_mha", &attrs, &[])
    };
    assert!(matches!(mha(true), Err(ReplayError::Unsupported { .. })));
    assert!(mha(false).is_ok());
}

#[test]
fn null_attributes_mean_none() {
    let attrs = json!({ "alpha": 0.5, "max_seq_len": 9, "max_attn_len": null, "scaling_seqlen": null });
    assert!(attention("hstu_mha", &attrs, &[]).is_ok());
    let init = json!({
        "action_embedding_dim": 3, "action_weights": [1, 2],
        "watchtime_to_action_thresholds": null, "watchtime_to_action_weights": null,
    });
    let tensors: [(&str, DType, &[usize]); 3] =
        [("seq_actions", DType::I64, &[7]), ("uih_offsets", DType::I64, &[4]), ("target_offsets", DType::I64, &[4])];
    assert!(replay("SimpleActionEncoder", &json!({ "init": init }), &tensors).is_ok());
    let error = attention("hstu_mha", &json!({ "alpha": null, "max_seq_len": 9 }), &[]).unwrap_err();
    assert!(error.to_string().contains("`alpha`"), "{error}");
}

#[test]
fn counts_beyond_their_samples_are_errors_of_a_run() {
    let noise = |shape: &[usize], salt: f64| {
        let count: usize = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|n| ((n as f64 + salt) * 1.7).sin()).collect();
        HostTensor::from_f64(DType::F32, shape.to_vec(), &values).unwrap()
    };
    let attrs = json!({ "alpha": 0.5, "max_seq_len": 9 });
    let run = |replay: &Replay, rows: &str, queries: usize, counts: &[i64]| {
        let inputs: HashMap<_, _> = [
            (rows.to_owned(), noise(&[queries, 2, 3], 0.3)),
            ("k".to_owned(), noise(&[7, 2, 3], 1.1)),
            ("v".to_owned(), noise(&[7, 2, 5], 2.9)),
            ("seq_offsets".to_owned(), HostTensor::lengths(&[0, 4, 7])),
            ("num_targets".to_owned(), HostTensor::lengths(counts)),
        ]
        .into();
        interpret(&replay.graph, &inputs, &HashMap::new()).map(|_| ()).map_err(|error| error.to_string())
    };
    let full = attention("hstu_mha", &attrs, &[("num_targets", DType::I64, vec![2])]).unwrap();
    assert_eq!(run(&full, "q", 7, &[4, 3]), Ok(()));
    let error = run(&full, "q", 7, &[1, 5]).unwrap_err();
    assert!(
        error.contains("input `num_targets`: expected at most 3 by input `seq_offsets`, got 5 at element 1"),
        "{error}"
    );

    let delta = |each: usize| {
        let given = [("delta_q", DType::F32, vec![2 * each, 2, 3]), ("num_targets", DType::I64, vec![2])];
        attention("delta_hstu_mha", &attrs, &given).unwrap()
    };
    assert_eq!(run(&delta(3), "delta_q", 6, &[1, 2]), Ok(()));
    let error = run(&delta(4), "delta_q", 8, &[1, 2]).unwrap_err();
    assert!(error.contains("number of queries"), "{error}");
    assert!(error.contains("from input `seq_offsets`") && error.contains("at most 3, got 4 at element 1"), "{error}");
}
