//! How a training is watched.

use std::num::NonZeroU64;
use std::path::PathBuf;

/// What a training records, and when it ends early. For models of either kind.
#[derive(Debug, Default, clap::Args)]
pub struct Watching {
    /// Write losses, learning rates and the metrics of --eval into this folder as an event file of TensorBoard.
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Also evaluate --eval every so many steps, not only at the end of an epoch.
    #[arg(long, value_name = "STEPS", requires = "eval")]
    pub eval_every: Option<NonZeroU64>,
    /// The metric of --eval by which OUT/best keeps the best model, such as auc_is_click. Metrics of errors and losses are better
    /// where they are smaller, all others where they are larger.
    #[arg(long, value_name = "NAME", requires = "eval")]
    pub metric: Option<String>,
    /// Stop after so many evaluations in a row that did not improve --metric.
    #[arg(long, value_name = "N", requires = "metric")]
    pub stop_after: Option<NonZeroU64>,
}
