use super::model::{WEIGHTS, storage};
use super::{Placement, RequiredModel};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rewire::graph::DType;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Generate {
    #[command(flatten)]
    pub model: RequiredModel,
    /// JSON Lines: `id`, and `tokens`, a list.
    #[arg(long, value_name = "FILE")]
    pub prompts: PathBuf,
    /// The valid items, JSON: `items`, a list of lists of tokens of any length. Without it, tokens are sampled.
    #[arg(long, value_name = "FILE")]
    pub trie: Option<PathBuf>,
    /// Beam width: the maximum number of items per prompt.
    #[arg(long, value_name = "N", default_value = "10", requires = "trie")]
    pub beams: NonZeroUsize,
    /// Prompts per batch; results do not depend on it.
    #[arg(long, value_name = "N", default_value = "16")]
    pub batch: NonZeroUsize,
    /// Maximum number of new tokens per prompt.
    #[arg(long, value_name = "N", default_value = "32", conflicts_with = "trie")]
    pub tokens: NonZeroUsize,
    /// Sampling temperature; 0 selects the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.0, conflicts_with = "trie")]
    pub temperature: f64,
    /// Sample only from the K most likely tokens (top-k).
    #[arg(long, value_name = "K", conflicts_with = "trie")]
    pub top_k: Option<usize>,
    /// Sample only from the smallest set of most likely tokens whose probabilities add up to P (top-p).
    #[arg(long, value_name = "P", default_value_t = 1.0, conflicts_with = "trie")]
    pub top_p: f64,
    /// Seed of the random numbers.
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with = "trie")]
    pub seed: u64,
    /// A token that ends a sequence, in addition to `eos_token_id` of the configuration. May be given several times.
    #[arg(long, value_name = "TOKEN", conflicts_with = "trie")]
    pub stop: Vec<u32>,
    /// Storage of weights: f32, f16 or bf16, or matrices as int8 rows with a scale each, or as int4 with one per 32
    /// columns; the model's types if left out.
    #[arg(long, value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(WEIGHTS).try_map(|text| storage(&text)))]
    pub dtype: Option<DType>,
    #[command(flatten)]
    pub placement: Placement,
}
