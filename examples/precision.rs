//! The demo's model with smaller weights and tables: bytes of the package, and the largest change of a score.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example precision
//! ```

use rewire::Mapping;
use rewire::graph_rewrite::plan::Precision;
use rewire::package::Package;
use rewire::prelude::*;
use rewire::rank::{PackOptions, pack, read_config_text, read_weights};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/demo");
const USERS: usize = 20;

/// Storage of weights and tables.
const TYPES: [(&str, Option<DType>, Option<DType>); 3] = [
    ("as trained", None, None),
    ("f16", Some(DType::F16), Some(DType::F16)),
    ("int8", Some(DType::Rows8), Some(DType::Rows8)),
];

/// The scores of the first users' candidates, by user and item.
fn scores(package: Vec<u8>, users: &str) -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let ranker = Ranker::from_package(&Package::parse(package)?, &options)?;
    let mut batch = ranker.batch();
    users.lines().take(USERS).try_for_each(|user| batch.push_json(user.as_bytes()))?;
    let ranked = ranker.rank_batch(&batch)?;
    let scores = ranked.iter().flat_map(|user| user.candidates.iter().map(move |one| (user, one)));
    Ok(scores.map(|(user, one)| (format!("{} {}", user.user, one.item), one.score)).collect())
}

/// Prints a line for each type.
pub fn main() -> Result<(), Box<dyn Error>> {
    let demo = Path::new(DEMO);
    let folder = demo.join("model");
    let (config, weights) = (read_config_text(&folder, Mapping::Large)?, read_weights(&folder, Mapping::Large)?);
    let users = std::fs::read_to_string(demo.join("interactions.jsonl"))?;
    let mut trained = None;
    for (name, weights_in, tables) in TYPES {
        let precision = Precision { weights: weights_in, tables, ..Precision::default() };
        let package = pack("the demo", &config, &weights, &PackOptions { precision, ..PackOptions::default() })?;
        let bytes = package.bytes().len();
        let scores = scores(package.bytes().to_vec(), &users)?;
        let trained = trained.get_or_insert_with(|| scores.clone());
        let change = scores.iter().map(|(key, score)| (score - trained[key]).abs()).fold(0.0, f64::max);
        println!("{name}: {bytes} bytes, largest change of a score {change:.4}");
    }
    Ok(())
}
