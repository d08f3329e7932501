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
    assert!(text.starts_with("configuration: `fusion_mtl_tower.task_configs.1.task_name`: invalid type"), "{text}");
    let text = error("/hstu/stu/heads", json!(1));
    assert!(text.contains("unknown field `heads`"), "{text}");
}
