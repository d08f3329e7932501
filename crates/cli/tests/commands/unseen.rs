//! Untrained ranking models with other features and configurations than the demo: packaged, in smaller types, predicted and
//! compared with their folders.

use crate::program::{Folder, run};
use rewire::HostTensor;
use rewire::rank::{parse_config, trace};
use rewire::weights::serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Numbers that look random, equal on every machine.
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as i64) % bound
    }

    fn list(&mut self, bound: i64, len: i64) -> Vec<i64> {
        (0..len).map(|_| self.below(bound)).collect()
    }
}

/// Two contextual rows, a time encoding, actions, three tasks.
fn in_context() -> Value {
    json!({
        "model": "dlrm_hstu",
        "features": {
            "film": { "num_embeddings": 90, "embedding_dim": 20 }, "kind": { "num_embeddings": 11, "embedding_dim": 12 },
            "price": { "num_embeddings": 9, "embedding_dim": 4 }, "land": { "num_embeddings": 5, "embedding_dim": 8 },
            "home": { "num_embeddings": 6, "embedding_dim": 8 },
        },
        "feature_groups": {
            "contextual": ["land", "home"], "uih": ["film", "kind"], "candidate": ["film", "kind"],
        },
        "hstu": {
            "stu": { "embedding_dim": 40, "num_heads": 2, "hidden_dim": 12, "attention_dim": 8 },
            "attn_num_layers": 3,
            "positional_encoder": { "num_position_buckets": 64, "num_time_buckets": 20, "use_time_encoding": true },
            "input_preprocessor": { "contextual_preprocessor": {
                "action_encoder": { "simple_action_encoder": { "action_embedding_dim": 4, "action_weights": [1, 2, 4] } },
                "action_mlp": { "simple_mlp": { "hidden_dim": 16 } },
                "content_encoder": { "slice_content_encoder": {} }, "content_mlp": { "simple_mlp": { "hidden_dim": 24 } },
            } },
            "output_postprocessor": { "layernorm_postprocessor": {} },
        },
        "item_embedding_hidden_dim": 28,
        "fusion_mtl_tower": { "task_configs": [
            { "task_name": "click", "task_bitmask": 1 }, { "task_name": "like", "task_bitmask": 2 },
            { "task_name": "buy", "task_bitmask": 4 },
        ] },
        "max_seq_len": 48,
    })
}

/// No context, no times, no actions; a window, and the last layer only sees the newest events.
fn truncated() -> Value {
    let mut config = in_context();
    config["feature_groups"] = json!({ "contextual": [], "uih": ["film"], "candidate": ["film", "price"] });
    let hstu = &mut config["hstu"];
    hstu["stu"] = json!({
        "embedding_dim": 24, "num_heads": 3, "hidden_dim": 4, "attention_dim": 12, "use_group_norm": true, "max_attn_len": 9
    });
    hstu["attn_truncation_split_layer"] = 2.into();
    hstu["attn_truncation_tail_len"] = 7.into();
    hstu["positional_encoder"] =
        json!({ "num_position_buckets": 64, "num_time_buckets": 20, "use_time_encoding": false });
    hstu["input_preprocessor"] = json!({ "contextual_preprocessor": {
        "content_encoder": { "pad_content_encoder": {} }, "content_mlp": { "simple_mlp": { "hidden_dim": 8 } },
    } });
    hstu["output_postprocessor"] = json!({ "l2norm_postprocessor": {} });
    config["fusion_mtl_tower"]["task_configs"] = json!([{ "task_name": "buy", "task_bitmask": 8 }]);
    config
}

/// A folder with a model of random weights.
fn model(config: &Value) -> Folder {
    let (folder, text, mut noise) = (Folder::new(), config.to_string(), Noise(5));
    let mut tensor = |shape: Vec<usize>| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| noise.below(2001) as f32 / 2000.0 - 0.5).collect();
        HostTensor::f32(shape, &values).unwrap()
    };
    let specs = trace(&parse_config("test", &text).unwrap()).unwrap().parameters();
    let tensors: BTreeMap<_, _> = specs.into_iter().map(|spec| (spec.name, tensor(spec.shape))).collect();
    folder.write("config.json", text);
    folder.write("model.safetensors", serialize(&tensors, &BTreeMap::new()).unwrap());
    folder
}

/// Users with histories and candidates of all lengths, those of none among them.
fn users() -> String {
    let mut noise = Noise(3);
    let sizes = [(5, 3), (0, 1), (1, 1), (0, 0), (30, 9), (17, 20), (90, 2), (3, 70), (16, 0), (47, 5)];
    let mut user = |(events, candidates): (i64, i64)| {
        let mut lists = |len: i64, extra: bool| {
            let mut lists = json!({
                "film": noise.list(90, len), "kind": noise.list(11, len), "price": noise.list(9, len),
                "timestamp": (0..len).map(|at| 1_700_000_000 + if extra { at * 977 } else { 100_000 }).collect::<Vec<_>>(),
            });
            if extra {
                lists["action"] = json!(noise.list(8, len));
            }
            lists
        };
        let (history, candidates) = (lists(events, true), lists(candidates, false));
        let user = format!("{events} {}", candidates["film"].as_array().unwrap().len());
        json!({ "user": user, "land": events % 5, "home": events % 6, "history": history, "candidates": candidates })
    };
    sizes.map(|sizes| format!("{}\n", user(sizes))).concat()
}

fn done(args: &[&str]) -> Vec<Value> {
    let run = run(&[&["--kernel", "cpu", "--json"], args].concat());
    assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr);
    run.json()
}

/// Packages, ranks, predicts and compares a model, with smaller types and without; the names of its tasks.
fn check(config: &Value) {
    let (folder, out) = (model(config), Folder::new());
    let (model, data) = (folder.0.display().to_string(), out.write("users.jsonl", users()));
    let data = ["--data", data.as_str()];
    let tasks: Vec<String> = config["fusion_mtl_tower"]["task_configs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["task_name"].as_str().unwrap().to_owned())
        .collect();
    let small = ["--dtype", "int8", "--tables", "int8"];
    for (types, largest) in [(&[][..], 0.0), (&small, 0.5)] {
        let file = out.0.join("model.rewire").display().to_string();
        let told = done(&[&["package", "--model", &model, "--out", &file], types].concat()).remove(0);
        assert_eq!(told["tables"], config["features"].as_object().unwrap().len() - unread(config), "{told}");
        let of_file = ["--model", file.as_str()];
        let ranked = |args: &[&str]| {
            let mut lines = done(&[&["rank", "--top", "1000"], args, &data[..]].concat());
            assert_eq!(lines.pop().unwrap()["summary"]["users"], 10);
            lines
        };
        let packaged = ranked(&of_file);
        assert!(packaged == ranked(&[&["--model", &model], types].concat()), "{types:?}");

        let scores = |of: &[&str], name: &str| {
            let path = out.0.join(name).display().to_string();
            done(&[&["predict", "--out", &path], of, &data[..]].concat());
            std::fs::read_to_string(path).unwrap()
        };
        let rows = scores(&of_file, "package.jsonl");
        assert!(rows == scores(&[&["--model", &model], types].concat(), "folder.jsonl"));
        assert_eq!(
            sorted(rows.lines().map(|line| row(&serde_json::from_str(line).unwrap(), &tasks))),
            flat(&packaged, &tasks)
        );

        let compared = |of: &[&str]| done(&[&["verify", "--against", &model], of, &data[..]].concat()).remove(0);
        let told = compared(&of_file);
        assert_eq!((&told["users"], &told["candidates"]), (&json!(10), &json!(111)));
        for task in &tasks {
            let change = told["tasks"][task]["largest_change"].as_f64().unwrap();
            assert!((0.0..=largest).contains(&change) && (change > 0.0) == (largest > 0.0), "{told}");
        }
    }
}

/// Features that no group has.
fn unread(config: &Value) -> usize {
    let groups = config["feature_groups"].as_object().unwrap();
    let is_read = |name: &String| groups.values().any(|group| group.as_array().unwrap().contains(&json!(name)));
    config["features"].as_object().unwrap().keys().filter(|name| !is_read(name)).count()
}

type Row = (String, i64, Vec<String>);

/// A row of scores.
fn row(line: &Value, tasks: &[String]) -> Row {
    let logits = tasks.iter().map(|task| line[format!("logit_{task}")].to_string()).collect();
    (line["user"].to_string(), line["item"].as_i64().unwrap(), logits)
}

/// The candidates that users were ranked with.
fn flat(users: &[Value], tasks: &[String]) -> Vec<Row> {
    let rows = users.iter().flat_map(|user| {
        user["candidates"].as_array().unwrap().iter().map(|one| {
            let logits = tasks.iter().map(|task| one["logits"][task].to_string()).collect();
            (user["user"].to_string(), one["item"].as_i64().unwrap(), logits)
        })
    });
    sorted(rows)
}

fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn a_model_with_context_times_and_three_tasks() {
    check(&in_context());
}

#[test]
fn a_model_that_truncates_without_context() {
    check(&truncated());
}
