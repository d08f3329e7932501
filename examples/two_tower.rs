//! A two-tower model: users and items as vectors, trained on users' choices, with the items of other users as negatives.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example two_tower
//! ```

use rewire::graph::GraphError;
use rewire::prelude::*;
use rewire::train::loss::{self, MatchLogits};
use rewire::train::metrics::TopK;
use rewire::train::{Data, DataError, Event, Objective, Position, Random, TrainConfig, Trainer, fit, initial};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;

const USERS: usize = 400;
const ITEMS: usize = 120;
/// Users like items of one of these groups.
const GROUPS: usize = 12;
const WIDTH: usize = 16;
const BATCH: usize = 48;

const CONFIG: &str = r#"{
    "batch_size": 48,
    "steps": 400,
    "dense_optimizer": { "adam_optimizer": { "lr": 0.004 } },
    "sparse_optimizer": {
        "adam_optimizer": { "lr": 0.02 },
        "cosine_annealing_learning_rate": { "T_max": 400, "min_learning_rate": 0.002 }
    }
}"#;

/// Rows of a table and two layers: ids `[B]` to vectors of length 1, `[B, WIDTH]`.
fn tower(scope: &Scope, name: &str, ids: &Tensor, rows: usize) -> Tensor {
    let rows = scope.parameter(&format!("embedding.{name}.weight"), DType::F32, [rows, WIDTH]).gather(ids);
    let layer = |layer: &str, x: &Tensor| {
        scope.module(&format!("{name}.{layer}"), |scope| {
            let bias = scope.parameter("bias", DType::F32, [WIDTH]);
            x.linear(&scope.parameter("weight", DType::F32, [WIDTH, WIDTH]), Some(&bias))
        })
    };
    loss::unit_rows(&layer("out", &layer("hidden", &rows).relu()))
}

/// The loss of a batch of users and their chosen items, or the similarities of all users and items of the batch.
fn trace(output: &str) -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let batch: Dim = scope.size("batch");
    let [users, items] = ["user", "item"].map(|name| scope.input(name, DType::U32, [&batch]));
    let users = tower(&scope, "user", &users, USERS);
    let logits = MatchLogits::in_batch(&users, &tower(&scope, "item", &items, ITEMS), 0.1);
    let result = match output {
        "loss" => loss::mean(&scope, &logits.cross_entropy(), None),
        _ => logits.columns(&scope),
    };
    scope.finish(&[(output, result)])
}

/// Users' choices, by a seed.
struct Taken(u64);

impl Taken {
    /// Users with one item each, nine times in ten of the user's group.
    fn batch(random: &mut Random) -> Option<Inputs> {
        let (mut users, mut items) = (vec![], vec![]);
        for _ in 0..BATCH {
            let user = random.below(USERS)?;
            let group = if random.unit() < 0.9 { user * 7 % GROUPS } else { random.below(GROUPS)? };
            users.push(user as u32);
            items.push((group + GROUPS * random.below(ITEMS / GROUPS)?) as u32);
        }
        Some(Inputs::new().with("user", HostTensor::vector(&users)).with("item", HostTensor::vector(&items)))
    }
}

impl Data for Taken {
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        let mut random = Random::of_epoch(self.0, epoch);
        Box::new(std::iter::from_fn(move || Self::batch(&mut random)).take(100).map(Ok))
    }
}

/// How often a user's item is among the five most similar ones of a batch, for new batches.
fn hit_rate(parameters: &BTreeMap<String, HostTensor>) -> Result<f64, Box<dyn Error>> {
    let plan = rewire::lower(&rewire::optimize(trace("similarities")?)?.0)?;
    let mut session = Model::load(plan, parameters, options())?.session();
    let (mut hits, mut random) = (TopK::new(5), Random::new(99));
    for _ in 0..20 {
        let outputs = session.run(&Taken::batch(&mut random).ok_or("no batch")?)?;
        let similarities = outputs.get("similarities").ok_or("no similarities")?.to_f32();
        for (user, row) in similarities.chunks(BATCH).enumerate() {
            hits.add(row.iter().enumerate().map(|(item, &similarity)| (similarity, item == user)));
        }
    }
    Ok(hits.hit_rate().unwrap_or(0.0))
}

fn options() -> ModelOptions {
    ModelOptions { kernel: Kernel::Auto, ..ModelOptions::default() }
}

/// Trains, and compares metrics of new batches before and after.
pub fn main() -> Result<(), Box<dyn Error>> {
    let graph = trace("loss")?;
    let begin = initial(&graph.parameters(), 1)?;
    let before = hit_rate(&begin)?;

    let objective = Objective::new(graph, "loss").tables(["embedding.user.weight", "embedding.item.weight"]);
    let config = TrainConfig::from_json(CONFIG)?;
    let mut trainer = Trainer::new(&objective, &config, |name| begin.get(name).cloned(), options())?;
    fit(&mut trainer, &mut Taken(7), Position::default(), |_, event| {
        if let Event::Step(report, _) = event
            && report.step % 50 == 0
        {
            println!("step {:3}  loss {:.4}", report.step, report.loss);
        }
        Ok::<_, Box<dyn Error>>(ControlFlow::Continue(()))
    })?;

    let after = hit_rate(&trainer.parameters()?)?;
    println!("hit rate among 5 of {BATCH}: {after:.3}, before {before:.3}");
    if after < 3.0 * before { Err("it learned nothing".into()) } else { Ok(()) }
}
