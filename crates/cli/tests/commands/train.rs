//! Training against runs of the reference, and options that must not change the result.

mod deltas;
mod losses;
mod optimizers;
#[cfg(feature = "parquet")]
mod pipelines;
mod ranks;
mod resumed;
#[cfg(feature = "parquet")]
mod retrieval;
mod watched;

use crate::program::{DEMO, Folder, Run, command, finish, jsonl, lines, run, user, users};
use rewire::weights::Weights;
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/training");

/// The steps of a training, without the summary.
fn steps(run: &Run) -> Vec<Value> {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let mut lines = run.json();
    let summary = lines.pop().unwrap();
    assert!(summary["summary"]["steps"].is_u64(), "{summary}");
    lines
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn tensors(file: &Path) -> Vec<(String, Vec<f64>)> {
    let tensors = Weights::read(file).unwrap().tensors().unwrap();
    tensors.into_iter().map(|(name, tensor)| (name, tensor.to_f64())).collect()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// A training of a stored case, of `count` of its steps. Losses are within 1e-5 of the reference's.
fn begin(name: &str, kernel: &str, count: usize) -> Folder {
    let (case, out) = (Path::new(RUNS).join(name), Folder::new());
    let path = |file: &str| case.join(file).display().to_string();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(case.join("train.json")).unwrap()).unwrap();
    config["steps"] = json!(count);
    let config = out.write("train.json", config.to_string());
    let folder = out.0.display().to_string();
    let (model, data) = (path("model"), path("interactions.jsonl"));
    let args = ["train", "--model", &model, "--data", &data, "--config", &config, "--out", &folder, "--json"];
    let trained = steps(&run(&[&args[..], &["--kernel", kernel]].concat()));
    assert_eq!(trained.len(), count);
    for (own, expected) in trained.iter().zip(&read_lines(&case.join("expected.jsonl"))) {
        assert_eq!(own["step"], expected["step"]);
        let close = |a: &Value, b: &Value, limit: f64| {
            assert!((number(a) - number(b)).abs() < limit, "{own} {expected}");
        };
        close(&own["loss"], &expected["loss"], 1e-5);
        for task in ["is_click", "is_like"] {
            close(&own["losses"][task], &expected["losses"][task], 1e-5);
        }
        for kind in ["dense", "sparse"] {
            close(&own["lr"][kind], &expected["lr"][kind], 1e-9);
        }
    }
    out
}

/// Parameters of a training are within 2 % of the way that they went in another one.
fn went_alike(name: &str, trained: &Folder, expected: &Path) {
    let before = Path::new(RUNS).join(name).join("model/model.safetensors");
    let before: std::collections::HashMap<_, _> = tensors(&before).into_iter().collect();
    let after: std::collections::HashMap<_, _> = tensors(&trained.0.join("model.safetensors")).into_iter().collect();
    let mut changed = 0;
    for (name, expected) in tensors(expected) {
        let way = distance(&before[&name], &expected);
        let off = distance(&after[&name], &expected);
        assert!(off <= 0.02 * way, "{name}: {off:e} of a way of {way:e}");
        changed += usize::from(way > 0.0);
    }
    assert!(changed > 40, "{changed}");
}

/// All steps, parameters at the end, and logits within 1e-3.
fn replays(name: &str, kernel: &str) {
    let case = Path::new(RUNS).join(name);
    let out = begin(name, kernel, read_lines(&case.join("expected.jsonl")).len());
    went_alike(name, &out, &case.join("expected.safetensors"));
    let folder = out.0.display().to_string();
    let few = out.write("few.jsonl", first_lines(&case.join("interactions.jsonl"), 16));
    let ranked = run(&["rank", "--model", &folder, "--data", &few, "--json", "--top", "100000", "--kernel", kernel]);
    assert_eq!(ranked.code, Some(0), "{}", ranked.stderr);
    let users = read_lines(&case.join("interactions.jsonl"));
    let reference = read_lines(&case.join("expected_logits.jsonl"));
    for ((line, user), expected) in ranked.json().iter().zip(&users).zip(&reference) {
        for (position, item) in user["candidates"]["item_id"].as_array().unwrap().iter().enumerate() {
            let candidates = line["candidates"].as_array().unwrap();
            let own = candidates.iter().filter(|candidate| candidate["item"] == *item);
            for task in ["is_click", "is_like"] {
                let expected = number(&expected[task][position]);
                let nearest = own.clone().map(|one| (number(&one["logits"][task]) - expected).abs());
                assert!(nearest.fold(f64::INFINITY, f64::min) < 1e-3, "{line}");
            }
        }
    }
}

fn read_lines(file: &Path) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn first_lines(file: &Path, count: usize) -> String {
    std::fs::read_to_string(file).unwrap().lines().take(count).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_cpu_trains_as_the_reference_with_adam_and_rowwise_adagrad() {
    replays("adam_rowwise_adagrad", "cpu");
}

#[test]
fn the_cpu_trains_as_the_reference_with_a_warm_up_and_clipping() {
    replays("adamw_adam_warmup_clip", "cpu");
}

#[test]
fn a_gpu_trains_as_the_reference() {
    let name = "adamw_adam_warmup_clip";
    if std::env::var_os("REWIRE_TEST_ALL").is_some() {
        return replays(name, "wgpu");
    }
    // A software adapter needs seconds per step: these few end like those of the CPU.
    let [on_gpu, on_cpu] = ["wgpu", "cpu"].map(|kernel| begin(name, kernel, 3));
    went_alike(name, &on_gpu, &on_cpu.0.join("model.safetensors"));
}

/// A configuration of a few small steps.
fn config(changes: &Value) -> String {
    let mut config = json!({
        "batch_size": 3, "steps": 6, "shuffle_seed": 7,
        "dense_optimizer": { "adam_optimizer": { "lr": 0.01 } },
        "sparse_optimizer": { "adam_optimizer": { "lr": 0.01 } },
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config.to_string()
}

/// Eight users of the demo.
fn eight(folder: &Folder) -> String {
    folder.write("users.jsonl", jsonl(&users()[..8]))
}

fn train(folder: &Folder, name: &str, changes: Value, more: &[&str]) -> Run {
    let data = eight(folder);
    let config = folder.write("train.json", config(&changes));
    let out = folder.0.join(name).display().to_string();
    let args = ["train", "--data", &data, "--config", &config, "--out", &out, "--json", "--kernel", "cpu"];
    run(&[&args[..], more].concat())
}

fn model(folder: &Folder, name: &str) -> Vec<u8> {
    std::fs::read(folder.0.join(name).join("model.safetensors")).unwrap()
}

#[test]
fn a_folder_is_written_by_one_training_at_a_time() {
    let folder = Folder::new();
    let (data, out) = (eight(&folder), folder.0.join("out").display().to_string());
    let endless = folder.write("endless.json", config(&json!({ "steps": 1_000_000 })));
    let args = ["train", "--data", &data, "--config", &endless, "--out", &out, "--json", "--kernel", "cpu"];
    let log = folder.0.join("first.log");
    let mut first = command(&[&args[..], &["--save-every", "1"]].concat())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let (begun, checkpoint) = (Instant::now(), Path::new(&out).join("checkpoint.safetensors"));
    while !checkpoint.exists() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The first training reads its data again in every epoch, so they are not written again meanwhile.
    let short = folder.write("short.json", config(&json!({ "steps": 2 })));
    let args = ["train", "--data", &data, "--config", &short, "--out", &out, "--json", "--kernel", "cpu"];
    let [second, resumed] = [&[][..], &["--resume"]].map(|more| run(&[&args[..], more].concat()));
    let ended = first.try_wait().unwrap();
    assert!(ended.is_none(), "the first training ended: {ended:?}\n{}", std::fs::read_to_string(&log).unwrap());
    first.kill().unwrap();
    first.wait().unwrap();
    [second, resumed].iter().for_each(|run| run.failed_with(&["out is being written by another training"]));
    steps(&train(&folder, "out", json!({ "steps": 2 }), &[]));
}

#[test]
fn a_training_without_a_step_is_an_error() {
    let folder = Folder::new();
    // Six batches in two epochs.
    let changes = json!({ "steps": null, "epochs": 2, "gradient_accumulation_steps": 7 });
    let none = train(&folder, "out", changes, &[]);
    none.failed_with(&["has 6 batches for the whole training, fewer than the 7", "gradient_accumulation_steps"]);
    assert!(["checkpoint", "model"].iter().all(|name| !folder.0.join(format!("out/{name}.safetensors")).exists()));
    let changes = json!({ "steps": null, "epochs": 2, "gradient_accumulation_steps": 6 });
    assert_eq!(steps(&train(&folder, "out", changes, &[])).len(), 1);
}

#[test]
fn threads_and_accumulation_do_not_change_what_is_learned() {
    let folder = Folder::new();
    let one = json!({ "batch_size": 8, "steps": 2, "shuffle_seed": null });
    steps(&train(&folder, "one", one.clone(), &[]));
    let args = ["train", "--kernel", "cpu", "--json", "--data"];
    let (data, config) = (eight(&folder), folder.0.join("train.json").display().to_string());
    let out = folder.0.join("single").display().to_string();
    let mut single = command(&[&args[..], &[&data, "--config", &config, "--out", &out]].concat());
    assert_eq!(finish(single.env("REWIRE_THREADS", "1")).code, Some(0));
    assert_eq!(model(&folder, "single"), model(&folder, "one"));
    // Each user has as many candidates here, so that the mean of two halves is that of the whole.
    let alike: Vec<Value> = (0..8).map(|n| labelled(user(&format!("u{n}"), 5 + n, 4))).collect();
    let data = folder.write("alike.jsonl", jsonl(&alike));
    let trained = |name: &str, changes: Value| {
        let config = folder.write("train.json", self::config(&changes));
        let out = folder.0.join(name).display().to_string();
        // Without dropout, which draws new numbers for every batch.
        let model = Path::new(RUNS).join("adam_rowwise_adagrad/model").display().to_string();
        let args = ["train", "--kernel", "cpu", "--json", "--data", &data, "--config", &config, "--out", &out];
        let lines = steps(&run(&[&args[..], &["--model", &model]].concat()));
        (lines, tensors(&folder.0.join(name).join("model.safetensors")))
    };
    let (whole, after) = trained("eight", one);
    let (parts, summed) =
        trained("two", json!({ "batch_size": 4, "steps": 2, "shuffle_seed": null, "gradient_accumulation_steps": 2 }));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((number(&a["loss"]) - number(&b["loss"])).abs() < 1e-6, "{a} {b}");
    }
    for ((name, a), (_, b)) in after.iter().zip(&summed) {
        let off = distance(a, b) / (a.len() as f64).sqrt();
        assert!(off < 1e-4, "{name}: {off}");
    }
}

/// The user with labels.
fn labelled(mut user: Value) -> Value {
    let count = user["candidates"]["item_id"].as_array().unwrap().len();
    user["labels"] = (0..count).map(|n| json!(n % 4)).collect();
    user
}

#[test]
fn averages_lie_beside_the_parameters() {
    let folder = Folder::new();
    steps(&train(&folder, "out", json!({ "steps": 2, "ema": { "decay": 0.5 } }), &[]));
    let names = ["checkpoint.safetensors", "config.json", "ema.safetensors", "model.safetensors"];
    let files: Vec<String> = std::fs::read_dir(folder.0.join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().all(|name| files.iter().any(|file| file == name)), "{files:?}");
    let [own, averages] = ["model", "ema"].map(|name| tensors(&folder.0.join(format!("out/{name}.safetensors"))));
    steps(&train(&folder, "first", json!({ "steps": 1, "ema": { "decay": 0.5 } }), &[]));
    let [first, begun] = ["model", "ema"].map(|name| tensors(&folder.0.join(format!("first/{name}.safetensors"))));
    assert_eq!(first, begun);
    for (((name, before), (_, after)), (_, average)) in first.iter().zip(&own).zip(&averages) {
        let is_table = name.starts_with("embedding.");
        for ((before, after), average) in before.iter().zip(after).zip(average) {
            let expected = if is_table { *after } else { 0.5 * before + 0.5 * after };
            assert!((average - expected).abs() < 1e-6, "{name}");
        }
    }
}

#[test]
fn f16_learns_about_the_same() {
    let folder = Folder::new();
    let wide = steps(&train(&folder, "wide", json!({ "steps": 4 }), &[]));
    for precision in ["FP16", "BF16"] {
        let scaler = json!({ "init_scale": 1024.0 });
        let changes = json!({ "steps": 4, "mixed_precision": precision, "grad_scaler": scaler });
        let halves = steps(&train(&folder, precision, changes, &[]));
        for (a, b) in wide.iter().zip(&halves) {
            let off = (number(&a["loss"]) - number(&b["loss"])).abs();
            assert!(off < 3e-2, "{precision}: {a} {b}");
        }
        assert_ne!(wide, halves);
    }
}

#[test]
fn what_is_wrong_is_named_before_anything_is_written() {
    let folder = Folder::new();
    let mut bad = users()[..3].to_vec();
    bad[2]["history"]["item_id"][0] = json!(99_999);
    let data = folder.write("bad.jsonl", jsonl(&bad));
    let out = folder.0.join("out").display().to_string();
    run(&["train", "--data", &data, "--out", &out, "--kernel", "cpu"]).failed_with(&["bad.jsonl:3", "99999"]);
    bad[2] = users()[2].clone();
    bad[1].as_object_mut().unwrap().remove("labels");
    let data = folder.write("bad.jsonl", jsonl(&bad));
    let name = bad[1]["user"].as_str().unwrap();
    run(&["train", "--data", &data, "--out", &out, "--kernel", "cpu"]).failed_with(&[name, "labels"]);
    let empty = folder.write("empty.jsonl", "");
    run(&["train", "--data", &empty, "--out", &out, "--kernel", "cpu"]).failed_with(&["no batch"]);
    let wrong = folder.write("wrong.json", r#"{ "batch_size": 0 }"#);
    run(&["train", "--config", &wrong, "--out", &out]).failed_with(&["wrong.json", "batch_size"]);
    train(&folder, "out", json!({ "dense_optimizer": { "sgd_optimizer": { "lr": 1e30 } } }), &[])
        .stderr
        .lines()
        .for_each(|line| {
            assert!(!line.contains("panicked"), "{line}");
        });
    assert!(!Path::new(&out).join("model.safetensors").exists());
    let other = Folder::new();
    let model = other.model(|config| config["hstu"]["attn_num_layers"] = json!(3), |_| {});
    run(&["train", "--model", &model, "--out", &out]).failed_with(&["_stu_layers.2"]);
}

#[test]
fn a_loss_that_is_no_number_stops_with_the_step() {
    let folder = Folder::new();
    let changes = json!({ "dense_optimizer": { "sgd_optimizer": { "lr": 1e30 } } });
    let failed = train(&folder, "out", changes, &[]);
    assert_eq!(failed.code, Some(1));
    assert!(
        failed.stderr.contains("the loss of step 2 is") && failed.stderr.contains("is the first parameter"),
        "{}",
        failed.stderr
    );
}

/// A training of a table of 48 MB with limited address space.
#[cfg(target_os = "linux")]
fn train_within(megabytes: usize, folder: &Folder, model: &str) -> Run {
    let (data, config) = (eight(folder), folder.write("train.json", config(&json!({ "steps": 1 }))));
    let out = folder.0.join("out").display().to_string();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -v $((1024 * $0)); exec \"$@\"", &megabytes.to_string()]);
    let args = ["train", "--kernel", "cpu", "--fresh", "--model", model, "--data", &data, "--config", &config];
    limited.arg(env!("CARGO_BIN_EXE_rewire")).args(args).args(["--out", &out]);
    // Each thread uses address space for its allocations.
    finish(limited.env("REWIRE_THREADS", "2"))
}

#[test]
fn the_program_trains_its_own_model() {
    let folder = Folder::new();
    let config = folder.write("train.json", config(&json!({ "batch_size": 32, "steps": 2 })));
    let out = folder.0.join("out").display().to_string();
    let trained = run(&["train", "--config", &config, "--out", &out, "--kernel", "cpu"]);
    assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    assert!(
        trained.stdout.contains("AUC is_click") && trained.stdout.contains("rewire rank --model"),
        "{}",
        trained.stdout
    );
    let ranked = run(&["rank", "--model", &out, "--kernel", "cpu", "--json"]);
    assert_eq!(ranked.json().len(), lines("interactions.jsonl").len() + 1);
    assert!(Path::new(DEMO).join("train.json").exists());
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_training_without_memory_is_an_error_and_keeps_the_earlier_checkpoint() {
        let folder = Folder::new();
        let model = folder.model(|config| config["features"]["item_id"]["num_embeddings"] = json!(375_000), |_| {});
        let whole = train_within(4000, &folder, &model);
        assert_eq!(whole.code, Some(0), "{}", whole.stderr);
        let [checkpoint, trained] =
            ["checkpoint", "model"].map(|name| folder.0.join(format!("out/{name}.safetensors")));
        let files = || [&checkpoint, &trained].map(|file| std::fs::read(file).unwrap());
        let before = files();
        // Moments of the table.
        train_within(160, &folder, &model).failed_with(&["no memory for the 48000000 bytes"]);
        assert!(files() == before);
    }
}
