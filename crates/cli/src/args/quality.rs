//! The quality of trained models.

use std::num::NonZeroU64;
use std::path::PathBuf;

/// Trainings with averaged metrics.
#[derive(Debug, clap::Args)]
pub struct Quality {
    /// Train the given pipelines, files that end in .config, once per seed, and average the metrics of --eval.
    #[arg(long, requires_all = ["ops", "data", "eval"],
          conflicts_with_all = ["sweep", "suite", "compare", "records", "svg", "markdown"])]
    pub quality: bool,
    /// Tables to train on.
    #[arg(long, value_name = "FILE", requires = "quality")]
    pub data: Vec<PathBuf>,
    /// The table to evaluate on.
    #[arg(long, value_name = "FILE", requires = "quality")]
    pub eval: Option<PathBuf>,
    /// Negatives of pipelines with a sampler, as for `train`.
    #[arg(long, value_name = "FILE", requires = "quality")]
    pub negatives: Option<PathBuf>,
    /// Trainings per pipeline, with the seeds 0, 1, ..
    #[arg(long, value_name = "K", default_value = "3", requires = "quality")]
    pub seeds: NonZeroU64,
    /// Compare with earlier `--quality --json` output; any regression is an error.
    #[arg(long, value_name = "FILE", requires = "quality")]
    pub baseline: Option<PathBuf>,
    /// Tolerated change of a mean metric in percent.
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = super::measure::percentage, requires = "quality")]
    pub tolerance: f64,
}
