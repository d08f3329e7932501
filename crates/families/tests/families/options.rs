//! Options that no pipeline of `tests/tzrec` uses: names of parameters, values, and complete lists of errors.

use rewire_families::{TraceError, Traced, trace};
use rewire_features::{Column, OwnedCell};
use rewire_graph::{HostTensor, interpret};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// A pipeline with four features: ids `a` and `b`, a number `x` and a sequence of ids `s`, all of width 2.
fn config(groups: Value, kind: &str, model: Value) -> Value {
    let id = |name: &str| json!({"id_feature": {"feature_name": name, "embedding_dim": 2, "num_buckets": 4}});
    let sequence = json!({"sequence_id_feature": {"feature_name": "s", "embedding_dim": 2, "num_buckets": 4}});
    json!({
        "feature_configs": [id("a"), id("b"), {"raw_feature": {"feature_name": "x"}}, sequence],
        "model_config": {
            "feature_groups": groups,
            kind: model,
            "losses": [{"binary_cross_entropy": {}}],
        },
    })
}

fn deep(encoders: Value) -> Value {
    let sequences = json!([{"group_name": "q", "feature_names": ["a", "s"]}]);
    json!([{
        "group_name": "all", "feature_names": ["a", "b", "x"], "sequence_groups": sequences, "sequence_encoders": encoders,
    }])
}

/// Names of the parameters that are not tables.
fn names(traced: &Traced) -> Vec<String> {
    let all = traced.graph.parameters().into_iter().map(|parameter| parameter.name);
    all.filter(|name| !name.contains("emb_impls")).collect()
}

/// Logits for weights that only depend on the index of each element.
fn logits(traced: &Traced, rows: usize) -> Vec<f32> {
    let cell = |name: &str, row: usize| match name {
        "x" => OwnedCell::Float(0.5),
        "s" => OwnedCell::List([2 * row, 2 * row + 1].map(|step| OwnedCell::Int(step as i64 % 4)).into()),
        _ => OwnedCell::Int(row as i64 % 4),
    };
    let column = |name: &str| Column::of_cells((0..rows).map(|row| cell(name, row)).collect()).unwrap();
    let columns: HashMap<String, Column<'_>> = traced.columns.iter().map(|name| (name.clone(), column(name))).collect();
    let inputs = traced.interface.features.encode(&traced.columns, |name| columns.get(name), 0..rows).unwrap();
    let weights = traced.graph.parameters().into_iter().map(|parameter| {
        let count: usize = parameter.shape.iter().product();
        let values: Vec<f32> = (0..count).map(|n| ((n * 7 + 3) % 11) as f32 * 0.05 + 0.1).collect();
        (parameter.name, HostTensor::f32(parameter.shape, &values).unwrap())
    });
    let outputs = interpret(&traced.graph, &inputs.into_iter().collect(), &weights.collect::<HashMap<_, _>>()).unwrap();
    outputs["logits"].to_f32()
}

fn tower(mlp: Value) -> Value {
    json!({"towers": [{"input": "all", "mlp": mlp}]})
}

#[test]
fn batch_norms_of_steps_lie_between_transpositions() {
    let din = json!([{"din_encoder": {"attn_mlp": {"hidden_units": [3], "use_bn": true, "activation": "nn.PReLU"}}}]);
    let traced = trace(&config(deep(din), "multi_tower", tower(json!({"hidden_units": [2], "use_bn": true})))).unwrap();
    let names = names(&traced);
    let of = |module: &str, place: usize| -> Vec<String> {
        let keys = ["bias", "running_mean", "running_var", "weight"];
        keys.iter().map(|key| format!("{module}.mlp.0.perceptron.{place}.{key}")).collect()
    };
    let encoder = "embedding_group._group_name_to_seq_encoders.all.0";
    for name in of(&format!("{encoder}.mlp"), 2).iter().chain(&of("towers.all", 1)) {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    assert!(names.contains(&format!("{encoder}.mlp.mlp.0.perceptron.4.weight")), "{names:?}");
}

#[test]
fn encoders_of_steps() {
    let tower = || tower(json!({"hidden_units": [2], "activation": ""}));
    let of = |encoder: Value| trace(&config(deep(json!([encoder])), "multi_tower", tower())).unwrap();
    let mean = of(json!({"pooling_encoder": {"input": "q"}}));
    let sum = of(json!({"pooling_encoder": {"input": "q", "pooling_type": "sum", "max_seq_length": 1}}));
    let attention = of(json!({"simple_attention": {"input": "q"}}));
    let shapes = |traced: &Traced| -> BTreeMap<String, Vec<usize>> {
        traced.graph.parameters().into_iter().map(|parameter| (parameter.name, parameter.shape)).collect()
    };
    // Input width: the number and both ids (5 columns), and the encoder's two columns.
    assert_eq!(shapes(&mean)["towers.all.mlp.0.perceptron.0.weight"], [2, 7]);
    let all = [&mean, &sum, &attention].map(|traced| logits(traced, 3));
    assert!(all.iter().flatten().all(|logit| logit.is_finite()));
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
}

#[test]
fn features_stay_with_their_probability() {
    let groups = json!([{"group_name": "all", "feature_names": ["a", "x"]}]);
    let mut config = config(groups, "multi_tower", tower(json!({"hidden_units": [2]})));
    let without = logits(&trace(&config).unwrap(), 2);
    config["model_config"]["variational_dropout"] = json!({"regularization_lambda": 0.01});
    let traced = trace(&config).unwrap();
    assert!(names(&traced).contains(&"group_variational_dropouts.all.feature_p".to_owned()));
    assert_ne!(logits(&traced, 2), without);
}

#[test]
fn mask_blocks_follow_each_other_where_they_are_not_parallel() {
    let groups = json!([{"group_name": "all", "feature_names": ["a", "b", "x"]}]);
    let module = json!({
        "n_mask_blocks": 2, "use_parallel": false, "top_mlp": {"hidden_units": [2]},
        "mask_block": {"hidden_dim": 4, "reduction_ratio": 0.5},
    });
    let traced = trace(&config(groups, "mask_net", json!({"mask_net_module": module}))).unwrap();
    let shapes: BTreeMap<String, Vec<usize>> =
        traced.graph.parameters().into_iter().map(|parameter| (parameter.name, parameter.shape)).collect();
    let block = |index: usize, name: &str| &shapes[&format!("mask_net_layer.mask_blocks.{index}.{name}.weight")];
    assert_eq!((&block(0, "mask_generator.0")[..], &block(0, "ffn.0")[..]), (&[2, 5][..], &[4, 5][..]));
    // The second block masks the first block's output, with a mask computed from the whole row.
    assert_eq!((&block(1, "mask_generator.0")[..], &block(1, "mask_generator.2")[..]), (&[2, 5][..], &[4, 2][..]));
    assert_eq!(shapes["mask_net_layer.top_mlp.mlp.0.perceptron.0.weight"], [2, 4]);
}

#[test]
fn domains_have_towers_of_their_own() {
    let group = |name: &str, feature: &str| json!({"group_name": name, "feature_names": [feature]});
    let task = |name: &str| json!({"tower_name": name, "losses": [{"binary_cross_entropy": {}}]});
    let model = json!({
        "ppnet_hidden_units": [3], "domain_input_name": "domain", "task_domain_num": 2,
        "task_towers": [task("ctr"), task("cvr")],
    });
    let traced = trace(&config(json!([group("all", "a"), group("uia", "b")]), "pepnet", model)).unwrap();
    let outputs: Vec<&str> = traced.outputs.iter().map(|output| output.name.as_str()).collect();
    let expected = ["logits_ctr_0", "probs_ctr_0", "logits_ctr_1", "probs_ctr_1", "logits_cvr_0", "probs_cvr_0"];
    assert_eq!(outputs[..6], expected);
    assert!(names(&traced).contains(&"_task_tower.3.linear.weight".to_owned()));
    assert!(!names(&traced).iter().any(|name| name.starts_with("epnet")));
}

#[test]
fn sizes_are_bounded() {
    let model = json!({
        "expert_mlp": {"hidden_units": [2]}, "num_expert": 4_000_000_000_u64, "task_towers": [],
    });
    let mut config = config(deep(json!([{"self_attention_encoder": {"multihead_attn_dim": 1 << 30}}])), "mmoe", model);
    config["feature_configs"][0]["id_feature"]["num_buckets"] = json!(u64::MAX);
    config["feature_configs"][1]["id_feature"]["embedding_dim"] = json!(1_u64 << 40);
    let Err(TraceError::Config(problems)) = trace(&config) else { panic!("no problems") };
    let keys: Vec<&str> = problems.0.iter().map(|problem| problem.key.as_str()).collect();
    let expected = [
        "/feature_configs/0/id_feature",
        "/feature_configs/1/id_feature/embedding_dim",
        "/model_config/mmoe/num_expert",
        "/model_config/feature_groups/0/sequence_encoders/0/self_attention_encoder/multihead_attn_dim",
    ];
    assert_eq!(keys, expected, "{problems}");
}

#[test]
fn all_problems_are_listed() {
    let mut config =
        config(deep(json!([])), "multi_tower", tower(json!({"hidden_units": [2], "activation": "nn.What"})));
    config["feature_configs"][0]["id_feature"]["colour"] = json!(1);
    let Err(TraceError::Config(problems)) = trace(&config) else { panic!("no problems") };
    let keys: Vec<&str> = problems.0.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["/feature_configs/0/id_feature/colour", "/model_config/multi_tower/towers/0/mlp"]);
    assert!(problems.to_string().contains("`nn.What` is not an activation function"), "{problems}");
}
