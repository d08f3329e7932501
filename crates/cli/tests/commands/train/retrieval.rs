//! Retrieval end to end: match models trained from nothing, the vectors of their towers, and how many right items are found by them.

use super::pipelines::golden;
use super::steps;
use crate::program::{Folder, jsonl, run};
use serde_json::{Value, json};

/// Users and items of the small pipeline: user `u` likes the items `u` and `u + 1`.
const COUNT: usize = 24;

const PIPELINE: &str = r#"
train_config {
  sparse_optimizer { adagrad_optimizer { lr: 0.2 } constant_learning_rate {} }
  dense_optimizer { adam_optimizer { lr: 0.01 } constant_learning_rate {} }
  num_epochs: 12
}
data_config {
  batch_size: 16
  label_fields: "clk"
  hard_negative_sampler_v2 { num_sample: 6 num_hard_sample: 2 attr_fields: "item_id" item_id_field: "item_id" }
}
feature_configs { id_feature { feature_name: "user_id" num_buckets: 24 embedding_dim: 8 } }
feature_configs { id_feature { feature_name: "item_id" num_buckets: 24 embedding_dim: 8 } }
model_config {
  feature_groups { group_name: "user" feature_names: "user_id" group_type: DEEP }
  feature_groups { group_name: "item" feature_names: "item_id" group_type: DEEP }
  dssm {
    user_tower { input: "user" mlp { hidden_units: 16 } }
    item_tower { input: "item" mlp { hidden_units: 16 } }
    output_dim: 8
    similarity: COSINE
    temperature: 0.1
  }
  losses { softmax_cross_entropy {} }
  metrics { recall_at_k { top_k: 1 } }
}
"#;

/// Runs a command whose last line is a summary.
fn summary(args: &[&str]) -> Value {
    let finished = run(args);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished.json().pop().unwrap()
}

/// Writes the vectors of a tower, with columns if some are named, and returns the file.
fn vectors(folder: &Folder, model: &str, data: &str, of: &str, columns: &[&str]) -> String {
    let out = folder.0.join(format!("{of}.vectors.jsonl")).display().to_string();
    let args = ["predict", "--model", model, "--data", data, "--out", &out, "--embeddings", of];
    summary(&[&args[..], &["--kernel", "cpu", "--json"], columns].concat());
    out
}

/// The share of right items among the best ones; `data` has them in a column.
fn recall(users: &str, items: &str, item: &str, (data, truth): (&str, &str), top: &str) -> f64 {
    let args = ["retrieve", "--users", users, "--items", items, "--item", item, "--truth", truth, "--top", top];
    let found = summary(&[&args[..], &["--truth-data", data, "--kernel", "cpu", "--json"]].concat());
    found["summary"]["metrics"][format!("recall@{top}")].as_f64().unwrap()
}

#[test]
fn two_towers_learn_from_sampled_and_hard_negatives_what_users_like() {
    let folder = Folder::new();
    let user = |row: usize| row / 2 % COUNT;
    let row = |row: usize| json!({ "user_id": user(row), "item_id": (user(row) + row % 2) % COUNT, "clk": 1 });
    let rows: Vec<Value> = (0..8 * COUNT).map(row).collect();
    // Of each batch: items that all rows have, then two of each row that its user does not like.
    let sampled = |batch: usize| {
        let hard: Vec<[usize; 2]> = (0..16).flat_map(|row| [[row, 0], [row, 1]]).collect();
        let others = hard.iter().map(|[row, slot]| {
            let at = batch * 16 + row;
            (user(at) + 2 + (at / 2 / COUNT * 5 + row % 2 * 3 + slot * 11) % (COUNT - 2)) % COUNT
        });
        let items: Vec<usize> = (0..6).map(|at| (at * 4 + batch) % COUNT).chain(others).collect();
        json!({ "item_id": items, "hard_neg_indices": hard })
    };
    let negatives: Vec<Value> = (0..12).map(sampled).collect();
    let [data, negatives] =
        [("data.jsonl", rows), ("negatives.jsonl", negatives)].map(|(name, rows)| folder.write(name, jsonl(&rows)));
    let config = folder.write("pipeline.config", PIPELINE);
    let model = folder.0.join("dssm").display().to_string();
    let args = ["train", "--pipeline", &config, "--data", &data, "--negatives", &negatives, "--out", &model, "--json"];
    let trained = run(&[&args[..], &["--kernel", "cpu", "--eval", &data, "--eval-negatives", &negatives]].concat());
    let losses: Vec<f64> = steps(&trained).iter().map(|line| line["loss"].as_f64().unwrap()).collect();
    assert!(losses.len() == 144 && losses[143] < 0.6 * losses[0], "{losses:?}");
    let evaluated = trained.json().pop().unwrap();
    assert!(evaluated["summary"]["metrics"]["recall@1"].as_f64().unwrap() > 0.6, "{evaluated}");

    let users: Vec<Value> =
        (0..COUNT).map(|user| json!({ "user_id": user, "likes": [user, (user + 1) % COUNT] })).collect();
    let users = folder.write("users.jsonl", jsonl(&users));
    // A column that is missing in CSV is an error: each tower reads its own.
    let ids = (0..COUNT).map(|item| format!("{item}\n"));
    let items = folder.write("items.csv", format!("item_id\n{}", ids.collect::<String>()));
    let seen = vectors(&folder, &model, &users, "users", &[]);
    let catalogue = vectors(&folder, &model, &items, "items", &["--columns", "item_id"]);
    let found = recall(&seen, &catalogue, "item_id", (&users, "likes"), "2");
    assert!(found > 0.8, "{found}");
    let out = folder.0.join("best.jsonl").display().to_string();
    let best = ["predict", "--model", &model, "--data", &users, "--items", &items, "--item-column", "item_id"];
    summary(&[&best[..], &["--out", &out, "--top", "2", "--kernel", "cpu", "--json", "--columns", "user_id"]].concat());
    let text = std::fs::read_to_string(out).unwrap();
    let is_liked = |line: &&str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let [user, item] = ["user_id", "item"].map(|key| line[key].as_u64().unwrap() as usize);
        item == user || item == (user + 1) % COUNT
    };
    let hits = text.lines().filter(is_liked).count();
    assert!((hits as f64 / (2 * COUNT) as f64 - found).abs() < 1e-9, "{hits} {found}");
}

#[test]
fn an_encoder_of_histories_finds_the_items_that_follow() {
    let (folder, name) = (Folder::new(), "hstu_match_cosine");
    let [data, negatives] =
        ["data.parquet", "negatives.parquet"].map(|file| golden(name).join(file).display().to_string());
    let text = std::fs::read_to_string(golden(name).join("pipeline.config")).unwrap();
    let changed = text.replace("num_steps: 12", "num_epochs: 6").replace("lr: 0.001", "lr: 0.01");
    let config = folder.write("pipeline.config", changed);
    let items: Vec<Value> = (0..380).map(|item| json!({ "cand_seq__video_id": [item] })).collect();
    let items = folder.write("items.jsonl", jsonl(&items));
    let model = folder.0.join("hstu").display().to_string();
    let args = ["train", "--pipeline", &config, "--data", &data, "--negatives", &negatives, "--out", &model, "--json"];
    let trained = steps(&run(&[&args[..], &["--kernel", "cpu"]].concat()));
    assert_eq!(trained.len(), 72);
    let users = vectors(&folder, &model, &data, "users", &[]);
    let item = "cand_seq__video_id";
    let catalogue = vectors(&folder, &model, &items, "items", &["--columns", item]);
    let found = recall(&users, &catalogue, item, (&data, item), "10");
    // Chance finds 10 of 380.
    assert!(found > 0.08, "{found}");
}
