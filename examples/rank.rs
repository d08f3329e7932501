//! An app that packs the demo's model into one file, and ranks the candidates of users from JSON lines with it.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example rank -- model.rewire
//! ```

use rewire::Mapping;
use rewire::prelude::*;
use rewire::rank::{PackOptions, pack, read_config_text, read_weights};
use std::error::Error;
use std::io::BufRead;
use std::path::Path;

/// The demo of this repository.
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/demo");

/// Writes a model folder as a package.
fn write(folder: &Path, package: &Path) -> Result<(), Box<dyn Error>> {
    let (config, weights) = (read_config_text(folder, Mapping::Large)?, read_weights(folder, Mapping::Large)?);
    let packed = pack("the demo", &config, &weights, &PackOptions::default())?;
    Ok(rewire::write_file(package, packed.bytes())?)
}

/// Ranks users, one line of JSON each, and prints the best items of each.
pub fn rank(package: &Path, users: impl BufRead) -> Result<(), Box<dyn Error>> {
    let ranker = Ranker::load(package, &RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() })?;
    let mut batch = ranker.batch();
    for user in users.lines().take(3) {
        batch.push_json(user?.as_bytes())?;
    }
    for ranked in ranker.rank_batch(&batch)? {
        let best = ranked.candidates.iter().take(3).map(|one| format!("{} {:.3}", one.item, one.score));
        println!("{}: {}", ranked.user, best.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// Packs the demo's model, and ranks its first users.
pub fn run(package: &Path) -> Result<(), Box<dyn Error>> {
    let demo = Path::new(DEMO);
    write(&demo.join("model"), package)?;
    rank(package, std::fs::read(demo.join("interactions.jsonl"))?.as_slice())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1).ok_or("expected the name of a package to write")?.as_ref())
}
