//! Groups are traced with TorchEasyRec's tables and arithmetic.

use rewire_features::{Column, Data, Features, Group, Offsets};
use rewire_graph::{HostTensor, Scope, Tensor, interpret};
use serde_json::{Value, json};
use std::collections::HashMap;

const POOLED: &str = "emb_impls.__BASE__.ebc.embedding_bags";
const UNPOOLED: &str = "seq_emb_impls.__BASE__.ec_dict.2.embeddings";

/// Strings as a column.
struct Texts(Vec<i32>, String);

impl Texts {
    fn new(rows: &[&str]) -> Self {
        let sums = rows.iter().scan(0, |sum, row| {
            *sum += row.len() as i32;
            Some(*sum)
        });
        Self(std::iter::once(0).chain(sums).collect(), rows.concat())
    }

    fn column(&self) -> Column<'_> {
        Column::new(Data::Text { offsets: Offsets::I32((&self.0).into()), bytes: self.1.as_bytes().into() })
    }
}

/// A table of width 2 whose row `i` is `[i, 10 i]`.
fn table(rows: usize) -> HostTensor {
    let values: Vec<f32> = (0..rows).flat_map(|row| [row as f32, 10.0 * row as f32]).collect();
    HostTensor::f32([rows, 2], &values).unwrap()
}

/// The first group of a configuration: the parts of a DEEP group, otherwise query and steps.
fn run(configs: Value, group: Value, parameters: &[(&str, HostTensor)], columns: &[(&str, &[&str])]) -> Vec<Vec<f32>> {
    let config = json!({
        "data_config": {"fg_encoded_multival_sep": "|"},
        "feature_configs": configs,
        "model_config": {"feature_groups": [group]},
    });
    let features = Features::parse(&config, 2).unwrap();
    let scope = Scope::new();
    let group = features.trace(&scope, &features.groups[0].group_name).unwrap();
    let mut outputs: Vec<Tensor> = vec![];
    let mut sequences = vec![];
    match group {
        Group::Dense { parts, sequences: nested, .. } => {
            outputs.extend(parts.into_iter().map(|part| part.values));
            sequences.extend(nested.into_iter().map(|(_, sequence)| sequence));
        }
        Group::Sequence(sequence) => sequences.push(sequence),
        Group::Jagged { values, .. } => outputs.push(values),
    }
    for sequence in sequences {
        outputs.extend(sequence.query.iter().map(|part| part.values.clone()));
        outputs.push(sequence.steps.clone());
    }
    let names: Vec<String> = (0..outputs.len()).map(|index| index.to_string()).collect();
    let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
    let graph = scope.finish(&named).unwrap();
    let texts: HashMap<&str, Texts> = columns.iter().map(|(name, rows)| (*name, Texts::new(rows))).collect();
    let rows = columns[0].1.len();
    let encoded: HashMap<&str, Column<'_>> = texts.iter().map(|(name, texts)| (*name, texts.column())).collect();
    let inputs = features.encode(columns.iter().map(|(name, _)| name), |name| encoded.get(name), 0..rows);
    let parameters = parameters.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect();
    let results = interpret(&graph, &inputs.unwrap().into_iter().collect(), &parameters).unwrap();
    let values = |name: &String| -> Vec<f32> { results[name].to_f32() };
    names.iter().map(values).collect()
}

fn id(name: &str, keys: Value) -> Value {
    let mut message = json!({"feature_name": name, "embedding_dim": 2, "num_buckets": 6});
    message.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    json!({ "id_feature": message })
}

#[test]
fn means_count_ids_and_sums_weigh_them() {
    let configs =
        json!([id("a", json!({"pooling": "mean", "weighted": true})), id("b", json!({"embedding_name": "shared"}))]);
    let group = json!({"group_name": "g", "feature_names": ["b", "a"], "embedding_name_suffix": "x"});
    let parameters =
        [(&*format!("{POOLED}.a_emb_x.weight"), table(6)), (&*format!("{POOLED}.shared_x.weight"), table(6))];
    let outputs = run(configs, group, &parameters, &[("a", &["1:2|3:0.5", ""]), ("b", &["4|5", "1"])]);
    assert_eq!(outputs, [vec![9.0, 90.0, 1.0, 10.0], vec![1.75, 17.5, 0.0, 0.0]]);
}

#[test]
fn wide_groups_and_half_tables() {
    let configs = json!([id("a", json!({"embedding_dim": 8, "data_type": "FP16"}))]);
    let group = json!({"group_name": "g", "group_type": "WIDE", "feature_names": ["a"]});
    let half = table(6).stored_as(rewire_graph::DType::F16).unwrap();
    let outputs = run(configs, group, &[(&format!("{POOLED}.a_emb_wide.weight"), half)], &[("a", &["2|3"])]);
    assert_eq!(outputs, [vec![5.0, 50.0]]);
}

#[test]
fn queries_read_unpooled_tables() {
    let configs = json!([
        id("first", json!({"value_dim": 1})),
        id("all", json!({"embedding_name": "first_emb"})),
        {"sequence_feature": {"sequence_name": "s", "sequence_delim": ";", "features": [
            id("a", json!({"embedding_name": "first_emb"})),
            id("b", json!({"value_dim": 0, "pooling": "mean", "embedding_name": "first_emb"})),
            {"raw_feature": {"feature_name": "c"}},
        ]}},
    ]);
    let group = json!({
        "group_name": "g", "group_type": "SEQUENCE", "feature_names": ["first", "all", "s__a", "s__b", "s__c"],
    });
    let columns: [(&str, &[&str]); 5] = [
        ("first", &["2|3", ""]),
        ("all", &["2|3", ""]),
        ("s__a", &["1;2", "3"]),
        // Steps are truncated or zero-padded to the lengths of the first sequence.
        ("s__b", &["4|5", "1;2;3"]),
        ("s__c", &["0.5;1.5", ""]),
    ];
    let outputs = run(configs, group, &[(&format!("{UNPOOLED}.first_emb.weight"), table(6))], &columns);
    assert_eq!(outputs[0], [2.0, 20.0, 0.0, 0.0]);
    assert_eq!(outputs[1], [5.0, 50.0, 0.0, 0.0]);
    let steps = [[1.0, 10.0, 4.5, 45.0, 0.5], [2.0, 20.0, 0.0, 0.0, 1.5], [3.0, 30.0, 1.0, 10.0, 0.0]];
    assert_eq!(outputs[2], steps.concat());
}

#[test]
fn numbers_become_vectors() {
    let configs = json!([
        {"raw_feature": {"feature_name": "m", "embedding_dim": 2, "mlp": {}}},
        {"raw_feature": {"feature_name": "v", "embedding_dim": 2, "value_dim": 2, "mlp": {}}},
        {"raw_feature": {"feature_name": "a", "embedding_dim": 2, "autodis": {"num_channels": 2, "temperature": 0.5, "keep_prob": 0.8}}},
        {"raw_feature": {"feature_name": "plain", "value_dim": 2}},
    ]);
    let group = json!({"group_name": "g", "feature_names": ["m", "v", "a", "plain"]});
    let dense = |name: &str| format!("emb_impls.__BASE__.dense_ec.dense_embs.{name}.weight");
    let square = |values: &[f32]| HostTensor::f32([2, 2], values).unwrap();
    let pair = |values: &[f32]| HostTensor::f32([2], values).unwrap();
    let autodis = "autodis#2#2#0_800000#0_500000";
    let parameters = [
        (&*dense("mlp#2.proj_w_m"), pair(&[2.0, 3.0])),
        (&*dense("mlp#2#vdim#2#feature_name#            v.proj_w_v"), square(&[1.0, 2.0, 3.0, 4.0])),
        (&*dense(&format!("{autodis}.proj_w_a")), pair(&[1.0, -1.0])),
        (&*dense(&format!("{autodis}.proj_m_a")), square(&[1.0, 0.0, 0.0, 1.0])),
        (&*dense(&format!("{autodis}.meta_emb_a")), square(&[1.0, 0.0, 0.0, 1.0])),
    ];
    let columns: [(&str, &[&str]); 4] = [("m", &["2"]), ("v", &["1|1"]), ("a", &["0.5"]), ("plain", &["7|8"])];
    let outputs = run(configs, group, &parameters, &columns);
    assert_eq!((&outputs[0], &outputs[1], &outputs[3]), (&vec![4.0, 6.0], &vec![4.0, 6.0], &vec![7.0, 8.0]));
    // h = [0.5, -0.005], z = 1.8 h, and the softmax of z / 0.5.
    let score = |h: f64| (1.8 * h / 0.5).exp();
    let sum = score(0.5) + score(-0.005);
    for (found, expected) in outputs[2].iter().zip([score(0.5) / sum, score(-0.005) / sum]) {
        assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} {expected}");
    }
}

#[test]
fn sampled_features_have_tables_of_their_own() {
    let config = json!({
        "data_config": {"negative_sampler": {"attr_fields": ["a"]}},
        "feature_configs": [id("a", json!({})), id("b", json!({}))],
        "model_config": {"feature_groups": [{"group_name": "g", "feature_names": ["a", "b"]}]},
    });
    let parameters = |config: &Value| {
        let features = Features::parse(config, 0).unwrap();
        let scope = Scope::new();
        let Group::Dense { parts, .. } = features.trace(&scope, "g").unwrap() else { panic!("no DEEP group") };
        let graph = scope.finish(&[("a", parts[0].values.clone()), ("b", parts[1].values.clone())]).unwrap();
        let mut names: Vec<String> = graph
            .ids()
            .filter_map(|id| graph.op::<rewire_graph::op::Parameter>(id))
            .map(|parameter| parameter.name.clone())
            .collect();
        names.sort();
        names
    };
    let table = |group: &str, name: &str| format!("emb_impls.{group}.ebc.embedding_bags.{name}_emb.weight");
    assert_eq!(parameters(&config), [table("__BASE__", "b"), table("__NEG__", "a")]);
    let mut base = config;
    base["data_config"]["force_base_data_group"] = json!(true);
    assert_eq!(parameters(&base), [table("__BASE__", "a"), table("__BASE__", "b")]);
}

#[test]
fn tables_of_one_name_are_equal() {
    let config = json!({
        "feature_configs": [id("a", json!({"embedding_name": "t"})), id("b", json!({"embedding_name": "t", "num_buckets": 7}))],
        "model_config": {"feature_groups": [{"group_name": "g", "feature_names": ["a", "b"]}]},
    });
    let problems = Features::parse(&config, 0).unwrap_err();
    assert_eq!(problems.0[0].key, "/feature_configs/1/id_feature");
    assert!(problems.to_string().contains("7 x 2 and 6 x 2"), "{problems}");
}
