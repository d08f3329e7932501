//! A small deep interest network (Zhou et al., 2018): which of a user's past items matter depends on the candidate.
//!
//! ```sh
//! cargo run --release -p rewire-train --example din
//! ```

mod by_hand;

use by_hand::{Random, Tensors, Trained};
use rewire_graph::op::ReduceOp;
use rewire_graph::{DType, Graph, GraphError, HostTensor, Scope, Tensor};
use rewire_train::loss;
use rewire_train::metrics::{Auc, NormalizedEntropy};
use std::error::Error;

const ITEMS: usize = 40;
/// A candidate is taken where an item of its group is in the history.
const GROUPS: usize = 8;
const WIDTH: usize = 8;
const BATCH: usize = 32;
const LONGEST: usize = 7;

/// `x W^T + b`, `[.., out]`.
fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    scope.module(name, |scope| {
        let bias = scope.parameter("bias", DType::F32, [out]);
        x.linear(&scope.parameter("weight", DType::F32, [out, x.width()]), Some(&bias))
    })
}

/// The loss of a batch of candidates, one a user, and their logits `[B]`.
fn trace() -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let users = scope.size("users");
    let rows = scope.lengths("history.lengths", &users);
    let history = scope.input("history", DType::U32, [&rows.total]);
    let candidate = scope.input("candidate", DType::U32, [&users]);
    let table = scope.parameter("items", DType::F32, [ITEMS, WIDTH]);
    let (past, target) = (table.gather(&history), table.gather(&candidate));

    // A weight for every past item, of it and its user's candidate.
    let beside = target.jagged_broadcast(&rows);
    let pairs = scope.concat(&[&past, &beside, &(&past - &beside), &(&past * &beside)], 1);
    let weights = linear(&scope, "attention.out", &linear(&scope, "attention.hidden", &pairs, 16).silu(), 1);
    let interest = (past * weights).segment_reduce(ReduceOp::Sum, &rows);

    let joined = scope.concat(&[&interest, &target, &(&interest * &target)], 1);
    let logits = linear(&scope, "out", &linear(&scope, "hidden", &joined, 16).silu(), 1).reshape([&users]);
    let labels = scope.input("label", DType::F32, [&users]);
    let loss = loss::mean(&scope, &loss::binary_cross_entropy(&logits, &labels), None);
    scope.finish(&[("loss", loss), ("logits", logits)])
}

/// Histories of up to `LONGEST` items, and a candidate each; one label in twenty is wrong.
fn batch(random: &mut Random) -> Tensors {
    let (mut history, mut lengths, mut candidates, mut labels) = (vec![], vec![], vec![], vec![]);
    for _ in 0..BATCH {
        let past: Vec<u32> = (0..random.below(LONGEST + 1)).map(|_| random.below(ITEMS) as u32).collect();
        let candidate = random.below(ITEMS) as u32;
        let is_taken = past.iter().any(|item| *item as usize % GROUPS == candidate as usize % GROUPS);
        let label = if random.unit() < 0.05 { !is_taken } else { is_taken };
        lengths.push(past.len() as i64);
        history.extend(past);
        candidates.push(candidate);
        labels.push(f32::from(u8::from(label)));
    }
    [
        ("history", HostTensor::vector(&history)),
        ("history.lengths", HostTensor::lengths(&lengths)),
        ("candidate", HostTensor::vector(&candidates)),
        ("label", HostTensor::vector(&labels)),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor))
    .into()
}

/// The area under the curve, and the normalised entropy, of new users.
fn figures(model: &Trained, random: &mut Random) -> Result<[f64; 2], Box<dyn Error>> {
    let (mut auc, mut entropy) = (Auc::default(), NormalizedEntropy::default());
    for _ in 0..8 {
        let batch = batch(random);
        let logits = model.outputs(&batch)?["logits"].to_f32();
        for (logit, label) in logits.into_iter().zip(batch["label"].to_f32()) {
            auc.add(logit, label > 0.5);
            entropy.add(logit.into(), label > 0.5);
        }
    }
    Ok([auc.value().unwrap_or(0.5), entropy.value().unwrap_or(1.0)])
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut random = Random(1);
    let mut model = Trained::new(trace()?, r#"{ "adam_optimizer": { "lr": 0.01 } }"#, 2)?;
    let before = figures(&model, &mut Random(3))?;
    for step in 0..300 {
        let loss = model.step(&batch(&mut random))?;
        if step % 50 == 0 {
            println!("step {step:3}  loss {loss:.4}");
        }
    }
    let after = figures(&model, &mut Random(3))?;
    println!("AUC {:.3}, before {:.3}", after[0], before[0]);
    println!("normalised entropy {:.3}, before {:.3}", after[1], before[1]);
    Ok(())
}
