//! A two-tower model: users and items as vectors, trained on what users took, with the items of other users as negatives.
//!
//! ```sh
//! cargo run --release -p rewire-train --example two_tower
//! ```

mod by_hand;

use by_hand::{Random, Tensors, Trained};
use rewire_graph::{DType, Dim, Graph, GraphError, HostTensor, Scope, Tensor};
use rewire_train::loss::{self, MatchLogits};
use rewire_train::metrics::TopK;
use std::error::Error;

const USERS: usize = 80;
const ITEMS: usize = 60;
/// Users like items of one of these groups.
const GROUPS: usize = 6;
const WIDTH: usize = 12;
const BATCH: usize = 24;

/// A table and two layers: ids `[B]` to vectors of length 1, `[B, WIDTH]`.
fn tower(scope: &Scope, ids: &Tensor, rows: usize) -> Tensor {
    let rows = scope.parameter("table", DType::F32, [rows, WIDTH]).gather(ids);
    let layer = |name: &str, x: &Tensor| {
        scope.module(name, |scope| {
            let bias = scope.parameter("bias", DType::F32, [WIDTH]);
            x.linear(&scope.parameter("weight", DType::F32, [WIDTH, WIDTH]), Some(&bias))
        })
    };
    loss::unit_rows(&layer("out", &layer("hidden", &rows).relu()))
}

/// The loss of a batch of users and the items that they took, and the similarities of all of these users and items.
fn trace() -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let batch: Dim = scope.size("batch");
    let [users, items] = ["user", "item"].map(|name| scope.input(name, DType::U32, [&batch]));
    let users = scope.module("users", |scope| tower(scope, &users, USERS));
    let items = scope.module("items", |scope| tower(scope, &items, ITEMS));
    let logits = MatchLogits::in_batch(&users, &items, 0.2);
    let loss = loss::mean(&scope, &logits.cross_entropy(), None);
    let similarities = logits.columns(&scope);
    scope.finish(&[("loss", loss), ("similarities", similarities)])
}

/// Users, and an item each, nine times in ten of the user's group.
fn batch(random: &mut Random) -> Tensors {
    let users: Vec<u32> = (0..BATCH).map(|_| random.below(USERS) as u32).collect();
    let item = |user: &u32| {
        let liked = *user as usize * 7 % GROUPS;
        let group = if random.unit() < 0.9 { liked } else { random.below(GROUPS) };
        (group + GROUPS * random.below(ITEMS / GROUPS)) as u32
    };
    let items: Vec<u32> = users.iter().map(item).collect();
    [("user", users), ("item", items)].map(|(name, ids)| (name.to_owned(), HostTensor::vector(&ids))).into()
}

/// How often a user's item is among the five of the batch that are most similar.
fn hit_rate(model: &Trained, random: &mut Random) -> Result<Option<f64>, Box<dyn Error>> {
    let mut hits = TopK::new(5);
    for _ in 0..4 {
        let similarities = model.outputs(&batch(random))?["similarities"].to_f32();
        for (user, row) in similarities.chunks(BATCH).enumerate() {
            hits.add(row.iter().enumerate().map(|(item, &similarity)| (similarity, item == user)));
        }
    }
    Ok(hits.hit_rate())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut random = Random(1);
    let mut model = Trained::new(trace()?, r#"{ "adam_optimizer": { "lr": 0.02 } }"#, 2)?;
    let before = hit_rate(&model, &mut Random(3))?;
    for step in 0..150 {
        let loss = model.step(&batch(&mut random))?;
        if step % 25 == 0 {
            println!("step {step:3}  loss {loss:.4}");
        }
    }
    let after = hit_rate(&model, &mut Random(3))?;
    println!("hit rate among five of {BATCH}: {:.3}, before {:.3}", after.unwrap_or(0.0), before.unwrap_or(0.0));
    Ok(())
}
