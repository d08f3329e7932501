//! Evaluations of imported pipelines against those of the reference.

use crate::program::{Run, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Differences of losses and metrics.
const TOLERANCE: f64 = 1e-5;

/// Differences of AUCs.
const AUC_TOLERANCE: f64 = 1e-6;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec").join(name)
}

pub fn evaluate(model: &Path, data: &Path, more: &[&str]) -> Run {
    let [model, data] = [model, data].map(|path| path.display().to_string());
    run(&[&["eval", "--model", &model, "--data", &data, "--json"], more].concat())
}

/// Evaluates a model on the table of a golden.
pub fn evaluated(name: &str, model: &Path, more: &[&str]) -> Value {
    let negatives = golden(name).join("negatives.parquet");
    let negative = negatives.display().to_string();
    let mut all = more.to_vec();
    if negatives.exists() {
        all.extend(["--negatives", &negative]);
    }
    let run = evaluate(model, &golden(name).join("data.parquet"), &all);
    assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
    run.json().remove(0)
}

/// Compares an evaluation with that of the reference, where losses are among metrics.
pub fn check(name: &str, model: &Path, more: &[&str]) {
    let found = evaluated(name, model, more);
    // Python writes NaN for losses of what evaluation does not compute.
    let text = std::fs::read_to_string(golden(name).join("expected_eval.json")).unwrap().replace("NaN", "null");
    let expected: Value = serde_json::from_str(&text).unwrap();
    let expected = expected["metrics"].as_object().unwrap();
    let count = |key: &str| found[key].as_object().unwrap().len();
    assert_eq!(count("metrics") + count("losses"), expected.len(), "{name}: {found}");
    for (metric, expected) in expected {
        let is_loss = found["losses"].get(metric).is_some();
        let actual = found[if is_loss { "losses" } else { "metrics" }].get(metric);
        let tolerance = if metric.contains("auc") { AUC_TOLERANCE } else { TOLERANCE };
        let is_near = match (actual.map(Value::as_f64), expected.as_f64()) {
            (Some(Some(actual)), Some(expected)) => (actual - expected).abs() <= tolerance,
            (Some(None), None) => true,
            _ => false,
        };
        assert!(is_near, "{name}, {metric}: expected {expected}, got {actual:?}");
    }
}
