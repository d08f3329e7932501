//! Vectors of users and items, and the items of a catalogue that suit users best.

use crate::program::{DEMO, Folder, Run, jsonl, run, user};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use rewire::HostTensor;
use rewire::hstu::models::hstu_match;
use rewire::weights::{Weights, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

fn predict(args: &[&str]) -> Run {
    run(&[&["predict", "--kernel", "cpu", "--json"], args].concat())
}

/// The rows of a run that writes JSON Lines.
fn rows(folder: &Folder, args: &[&str]) -> Vec<Value> {
    let out = folder.0.join("out.jsonl");
    let run = predict(&[&["--out", out.to_str().unwrap()], args].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = std::fs::read_to_string(out).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn vector(row: &Value) -> Vec<f64> {
    row["embedding"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn users() -> Vec<Value> {
    let sizes = [(3, 2), (25, 7), (0, 4), (9, 0), (200, 3), (50, 11)];
    sizes.iter().enumerate().map(|(n, &(events, candidates))| user(&format!("u{n}"), events, candidates)).collect()
}

/// A matching model with the demo's features and untrained parameters.
pub fn matching(folder: &Folder) -> String {
    let config = json!({
        "model": "hstu_match",
        "features": {
            "item_id": { "num_embeddings": 1500, "embedding_dim": 12 },
            "genre": { "num_embeddings": 16, "embedding_dim": 4 },
        },
        "feature_groups": { "uih": ["item_id", "genre"], "candidate": ["item_id", "genre"] },
        "hstu": {
            "stu": { "embedding_dim": 16, "num_heads": 2, "hidden_dim": 8, "attention_dim": 8 },
            "attn_num_layers": 2,
            "input_preprocessor": { "uih_preprocessor": {} },
            "positional_encoder": { "num_position_buckets": 64 },
            "output_postprocessor": { "l2norm_postprocessor": {} },
        },
        "item_mlp": { "hidden_units": [20], "activation": "nn.SiLU" },
        "output_dim": 9,
        "max_seq_len": 40,
    });
    let text = config.to_string();
    let config = hstu_match::MatchConfig::from_json(&text).unwrap();
    let (mut tensors, mut state) = (BTreeMap::new(), 1u64);
    for parameter in config.trace().unwrap().parameters() {
        let values = (0..parameter.shape.iter().product()).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.5
        });
        let tensor = HostTensor::f32(parameter.shape.clone(), &values.collect::<Vec<_>>()).unwrap();
        tensors.insert(parameter.name, tensor);
    }
    folder.write("config.json", text);
    folder.write("model.safetensors", serialize(&tensors, &BTreeMap::new()).unwrap());
    folder.0.display().to_string()
}

#[test]
fn the_vectors_of_a_ranking_model_make_its_logits() {
    let folder = Folder::new();
    let data = folder.write("in.jsonl", jsonl(&users()));
    let scores = rows(&folder, &["--data", &data]);
    let [seen, items] = ["users", "items"].map(|of| rows(&folder, &["--data", &data, "--embeddings", of]));
    assert_eq!([scores.len(), seen.len(), items.len()], [27; 3]);
    let weights = Weights::read(&Path::new(DEMO).join("model/model.safetensors")).unwrap();
    let tensor = |name: &str| weights.get(&format!("_multitask_module.linear.{name}")).unwrap().unwrap().to_f64();
    let (weight, bias) = (tensor("weight"), tensor("bias"));
    for ((score, user), item) in scores.iter().zip(&seen).zip(&items) {
        assert_eq!([&user["user"], &user["item"]], [&score["user"], &score["item"]]);
        let product: Vec<f64> = vector(user).iter().zip(vector(item)).map(|(u, i)| u * i).collect();
        for (task, name) in ["logit_is_click", "logit_is_like"].iter().enumerate() {
            let expected = dot(&product, &weight[task * 64..(task + 1) * 64]) + bias[task];
            assert!((score[name].as_f64().unwrap() - expected).abs() < 1e-4, "{score} {expected}");
        }
    }
}

#[test]
fn a_matching_model_takes_users_with_labels() {
    let (folder, out) = (Folder::new(), Folder::new());
    let model = matching(&folder);
    let mut users = users();
    let plain = out.write("plain.jsonl", jsonl(&users));
    for user in &mut users {
        let candidates = user["candidates"]["item_id"].as_array().unwrap().len();
        user["labels"] = json!(vec![1; candidates]);
    }
    let labelled = out.write("labelled.jsonl", jsonl(&users));
    for of in [&["--embeddings", "users"][..], &["--embeddings", "items"], &["--items", &plain, "--top", "3"]] {
        let rows = |data: &str| rows(&out, &[&["--data", data, "--model", &model], of].concat());
        assert!(rows(&labelled) == rows(&plain), "{of:?}");
    }
}

#[test]
fn scores_that_are_not_finite_end_the_run() {
    let (folder, out) = (Folder::new(), Folder::new());
    let model = matching(&folder);
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.0.join("config.json")).unwrap()).unwrap();
    config["similarity"] = json!("INNER_PRODUCT");
    folder.write("config.json", config.to_string());
    let weights = Weights::read(&folder.0.join("model.safetensors")).unwrap();
    // The vectors are finite, and their products are not.
    let tensor = |name: &str| {
        let tensor = weights.get(name).unwrap().unwrap();
        let factor = if name.contains("_tower.output.") { 1e25 } else { 1.0 };
        let values: Vec<f32> = tensor.to_f32().iter().map(|value| value * factor).collect();
        (name.to_owned(), HostTensor::f32(tensor.shape().to_vec(), &values).unwrap())
    };
    let tensors: BTreeMap<_, _> = weights.names().map(tensor).collect();
    folder.write("model.safetensors", serialize(&tensors, &BTreeMap::new()).unwrap());
    let data = out.write("in.jsonl", jsonl(&users()));
    let file = out.0.join("out.jsonl").display().to_string();
    let run = predict(&["--data", &data, "--model", &model, "--items", &data, "--out", &file]);
    run.failed_with(&["the model's output `scores` is", "expected a finite number"]);
    assert_eq!(out.names(), ["in.jsonl"]);
    for of in ["users", "items"] {
        assert!(!rows(&out, &["--data", &data, "--model", &model, "--embeddings", of]).is_empty());
    }
}

#[test]
fn a_packaged_matching_model_has_the_vectors_of_its_folder() {
    let (folder, out) = (Folder::new(), Folder::new());
    let model = matching(&folder);
    let data = out.write("in.jsonl", jsonl(&users()));
    let file = out.0.join("model.rewire").display().to_string();
    for types in [&[][..], &["--dtype", "f16", "--tables", "int8"]] {
        let packaged = run(&[&["package", "--json", "--model", &model, "--out", &file], types].concat());
        assert_eq!((packaged.code, &packaged.json()[0]["tables"]), (Some(0), &json!(2)), "{}", packaged.stderr);
        for asked in [&["--embeddings", "users"][..], &["--embeddings", "items"], &["--items", &data, "--top", "3"]] {
            let of = |model: &str, types: &[&str]| {
                rows(&out, &[&["--data", &data, "--model", model], asked, types].concat())
            };
            let found = of(&file, &[]);
            assert!(found.len() >= 6 && found == of(&model, types), "{asked:?} {types:?}");
        }
    }
    for args in [&["rank", "--model"][..], &["verify", "--against"]] {
        run(&[args, &[&file, "--data", &data]].concat()).failed_with(&["of a matching model", "--embeddings"]);
        run(&[args, &[&model, "--data", &data]].concat()).failed_with(&["of a matching model", "--embeddings"]);
    }
    let weights = Weights::read(&folder.0.join("model.safetensors")).unwrap();
    let mut tensors = weights.tensors().unwrap();
    tensors.insert("other".to_owned(), HostTensor::f32([2], &[1.0, 2.0]).unwrap());
    folder.write("model.safetensors", serialize(&tensors, &BTreeMap::new()).unwrap());
    run(&["package", "--model", &model, "--out", &file]).failed_with(&["does not use 1 of the", "`other`"]);
}

#[test]
fn the_best_items_of_a_catalogue() {
    let (folder, model) = (Folder::new(), Folder::new());
    let model = matching(&model);
    let model = ["--model", model.as_str()];
    let data = folder.write("in.jsonl", jsonl(&users()));
    // Every item of the table, in another order, some twice.
    let ids: Vec<i64> = (0..1600).map(|at| at * 7 % 1500).collect();
    let genres: Vec<i64> = ids.iter().map(|id| id % 16).collect();
    let catalogue = json!({ "user": "all", "candidates": { "item_id": ids, "genre": genres } });
    let catalogue = folder.write("items.jsonl", jsonl(&[catalogue]));
    let users = rows(&folder, &[&model[..], &["--data", &data, "--embeddings", "users"]].concat());
    let items = rows(&folder, &[&model[..], &["--data", &catalogue, "--embeddings", "items"]].concat());
    assert_eq!([users.len(), items.len(), vector(&users[0]).len()], [6, 1600, 9]);
    assert!(users.iter().chain(&items).all(|row| (dot(&vector(row), &vector(row)) - 1.0).abs() < 1e-5));
    let all = [&model[..], &["--data", &data, "--items", &catalogue, "--top", "40", "--columns", "country"]].concat();
    let found = rows(&folder, &all);
    assert_eq!(found.len(), 6 * 40);
    let items: BTreeMap<i64, Vec<f64>> = items.iter().map(|row| (row["item"].as_i64().unwrap(), vector(row))).collect();
    for (user, found) in users.iter().zip(found.chunks(40)) {
        let user_vector = vector(user);
        let mut products: Vec<f64> = items.values().map(|item| dot(&user_vector, item)).collect();
        products.sort_by(|a, b| b.total_cmp(a));
        for (row, expected) in found.iter().zip(&products) {
            let score = row["score"].as_f64().unwrap();
            assert!((score - expected).abs() < 1e-5 && row["user"] == user["user"] && row["country"] == 5, "{row}");
            assert!((score - dot(&user_vector, &items[&row["item"].as_i64().unwrap()])).abs() < 1e-5);
        }
        let is_before = |a: &Value, b: &Value| {
            let of = |row: &Value| (row["score"].as_f64().unwrap(), row["item"].as_i64().unwrap());
            let (a, b) = (of(a), of(b));
            a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
        };
        assert!(found.windows(2).all(|pair| is_before(&pair[0], &pair[1])));
    }
    // A user without history, alone and among others, with small batches.
    assert!(rows(&folder, &[&all[..], &["--batch", "1"]].concat()) == found);
    let ranking = predict(&["--data", &data, "--items", &catalogue, "--out", &data.replace("in.", "x.")]);
    ranking.failed_with(&["--items: the model computes a vector for every candidate"]);
    let nothing =
        folder.write("none.jsonl", jsonl(&[json!({ "user": "all", "candidates": { "item_id": [], "genre": [] } })]));
    predict(&[&model[..], &["--data", &data, "--items", &nothing, "--out", &data.replace("in.", "x.")]].concat())
        .failed_with(&["none.jsonl holds no candidates"]);
}

#[test]
fn vectors_are_lists_in_every_format() {
    let folder = Folder::new();
    let data = folder.write("in.jsonl", jsonl(&users()));
    let expected: Vec<Vec<f32>> = rows(&folder, &["--data", &data, "--embeddings", "items"])
        .iter()
        .map(|row| vector(row).into_iter().map(|value| value as f32).collect())
        .collect();
    let write = |name: &str| {
        let out = folder.0.join(name);
        let args = ["--data", &data, "--embeddings", "items", "--out", out.to_str().unwrap(), "--save-every", "5"];
        assert_eq!(predict(&args).code, Some(0));
        out
    };
    let mut csv = csv::Reader::from_path(write("out.csv")).unwrap();
    let parse = |text: &str| text.split(';').map(|value| value.parse().unwrap()).collect::<Vec<f32>>();
    let found: Vec<Vec<f32>> = csv.records().map(|record| parse(&record.unwrap()[2])).collect();
    assert!(found == expected);
    let reader = SerializedFileReader::new(File::open(write("out.parquet")).unwrap()).unwrap();
    let found: Vec<Vec<f32>> = reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| match row.unwrap().get_column_iter().nth(2).unwrap().1 {
            Field::ListInternal(list) => list
                .elements()
                .iter()
                .map(|field| match field {
                    Field::Float(value) => *value,
                    other => panic!("{other:?}"),
                })
                .collect(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(found == expected);
}

#[test]
fn items_are_retrieved_by_vectors_of_files() {
    let folder = Folder::new();
    let items = [json!({"id": 7, "v": [1.0, 0.0]}), json!({"id": 3, "v": [0.0, 2]}), json!({"id": 5, "v": [0.5, 0.5]})];
    // The second user has two interests, the third one no right item.
    let users = [
        json!({"u": [1.0, 0.1], "right": [5, 7, 9, 3]}),
        json!({"u": [0.1, 0.0, 0.0, 1.0], "right": 3}),
        json!({"u": [-1.0, -1.0], "right": null}),
    ];
    let [items, users] = [("items.jsonl", &items), ("users.jsonl", &users)]
        .map(|(name, rows)| folder.write(name, rows.iter().map(|row| format!("{row}\n")).collect::<String>()));
    let columns = ["--user-vector", "u", "--item-vector", "v", "--item", "id", "--truth", "right", "--top", "2"];
    let args = [&["retrieve", "--users", &users, "--items", &items, "--kernel", "cpu"][..], &columns].concat();
    let mut lines = run(&[&args[..], &["--json"]].concat()).json();
    let summary = lines.pop().unwrap()["summary"].take();
    assert_eq!((&summary["users"], &summary["items"]), (&3.into(), &3.into()));
    assert_eq!(summary["metrics"]["recall@2"], (0.5 + 1.0) / 2.0);
    let found = |line: &Value| {
        line["items"].as_array().unwrap().iter().map(|found| found["item"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(lines.iter().map(found).collect::<Vec<_>>(), [[7, 5], [3, 5], [5, 7]]);
    assert_eq!(lines[1]["items"][0]["score"], 2.0);
    assert!(run(&args).stdout.contains("recall@2  0.7500"));
    let other = folder.write("other.jsonl", "{\"right\": 7}\n{\"right\": [7, 1]}\n{}\n");
    assert!(run(&[&args[..], &["--truth-data", &other]].concat()).stdout.contains("recall@2  0.5000"));
    let few = folder.write("few.jsonl", "{\"right\": 7}\n");
    run(&[&args[..], &["--truth-data", &few]].concat()).failed_with(&["few.jsonl has 1 rows", "expected 3"]);
    let [items_csv, users_csv] = [
        ("items.csv", "id,v\n7,1;0\n3,0;2\n5,0.5;0.5\n"),
        ("users.csv", "u,right\n1;0.1,5;7;9;3\n0.1;0;0;1,3\n-1;-1,\n"),
    ]
    .map(|(name, text)| folder.write(name, text));
    let of_csv = ["retrieve", "--users", &users_csv, "--items", &items_csv, "--kernel", "cpu"];
    assert!(run(&[&of_csv[..], &columns].concat()).stdout.contains("recall@2  0.7500"));
    let longer = folder.write("longer.jsonl", "{\"u\": [1, 2, 3], \"right\": 1}\n");
    run(&[&["retrieve", "--users", &longer, "--items", &items][..], &columns].concat()).failed_with(&[
        "row 1",
        "`u` has 3 elements",
        "a multiple of the 2 of an item",
    ]);
    let text = folder.write("text.jsonl", "{\"id\": \"a\", \"v\": [1, 2]}\n");
    run(&[&["retrieve", "--users", &users, "--items", &text][..], &columns].concat())
        .failed_with(&["row 1", "`id` is not an integer"]);
}

#[test]
fn an_index_of_neighbours_is_a_feature_of_the_program() {
    let folder = Folder::new();
    let item = |id: i64| json!({ "item_id": id, "item_tower_emb": [(id as f64).cos(), (id as f64).sin()] });
    let user = |id: i64| json!({ "user_tower_emb": [(id as f64 + 0.1).cos(), (id as f64 + 0.1).sin()] });
    let table = |rows: Vec<Value>| jsonl(&rows);
    let items = folder.write("items.jsonl", table((0..300).map(item).collect()));
    let users = folder.write("users.jsonl", table((0..20).map(user).collect()));
    let args = ["retrieve", "--users", &users, "--items", &items, "--kernel", "cpu", "--top", "5", "--json"];
    let index = ["--index", "hnsw", "--recall"];
    let searched = run(&[&args[..], &index].concat());
    if !cfg!(feature = "hnsw") {
        return searched.failed_with(&["--index hnsw", "--features hnsw"]);
    }
    let mut lines = searched.json();
    let summary = lines.pop().unwrap()["summary"].take();
    assert!(summary["metrics"]["index_recall@5"].as_f64().unwrap() > 0.95, "{summary}");
    let mut exact = run(&args).json();
    assert_eq!(exact.pop().unwrap()["summary"]["metrics"], json!({}));
    assert_eq!(lines[3]["items"][0]["item"], exact[3]["items"][0]["item"]);
    run(&[&args[..], &["--recall"]].concat()).refused_with(&["--recall", "--index hnsw"]);
}
