//! An app that ranks with a package:
//!
//! ```sh
//! cargo run --release -- package --out model.rewire
//! head -1 crates/cli/demo/interactions.jsonl | cargo run --release -p rewire --example package -- model.rewire
//! ```

use rewire::prelude::*;
use std::io::{BufRead, stdin};

/// Ranks users, one line of JSON each.
pub fn rank(package: &str, users: impl BufRead) -> Result<(), Box<dyn std::error::Error>> {
    let ranker = Ranker::load(package.as_ref(), &RankOptions::default())?;
    let mut batch = ranker.batch();
    for user in users.lines() {
        batch.push_json(user?.as_bytes())?;
    }
    for ranked in ranker.rank_batch(&batch)? {
        println!("{}: {:?}", ranked.user, ranked.candidates.iter().map(|c| c.item).collect::<Vec<_>>());
    }
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    rank(&std::env::args().nth(1).ok_or("expected a package")?, stdin().lock())
}
