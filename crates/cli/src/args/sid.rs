use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Semantic ids of items.
#[derive(Debug, clap::Args)]
pub struct Sid {
    /// The table with vectors of items: JSON Lines, CSV or Parquet.
    #[arg(long, value_name = "FILE")]
    pub items: PathBuf,
    /// The column with the ids of items, integers.
    #[arg(long, value_name = "COLUMN", default_value = "item_id")]
    pub item: String,
    /// The column with the vectors of items.
    #[arg(long, value_name = "COLUMN", default_value = "item_tower_emb")]
    pub item_vector: String,
    /// Codes of each level.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "256,256,256")]
    pub codes: Vec<NonZeroUsize>,
    /// The token of the first code of the first level. The tokens of the other codes and levels follow.
    #[arg(long, value_name = "TOKEN", default_value_t = 0)]
    pub first_token: u32,
    /// Passes of k-means over the vectors of a level.
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub iterations: usize,
    /// Train a residual-quantized autoencoder with this training configuration (JSON), and quantize its encodings of
    /// the vectors. Its parameters are written as `model.safetensors`.
    #[arg(long, value_name = "FILE")]
    pub rq_vae: Option<PathBuf>,
    /// Elements of an encoding.
    #[arg(long, value_name = "N", default_value = "64", requires = "rq_vae")]
    pub width: NonZeroUsize,
    /// Widths of the layers between the vectors and their encoding.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "256", requires = "rq_vae")]
    pub hidden: Vec<NonZeroUsize>,
    /// Normalize the residuals of vectors to length 1 before each level.
    #[arg(long)]
    pub normalize_residuals: bool,
    /// Seed of the random numbers.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// The folder for `codebooks.safetensors`, the centroids of each level; `items.jsonl`, the codes and tokens of each item; and `trie.json`, the items in the
    /// same order, which `generate --trie` reads.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
