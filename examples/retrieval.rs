//! Retrieval by HSTU: a user's history as a vector, trained to be near the next item, with the next items of other users as
//! negatives; then the best of all items by similarity.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example retrieval
//! ```

use rewire::hstu::modules::{Features, HstuConfig, HstuMatchEncoder, RetrievalConfig, Sequence, Similarity};
use rewire::prelude::*;
use rewire::train::loss::{self, MatchLogits};
use rewire::train::{Data, DataError, Event, Objective, Position, Random, TrainConfig, Trainer, fit, initial};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;

const ITEMS: usize = 96;
/// The next item is mostly of the group after that of the last one.
const GROUPS: usize = 8;
const WIDTH: usize = 16;
const LONGEST: usize = 12;
const BATCH: usize = 48;
/// Retrieved items, as many as a group has.
const TOP: usize = ITEMS / GROUPS;

const MODEL: &str = r#"{
    "uih_embedding_dim": 16,
    "attn_num_layers": 2,
    "scaling_seqlen": 12,
    "stu": { "embedding_dim": 16, "num_heads": 2, "hidden_dim": 8, "attention_dim": 8 },
    "input_preprocessor": { "uih_preprocessor": {} },
    "positional_encoder": { "num_position_buckets": 16 },
    "output_postprocessor": { "l2norm_postprocessor": {} }
}"#;

const CONFIG: &str = r#"{
    "batch_size": 48,
    "steps": 200,
    "grad_clipping": { "clipping_type": "norm", "max_gradient": 1.0 },
    "dense_optimizer": { "adamw_optimizer": { "lr": 0.006 } },
    "sparse_optimizer": { "adam_optimizer": { "lr": 0.01 } }
}"#;

/// Vectors of users, `[B, WIDTH]`, and of all items, `[ITEMS, WIDTH]`.
fn forward(scope: &Scope) -> Result<[Tensor; 2], Box<dyn Error>> {
    let table = scope.parameter("embedding.item.weight", DType::F32, [ITEMS, WIDTH]);
    let rows = scope.lengths("history.lengths", scope.size("users"));
    let history = scope.input("history", DType::U32, [&rows.total]);
    let uih = Sequence {
        embeddings: table.gather(&history),
        timestamps: scope.input("history.timestamp", DType::I64, [&rows.total]),
        rows,
        actions: None,
        watchtimes: None,
    };
    let encoder = HstuMatchEncoder::new(serde_json::from_str::<HstuConfig>(MODEL)?)?;
    let features = Features { uih, candidates: None, contextual: None };
    let users = scope.module("encoder", |scope| encoder.forward(scope, &features, None));
    Ok([users, table])
}

/// The loss of users and their next items.
fn objective() -> Result<Graph, Box<dyn Error>> {
    let scope = Scope::new();
    let [users, table] = forward(&scope)?;
    let next = scope.input("next", DType::U32, [users.dim(0)]);
    let logits = MatchLogits::in_batch(&users, &loss::unit_rows(&table.gather(&next)), 0.1);
    let loss = loss::mean(&scope, &logits.cross_entropy(), None);
    Ok(scope.finish(&[("loss", loss)])?)
}

/// The best items of every user, `[B, TOP]`.
fn retrieval() -> Result<Graph, Box<dyn Error>> {
    let scope = Scope::new();
    let [users, table] = forward(&scope)?;
    let found = RetrievalConfig { similarity: Similarity::Cosine, top_k: TOP }.forward(&scope, &users, &table);
    Ok(scope.finish(&[("items", found.items)])?)
}

/// Histories and next items, by a seed.
struct Watched(u64);

impl Watched {
    /// Histories of up to `LONGEST` items, and the next item of each.
    fn batch(random: &mut Random) -> Option<(Inputs, Vec<u32>)> {
        let (mut history, mut lengths, mut times, mut next) = (vec![], vec![], vec![], vec![]);
        for user in 0..BATCH {
            let length = random.below(LONGEST + 1)?;
            let mut group = random.below(GROUPS)?;
            let mut items = vec![];
            for _ in 0..=length {
                group = if random.unit() < 0.9 { (group + 1) % GROUPS } else { random.below(GROUPS)? };
                items.push((group + GROUPS * random.below(TOP)?) as u32);
            }
            next.extend(items.pop());
            times.extend((0..length).map(|event| (1000 * user + 60 * event) as i64));
            lengths.push(length as i64);
            history.extend(items);
        }
        let inputs = Inputs::new()
            .with("history", HostTensor::vector(&history))
            .with("history.timestamp", HostTensor::vector(&times))
            .with("history.lengths", HostTensor::lengths(&lengths));
        Some((inputs, next))
    }
}

impl Data for Watched {
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        let mut random = Random::of_epoch(self.0, epoch);
        let batches = std::iter::from_fn(move || Self::batch(&mut random)).take(100);
        Box::new(batches.map(|(inputs, next)| Ok(inputs.with("next", HostTensor::vector(&next)))))
    }
}

/// The hit rate: how often a user's next item is among the `TOP` retrieved ones, for new batches.
fn hit_rate(parameters: &BTreeMap<String, HostTensor>) -> Result<f64, Box<dyn Error>> {
    let plan = rewire::lower(&rewire::optimize(retrieval()?)?.0)?;
    let mut session = Model::load(plan, parameters, options())?.session();
    let (mut hits, mut users, mut random) = (0, 0, Random::new(99));
    for _ in 0..10 {
        let (inputs, next) = Watched::batch(&mut random).ok_or("no batch")?;
        let outputs = session.run(&inputs)?;
        let found = outputs.get("items").ok_or("no items")?.to_i64();
        users += next.len();
        hits += next.iter().zip(found.chunks(TOP)).filter(|(next, found)| found.contains(&i64::from(**next))).count();
    }
    Ok(hits as f64 / users as f64)
}

fn options() -> ModelOptions {
    ModelOptions { kernel: Kernel::Auto, ..ModelOptions::default() }
}

/// Trains, and compares the hit rate before and after.
pub fn main() -> Result<(), Box<dyn Error>> {
    let graph = objective()?;
    let begin = initial(&graph.parameters(), 1)?;
    let before = hit_rate(&begin)?;

    let objective = Objective::new(graph, "loss").tables(["embedding.item.weight"]);
    let config = TrainConfig::from_json(CONFIG)?;
    let mut trainer = Trainer::new(&objective, &config, |name| begin.get(name).cloned(), options())?;
    fit(&mut trainer, &mut Watched(7), Position::default(), |_, event| {
        if let Event::Step(report, _) = event
            && report.step % 50 == 0
        {
            println!("step {:3}  loss {:.4}", report.step, report.loss);
        }
        Ok::<_, Box<dyn Error>>(ControlFlow::Continue(()))
    })?;

    let after = hit_rate(&trainer.parameters()?)?;
    println!("hit rate among {TOP} of {ITEMS}: {after:.3}, before {before:.3}");
    if after < 0.5 { Err("it learned nothing".into()) } else { Ok(()) }
}
