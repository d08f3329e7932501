//! Trainings that are stopped or killed, and resumed.

use super::{config, eight, model, steps, train};
use crate::program::{Folder, Run, command, jsonl, run, users};
use rewire::train::Checkpoint;
use rewire::weights::Weights;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_training_that_was_stopped_goes_on_with_the_same_bits() {
    let folder = Folder::new();
    let whole = steps(&train(&folder, "whole", json!({}), &[]));
    let first = steps(&train(&folder, "parts", json!({ "steps": 2 }), &[]));
    let rest = steps(&train(&folder, "parts", json!({}), &["--resume"]));
    assert_eq!([first, rest].concat(), whole);
    assert_eq!(model(&folder, "parts"), model(&folder, "whole"));
    let again = steps(&train(&folder, "parts", json!({}), &["--resume"]));
    assert!(again.is_empty());
    let other = json!({ "batch_size": 2 });
    train(&folder, "parts", other, &["--resume"]).failed_with(&["checkpoint.safetensors", "a different config"]);
}

/// Kills a training that writes a folder, and resumes it, several times.
pub(super) fn kill_and_resume(args: &[&str], out: &Path) {
    let mut steps_seen = 0;
    for kill in 0..4 {
        let mut child = command(&[args, &["--save-every", "1", "--resume"]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (begun, checkpoint) = (Instant::now(), out.join("checkpoint.safetensors"));
        let before = std::fs::metadata(&checkpoint).and_then(|file| file.modified()).ok();
        let is_new = || std::fs::metadata(&checkpoint).and_then(|file| file.modified()).ok() != before;
        while !is_new() && begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(37 * kill));
        let _ = child.kill();
        child.wait().unwrap();
        steps_seen += usize::from(is_new());
    }
    assert!(steps_seen > 1);
}

/// Two steps on eight users in two files, which are resumed for more, with other options.
fn resume(folder: &Folder, files: [Vec<Value>; 2], more: &[&str]) -> Run {
    let config = folder.write("train.json", config(&json!({ "steps": if more.is_empty() { 2 } else { 4 } })));
    let [a, b] = [("a.jsonl", &files[0]), ("b.jsonl", &files[1])].map(|(name, users)| folder.write(name, jsonl(users)));
    let out = folder.0.join("out").display().to_string();
    let args = ["train", "--kernel", "cpu", "--json", "--config", &config, "--out", &out, "--data", &a, &b];
    run(&[&args[..], more].concat())
}

/// Replaces the record of a checkpoint.
fn record(folder: &Folder, change: impl FnOnce(&mut Checkpoint)) {
    let file = folder.0.join("out/checkpoint.safetensors");
    let mut checkpoint = Checkpoint::from_weights("checkpoint", &Weights::read(&file).unwrap()).unwrap();
    change(&mut checkpoint);
    std::fs::write(file, checkpoint.to_bytes().unwrap()).unwrap();
}

#[test]
fn checkpoints_of_earlier_formats_are_refused() {
    let folder = Folder::new();
    steps(&train(&folder, "out", json!({ "steps": 1 }), &[]));
    let file = folder.0.join("out/checkpoint.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let (own, old) = (br#"rewire.train.version":"2""#, br#"rewire.train.version":"1""#);
    let at = bytes.windows(own.len()).position(|part| part == own).unwrap();
    bytes[at..at + old.len()].copy_from_slice(old);
    std::fs::write(&file, bytes).unwrap();
    let resumed = train(&folder, "out", json!({}), &["--resume"]);
    resumed.failed_with(&["checkpoint.safetensors", "format 1", "begin another training with the model beside it"]);
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn a_training_that_is_killed_at_any_time_goes_on_with_the_same_bits() {
        let folder = Folder::new();
        let whole = steps(&train(&folder, "whole", json!({ "steps": 12 }), &[]));
        let (data, out) = (eight(&folder), folder.0.join("killed").display().to_string());
        let config = folder.write("train.json", config(&json!({ "steps": 12 })));
        let args = ["train", "--data", &data, "--config", &config, "--out", &out, "--json", "--kernel", "cpu"];
        kill_and_resume(&args, Path::new(&out));
        let rest = steps(&run(&[&args[..], &["--resume"]].concat()));
        assert!(whole.ends_with(&rest));
        assert_eq!(model(&folder, "killed"), model(&folder, "whole"));
    }

    #[test]
    fn only_the_same_data_kernel_and_program_resume_a_training() {
        let folder = Folder::new();
        let users = users()[..8].to_vec();
        let files = || [users[..5].to_vec(), users[5..].to_vec()];
        assert_eq!(steps(&resume(&folder, files(), &[])).len(), 2);
        let begun = std::fs::read(folder.0.join("out/checkpoint.safetensors")).unwrap();
        let refused = |files: [Vec<Value>; 2], key: &str| {
            let run = resume(&folder, files, &["--resume"]);
            run.failed_with(&["checkpoint.safetensors", &format!("with {key} `"), "--allow-changes"]);
            assert_eq!(run.stdout, "");
            assert_eq!(std::fs::read(folder.0.join("out/checkpoint.safetensors")).unwrap(), begun);
        };
        // A label, the order of users, and the order of files.
        let mut changed = files();
        changed[1][0]["labels"][0] = json!(3 - changed[1][0]["labels"][0].as_i64().unwrap().min(3));
        refused(changed.clone(), "data");
        let mut swapped = files();
        swapped[0].swap(0, 1);
        refused(swapped, "data");
        let [a, b] = files();
        refused([b, a], "data");
        let allowed = resume(&folder, changed, &["--resume", "--allow-changes"]);
        assert_eq!(steps(&allowed).len(), 2);
        assert!(allowed.stderr.contains("the data changed from"), "{}", allowed.stderr);
        for key in ["data", "kernel", "program"] {
            std::fs::write(folder.0.join("out/checkpoint.safetensors"), &begun).unwrap();
            record(&folder, |checkpoint| drop(checkpoint.metadata.insert(key.to_owned(), "another".to_owned())));
            resume(&folder, files(), &["--resume"]).failed_with(&[&format!("with {key} `another`")]);
            record(&folder, |checkpoint| drop(checkpoint.metadata.remove(key)));
            resume(&folder, files(), &["--resume"]).failed_with(&[&format!("with {key} `not recorded`")]);
        }
        std::fs::write(folder.0.join("out/checkpoint.safetensors"), &begun).unwrap();
        assert_eq!(steps(&resume(&folder, files(), &["--resume"])).len(), 2);
        let alone = resume(&folder, files(), &["--allow-changes"]);
        assert!(alone.code == Some(2) && alone.stderr.contains("not provided:\n  --resume"), "{}", alone.stderr);
        let out = folder.0.join("out").display().to_string();
        let stdin = ["train", "--kernel", "cpu", "--resume", "--data", "-", "--out", &out];
        run(&stdin).refused_with(&["--resume needs --data in files", "stdin"]);
    }
}
