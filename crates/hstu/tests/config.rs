//! Configurations of the ranking model.
#![allow(clippy::unwrap_used)]

use rewire_hstu::models::dlrm_hstu::{self, Config};
use serde_json::{Value, json};

fn demo() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/demo/model/config.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn changed(changes: &[(&str, Value)]) -> Value {
    let mut config = demo();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = config.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(key);
        } else {
            parent.insert(key.to_owned(), value.clone());
        }
    }
    config
}

fn outcome(changes: &[(&str, Value)]) -> Result<(), String> {
    let config = Config::from_json(&changed(changes).to_string()).map_err(|error| error.to_string())?;
    let graph = dlrm_hstu::trace(&config).map_err(|error| error.to_string())?;
    let (_, logits) = &graph.outputs()[0];
    assert_eq!(graph.ty(*logits).unwrap().width(), Some(config.task_names().len()));
    Ok(())
}

const PREPROCESSOR: &str = "/hstu/input_preprocessor/contextual_preprocessor";

#[test]
fn other_configurations_are_traced() {
    let within = |key: &str| format!("{PREPROCESSOR}/{key}");
    let interleaved = json!({ "contextual_interleave_preprocessor": demo().pointer(PREPROCESSOR).unwrap() });
    let mlp = json!({ "mlp_content_encoder": {
        "uih_mlp": { "hidden_units": [40, 24], "use_ln": true, "activation": "nn.SiLU" },
        "target_mlp": { "hidden_units": [24], "use_bn": true }
    } });
    let tasks = json!([{ "task_name": "a" }, { "task_name": "b" }, { "task_name": "c" }]);
    let wide = json!({ "num_embeddings": 7, "embedding_dim": 20 });
    for changes in [
        vec![("/feature_groups/contextual", json!([]))],
        vec![("/feature_groups/contextual", Value::Null)],
        vec![("/hstu/positional_encoder", Value::Null)],
        vec![("/hstu/positional_encoder/use_time_encoding", Value::Null)],
        vec![("/hstu/positional_encoder/time_bucket_fn", json!("log"))],
        vec![("/hstu/stu/use_group_norm", json!(true)), ("/hstu/stu/num_heads", json!(4))],
        vec![("/hstu/stu/sla_k1", json!(8)), ("/hstu/stu/sla_k2", json!(2))],
        vec![("/hstu/stu/max_attn_len", json!(16)), ("/hstu/stu/target_aware", json!(false))],
        vec![("/hstu/attn_truncation_split_layer", json!(1)), ("/hstu/attn_truncation_tail_len", json!(32))],
        vec![("/hstu/attn_num_layers", json!(5))],
        vec![("/hstu/input_preprocessor", interleaved)],
        vec![(&within("action_encoder"), Value::Null), (&within("action_mlp"), Value::Null)],
        vec![(&within("content_encoder"), json!({ "pad_content_encoder": {} }))],
        vec![(&within("content_encoder"), mlp)],
        vec![(&within("content_mlp"), json!({ "parameterized_mlp": { "hidden_dim": 8 } }))],
        vec![("/hstu/output_postprocessor", json!({ "l2norm_postprocessor": {} }))],
        vec![("/hstu/output_postprocessor", json!({ "layernorm_postprocessor": { "eps": 1e-3 } }))],
        vec![("/fusion_mtl_tower/task_configs", tasks)],
        vec![("/features/brand", wide), ("/feature_groups/candidate", json!(["item_id", "genre", "brand"]))],
    ] {
        assert_eq!(outcome(&changes), Ok(()), "{changes:?}");
    }
}

#[test]
fn errors_name_the_key() {
    let uih = json!({ "uih_preprocessor": {} });
    for (pointer, value, key) in [
        ("/surprise", json!(1), "surprise"),
        ("/hstu/stu/surprise", json!(1), "surprise"),
        ("/hstu/input_preprocessor/contextual_preprocessor/content_mlp/simple_mlp/surprise", json!(1), "surprise"),
        ("/hstu/positional_encoder/surprise", json!(1), "surprise"),
        ("/fusion_mtl_tower/surprise", json!(1), "surprise"),
        ("/features/genre/surprise", json!(1), "surprise"),
        ("/model", json!("other"), "model"),
        ("/max_seq_len", json!(0), "max_seq_len"),
        ("/hstu/stu/num_heads", json!(0), "hstu.stu.num_heads"),
        ("/hstu/stu/embedding_dim", json!(usize::MAX), "hstu.stu.embedding_dim"),
        ("/hstu/input_preprocessor", uih, "hstu.input_preprocessor"),
        ("/feature_groups/uih", json!(["nothing"]), "feature_groups.uih"),
        ("/features/country/embedding_dim", json!(8), "features.country.embedding_dim"),
        ("/hstu/scaling_seqlen", json!(7), "hstu.scaling_seqlen"),
    ] {
        let error = outcome(&[(pointer, value)]).unwrap_err();
        assert!(error.contains(&format!("`{key}`")), "{pointer}: {error}");
    }
}

#[test]
fn errors_of_types_name_the_key() {
    let error = |pointer: &str, value: Value| outcome(&[(pointer, value)]).unwrap_err();
    let text = error("/hstu/stu/num_heads", json!("two"));
    assert!(text.starts_with("configuration: `hstu.stu.num_heads`: invalid type: string \"two\""), "{text}");
    let text = error("/fusion_mtl_tower/task_configs", json!([{ "task_name": "a" }, { "task_name": 7 }]));
    assert!(text.starts_with("configuration: `fusion_mtl_tower.task_configs[1].task_name`: invalid type"), "{text}");
    let text = error("/hstu/stu/heads", json!(1));
    assert!(text.contains("unknown field `heads`"), "{text}");
}

#[test]
fn numbers_are_checked_in_the_type_that_computes() {
    let increments = "/hstu/positional_encoder/time_bucket_increments";
    let norm = "/hstu/output_postprocessor";
    let eps = |eps: f64| json!({ "layernorm_postprocessor": { "eps": eps } });
    let actions = "/hstu/input_preprocessor/contextual_preprocessor/action_encoder/simple_action_encoder";
    let thresholds = format!("{actions}/watchtime_to_action_thresholds");
    for (pointer, value, key) in [
        (increments, json!(1e-46), "hstu.positional_encoder.time_bucket_increments"),
        (increments, json!(1e-39), "hstu.positional_encoder.time_bucket_increments"),
        (increments, json!(1e-21), "hstu.positional_encoder.time_bucket_increments"),
        (increments, json!(1e39), "hstu.positional_encoder.time_bucket_increments"),
        (increments, json!(0.0), "hstu.positional_encoder.time_bucket_increments"),
        (increments, json!(-60.0), "hstu.positional_encoder.time_bucket_increments"),
        ("/hstu/stu/attn_alpha", json!(1e-46), "hstu.stu.attn_alpha"),
        ("/hstu/stu/attn_alpha", json!(-1e39), "hstu.stu.attn_alpha"),
        (norm, eps(1e39), "hstu.output_postprocessor.layernorm_postprocessor.eps"),
        (norm, eps(1e-46), "hstu.output_postprocessor.layernorm_postprocessor.eps"),
        ("/hstu/stu/output_dropout_ratio", json!(0.999_999_999_9), "hstu.stu.output_dropout_ratio"),
        ("/hstu/stu/scaling_seqlen", json!(1_i64 << 40), "hstu.stu.scaling_seqlen"),
        ("/hstu/scaling_seqlen", json!(0), "hstu.scaling_seqlen"),
        ("/hstu/attn_num_layers", json!(1025), "hstu.attn_num_layers"),
        (&thresholds, json!([120, (1_i64 << 53) + 1]), "watchtime_to_action_thresholds"),
    ] {
        let error = outcome(&[(pointer, value)]).unwrap_err();
        assert!(error.contains(key), "{pointer}: {error}");
    }
    assert_eq!(outcome(&[(increments, json!(1e-19))]), Ok(()));
    assert_eq!(outcome(&[(norm, eps(0.0))]), Ok(()));
}

#[test]
fn things_without_end_are_refused_at_once() {
    let tasks: Vec<Value> = (0..200_000).map(|n| json!({ "task_name": n.to_string() })).collect();
    assert_eq!(outcome(&[("/fusion_mtl_tower/task_configs", json!(tasks))]), Ok(()));
    let actions = format!("{PREPROCESSOR}/action_encoder/simple_action_encoder");
    let many = json!(vec![1; 5000]);
    let thresholds = ["thresholds", "weights"].map(|part| format!("{actions}/watchtime_to_action_{part}"));
    let error = outcome(&[(&thresholds[0], many.clone()), (&thresholds[1], many.clone())]).unwrap_err();
    assert!(error.contains("watchtime_to_action_thresholds") && error.contains("5000"), "{error}");
    let periods = json!({ "timestamp_layernorm_postprocessor": {
        "time_duration_period_units": many, "time_duration_units_per_period": many
    } });
    let error = outcome(&[("/hstu/output_postprocessor", periods)]).unwrap_err();
    assert!(error.contains("time_duration_period_units") && error.contains("5000"), "{error}");
}

#[test]
fn a_feature_is_named_once() {
    let text = demo().to_string();
    let twice = text.replacen("\"genre\":{", "\"genre\":{\"num_embeddings\":9,\"embedding_dim\":2},\"genre\":{", 1);
    assert_ne!(text, twice);
    let error = Config::from_json(&twice).unwrap_err().to_string();
    assert!(error.starts_with("configuration: `features.genre`: `genre` is there twice"), "{error}");
    let tables = json!({ "num_embeddings": 3, "embedding_dim": 16 });
    let error = outcome(&[("/features/user", tables), ("/feature_groups/contextual", json!(["country", "user"]))]);
    assert!(error.unwrap_err().contains("`feature_groups.contextual`"));
}

#[test]
fn tensors_that_a_model_does_not_know_are_found() {
    let config = Config::from_json(&demo().to_string()).unwrap();
    let graph = dlrm_hstu::trace(&config).unwrap();
    let mut names: Vec<String> = graph.parameters().into_iter().map(|parameter| parameter.name).collect();
    names.extend(config.buffers().unwrap().into_iter().map(|buffer| buffer.name));
    let all = || names.iter().map(String::as_str);
    assert_eq!(config.unread(&graph, all()).unwrap(), [""; 0]);
    assert_eq!(config.unread(&graph, all().chain(["other"])).unwrap(), ["other"]);
    for (pointer, value, part, count) in [
        ("/hstu/attn_num_layers", json!(1), "_stu_layers.1.", 7),
        ("/hstu/positional_encoder", Value::Null, "_positional_encoder.", 2),
        ("/hstu/positional_encoder/use_time_encoding", json!(false), "_timestamp_embeddings_weight", 1),
    ] {
        let smaller = Config::from_json(&changed(&[(pointer, value)]).to_string()).unwrap();
        let unread = smaller.unread(&dlrm_hstu::trace(&smaller).unwrap(), all()).unwrap();
        assert!(unread.len() == count && unread.iter().all(|name| name.contains(part)), "{unread:?}");
    }
    let ungrouped =
        changed(&[("/feature_groups/uih", json!(["item_id"])), ("/feature_groups/candidate", json!(["item_id"]))]);
    let ungrouped = Config::from_json(&ungrouped.to_string()).unwrap();
    assert_eq!(ungrouped.unread(&dlrm_hstu::trace(&ungrouped).unwrap(), all()).unwrap(), [""; 0]);
}
