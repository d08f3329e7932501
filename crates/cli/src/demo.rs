//! The model and data that are part of the program.

use rewire::rank::{Config, RankError, parse_config};

pub const CONFIG: &str = include_str!("../demo/model/config.json");
/// How the model is trained on the data.
pub const TRAINING: &str = include_str!("../demo/train.json");
pub const WEIGHTS: &[u8] = include_bytes!("../demo/model/model.safetensors");
pub const INTERACTIONS: &[u8] = include_bytes!("../demo/interactions.jsonl");
pub const ITEMS: &[u8] = include_bytes!("../demo/items.csv");

pub fn config() -> Result<Config, RankError> {
    parse_config("the model in the program", CONFIG)
}
