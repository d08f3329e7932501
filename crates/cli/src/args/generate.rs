use super::Placement;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Generate {
    /// Folder of Hugging Face: config.json, and model.safetensors or its index.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// JSON Lines: `id`, and `tokens`, a list.
    #[arg(long, value_name = "FILE")]
    pub prompts: PathBuf,
    /// The valid items, JSON: `items`, a list of lists with one token a level.
    #[arg(long, value_name = "FILE")]
    pub trie: PathBuf,
    /// Width of the beam search: items of a prompt at most.
    #[arg(long, value_name = "N", default_value = "10")]
    pub beams: NonZeroUsize,
    /// Prompts that run together; results do not depend on it.
    #[arg(long, value_name = "N", default_value = "16")]
    pub batch: NonZeroUsize,
    #[command(flatten)]
    pub placement: Placement,
}
