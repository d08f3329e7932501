//! Packages: they rank like the folder that they were made from, stay loaded when replaced, and are written atomically.

#[cfg(target_os = "linux")]
mod interrupted;
mod tables;
mod tuned;

use crate::program::{DEMO, Folder, Run, run};
use rewire::Kernel;
use rewire::rank::{RankOptions, Ranker};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Packages with f16 weights, of format 1 with tables of 8 bits and of format 2 with those of 4, their users, and how they were ranked
/// when each was written. That with tunings was made on a device whose kernels are others by now.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packages");

fn kept(name: &str) -> String {
    format!("{KEPT}/{name}")
}

/// Packages the model of a folder, or the demo's.
fn package(file: &Path, options: &[&str]) -> Value {
    let run = run(&[&["package", "--json", "--out", &file.display().to_string()], options].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.json().remove(0)
}

fn rank(model: &str, data: &[&str]) -> Run {
    run(&[&["rank", "--kernel", "cpu", "--json", "--top", "1000", "--model", model], data].concat())
}

/// The users of a run, without the summary.
fn ranked(run: &Run) -> Vec<Value> {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let mut lines = run.json();
    assert!(lines.pop().unwrap()["summary"]["users"].is_u64());
    lines
}

/// Logits by user and item.
fn logits(users: &[Value]) -> Vec<(String, f64)> {
    let of_user = |user: &Value| {
        let candidates = user["candidates"].as_array().unwrap().clone();
        let name = user["user"].clone();
        candidates.into_iter().flat_map(move |candidate| {
            let tasks = candidate["logits"].as_object().unwrap().clone();
            let place = format!("{name} {}", candidate["item"]);
            tasks.into_iter().map(move |(task, logit)| (format!("{place} {task}"), logit.as_f64().unwrap()))
        })
    };
    let mut logits: Vec<(String, f64)> = users.iter().flat_map(of_user).collect();
    logits.sort_by(|a, b| a.partial_cmp(b).unwrap());
    logits
}

fn largest_difference(one: &[Value], other: &[Value]) -> f64 {
    let (one, other) = (logits(one), logits(other));
    assert!(one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a.0 == b.0));
    one.iter().zip(&other).map(|(a, b)| (a.1 - b.1).abs()).fold(0.0, f64::max)
}

#[test]
fn a_package_ranks_as_its_folder_to_the_bit() {
    let folder = Folder::new();
    let file = folder.0.join("demo.rewire");
    let told = package(&file, &["--model", &format!("{DEMO}/model")]);
    assert_eq!(told["bytes"], std::fs::metadata(&file).unwrap().len());
    assert_eq!((&told["kernels"], &told["tables"]), (&json!(32), &json!(4)));
    assert!(told["parameters"].as_u64() > Some(100_000) && told["seconds"].is_f64(), "{told}");
    let of_program = ranked(&run(&["rank", "--kernel", "cpu", "--json", "--top", "1000"]));
    assert!(ranked(&rank(&file.display().to_string(), &[])) == of_program);
    assert!(ranked(&rank(&format!("{DEMO}/model"), &[])) == of_program);
}

#[test]
fn a_package_of_a_package_is_the_same() {
    let folder = Folder::new();
    let [one, two] = ["one.rewire", "two.rewire"].map(|name| folder.0.join(name));
    package(&one, &[]);
    package(&two, &["--model", &one.display().to_string()]);
    assert!(std::fs::read(one).unwrap() == std::fs::read(two).unwrap());
}

#[test]
fn smaller_types_take_less_and_change_little() {
    let folder = Folder::new();
    let made = |options: &[&str]| {
        let file = folder.0.join("model.rewire");
        let bytes = package(&file, options)["bytes"].as_u64().unwrap();
        (bytes, ranked(&rank(&file.display().to_string(), &[])))
    };
    let (whole, expected) = made(&[]);
    let mut last = whole;
    // Tables are 0.2 of 0.65 MB.
    for (options, most) in [
        (&["--tables", "f16"][..], 2e-3),
        (&["--tables", "int8"], 5e-2),
        (&["--tables", "int4"], 1.0),
        (&["--dtype", "f16"], 5e-3),
        (&["--dtype", "f16", "--tables", "int8"], 5e-2),
    ] {
        let (bytes, users) = made(options);
        assert!(bytes < last, "{options:?}: {bytes} of {last}");
        let difference = largest_difference(&users, &expected);
        assert!(difference > 0.0 && difference < most, "{options:?}: {difference}");
        last = bytes;
    }
}

#[test]
fn a_package_loads_alone_as_among_folders() {
    let (file, users) = (kept("format-1.rewire"), std::fs::read(kept("users.jsonl")).unwrap());
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let [first, second] = [Ranker::load, Ranker::load_package].map(|load| {
        let ranker = load(file.as_ref(), &options).unwrap();
        let mut batch = ranker.batch();
        let lines = users.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.for_each(|line| batch.push_json(line).unwrap());
        ranker.rank_batch(&batch).unwrap()
    });
    assert!(!first.is_empty());
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
    let folder = Path::new(DEMO).join("model");
    assert!(Ranker::load_package(&folder, &options).is_err_and(|error| error.to_string().contains("model")));
}

#[test]
fn every_command_takes_a_package() {
    let folder = Folder::new();
    let (model, data) = (kept("format-1.rewire"), kept("users.jsonl"));
    let all = |args: &[&str]| {
        let run = run(args);
        assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr);
    };
    all(&["graph", &model]);
    all(&["bench", &model, "--kernel", "cpu", "--seconds", "0", "--batch", "2"]);
    all(&["profile", &model, "--kernel", "cpu", "--batch", "2"]);
    let parts = ["profile", &model, "--kernel", "cpu", "--batch", "2", "--parts", "--seconds", "0", "--json"];
    for place in ["device", "host"] {
        let parts = run(&[&parts[..], &["--tables-on", place]].concat());
        assert_eq!(parts.code, Some(0), "{}", parts.stderr);
        let names: Vec<Value> = parts.json().into_iter().map(|part| part["op"].clone()).collect();
        assert_eq!(names, ["lookup", "dense", "whole"]);
    }
    run(&["profile", "addmm", "--kernel", "cpu", "--parts"]).failed_with(&["addmm cannot be split into two parts"]);
    all(&["rank", "--model", &model, "--kernel", "cpu", "--data", &data]);
    let text = std::fs::read_to_string(&data).unwrap();
    let labelled = text.lines().map(|line| {
        let mut user: Value = serde_json::from_str(line).unwrap();
        let count = user["candidates"]["item_id"].as_array().unwrap().len();
        user["labels"] = (0..count).map(|n| n % 4).collect();
        format!("{user}\n")
    });
    let data = folder.write("labelled.jsonl", labelled.collect::<String>());
    let out = folder.0.join("out").display().to_string();
    all(&["train", "--model", &model, "--data", &data, "--kernel", "cpu", "--out", &out]);
    all(&["rank", "--model", &out, "--kernel", "cpu", "--data", &data]);
}

#[test]
fn packages_of_all_formats_load_for_good() {
    for format in ["format-1", "format-1-tuned", "format-2", "format-3"] {
        let text = std::fs::read_to_string(kept(&format!("{format}.jsonl"))).unwrap();
        let then: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let now = ranked(&rank(&kept(&format!("{format}.rewire")), &["--data", &kept("users.jsonl")]));
        let difference = largest_difference(&now, &then);
        assert!(difference < 1e-5, "{format} {difference}");
    }
}

/// Ranks with the kept package after a change.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Run {
    let folder = Folder::new();
    let mut bytes = std::fs::read(kept("format-1.rewire")).unwrap();
    change(&mut bytes);
    rank(&folder.write("x.rewire", bytes), &["--data", &kept("users.jsonl")])
}

#[test]
fn what_is_no_whole_package_is_an_error() {
    let length = std::fs::metadata(kept("format-1.rewire")).unwrap().len() as usize;
    for end in [0, 7] {
        changed(|bytes| bytes.truncate(end)).failed_with(&["x.rewire is not a valid package", "first bytes differ"]);
    }
    for end in [8, 11, 31, 47, 48, 55, 56, 1000, length / 2, length - 1] {
        changed(|bytes| bytes.truncate(end)).failed_with(&["x.rewire is not a valid package", &format!("{end} bytes")]);
    }
    changed(|bytes| bytes.push(0)).failed_with(&[&format!("{} bytes: expected {length}", length + 1)]);
    changed(|bytes| bytes[3] ^= 1).failed_with(&["it is not a package"]);
    for at in [13, 32, 47, 48, 60, 700, 5000, length / 2, length - 1] {
        changed(|bytes| bytes[at] ^= 1).failed_with(&["x.rewire is not a valid package", "content is damaged"]);
    }
    let later = |bytes: &mut Vec<u8>| {
        bytes[8..24].copy_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0]);
    };
    changed(later).failed_with(&["has format 4: this program reads up to 3, rewire 0.9.3 reads it"]);
    rank("/nonexistent/x.rewire", &[]).failed_with(&["cannot read /nonexistent/x.rewire: No such file"]);
}

#[test]
fn a_package_is_for_devices_that_are_told() {
    let folder = Folder::new();
    let (plain, with) = (folder.0.join("plain.rewire"), folder.0.join("with.rewire"));
    let mut target = json!({
        "f16": true, "int64": false, "subgroups": true, "subgroup_size": 32, "matrix": 16, "software": false,
        "storage_buffers": 16, "workgroup_bytes": 32768, "invocations": 1024, "binding_bytes": 134217728,
    });
    let file = folder.write("device.json", target.to_string());
    let (kept, users) = (kept("format-1.rewire"), kept("users.jsonl"));
    let bytes = |told: Value| told["bytes"].as_u64().unwrap();
    let less = bytes(package(&plain, &["--model", &kept, "--dtype", "f16"]));
    let more = bytes(package(&with, &["--model", &kept, "--dtype", "f16", "--for", &file]));
    assert!(more > less + 10_000, "{less} {more}");
    let text = String::from_utf8_lossy(&std::fs::read(&with).unwrap()).into_owned();
    assert!(text.contains("device.json") && text.contains("enable f16;"));
    let ranked = |file: &Path| ranked(&rank(&file.display().to_string(), &["--data", &users]));
    assert!(ranked(&plain) == ranked(&with));
    let package =
        |device: &str| run(&["package", "--model", &kept, "--for", device, "--out", &with.display().to_string()]);
    target["invocations"] = json!(1);
    package(&folder.write("small.json", target.to_string()))
        .failed_with(&["kernels: are for a target that no device can have"]);
    package(&folder.write("other.json", "{}")).failed_with(&["other.json does not describe a device", "missing field"]);
    package("no such adapter").failed_with(&["no such adapter"]);
}

#[test]
fn a_model_that_is_not_good_makes_no_package() {
    let folder = Folder::new();
    let model = folder.model(|config| config["features"]["genre"]["num_embeddings"] = json!(17), |_| {});
    let file = folder.0.join("x.rewire");
    run(&["package", "--model", &model, "--out", &file.display().to_string()])
        .failed_with(&["embedding.genre.weight", "[17, 16]"]);
    let large = folder.model(
        |_| {},
        |bytes| {
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(&1e6f32.to_le_bytes());
        },
    );
    run(&["package", "--model", &large, "--dtype", "f16", "--out", &file.display().to_string()]).failed_with(&["inf"]);
    assert!(!file.exists());
    run(&["package", "--out", "/nonexistent/x.rewire"]).failed_with(&["cannot write /nonexistent/x.rewire"]);
}
