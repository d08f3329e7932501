//! Every loss of a pipeline of ranking, as a step reports it, against its formula of the predictions.

use super::steps;
use crate::program::{Folder, jsonl, run};
use serde_json::{Value, json};

/// A pipeline whose only step changes nothing.
const PIPELINE: &str = r#"
train_config {
  sparse_optimizer { sgd_optimizer { lr: 1e-30 } constant_learning_rate {} }
  dense_optimizer { sgd_optimizer { lr: 1e-30 } constant_learning_rate {} }
  num_steps: 1
}
data_config { batch_size: 12 label_fields: "clk" sample_weight_fields: "w" }
feature_configs { id_feature { feature_name: "id" num_buckets: 4 embedding_dim: 3 } }
feature_configs { raw_feature { feature_name: "price" } }
model_config {
  feature_groups { group_name: "all" feature_names: "id" feature_names: "price" group_type: DEEP }
  multi_tower { towers { input: "all" mlp { hidden_units: 5 } } final { hidden_units: 4 } }
  LOSS
}
"#;

/// A row: what was predicted, its label, session and weight.
struct Row {
    logits: Vec<f64>,
    label: usize,
    session: usize,
    weight: f64,
}

fn rows() -> Vec<Value> {
    let row = |n: usize| json!({ "id": n % 3, "price": (n * 7 % 5) as f64 - 2.0, "clk": n * 5 % 12 % 2, "w": 0.5 + (n % 4) as f64 });
    (0..12).map(row).collect()
}

/// The loss that a step reports, and the rows with the logits of its parameters, or `y`.
fn reported(loss: &str) -> (f64, Vec<Row>) {
    let folder = Folder::new();
    let config = folder.write("pipeline.config", PIPELINE.replace("LOSS", loss));
    let data = folder.write("data.jsonl", jsonl(&rows()));
    let [out, scores] = ["out", "scores.jsonl"].map(|name| folder.0.join(name).display().to_string());
    let args = ["train", "--pipeline", &config, "--data", &data, "--out", &out, "--json", "--kernel", "cpu"];
    let trained = steps(&run(&args));
    let predicted = run(&["predict", "--model", &out, "--data", &data, "--out", &scores, "--kernel", "cpu"]);
    assert_eq!(predicted.code, Some(0), "{}", predicted.stderr);
    let text = std::fs::read_to_string(scores).unwrap();
    let read = |(line, row): (&str, Value)| {
        let line: Value = serde_json::from_str(line).unwrap();
        let found = line.get("logits").or(line.get("y")).unwrap();
        let logits = match found.as_array() {
            Some(classes) => classes.iter().map(|x| x.as_f64().unwrap()).collect(),
            None => vec![found.as_f64().unwrap()],
        };
        let [label, session] = ["clk", "id"].map(|key| row[key].as_u64().unwrap() as usize);
        Row { logits, label, session, weight: row["w"].as_f64().unwrap() }
    };
    (trained[0]["loss"].as_f64().unwrap(), text.lines().zip(rows()).map(read).collect())
}

/// The mean over rows, weighted by samples.
fn mean(rows: &[Row], loss: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(|row| loss(row) * row.weight).sum::<f64>() / rows.iter().map(|row| row.weight).sum::<f64>()
}

fn cross_entropy(logit: f64, label: f64) -> f64 {
    logit.exp().ln_1p() - label * logit
}

fn surprise(logits: &[f64], class: usize) -> f64 {
    logits.iter().map(|x| x.exp()).sum::<f64>().ln() - logits[class]
}

/// The likelihood of each row of a class among the rows of its session that have the other label.
fn ranked(rows: &[Row], class: usize) -> impl Fn(&Row) -> f64 {
    move |row| {
        let rivals = rows.iter().filter(|other| other.session == row.session && other.label != class);
        let others: f64 = rivals.map(|other| other.logits[class].exp()).sum();
        (row.logits[class].exp() + others).ln() - row.logits[class]
    }
}

#[test]
fn losses_of_a_pipeline_have_their_formulas() {
    type Formula = fn(&[Row]) -> f64;
    let losses: [(&str, Formula); 7] = [
        ("losses { binary_cross_entropy {} }", |rows| mean(rows, |row| cross_entropy(row.logits[0], row.label as f64))),
        ("losses { binary_cross_entropy { label_smoothing: 0.2 } }", |rows| {
            mean(rows, |row| cross_entropy(row.logits[0], row.label as f64 * 0.8 + 0.1))
        }),
        ("losses { binary_focal_loss { gamma: 1.5 alpha: 0.3 } }", |rows| {
            mean(rows, |row| {
                let p = 1.0 / (1.0 + (-row.logits[0]).exp());
                let weight = if row.label == 1 { 0.3 * (1.0 - p).powf(1.5) } else { 0.7 * p.powf(1.5) };
                weight * cross_entropy(row.logits[0], row.label as f64)
            })
        }),
        ("losses { l2_loss {} }", |rows| mean(rows, |row| (row.label as f64 - row.logits[0]).powi(2))),
        ("num_class: 2 losses { softmax_cross_entropy {} }", |rows| mean(rows, |row| surprise(&row.logits, row.label))),
        ("num_class: 3 losses { softmax_cross_entropy { label_smoothing: 0.3 } }", |rows| {
            mean(rows, |row| {
                let spread: f64 = (0..3).map(|class| surprise(&row.logits, class)).sum();
                0.7 * surprise(&row.logits, row.label) + 0.1 * spread
            })
        }),
        ("num_class: 2 losses { jrc_loss { session_name: \"id\" alpha: 0.4 } }", |rows| {
            let [no, yes] = [0, 1].map(|class| ranked(rows, class));
            mean(rows, |row| {
                let order = if row.label == 1 { yes(row) } else { no(row) };
                0.4 * surprise(&row.logits, row.label) + 0.6 * order
            })
        }),
    ];
    for (config, formula) in losses {
        let (loss, rows) = reported(config);
        let expected = formula(&rows);
        assert!((loss - expected).abs() < 2e-6 * expected.abs().max(1.0), "{config}: {loss} {expected}");
    }
}
