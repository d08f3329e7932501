//! Every optimizer and schedule of a pipeline against its formula.

use super::{steps, tensors};
use crate::program::{Folder, jsonl, run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// A pipeline of batches of six rows that look up rows 0 to 2 of a table of 4.
const PIPELINE: &str = r#"
train_config { sparse_optimizer { SPARSE } dense_optimizer { DENSE } num_steps: STEPS }
data_config { batch_size: 6 label_fields: "clk" }
feature_configs { id_feature { feature_name: "id" num_buckets: 4 embedding_dim: 3 EMBEDDING } }
feature_configs { raw_feature { feature_name: "price" } }
model_config {
  feature_groups { group_name: "all" feature_names: "id" feature_names: "price" group_type: DEEP }
  multi_tower { towers { input: "all" mlp { hidden_units: 5 } } final { hidden_units: 4 } }
  losses { binary_cross_entropy {} }
}
"#;

/// Leaves parameters as they are in the first two steps; the third has the rate 0.25.
const LAST: &str = "manual_step_learning_rate { schedule_sizes: 1 learning_rates: 0.25 }";
const RATE: f64 = 0.25;
const NOTHING: &str = "lr: 1e-30";

type Parameters = BTreeMap<String, Vec<f64>>;

/// The labels of two batches, and of both: two of the first and one of the second.
fn batches(which: &[usize]) -> Vec<Value> {
    let row = |(batch, row): (usize, usize)| {
        let clicks = [[1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 0, 0]];
        json!({ "id": row % 3, "price": (row * 7 % 5) as f64 * 0.5 - 1.0, "clk": clicks[batch][row] })
    };
    which.iter().flat_map(|&batch| (0..6).map(move |n| (batch, n))).map(row).collect()
}

/// The printed steps and the parameters after a training on these batches.
fn train([sparse, dense, embedding]: [&str; 3], which: &[usize]) -> (Vec<Value>, Parameters) {
    let folder = Folder::new();
    let filled = [("SPARSE", sparse), ("DENSE", dense), ("EMBEDDING", embedding)];
    let text = filled.iter().fold(PIPELINE.to_owned(), |text, (name, value)| text.replace(name, value));
    let config = folder.write("pipeline.config", text.replace("STEPS", &which.len().to_string()));
    let data = folder.write("data.jsonl", jsonl(&batches(which)));
    let out = folder.0.join("out");
    let args = ["train", "--pipeline", &config, "--data", &data, "--out", &out.display().to_string(), "--json"];
    let trained = steps(&run(&[&args[..], &["--kernel", "cpu"]].concat()));
    (trained, tensors(&out.join("model.safetensors")).into_iter().collect())
}

/// `w` of the third step is `w - rate d`; this is `d`, of the parameter and the gradients of three steps.
type Rule = Box<dyn Fn(&[f64], [&[f64]; 3]) -> Vec<f64>>;

/// A rule of single elements: from one element and its gradients.
fn each(rule: impl Fn(f64, [f64; 3]) -> f64 + 'static) -> Rule {
    Box::new(move |w, g| w.iter().enumerate().map(|(n, &w)| rule(w, g.map(|g| g[n]))).collect())
}

/// A rule of rows of three, which takes the mean of squares over a row.
fn by_row(rule: impl Fn(f64, [f64; 3], [f64; 3]) -> f64 + 'static) -> Rule {
    Box::new(move |w, g| {
        let mean = |g: &[f64], n: usize| g[n / 3 * 3..][..3].iter().map(|g| g * g).sum::<f64>() / 3.0;
        w.iter().enumerate().map(|(n, &w)| rule(w, g.map(|g| g[n]), g.map(|g| mean(g, n)))).collect()
    })
}

fn momentum(momentum: f64, decay: f64) -> Rule {
    each(move |w, g| g.iter().fold(0.0, |b, g| momentum * b + g + decay * w))
}

fn adagrad(initial: f64, decay: f64) -> Rule {
    each(move |w, g| {
        let g = g.map(|g| g + decay * w);
        g[2] / (initial + g.iter().map(|g| g * g).sum::<f64>()).sqrt()
    })
}

/// The direction of Adam from gradients and their squares, with `beta1` 0.8 and `beta2` 0.9.
fn adam(g: [f64; 3], squares: [f64; 3]) -> f64 {
    let average = |beta: f64, x: [f64; 3]| {
        x.iter().fold(0.0, |average, x| beta * average + (1.0 - beta) * x) / (1.0 - beta.powi(3))
    };
    average(0.8, g) / (average(0.9, squares).sqrt() + 1e-8)
}

fn squares(g: [f64; 3]) -> [f64; 3] {
    g.map(|g| g * g)
}

/// What the rules start from.
struct Start {
    begin: Parameters,
    /// Of both batches.
    gradients: [Parameters; 2],
}

impl Start {
    fn new() -> Self {
        const LARGE: f64 = 1024.0;
        let nothing = format!("sgd_optimizer {{ {NOTHING} }} constant_learning_rate {{}}");
        let (_, begin) = train([&nothing, &nothing, ""], &[0]);
        let gradients = [0, 1].map(|batch| {
            let sgd = |more: &str| format!("sgd_optimizer {{ lr: {LARGE} {more} }} constant_learning_rate {{}}");
            let (_, after) = train([&sgd(""), &sgd("momentum: 0"), ""], &[batch]);
            let gradient = |(name, after): (String, Vec<f64>)| {
                let way = begin[&name].iter().zip(after).map(|(before, after)| (before - after) / LARGE).collect();
                (name, way)
            };
            after.into_iter().map(gradient).collect()
        });
        Self { begin, gradients }
    }

    /// A parameter changed by a rule. Gradients close to zero do not determine it.
    fn check(&self, what: &str, name: &str, after: &[f64], rule: &Rule) {
        let (begin, [a, b]) = (&self.begin[name], [0, 1].map(|batch| &self.gradients[batch][name]));
        let direction = rule(begin, [a, a, b]);
        let mut moved = 0;
        for n in 0..begin.len() {
            if a[n] == 0.0 && b[n] == 0.0 && name.contains("embedding") {
                assert_eq!(after[n], begin[n], "{what}: {name} {n}");
            } else if a[n].abs().min(b[n].abs()) > 1e-4 {
                let (way, expected) = (after[n] - begin[n], -RATE * direction[n]);
                assert!((way - expected).abs() < 2e-5 * expected.abs() + 2e-7, "{what}: {name} {n}: {way} {expected}");
                moved += 1;
            }
        }
        assert!(moved > 0 || begin.len() < 6, "{what}: {name} has no gradient");
    }
}

fn is_table(name: &str) -> bool {
    name.contains("embedding")
}

#[test]
fn optimizers_of_a_pipeline_have_their_formulas() {
    let start = Start::new();
    assert_eq!(start.begin.keys().filter(|name| is_table(name)).count(), 1);
    let betas = "beta1: 0.8 beta2: 0.9";
    let sparse: [(String, Rule); 6] = [
        ("sgd_optimizer { 0 }".to_owned(), momentum(0.0, 0.0)),
        (
            "sgd_optimizer { 0 gradient_clipping: true max_gradient: 0.01 }".to_owned(),
            each(|_, g| g[2].clamp(-0.01, 0.01)),
        ),
        ("adagrad_optimizer { 0 initial_accumulator_value: 0.1 }".to_owned(), adagrad(0.1, 0.0)),
        (
            "rowwise_adagrad_optimizer { 0 initial_accumulator_value: 0.1 }".to_owned(),
            by_row(|_, g, means| g[2] / (0.1 + means.iter().sum::<f64>()).sqrt()),
        ),
        (format!("adam_optimizer {{ 0 {betas} weight_decay: 0.5 }}"), each(|w, g| adam(g, squares(g)) + 0.5 * w)),
        (format!("partial_rowwise_adam_optimizer {{ 0 {betas} }}"), by_row(|_, g, means| adam(g, means))),
    ];
    let dense: [(String, Rule); 6] = [
        ("sgd_optimizer { 0 }".to_owned(), momentum(0.9, 0.0)),
        ("sgd_optimizer { 0 momentum: 0.5 weight_decay: 0.25 }".to_owned(), momentum(0.5, 0.25)),
        ("adagrad_optimizer { 0 initial_accumulator_value: 0.1 }".to_owned(), adagrad(0.1, 0.0)),
        ("adagrad_optimizer { 0 weight_decay: 0.5 }".to_owned(), adagrad(0.0, 0.5)),
        (
            format!("adam_optimizer {{ 0 {betas} weight_decay: 0.5 }}"),
            each(|w, g| {
                let g = g.map(|g| g + 0.5 * w);
                adam(g, squares(g))
            }),
        ),
        (format!("adamw_optimizer {{ 0 {betas} weight_decay: 0.5 }}"), each(|w, g| adam(g, squares(g)) + 0.5 * w)),
    ];
    for ((sparse, of_table), (dense, of_others)) in sparse.into_iter().zip(dense) {
        let [sparse, dense] =
            [sparse, dense].map(|text| format!("{} {LAST}", text.replace("{ 0", &format!("{{ {NOTHING}"))));
        let (_, after) = train([&sparse, &dense, ""], &[0, 0, 1]);
        assert_eq!(after.len(), start.begin.len());
        for (name, after) in &after {
            let (what, rule) = if is_table(name) { (&sparse, &of_table) } else { (&dense, &of_others) };
            start.check(what, name, after, rule);
        }
    }
}

#[test]
fn parts_and_frozen_tables_of_a_pipeline() {
    let start = Start::new();
    let part = |pattern: &str, optimizer: &str| {
        format!("part_optimizers {{ regex_pattern: \"{pattern}\" {optimizer} {{ {NOTHING} }} {LAST} }}")
    };
    let parts = [part(".*bias", "adagrad_optimizer"), part(".*final.*", "sgd_optimizer")].concat();
    let dense = format!("{parts} sgd_optimizer {{ {NOTHING} momentum: 0.5 }} {LAST}");
    let sparse = format!("sgd_optimizer {{ {NOTHING} }} {LAST}");
    let (_, after) = train([&sparse, &dense, "trainable: false"], &[0, 0, 1]);
    for (name, after) in &after {
        let rule = match name {
            _ if is_table(name) => {
                assert_eq!(*after, start.begin[name]);
                continue;
            }
            // The first pattern that matches counts.
            _ if name.ends_with("bias") => adagrad(0.0, 0.0),
            _ if name.contains("final") => momentum(0.9, 0.0),
            _ => momentum(0.5, 0.0),
        };
        start.check("parts", name, after, &rule);
    }
}

#[test]
fn schedules_of_a_pipeline_have_their_formulas() {
    let cosine = |part: f64| 0.5 * (1.0 + (PI * part).cos());
    let warm = |t: u32, from: f64, size: u32| from + (1.0 - from) * f64::from(t) / f64::from(size);
    type Rates = Box<dyn Fn(u32) -> f64>;
    let schedules: [(&str, Rates); 6] = [
        ("constant_learning_rate {}", Box::new(|_| 1.0)),
        (
            "exponential_decay_learning_rate { decay_size: 2 decay_factor: 0.5 min_learning_rate: 0.3 }",
            Box::new(|t| 0.5f64.powi(t as i32 / 2).max(0.3)),
        ),
        (
            "exponential_decay_learning_rate { decay_size: 2 decay_factor: 0.5 staircase: false warmup_learning_rate: 0.2 warmup_size: 3 }",
            Box::new(move |t| if t < 3 { warm(t, 0.2, 3) } else { 0.5f64.powf(f64::from(t - 3) / 2.0) }),
        ),
        (
            "manual_step_learning_rate { schedule_sizes: [1, 3] learning_rates: [0.5, 0.1] }",
            Box::new(|t| [1.0, 1.0, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1][t as usize]),
        ),
        (
            "cosine_annealing_learning_rate { T_max: 4 warmup_size: 2 warmup_learning_rate: 0.5 min_learning_rate: 0.2 }",
            Box::new(
                move |t| {
                    if t < 2 { warm(t, 0.5, 2) } else { 0.2 + 0.8 * cosine(f64::from((t - 2).min(4)) / 4.0) }
                },
            ),
        ),
        (
            "cosine_annealing_warm_restarts_learning_rate { T_0: 2 T_mult: 2 }",
            // Periods of 2 and 4 steps.
            Box::new(move |t| match t {
                0 | 1 => cosine(f64::from(t) / 2.0),
                2..6 => cosine(f64::from(t - 2) / 4.0),
                _ => cosine(f64::from(t - 6) / 8.0),
            }),
        ),
    ];
    for (n, sparse) in schedules.iter().enumerate() {
        let dense = &schedules[(n + 1) % schedules.len()];
        let [of_tables, of_others] =
            [sparse, dense].map(|(schedule, _)| format!("adagrad_optimizer {{ lr: 1 }} {schedule}"));
        let (trained, _) = train([&of_tables, &of_others, ""], &[0; 8]);
        assert_eq!(trained.len(), 8);
        for (t, line) in trained.iter().enumerate() {
            for (group, (schedule, rate)) in [("sparse", sparse), ("dense", dense)] {
                let (actual, expected) = (line["lr"][group].as_f64().unwrap(), rate(t as u32));
                assert!((actual - expected).abs() < 1e-7, "{schedule}: step {t}: {actual} {expected}");
            }
        }
    }
}
