//! The built-in model and data.

use rewire::rank::{Config, RankError, parse_config};

pub const CONFIG: &str = include_str!("../demo/model/config.json");
/// The training configuration of the built-in model.
pub const TRAINING: &str = include_str!("../demo/train.json");
pub const WEIGHTS: &[u8] = include_bytes!("../demo/model/model.safetensors");
pub const INTERACTIONS: &[u8] = include_bytes!("../demo/interactions.jsonl");
pub const ITEMS: &[u8] = include_bytes!("../demo/items.csv");

pub fn config() -> Result<Config, RankError> {
    parse_config("the built-in model", CONFIG)
}
