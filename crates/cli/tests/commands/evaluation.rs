//! Evaluations of imported pipelines against those of the reference.

use crate::import::{block, golden, import, page, run_commands};
use crate::program::{DEMO, Folder, Run, run, users};
use rewire::weights::Weights;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::path::Path;

/// Differences of losses, metrics and similarities.
const TOLERANCE: f64 = 1e-5;

/// Differences of AUCs.
const AUC_TOLERANCE: f64 = 1e-6;

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
    // Python writes NaN for losses that evaluation does not compute.
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
            (Some(Some(actual)), Some(expected)) => {
                let recall = metric.strip_prefix("recall@").map(|k| recalls(name, k.parse().unwrap()));
                let range = recall.unwrap_or(expected..=expected);
                let is_near = |value| range.start() - tolerance <= value && value <= range.end() + tolerance;
                assert!(is_near(expected), "{name}, {metric}: {expected} is not in {range:?}");
                is_near(actual)
            }
            (Some(None), None) => true,
            _ => false,
        };
        assert!(is_near, "{name}, {metric}: expected {expected}, got {actual:?}");
    }
}

/// All values that the recall at `k` can have by the reference's similarities: of two that differ by rounding, such as those of the own item and of the
/// same one among the negatives, either may be the larger one.
fn recalls(name: &str, k: usize) -> RangeInclusive<f64> {
    let reference = Weights::read(&golden(name).join("expected.safetensors")).unwrap();
    let (mut rows, mut sure, mut possible) = (0, 0, 0);
    for batch in 0.. {
        let Some(similarities) = reference.get(&format!("similarity.batch{batch}")).unwrap() else { break };
        let [height, width] = similarities.shape()[..] else { panic!("{name}: {:?}", similarities.shape()) };
        for (index, row) in similarities.to_f64().chunks(width).enumerate() {
            // Items of other rows, or negatives that follow the own item.
            let mut others = row.to_vec();
            let own = others.remove(if width == height { index } else { 0 });
            others.sort_by(|a, b| b.total_cmp(a));
            let margin = TOLERANCE * row.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
            rows += 1;
            sure += usize::from(own > others[k - 1] + margin);
            possible += usize::from(own >= others[k - 1] - margin);
        }
    }
    sure as f64 / rows as f64..=possible as f64 / rows as f64
}

#[test]
fn the_book_shows_how_a_pipeline_is_evaluated() {
    let (section, folder) = (page("docs/tzrec.md", "## Evaluation"), Folder::new());
    let runs = run_commands(&block(&section, "sh"), "rewire ", &folder, &["din"]);
    let shown: Value = serde_json::from_str(&block(&section, "json")).unwrap();
    let printed = runs.last().unwrap().json().remove(0);
    assert_eq!(printed["rows"], shown["rows"]);
    for key in ["metrics", "losses"] {
        let (printed, shown) = (printed[key].as_object().unwrap(), shown[key].as_object().unwrap());
        assert!(printed.keys().eq(shown.keys()), "{printed:?}");
        let values = printed.values().zip(shown.values()).map(|(a, b)| (a.as_f64().unwrap(), b.as_f64().unwrap()));
        values.for_each(|(printed, shown)| assert!((printed - shown).abs() < 1e-5, "{printed} is not {shown}"));
    }
}

#[test]
fn tables_that_cannot_be_evaluated_are_errors() {
    let folder = Folder::new();
    let model = |name: &str| {
        let model = folder.0.join(name);
        import(name, "model.safetensors", &model);
        model
    };
    let (ranker, matching) = (model("dlrm_criteo"), model("hstu_match_cosine"));
    let eval = |text: &str, more: &[&str]| {
        let data = folder.write("table.jsonl", text);
        evaluate(&ranker, Path::new(&data), more)
    };
    let row = |label: &str| {
        let ids = (0..6).map(|n| format!("\"cat_{n}\": [{n}]"));
        let fields: Vec<String> = (0..5).map(|n| format!("\"int_{n}\": {n}.5")).chain(ids).collect();
        format!("{{{}, {label}}}\n", fields.join(", "))
    };
    eval(&row("\"label\": 2"), &[]).failed_with(&["column `label`, row 0", "from 0 to 1, got 2"]);
    eval(&row("\"other\": 1"), &[]).failed_with(&["column `label`, row 0", "a missing value"]);
    eval(&row("\"label\": \"yes\""), &[]).failed_with(&["column `label`, row 0", "`yes`"]);
    eval("", &[]).failed_with(&["no rows"]);
    // One label of either kind; text is a number.
    let one = eval(&(row("\"label\": \"1\"") + &row("\"label\": 1")), &[]);
    let line = one.json().remove(0);
    assert_eq!((&line["rows"], &line["metrics"]["auc"]), (&2.into(), &0.0.into()), "{}", one.stderr);
    let table = run(&[
        "eval",
        "--model",
        &ranker.display().to_string(),
        "--data",
        &folder.0.join("table.jsonl").display().to_string(),
    ]);
    assert!(table.stdout.contains("metric  auc") && table.stdout.contains("2 rows in"), "{}", table.stdout);
    let csv = folder.write("table.csv", "int_0,label\n1,1\n");
    evaluate(&ranker, Path::new(&csv), &[]).failed_with(&["table.csv", "is missing"]);

    let [data, negatives] = ["data.parquet", "negatives.parquet"].map(|file| golden("hstu_match_cosine").join(file));
    let negatives = negatives.display().to_string();
    evaluate(&matching, &data, &[]).refused_with(&["--negatives", "cand_seq__video_id"]);
    evaluate(&matching, &data, &["--negatives", &negatives, "--batch", "8"])
        .failed_with(&["negatives for 12 batches", "of 8 rows"]);
    evaluate(&ranker, Path::new(&csv), &["--negatives", &negatives]).refused_with(&["leave out --negatives"]);
}

#[test]
fn rankers_are_evaluated_by_the_labels_of_their_candidates() {
    let demo = Path::new(DEMO);
    let (model, data) = (demo.join("model"), demo.join("interactions.jsonl"));
    let evaluated = evaluate(&model, &data, &["--kernel", "cpu"]);
    let found = evaluated.json().remove(0);
    let text = [&model, &data].map(|path| path.display().to_string());
    let ranked = run(&["rank", "--model", &text[0], "--data", &text[1], "--kernel", "cpu", "--json"]).json();
    let summary = &ranked.last().unwrap()["summary"];
    assert_eq!(found["rows"], summary["users"], "{}", evaluated.stderr);
    let aucs = summary["auc"].as_object().unwrap();
    assert!(!aucs.is_empty());
    for (task, auc) in aucs {
        assert_eq!(found["metrics"][format!("auc_{task}")], *auc);
        assert!(found["metrics"][format!("grouped_auc_{task}")].is_number());
        let loss = found["losses"][format!("binary_cross_entropy_{task}")].as_f64().unwrap();
        let entropy = found["metrics"][format!("normalized_entropy_{task}")].as_f64().unwrap();
        // Of a mean label of at least 2 %.
        assert!(loss > 0.0 && loss / entropy > 0.09 && loss / entropy <= 2f64.ln() + 1e-9, "{task}: {loss} {entropy}");
    }
    let with = evaluate(&model, &data, &["--batch", "8"]);
    with.refused_with(&["leave out --batch"]);
    let unlabelled: String = users()
        .into_iter()
        .map(|mut user| {
            user.as_object_mut().unwrap().remove("labels");
            format!("{user}\n")
        })
        .collect();
    let folder = Folder::new();
    let data = folder.write("users.jsonl", unlabelled);
    evaluate(&model, Path::new(&data), &[]).failed_with(&["has no `labels`"]);
}
