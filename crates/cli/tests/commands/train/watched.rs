//! Evaluations during a training: the best model, early stopping, event files.

use super::{model, number, train};
use crate::program::{Folder, Run, run};
use serde_json::{Value, json};

const OFTEN: [&str; 2] = ["--eval-every", "2"];

/// The evaluations of a training.
fn evaluations(folder: &Folder, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.0.join(name).join("evaluations.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn watched(folder: &Folder, name: &str, steps: usize, more: &[&str]) -> Run {
    let eval = folder.0.join("users.jsonl").display().to_string();
    train(folder, name, json!({ "steps": steps }), &[&["--eval", &eval], &OFTEN[..], more].concat())
}

#[test]
fn the_best_model_is_kept_and_ends_a_training_that_gets_no_better() {
    let folder = Folder::new();
    let events = folder.0.join("events").display().to_string();
    let more = ["--metric", "auc_is_click", "--stop-after", "1", "--tensorboard", &events];
    let trained = watched(&folder, "out", 40, &more);
    assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    let found = evaluations(&folder, "out");
    let values: Vec<f64> = found.iter().map(|line| number(&line["metrics"]["auc_is_click"])).collect();
    let summary = trained.json().pop().unwrap()["summary"].take();
    let (last, before) = values.split_last().unwrap();
    assert!(before.is_sorted_by(|a, b| a < b) && before.last() >= Some(last), "{values:?}");
    assert_eq!(summary["steps"], found.last().unwrap()["step"]);
    assert!(number(&summary["steps"]) < 40.0, "{summary}");
    let best = &found[found.len() - 2];
    let expected = json!({"metric": "auc_is_click", "value": best["metrics"]["auc_is_click"], "step": best["step"]});
    assert_eq!(summary["best"], expected);
    let [model, data] = ["out/best", "users.jsonl"].map(|name| folder.0.join(name).display().to_string());
    let ranked = run(&["rank", "--model", &model, "--data", &data, "--json", "--kernel", "cpu"]).json().pop().unwrap();
    assert_eq!(ranked["summary"]["auc"]["is_click"], expected["value"]);
    assert_eq!(std::fs::read_dir(&events).unwrap().count(), 1);
    let again = watched(&folder, "out", 40, &[&more[..], &["--resume"]].concat());
    assert_eq!(again.json().len(), 1, "{}", again.stdout);
    assert_eq!(evaluations(&folder, "out"), found);
}

#[test]
fn a_resumed_training_has_the_evaluations_of_one_that_was_not_stopped() {
    let folder = Folder::new();
    assert_eq!(watched(&folder, "whole", 6, &[]).code, Some(0));
    assert_eq!(watched(&folder, "parts", 3, &[]).code, Some(0));
    // The evaluation at the end of the first part is none of the whole.
    let path = folder.0.join("parts/evaluations.jsonl");
    let first = std::fs::read_to_string(&path).unwrap();
    assert_eq!(watched(&folder, "parts", 6, &["--resume"]).code, Some(0));
    let is_regular = |line: &Value| line["step"] != 3 || first.lines().count() < 2;
    let parts: Vec<Value> = evaluations(&folder, "parts").into_iter().filter(is_regular).collect();
    let whole: Vec<Value> = evaluations(&folder, "whole").into_iter().filter(is_regular).collect();
    assert!(parts.len() > 2 && parts == whole, "{parts:?} {whole:?}");
    watched(&folder, "other", 6, &["--metric", "auc_x"]).refused_with(&["--metric auc_x", "auc_is_click, auc_is_like"]);
}

#[test]
fn a_training_writes_a_trace_of_the_kernels_of_a_step() {
    let folder = Folder::new();
    let trace = folder.0.join("trace.json").display().to_string();
    assert_eq!(train(&folder, "timed", json!({}), &["--profile", &trace]).code, Some(0));
    assert_eq!(train(&folder, "plain", json!({}), &[]).code, Some(0));
    assert_eq!(model(&folder, "timed"), model(&folder, "plain"));
    let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let kernels: Vec<&Value> = events.iter().filter(|event| event["cat"] == "kernel").collect();
    assert!(kernels.iter().any(|kernel| kernel["args"]["operations"].as_f64() > Some(0.0)), "{kernels:?}");
    let nowhere = train(&folder, "none", json!({}), &["--profile", "/nowhere/trace.json"]);
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.stderr);
}
