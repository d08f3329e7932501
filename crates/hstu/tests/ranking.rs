//! Ranking layers are compared with loops.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, Dim, Graph, HostTensor, Scope, Tensor, interpret};
use rewire_hstu::modules::ranking::{
    CrossConfig, CrossV2Config, DeepFmConfig, DinConfig, EmbeddingBag, MmoeConfig, PleConfig, TowerConfig,
    dlrm_interaction, factorization_machine,
};
use serde_json::json;
use std::collections::HashMap;

type Rows = Vec<Vec<f64>>;
type Tensors = HashMap<String, HostTensor>;

const LENGTHS: [i64; 4] = [3, 0, 1, 5];

/// Deterministic numbers that depend on name and index.
fn noise(name: &str, count: usize) -> Vec<f32> {
    let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    (0..count as u64)
        .map(|n| {
            let mixed = (seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn tensor(name: &str, shape: &[usize]) -> HostTensor {
    HostTensor::f32(shape.to_vec(), &noise(name, shape.iter().product())).unwrap()
}

fn cut(values: &[f64], width: usize) -> Rows {
    values.chunks(width).map(<[f64]>::to_vec).collect()
}

fn rows(name: &str, count: usize, width: usize) -> Rows {
    cut(&tensor(name, &[count, width]).to_f64(), width)
}

/// The parameters of a graph, by name.
fn parameters(graph: &Graph) -> Tensors {
    graph
        .ids()
        .filter_map(|id| graph.node(id)?.op.downcast_ref::<rewire_graph::op::Parameter>())
        .map(|parameter| {
            let shape: Vec<usize> = parameter.ty.shape.iter().map(|dim| dim.as_const().unwrap()).collect();
            (parameter.name.clone(), tensor(&parameter.name, &shape))
        })
        .collect()
}

/// Runs a model of named inputs with these shapes. The first extent is the number of rows; `LENGTHS` divides rows into samples.
fn run(inputs: &[(&str, &[usize])], model: impl FnOnce(&Scope, &[Tensor]) -> Vec<Tensor>) -> Vec<Rows> {
    let scope = Scope::new();
    let count = scope.size("rows");
    let traced: Vec<Tensor> = inputs
        .iter()
        .map(|(name, shape)| {
            let inner = shape[1..].iter().map(|&n| Dim::from(n));
            scope.input(name, DType::F32, std::iter::once(count.clone()).chain(inner).collect::<Vec<_>>())
        })
        .collect();
    let outputs = model(&scope, &traced);
    let bound = inputs.iter().map(|(name, shape)| ((*name).to_owned(), tensor(name, shape))).collect();
    results(scope, outputs, bound)
}

fn results(scope: Scope, outputs: Vec<Tensor>, inputs: Tensors) -> Vec<Rows> {
    let widths: Vec<usize> = outputs.iter().map(Tensor::width).collect();
    let names: Vec<String> = (0..outputs.len()).map(|n| n.to_string()).collect();
    let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
    let graph = scope.finish(&named).unwrap();
    let results = interpret(&graph, &inputs, &parameters(&graph)).unwrap();
    names.iter().zip(widths).map(|(name, width)| cut(&results[name].to_f64(), width)).collect()
}

fn close(actual: &Rows, expected: &Rows) {
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.iter().zip(expected) {
        assert_eq!(actual.len(), expected.len());
        for (a, b) in actual.iter().zip(expected) {
            assert!((a - b).abs() < 1e-5 * (1.0 + b.abs()), "{actual:?} {expected:?}");
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn product(x: &[f64], name: &str, out: usize) -> Vec<f64> {
    rows(&format!("{name}.weight"), out, x.len()).iter().map(|row| dot(row, x)).collect()
}

fn linear(x: &[f64], name: &str, out: usize) -> Vec<f64> {
    let bias = tensor(&format!("{name}.bias"), &[out]).to_f64();
    product(x, name, out).iter().zip(bias).map(|(x, bias)| x + bias).collect()
}

fn mlp(x: &[f64], name: &str, widths: &[usize]) -> Vec<f64> {
    widths.iter().enumerate().fold(x.to_vec(), |x, (n, &width)| {
        linear(&x, &format!("{name}.mlp.{n}.perceptron.0"), width).into_iter().map(|x| x.max(0.0)).collect()
    })
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / sum).collect()
}

fn mixture(logits: &[f64], experts: &[Vec<f64>]) -> Vec<f64> {
    let weights = softmax(logits);
    (0..experts[0].len()).map(|n| experts.iter().zip(&weights).map(|(x, w)| x[n] * w).sum()).collect()
}

#[test]
fn a_tower_is_an_mlp_and_a_linear_map() {
    let config: TowerConfig =
        serde_json::from_value(json!({ "mlp": { "hidden_units": [6, 4] }, "num_class": 2 })).unwrap();
    config.check().unwrap();
    let out = run(&[("x", &[5, 3])], |scope, x| vec![config.forward(scope, &x[0])]);
    let expected = rows("x", 5, 3).iter().map(|x| linear(&mlp(x, "tower_mlp", &[6, 4]), "linear", 2)).collect();
    close(&out[0], &expected);
}

#[test]
fn din_weighs_the_history_by_the_candidate() {
    let config: DinConfig = serde_json::from_value(json!({ "attn_mlp": { "hidden_units": [7] } })).unwrap();
    let total: i64 = LENGTHS.iter().sum();
    let scope = Scope::new();
    let batch = scope.size("samples");
    let history = scope.lengths("lengths", &batch);
    let q = scope.input("q", DType::F32, &[batch, 3.into()]);
    let k = scope.input("k", DType::F32, &[history.total.clone(), 3.into()]);
    let out = config.forward(&scope, &q, &k, &history);
    let inputs = HashMap::from([
        ("lengths".to_owned(), HostTensor::lengths(&LENGTHS)),
        ("q".to_owned(), tensor("q", &[LENGTHS.len(), 3])),
        ("k".to_owned(), tensor("k", &[total as usize, 3])),
    ]);
    let out = results(scope, vec![out], inputs);
    let mut rest = rows("k", total as usize, 3).into_iter();
    let mut expected = vec![];
    for (q, &length) in rows("q", LENGTHS.len(), 3).iter().zip(&LENGTHS) {
        let keys: Rows = rest.by_ref().take(length as usize).collect();
        let score = |k: &Vec<f64>| {
            let both = || q.iter().zip(k);
            let pair: Vec<f64> = [q.clone(), k.clone()]
                .concat()
                .into_iter()
                .chain(both().map(|(q, k)| q - k))
                .chain(both().map(|(q, k)| q * k))
                .collect();
            linear(&mlp(&pair, "mlp", &[7]), "linear", 1)[0]
        };
        let scores: Vec<f64> = keys.iter().map(score).collect();
        expected.push(if keys.is_empty() { vec![0.0; 3] } else { mixture(&scores, &keys) });
    }
    close(&out[0], &expected);
}

#[test]
fn bags_are_sums_and_means_of_table_rows() {
    let ids: Vec<f64> = vec![0.0, 4.0, 4.0, 2.0, 1.0, 3.0, 0.0, 2.0, 4.0];
    for mode in ["sum", "mean"] {
        let config: EmbeddingBag =
            serde_json::from_value(json!({ "num_embeddings": 5, "embedding_dim": 3, "mode": mode })).unwrap();
        config.check().unwrap();
        let scope = Scope::new();
        let bags = scope.lengths("lengths", scope.size("samples"));
        let index = scope.input("ids", DType::I64, std::slice::from_ref(&bags.total));
        let out = config.forward(&scope, &index, &bags);
        let inputs = HashMap::from([
            ("lengths".to_owned(), HostTensor::lengths(&LENGTHS)),
            ("ids".to_owned(), HostTensor::from_f64(DType::I64, vec![ids.len()], &ids).unwrap()),
        ]);
        let out = results(scope, vec![out], inputs);
        let table = rows("weight", 5, 3);
        let mut rest = ids.iter();
        let expected = LENGTHS
            .iter()
            .map(|&length| {
                let bag: Vec<&Vec<f64>> = rest.by_ref().take(length as usize).map(|&id| &table[id as usize]).collect();
                let count = if mode == "mean" { bag.len().max(1) as f64 } else { 1.0 };
                (0..3).map(|n| bag.iter().map(|row| row[n]).sum::<f64>() / count).collect()
            })
            .collect();
        close(&out[0], &expected);
    }
}

#[test]
fn padding_is_undone_and_longer_samples_are_cut() {
    let scope = Scope::new();
    let jagged = scope.lengths("lengths", scope.size("samples"));
    let x = scope.input("x", DType::F32, &[jagged.total.clone(), 2.into()]);
    let outputs = [jagged.max().as_dim(), 4.into(), 2.into()]
        .iter()
        .flat_map(|extent| {
            let padded = x.jagged_to_padded(&jagged, extent, -7.0);
            [padded.padded_to_jagged(&jagged), padded]
        })
        .collect();
    let inputs =
        HashMap::from([("lengths".to_owned(), HostTensor::lengths(&LENGTHS)), ("x".to_owned(), tensor("x", &[9, 2]))]);
    let out = results(scope, outputs, inputs);
    let x = rows("x", 9, 2);
    for (n, extent) in [5usize, 4, 2].into_iter().enumerate() {
        let (mut padded, mut jagged, mut start) = (vec![], vec![], 0);
        for length in LENGTHS.map(|length| length as usize) {
            for i in 0..extent {
                padded.push(if i < length { x[start + i].clone() } else { vec![-7.0; 2] });
            }
            jagged.extend((0..length).map(|i| if i < extent { x[start + i].clone() } else { vec![0.0; 2] }));
            start += length;
        }
        close(&out[2 * n], &jagged);
        close(&out[2 * n + 1], &padded);
    }
}

#[test]
fn mmoe_mixes_experts_by_a_gate_a_task() {
    for gate_mlp in [None, Some(json!({ "hidden_units": [4] }))] {
        let config = json!({
            "expert_mlp": { "hidden_units": [6, 5] }, "num_expert": 3, "num_task": 2, "gate_mlp": gate_mlp
        });
        let config: MmoeConfig = serde_json::from_value(config).unwrap();
        config.check().unwrap();
        let out = run(&[("x", &[4, 3])], |scope, x| config.forward(scope, &x[0]));
        assert_eq!(out.len(), 2);
        for (task, out) in out.iter().enumerate() {
            let expected = rows("x", 4, 3)
                .iter()
                .map(|x| {
                    let experts: Rows = (0..3).map(|e| mlp(x, &format!("expert_mlps.{e}"), &[6, 5])).collect();
                    let h = gate_mlp.as_ref().map_or(x.clone(), |_| mlp(x, &format!("gate_mlps.{task}"), &[4]));
                    mixture(&linear(&h, &format!("gate_finals.{task}"), 3), &experts)
                })
                .collect();
            close(out, &expected);
        }
    }
}

#[test]
fn ple_extracts_layer_by_layer() {
    let layer = |width: usize| {
        json!({
            "expert_num_per_task": 2, "share_num": 1,
            "task_expert_net": { "hidden_units": [width] }, "share_expert_net": { "hidden_units": [4, width] }
        })
    };
    let config = json!({ "extraction_networks": [layer(6), layer(5)], "num_task": 2 });
    let config: PleConfig = serde_json::from_value(config).unwrap();
    config.check().unwrap();
    let out = run(&[("x", &[4, 3])], |scope, x| config.forward(scope, &x[0]));
    for (row, x) in rows("x", 4, 3).iter().enumerate() {
        let (mut tasks, mut shared) = (vec![x.clone(); 2], x.clone());
        for (n, width) in [6, 5].into_iter().enumerate() {
            let net = format!("_extraction_nets.{n}");
            let common = mlp(&shared, &format!("{net}._shared_layers.0"), &[4, width]);
            let mut all = vec![];
            for (t, task) in tasks.iter_mut().enumerate() {
                let mut experts: Rows =
                    (0..2).map(|e| mlp(task, &format!("{net}._task_layers.{t}.{e}"), &[width])).collect();
                all.extend(experts.clone());
                experts.push(common.clone());
                *task = mixture(&linear(task, &format!("{net}._task_gates.{t}"), 3), &experts);
            }
            all.push(common);
            if n == 0 {
                shared = mixture(&linear(&shared, &format!("{net}._shared_gate"), 5), &all);
            }
        }
        for (out, expected) in out.iter().zip(tasks) {
            close(&vec![out[row].clone()], &vec![expected]);
        }
    }
}

/// The elementwise products of all pairs of fields, summed.
fn pairs(fields: &Rows) -> Vec<f64> {
    let mut sums = vec![0.0; fields[0].len()];
    for (n, a) in fields.iter().enumerate() {
        for b in &fields[n + 1..] {
            sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
        }
    }
    sums
}

#[test]
fn factorization_machines_sum_over_pairs_of_fields() {
    let config: DeepFmConfig = serde_json::from_value(json!({ "deep": { "hidden_units": [6] } })).unwrap();
    let out = run(&[("wide", &[4, 5]), ("x", &[4, 5, 3])], |scope, x| {
        vec![factorization_machine(&x[1]), config.forward(scope, &x[0], &x[1])]
    });
    let samples: Vec<Rows> = rows("x", 4, 15).iter().map(|sample| cut(sample, 3)).collect();
    close(&out[0], &samples.iter().map(pairs).collect());
    let logit = |(wide, fields): (&Vec<f64>, &Rows)| {
        let deep = linear(&mlp(&fields.concat(), "deep", &[6]), "linear", 1)[0];
        vec![wide.iter().sum::<f64>() + pairs(fields).iter().sum::<f64>() + deep]
    };
    close(&out[1], &rows("wide", 4, 5).iter().zip(&samples).map(logit).collect());
}

#[test]
fn cross_layers_meet_their_formula() {
    let first: CrossConfig = serde_json::from_value(json!({ "cross_num": 2 })).unwrap();
    let low: CrossV2Config = serde_json::from_value(json!({ "cross_num": 2, "low_rank": 3 })).unwrap();
    let full: CrossV2Config = serde_json::from_value(json!({ "cross_num": 2 })).unwrap();
    let out = run(&[("x", &[5, 4])], |scope, x| {
        vec![first.forward(scope, &x[0]), low.forward(scope, &x[0]), full.forward(scope, &x[0])]
    });
    let layers = |map: &dyn Fn(&[f64], usize) -> Vec<f64>, outer: bool| -> Rows {
        let layer = |x: &Vec<f64>, h: &[f64], n: usize| -> Vec<f64> {
            let mapped = map(h, n);
            let bias = tensor(&format!("b.{n}"), &[4]).to_f64();
            let cross = |i: usize| if outer { x[i] * mapped[0] + bias[i] } else { x[i] * mapped[i] };
            (0..4).map(|i| cross(i) + h[i]).collect()
        };
        rows("x", 5, 4).iter().map(|x| layer(x, &layer(x, x, 0), 1)).collect()
    };
    close(&out[0], &layers(&|h, n| product(h, &format!("w.{n}"), 1), true));
    let down_and_up = |h: &[f64], n| linear(&product(h, &format!("u_kernels.{n}"), 3), &format!("v_kernels.{n}"), 4);
    close(&out[1], &layers(&down_and_up, false));
    close(&out[2], &layers(&|h, n| linear(h, &format!("kernels.{n}"), 4), false));
}

#[test]
fn dlrm_takes_the_dot_products_of_all_pairs() {
    let out =
        run(&[("dense", &[3, 4]), ("sparse", &[3, 3, 4])], |scope, x| vec![dlrm_interaction(scope, &x[0], &x[1])]);
    let expected = rows("dense", 3, 4)
        .iter()
        .zip(rows("sparse", 3, 12))
        .map(|(dense, sparse)| {
            let features: Rows = std::iter::once(dense.clone()).chain(cut(&sparse, 4)).collect();
            let dots = (0..4).flat_map(|i| (i + 1..4).map(move |j| (i, j)));
            dense.iter().copied().chain(dots.map(|(i, j)| dot(&features[i], &features[j]))).collect()
        })
        .collect();
    close(&out[0], &expected);
}

#[test]
fn errors_name_what_is_wrong() {
    let error = |config: serde_json::Value| {
        let config: PleConfig = serde_json::from_value(config).unwrap();
        config.check().unwrap_err().key
    };
    let layer = json!({
        "expert_num_per_task": 1, "share_num": 1,
        "task_expert_net": { "hidden_units": [3] }, "share_expert_net": { "hidden_units": [4] }
    });
    let key = error(json!({ "extraction_networks": [layer], "num_task": 2 }));
    assert_eq!(key, "extraction_networks.0.share_expert_net.hidden_units");
    assert_eq!(error(json!({ "extraction_networks": [], "num_task": 2 })), "extraction_networks");

    let scope = Scope::new();
    let history = scope.lengths("lengths", scope.size("samples"));
    let q = scope.input("q", DType::F32, &[history.batch.clone(), 4.into()]);
    let k = scope.input("k", DType::F32, &[history.total.clone(), 3.into()]);
    let config: DinConfig = serde_json::from_value(json!({ "attn_mlp": { "hidden_units": [7] } })).unwrap();
    let out = config.forward(&scope, &q, &k, &history);
    assert!(scope.finish(&[("out", out)]).unwrap_err().to_string().contains("query"));
}
