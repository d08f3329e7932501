use super::{OptionalModel, Stored, Weights};
use rewire::graph_rewrite::device::Tuning;
use std::path::PathBuf;

/// Two models to compare by their scores.
#[derive(Debug, clap::Args)]
pub struct Compare {
    #[command(flatten)]
    pub model: OptionalModel,
    /// The other model, a folder or a package.
    #[arg(long, value_name = "MODEL")]
    pub against: PathBuf,
    /// Users with or without labels: JSON Lines or Parquet; the built-in data if left out.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Tuning of all kernels: a list such as split_sums=true.
    #[arg(long, env = "REWIRE_TUNING", value_name = "TUNING", default_value_t)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub weights: Weights,
}
