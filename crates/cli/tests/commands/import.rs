//! Imported pipelines of TorchEasyRec: the outputs and metrics of the reference, whatever else is in a batch and wherever the table is from.

use crate::evaluation;
use crate::program::{Folder, Run, run};
use rewire::graph::DType;
use rewire::weights::Weights;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// As outputs and their reference may differ: in norm, and in the largest element.
const TOLERANCE: f64 = 2e-5;

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec").join(name)
}

fn goldens() -> Vec<String> {
    let entries = std::fs::read_dir(golden("")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn import(name: &str, checkpoint: &str, out: &Path) -> Value {
    let [config, checkpoint] =
        ["pipeline.config", checkpoint].map(|file| golden(name).join(file).display().to_string());
    let run = run(&["import", &config, "--checkpoint", &checkpoint, "--out", &out.display().to_string(), "--json"]);
    assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
    run.json().remove(0)
}

fn predict(model: &Path, data: &Path, out: &Path, more: &[&str]) -> Run {
    let [model, data, out] = [model, data, out].map(|path| path.display().to_string());
    run(&[&["predict", "--model", &model, "--data", &data, "--out", &out, "--json"], more].concat())
}

/// Predicts the table of a golden, as JSON Lines.
pub fn predicted(model: &Path, name: &str, out: &Path, more: &[&str]) -> String {
    let run = predict(model, &golden(name).join("data.parquet"), out, more);
    assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
    std::fs::read_to_string(out).unwrap()
}

/// The columns of JSON Lines, their numbers concatenated.
fn columns(text: &str) -> BTreeMap<String, Vec<f64>> {
    fn add(value: &Value, all: &mut Vec<f64>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| add(item, all)),
            number => all.push(number.as_f64().unwrap()),
        }
    }
    let mut columns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in text.lines() {
        let row: BTreeMap<String, Value> = serde_json::from_str(line).unwrap();
        row.into_iter().for_each(|(name, value)| add(&value, columns.entry(name).or_default()));
    }
    columns
}

/// The larger of the relative errors in norm and of the largest element.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0_f64, |most, value| most.max(value.abs()));
    let differences = || found.iter().zip(expected).map(|(a, b)| a - b);
    let by_norm = norm(&mut differences()) / norm(&mut expected.iter().copied());
    by_norm.max(largest(&mut differences()) / largest(&mut expected.iter().copied()))
}

/// Compares predictions with the outputs of the reference that are columns.
pub fn check(name: &str, text: &str) {
    let found = columns(text);
    let expected = Weights::read(&golden(name).join("expected.safetensors")).unwrap();
    let is_column = |output: &&str| !output.starts_with("similarity") && !["interest_mask", REPEATS].contains(output);
    let names: Vec<&str> = expected.names().filter(is_column).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), names, "{name}");
    for output in names {
        let mut reference = expected.get(output).unwrap().unwrap().to_f64();
        // The negatives of the sampler follow the items of each batch there.
        if name == "hstu_match_cosine" && output == "item_tower_emb" {
            reference = without_negatives(&expected, reference);
        }
        assert_eq!(found[output].len(), reference.len(), "{name}, {output}");
        let error = error(&found[output], &reference);
        assert!(error <= TOLERANCE, "{name}, {output}: {error:e}");
    }
}

const REPEATS: &str = "__TARGET_REPEAT_INTERLEAVE_KEY__";

/// The vectors of items that rows have, by the similarities of each batch: a row an item, a column more than there are negatives.
fn without_negatives(expected: &Weights<'_>, vectors: Vec<f64>) -> Vec<f64> {
    const WIDTH: usize = 16;
    let (mut rest, mut own) = (vectors.as_slice(), vec![]);
    for batch in 0.. {
        let Some((_, shape)) = expected.describe(&format!("similarity.batch{batch}")) else { break };
        let (items, after) = rest.split_at(shape[0] * WIDTH);
        own.extend(items);
        rest = &after[(shape[1] - 1) * WIDTH..];
    }
    assert!(rest.is_empty() && !own.is_empty());
    own
}

#[test]
fn pipelines_give_the_outputs_of_the_reference_whatever_is_in_a_batch() {
    let names = goldens();
    assert_eq!(names.len(), 29);
    std::thread::scope(|scope| {
        for half in names.chunks(names.len().div_ceil(2)) {
            scope.spawn(move || {
                let folder = Folder::new();
                for name in half {
                    let model = folder.0.join(name);
                    let line = import(name, "model.safetensors", &model);
                    let unmapped = line["unmapped"].as_array().unwrap();
                    let is_booster = |name: &Value| name.as_str().unwrap().starts_with("booster_");
                    assert!(unmapped.is_empty() || name == "rocket_launching_criteo", "{name}: {unmapped:?}");
                    assert!(unmapped.iter().all(is_booster));
                    let out = folder.0.join("out.jsonl");
                    let text = predicted(&model, name, &out, &["--kernel", "cpu"]);
                    check(name, &text);
                    let few = predicted(&model, name, &out, &["--kernel", "cpu", "--batch", "5"]);
                    assert!(few == text, "{name}: bits depend on the batch");
                    evaluation::check(name, &model, &["--kernel", "cpu"]);
                }
            });
        }
    });
}

#[test]
fn a_gpu_gives_the_outputs_of_the_reference_whatever_is_in_a_batch() {
    let folder = Folder::new();
    for name in ["dlrm_criteo", "dssm_taobao", "dlrm_hstu_descending"] {
        let (model, out) = (folder.0.join(name), folder.0.join("out.jsonl"));
        import(name, "model.safetensors", &model);
        let text = predicted(&model, name, &out, &["--kernel", "wgpu"]);
        check(name, &text);
        let few = predicted(&model, name, &out, &["--kernel", "wgpu", "--batch", "7"]);
        assert!(few == text, "{name}: bits depend on the batch");
        evaluation::check(name, &model, &["--kernel", "wgpu"]);
    }
}

/// The rows of a golden as JSON Lines with columns to copy.
fn rows(model: &Path, name: &str, out: &Path, columns: &str) -> Vec<Value> {
    let text = predicted(model, name, out, &["--kernel", "cpu", "--columns", columns]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rows_of_candidates_are_ranked_by_user() {
    let (folder, name) = (Folder::new(), "mmoe_taobao");
    let (model, out) = (folder.0.join("model"), folder.0.join("out.jsonl"));
    import(name, "model.safetensors", &model);
    let data = golden(name).join("data.parquet").display().to_string();
    let place = model.display().to_string();
    let rank = |more: &[&str]| {
        run(&[&["rank", "--model", &place, "--data", &data, "--kernel", "cpu", "--json"], more].concat())
    };
    rank(&[]).refused_with(&["--user-column and --item-column"]);
    let ranked = rank(&["--user-column", "age_level", "--item-column", "adgroup_id", "--top", "1000"]);
    assert_eq!(ranked.code, Some(0), "{}", ranked.stderr);
    let mut lines = ranked.json();
    let summary = lines.pop().unwrap()["summary"].clone();
    let mut expected: BTreeMap<String, Vec<(f64, Option<i64>)>> = BTreeMap::new();
    for row in rows(&model, name, &out, "age_level,adgroup_id") {
        let scored = (row["probs_ctr"].as_f64().unwrap(), row["adgroup_id"].as_i64());
        expected.entry(row["age_level"].to_string()).or_default().push(scored);
    }
    assert_eq!((lines.len(), summary["users"].as_u64()), (expected.len(), Some(expected.len() as u64)));
    for line in lines {
        let mut scored = expected.remove(&line["user"].to_string()).unwrap();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let found = line["candidates"].as_array().unwrap().iter();
        let found = found.map(|one| (one["score"].as_f64().unwrap(), one["item"].as_i64()));
        assert_eq!(found.collect::<Vec<_>>(), scored);
    }
    let auc = &summary["auc"];
    assert!(auc["ctr"].as_f64().is_some() && auc["cvr"].as_f64().is_some(), "{summary}");
    run(&["rank", "--user-column", "x", "--kernel", "cpu"]).refused_with(&["are for imported models"]);
}

#[test]
fn towers_give_vectors_and_the_best_items() {
    const ITEMS: usize = 20;
    let folder = Folder::new();
    for name in ["dssm_taobao", "mind_taobao", "hstu_match_cosine"] {
        let (model, out) = (folder.0.join(format!("{name}.rewire")), folder.0.join("out.jsonl"));
        import(name, "model.safetensors", &model);
        let text = predicted(&model, name, &out, &["--kernel", "cpu"]);
        let whole = columns(&text);
        let package = rewire::package::Package::read(&model).unwrap();
        for (of, output) in [("users", "user_tower_emb"), ("items", "item_tower_emb")] {
            let vectors = columns(&predicted(&model, name, &out, &["--kernel", "cpu", "--embeddings", of]));
            assert!(package.tower(output).unwrap().is_some());
            assert_eq!(vectors.keys().collect::<Vec<_>>(), [output]);
            assert_eq!(vectors[output], whole[output], "{name}, {of}");
        }
        let described = run(&["describe", &model.display().to_string(), "--json"]).json().remove(0);
        let mut row = described["example_row"].clone();
        let (column, several) = match name {
            "hstu_match_cosine" => ("cand_seq__video_id", true),
            _ => ("adgroup_id", false),
        };
        let items = (0..ITEMS).map(|item| {
            row[column] = if several { serde_json::json!([item]) } else { item.into() };
            row.to_string()
        });
        let catalogue = folder.write("catalogue.jsonl", items.collect::<Vec<_>>().join("\n"));
        predict(&model, Path::new(&catalogue), &out, &["--kernel", "cpu", "--embeddings", "items"]);
        let items = columns(&std::fs::read_to_string(&out).unwrap()).remove("item_tower_emb").unwrap();
        let width = items.len() / ITEMS;
        let of_items: &[&str] = if several { &[] } else { &["--item-column", column] };
        let best = [&["--kernel", "cpu", "--items", &catalogue, "--top", "3"], of_items].concat();
        let found = columns(&predicted(&model, name, &out, &best));
        let (users, count) = (&whole["user_tower_emb"], text.lines().count());
        assert_eq!((found["item"].len(), found["score"].len()), (3 * count, 3 * count), "{name}");
        for (user, vectors) in users.chunks(users.len() / count).enumerate() {
            // Interests that are off are zeros.
            let on = vectors.chunks(width).filter(|vector| vector.iter().any(|&element| element != 0.0));
            let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let score = |item: &[f64]| on.clone().map(|vector| product(vector, item)).fold(f64::MIN, f64::max);
            let scores: Vec<f64> = items.chunks(width).map(score).collect();
            let mut sorted = scores.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            for (place, best) in sorted.into_iter().take(3).enumerate() {
                let (item, found) = (found["item"][3 * user + place] as usize, found["score"][3 * user + place]);
                assert!((found - best).abs() < 1e-5 && (scores[item] - best).abs() < 1e-5, "{name}, user {user}");
            }
        }
    }
    let (model, items) = (folder.0.join("dssm_taobao.rewire"), golden("dssm_taobao").join("data.parquet"));
    let more = ["--kernel", "cpu", "--items", &items.display().to_string()];
    predict(&model, &items, &folder.0.join("x.jsonl"), &more).refused_with(&["--item-column"]);
}

#[test]
fn rows_that_a_model_does_not_take_are_set_aside() {
    let (folder, name) = (Folder::new(), "mmoe_taobao");
    let (model, out) = (folder.0.join("model"), folder.0.join("out.jsonl"));
    import(name, "model.safetensors", &model);
    let described = run(&["describe", &model.display().to_string(), "--json"]).json().remove(0);
    let good = described["example_row"].clone();
    let bad = |value: i64| {
        let mut row = good.clone();
        row["user_id"] = serde_json::json!([value]);
        row.to_string()
    };
    let lines = [good.to_string(), bad(400), good.to_string(), bad(-1)];
    let data = folder.write("data.jsonl", lines.join("\n"));
    let rejects = folder.0.join("rejects.jsonl").display().to_string();
    let run =
        predict(&model, Path::new(&data), &out, &["--kernel", "cpu", "--rejects", &rejects, "--columns", "user_id"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let summary = run.json().remove(0);
    assert_eq!((&summary["rows"], &summary["users"], &summary["rejected"]), (&2.into(), &2.into(), &2.into()));
    let rejected: Vec<Value> =
        std::fs::read_to_string(&rejects).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rejected.iter().map(|line| line["row"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4]);
    assert!(rejected[0]["reason"].as_str().unwrap().contains("`user_id`, row 2: expected an id from 0 to below 400"));
    // A column of the model is copied as well.
    assert!(std::fs::read_to_string(&out).unwrap().lines().all(|line| line.ends_with("\"user_id\":0}")));
    let data = folder.write("bad.jsonl", bad(-1));
    predict(&model, Path::new(&data), &out, &["--kernel", "cpu", "--rejects", &rejects])
        .failed_with(&["all 1 rows were rejected"]);
}

#[test]
fn averages_take_the_places_of_parameters() {
    let (folder, name) = (Folder::new(), "dlrm_criteo");
    let weights = Weights::read(&golden(name).join("model.safetensors")).unwrap();
    let parameter = "model.output_mlp.bias";
    let average = rewire::HostTensor::f32(weights.describe(parameter).unwrap().1, &[7.5]).unwrap();
    let write = |parameter: &str| {
        let averages = BTreeMap::from([
            (parameter.to_owned(), average.clone()),
            ("__n_averaged__".to_owned(), rewire::HostTensor::i64(vec![], &[12]).unwrap()),
        ]);
        let path = folder.0.join("ema.safetensors");
        std::fs::write(&path, rewire::weights::serialize(&averages, &BTreeMap::new()).unwrap()).unwrap();
        path.display().to_string()
    };
    let out = folder.0.join("out").display().to_string();
    let [config, checkpoint] =
        ["pipeline.config", "checkpoint"].map(|file| golden(name).join(file).display().to_string());
    let import = |ema: &str| run(&["import", &config, "--checkpoint", &checkpoint, "--ema", ema, "--out", &out]);
    import(&write("model.none")).failed_with(&["ema.safetensors", "`none` is not a parameter of the checkpoint"]);
    let run = import(&write(parameter));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let imported = Weights::read(&Path::new(&out).join("model.safetensors")).unwrap();
    assert_eq!(imported.get("output_mlp.bias").unwrap().unwrap().to_f32(), [7.5]);
    assert_eq!(imported.names().count(), weights.names().count());
}

#[test]
fn rankers_of_lists_rank_rows() {
    let (folder, name) = (Folder::new(), "dlrm_hstu_train");
    let model = folder.0.join("model");
    import(name, "model.safetensors", &model);
    let data = golden(name).join("data.parquet").display().to_string();
    let model = model.display().to_string();
    let ranked = run(&["rank", "--model", &model, "--data", &data, "--kernel", "cpu", "--json", "--top", "100"]);
    assert_eq!(ranked.code, Some(0), "{}", ranked.stderr);
    let lines = ranked.json();
    let (summary, users) = lines.split_last().unwrap();
    assert_eq!((&summary["summary"]["users"], &summary["summary"]["candidates"]), (&192.into(), &475.into()));
    let expected = Weights::read(&golden(name).join("expected.safetensors")).unwrap();
    let mut probabilities = expected.get("probs_is_click").unwrap().unwrap().to_f32();
    let mut scores = vec![];
    for user in users {
        let own: Vec<f64> =
            user["candidates"].as_array().unwrap().iter().map(|c| c["score"].as_f64().unwrap()).collect();
        assert!(own.is_sorted_by(|a, b| a >= b));
        scores.extend(own.into_iter().map(|score| score as f32));
    }
    [&mut scores, &mut probabilities].iter_mut().for_each(|all| all.sort_by(f32::total_cmp));
    assert!(scores.iter().zip(&probabilities).all(|(a, b)| (a - b).abs() < 2e-5));
    assert!(users[0]["candidates"][0]["item"].is_i64() && users[0]["candidates"][0]["logits"]["is_click"].is_number());
    let graph = run(&["graph", &model, "--json"]);
    assert!(graph.code == Some(0) && graph.json()[0]["kernels"].as_u64().unwrap() > 3, "{}", graph.stderr);
    let bench = ["bench", &model, "--kernel", "cpu", "--batch", "4", "--max-len", "16", "--seconds", "0", "--json"];
    let bench = run(&bench);
    assert!(bench.code == Some(0) && bench.json()[0]["wall_ms"].is_number(), "{}{}", bench.stdout, bench.stderr);
}

#[test]
fn checkpoints_and_packages_predict_as_folders() {
    let (folder, name) = (Folder::new(), "dlrm_criteo");
    let out = folder.0.join("out.jsonl");
    let mut texts = vec![];
    for (checkpoint, model) in [
        ("model.safetensors", "file"),
        ("checkpoint", "latest"),
        ("checkpoint/model.ckpt-0", "numbered"),
        ("checkpoint", "package.rewire"),
    ] {
        let model = folder.0.join(model);
        let line = import(name, checkpoint, &model);
        assert_eq!((&line["source"], &line["parameters"]), (&"tzrec".into(), &20193.into()));
        assert_eq!(line["unmapped"], serde_json::json!([]));
        assert_eq!(line["outputs"][0]["name"], "logits");
        texts.push(predicted(&model, name, &out, &["--kernel", "cpu"]));
    }
    let packaged = folder.0.join("second.rewire").display().to_string();
    let latest = folder.0.join("latest");
    let packed = run(&["package", "--model", &latest.display().to_string(), "--out", &packaged, "--json"]);
    assert_eq!((packed.code, &packed.json()[0]["tables"]), (Some(0), &6.into()), "{}", packed.stderr);
    texts.push(predicted(Path::new(&packaged), name, &out, &["--kernel", "cpu", "--resume", "--save-every", "10"]));
    evaluation::check(name, Path::new(&packaged), &["--kernel", "cpu"]);
    assert!(texts.iter().all(|text| *text == texts[0]));
    let config: Value = serde_json::from_slice(&std::fs::read(latest.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["plan"]["model.embedding_group.emb_impls.__BASE__.ebc"].as_object().unwrap().len(), 6);
    assert!(config["pipeline"]["model_config"]["dlrm"].is_object());
}

#[test]
fn tables_of_sequences_are_stored_apart_from_pooled_ones() {
    let (folder, name) = (Folder::new(), "multi_tower_din_taobao");
    let (model, out) = (folder.0.join("model"), folder.0.join("out.jsonl"));
    import(name, "model.safetensors", &model);
    let packaged = folder.0.join("small.rewire");
    let args = ["package", "--model", model.to_str().unwrap(), "--out", packaged.to_str().unwrap()];
    let run = run(&[&args[..], &["--tables", "int8", "--sequence-tables", "f16"]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let plan = rewire::package::Package::read(&packaged).unwrap().plan().unwrap();
    let of = |part: &str| {
        let tables = plan.parameters().filter(|parameter| parameter.name.contains(part));
        tables.map(|parameter| parameter.dtype).collect::<HashSet<DType>>()
    };
    assert_eq!(of(".embedding_bags."), HashSet::from([DType::Rows8]));
    assert_eq!(of(".ec_dict."), HashSet::from([DType::F16]));
    assert_eq!(of("_mlp."), HashSet::from([DType::F32]));
    predicted(&packaged, name, &out, &["--kernel", "cpu"]);
}

#[test]
fn text_tables_predict_the_same() {
    let (folder, name) = (Folder::new(), "dlrm_criteo");
    let (model, cpu) = (folder.0.join("model"), ["--kernel", "cpu"]);
    import(name, "model.safetensors", &model);
    let names: Vec<String> = (0..5).map(|n| format!("int_{n}")).chain((0..6).map(|n| format!("cat_{n}"))).collect();
    let (mut json, mut csv) = (String::new(), format!("{},note\n", names.join(",")));
    for row in 0..7 {
        let numbers = (0..5).map(|n| format!("{}.25", row + n)).collect::<Vec<_>>();
        // The third has any number of ids.
        let ids = (0..6).map(|n| if n == 2 { vec![row; row % 3] } else { vec![row + n] }).collect::<Vec<_>>();
        let values = numbers.iter().cloned().chain(ids.iter().map(|ids| format!("{ids:?}")));
        let fields: Vec<String> =
            names.iter().zip(values).map(|(name, value)| format!("\"{name}\": {value}")).collect();
        json += &format!("{{{}, \"note\": \"n{row}\"}}\n", fields.join(", "));
        let ids = ids.iter().map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join("\u{3}"));
        csv += &format!("{},n{row}\n", numbers.iter().cloned().chain(ids).collect::<Vec<_>>().join(","));
    }
    let mut texts = vec![];
    for (table, text) in [("table.jsonl", &json), ("table.csv", &csv)] {
        let (data, out) = (folder.write(table, text), folder.0.join("out.jsonl"));
        let run = predict(&model, Path::new(&data), &out, &[&cpu[..], &["--columns", "note"]].concat());
        assert_eq!(run.code, Some(0), "{table}: {}", run.stderr);
        texts.push(std::fs::read_to_string(&out).unwrap());
    }
    assert_eq!(texts[0], texts[1]);
    assert!(texts[0].lines().count() == 7 && texts[0].lines().next().unwrap().ends_with(",\"note\":\"n0\"}"));
    let beyond = folder.write("beyond.jsonl", json.replace("\"cat_0\": [3]", "\"cat_0\": [123456]"));
    predict(&model, Path::new(&beyond), &folder.0.join("x.jsonl"), &cpu).failed_with(&["cat_0", "123456"]);
    let table = folder.write("other.jsonl", "{\"int_0\": 1}\n");
    predict(&model, Path::new(&table), &folder.0.join("x.jsonl"), &cpu).failed_with(&["row 1"]);
    predict(&model, Path::new(&table), &folder.0.join("x.jsonl"), &["--embeddings", "users"])
        .failed_with(&["has no vectors of users and items"]);
    let names = folder.names();
    assert!(!names.iter().any(|name| name.starts_with("x.jsonl")), "{names:?}");
}

#[test]
fn what_cannot_be_imported_is_one_error() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(golden("dlrm_criteo").join("pipeline.config")).unwrap();
    let checkpoint = golden("dlrm_criteo").join("model.safetensors").display().to_string();
    let out = folder.0.join("out");
    let import = |text: &str, checkpoint: &[&str]| {
        let config = folder.write("pipeline.config", text);
        let run = run(&[&["import", &config, "--out", &out.display().to_string()], checkpoint].concat());
        assert!(!out.exists());
        run
    };
    let with = ["--checkpoint", checkpoint.as_str()];
    import(&text, &[]).refused_with(&["pass a checkpoint by --checkpoint"]);
    import(&text.replace("dense_mlp", "dense_mpl"), &with).failed_with(&["line ", "field 'dense_mpl' not found"]);
    let lines = |key: &str| text.lines().position(|line| line.contains(key)).unwrap() + 1;
    let other = text.replace("fg_mode: FG_NONE", "fg_mode: FG_DAG").replacen(
        "hidden_units: ",
        "activation: 'nn.Foo' hidden_units: ",
        1,
    );
    let mode = format!("line {}: /data_config/fg_mode", lines("fg_mode"));
    import(&other, &with).failed_with(&[&mode, ": /model_config/dlrm/dense_mlp", "nn.Foo"]);
    let smaller = text.replacen("embedding_dim: 16", "embedding_dim: 8", 1);
    assert_ne!(import(&smaller, &with).code, Some(0));
    let other = golden("dssm_taobao").join("model.safetensors").display().to_string();
    import(&text, &["--checkpoint", &other]).failed_with(&["does not fit the configuration", "there is no `model."]);
    import(&text, &["--checkpoint", "/nowhere"]).failed_with(&["/nowhere"]);
    run(&["import", "model.xyz", "--out", "x"]).refused_with(&["expected a TorchEasyRec pipeline configuration"]);
}

/// The part of a page that follows a heading.
pub fn page(file: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    text.split_once(heading).unwrap().1.to_owned()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn block(section: &str, language: &str) -> String {
    let (_, from) = section.split_once(&format!("```{language}\n")).unwrap();
    from.split_once("```").unwrap().0.to_owned()
}

/// Runs the commands of a block. Paths of the repository are read there; `made` are written into the folder.
pub fn run_commands(commands: &str, program: &str, folder: &Folder, made: &[&str]) -> Vec<Run> {
    let place = |word: &str| match word {
        word if made.contains(&word) => folder.0.join(word).display().to_string(),
        word if word.starts_with("tests/") => root().join(word).display().to_string(),
        word => word.to_owned(),
    };
    let command = |command: &str| {
        let arguments = command.strip_prefix(program).unwrap();
        let words: Vec<String> = arguments.split(' ').map(place).chain(["--kernel".into(), "cpu".into()]).collect();
        let run = run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(run.code, Some(0), "{command}: {}", run.stderr);
        run
    };
    commands.lines().map(command).collect()
}

/// The program prints numbers of one processor: others round the last digits of sums differently.
#[test]
fn the_page_shows_how_a_pipeline_is_scored() {
    let section = page("docs/tzrec.md", "## From a pipeline to scores");
    let folder = Folder::new();
    run_commands(&block(&section, "sh"), "cargo run --release -- ", &folder, &["dlrm", "scores.csv"]);
    let written = std::fs::read_to_string(folder.0.join("scores.csv")).unwrap();
    let shown = block(&section, "csv");
    assert_eq!(written.lines().next(), shown.lines().next());
    for (written, shown) in written.lines().zip(shown.lines()).skip(1) {
        let numbers = |line: &str| line.split(',').map(|field| field.parse::<f64>().unwrap()).collect::<Vec<_>>();
        for (written, shown) in numbers(written).into_iter().zip(numbers(shown)) {
            assert!((written - shown).abs() < 2e-5 * shown.abs().max(1.0), "{written} is not {shown}");
        }
    }
}
