//! A small deep interest network (Zhou et al., 2018): which of a user's past items matter depends on the candidate.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example din
//! ```

use rewire::graph::GraphError;
use rewire::graph::op::ReduceOp;
use rewire::prelude::*;
use rewire::train::loss;
use rewire::train::metrics::{Auc, NormalizedEntropy};
use rewire::train::{Data, DataError, Event, Objective, Position, Random, TrainConfig, Trainer, fit, initial};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;

const ITEMS: usize = 80;
/// A candidate is taken where an item of its group is in the history.
const GROUPS: usize = 8;
const WIDTH: usize = 12;
const LONGEST: usize = 8;
const BATCH: usize = 64;

const CONFIG: &str = r#"{
    "batch_size": 64,
    "epochs": 6,
    "dense_optimizer": {
        "adam_optimizer": { "lr": 0.01 },
        "exponential_decay_learning_rate": { "decay_size": 100, "decay_factor": 0.8 }
    },
    "sparse_optimizer": { "adam_optimizer": { "lr": 0.01 } }
}"#;

/// `x W^T + b`, `[.., out]`.
fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    scope.module(name, |scope| {
        let bias = scope.parameter("bias", DType::F32, [out]);
        x.linear(&scope.parameter("weight", DType::F32, [out, x.width()]), Some(&bias))
    })
}

/// Logits of candidates, one per user, `[B]`.
fn forward(scope: &Scope) -> Tensor {
    let users = scope.size("users");
    let rows = scope.lengths("history.lengths", &users);
    let history = scope.input("history", DType::U32, [&rows.total]);
    let candidate = scope.input("candidate", DType::U32, [&users]);
    let table = scope.parameter("embedding.item.weight", DType::F32, [ITEMS, WIDTH]);
    let (past, target) = (table.gather(&history), table.gather(&candidate));

    // A weight for every past item, computed from it and its user's candidate.
    let beside = target.jagged_broadcast(&rows);
    let pairs = scope.concat(&[&past, &beside, &(&past - &beside), &(&past * &beside)], 1);
    let weights = linear(scope, "attention.out", &linear(scope, "attention.hidden", &pairs, 24).silu(), 1);
    let interest = (past * weights).segment_reduce(ReduceOp::Sum, &rows);

    let joined = scope.concat(&[&interest, &target, &(&interest * &target)], 1);
    linear(scope, "out", &linear(scope, "hidden", &joined, 24).silu(), 1).reshape([users])
}

fn trace(output: &str) -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let logits = forward(&scope);
    let result = match output {
        "loss" => {
            let labels = scope.input("label", DType::F32, [logits.dim(0)]);
            loss::mean(&scope, &loss::binary_cross_entropy(&logits, &labels), None)
        }
        _ => logits,
    };
    scope.finish(&[(output, result)])
}

/// Candidates and histories, by a seed.
struct Shown(u64);

impl Shown {
    /// Histories of up to `LONGEST` items and a candidate each, and the labels, of which one in twenty is wrong.
    fn batch(random: &mut Random) -> Option<(Inputs, Vec<bool>)> {
        let (mut history, mut lengths, mut candidates, mut labels) = (vec![], vec![], vec![], vec![]);
        for _ in 0..BATCH {
            let length = random.below(LONGEST + 1)?;
            let past = (0..length).map(|_| random.below(ITEMS)).collect::<Option<Vec<usize>>>()?;
            let candidate = random.below(ITEMS)?;
            let is_taken = past.iter().any(|item| item % GROUPS == candidate % GROUPS);
            labels.push(is_taken != (random.unit() < 0.05));
            lengths.push(length as i64);
            history.extend(past.into_iter().map(|item| item as u32));
            candidates.push(candidate as u32);
        }
        let inputs = Inputs::new()
            .with("history", HostTensor::vector(&history))
            .with("history.lengths", HostTensor::lengths(&lengths))
            .with("candidate", HostTensor::vector(&candidates));
        Some((inputs, labels))
    }
}

impl Data for Shown {
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        let mut random = Random::of_epoch(self.0, epoch);
        let labelled = |(inputs, labels): (Inputs, Vec<bool>)| {
            let labels: Vec<f32> = labels.into_iter().map(|label| f32::from(u8::from(label))).collect();
            Ok(inputs.with("label", HostTensor::vector(&labels)))
        };
        Box::new(std::iter::from_fn(move || Self::batch(&mut random)).take(100).map(labelled))
    }
}

/// The AUC and the normalized entropy of new batches.
fn figures(parameters: &BTreeMap<String, HostTensor>) -> Result<[f64; 2], Box<dyn Error>> {
    let plan = rewire::lower(&rewire::optimize(trace("logits")?)?.0)?;
    let mut session = Model::load(plan, parameters, options())?.session();
    let (mut auc, mut entropy, mut random) = (Auc::default(), NormalizedEntropy::default(), Random::new(99));
    for _ in 0..20 {
        let (inputs, labels) = Shown::batch(&mut random).ok_or("no batch")?;
        let outputs = session.run(&inputs)?;
        for (logit, label) in outputs.get("logits").ok_or("no logits")?.to_f32().into_iter().zip(labels) {
            auc.add(logit, label);
            entropy.add(logit.into(), label);
        }
    }
    Ok([auc.value().unwrap_or(0.5), entropy.value().unwrap_or(1.0)])
}

fn options() -> ModelOptions {
    ModelOptions { kernel: Kernel::Auto, ..ModelOptions::default() }
}

/// Trains, and compares metrics of new batches before and after.
pub fn main() -> Result<(), Box<dyn Error>> {
    let graph = trace("loss")?;
    let begin = initial(&graph.parameters(), 1)?;
    let before = figures(&begin)?;

    let objective = Objective::new(graph, "loss").tables(["embedding.item.weight"]);
    let config = TrainConfig::from_json(CONFIG)?;
    let mut trainer = Trainer::new(&objective, &config, |name| begin.get(name).cloned(), options())?;
    let mut losses = vec![];
    fit(&mut trainer, &mut Shown(7), Position::default(), |_, event| {
        match event {
            Event::Step(report, _) => losses.push(report.loss),
            Event::Epoch(epoch) => {
                println!("epoch {epoch}  loss {:.4}", losses.iter().sum::<f64>() / losses.len() as f64);
                losses.clear();
            }
        }
        Ok::<_, Box<dyn Error>>(ControlFlow::Continue(()))
    })?;

    let after = figures(&trainer.parameters()?)?;
    println!("AUC {:.3}, before {:.3}", after[0], before[0]);
    println!("normalised entropy {:.3}, before {:.3}", after[1], before[1]);
    if after[0] < 0.8 { Err("it learned nothing".into()) } else { Ok(()) }
}
