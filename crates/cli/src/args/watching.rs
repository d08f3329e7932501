//! Event files and early stopping of a training.

use std::num::NonZeroU64;
use std::path::PathBuf;

/// Event files and early stopping, for both kinds of models.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Watching {
    /// Write losses, learning rates and the metrics of --eval to this folder as a TensorBoard event file.
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Also evaluate --eval every N steps, not only after every epoch.
    #[arg(long, value_name = "STEPS", requires = "eval")]
    pub eval_every: Option<NonZeroU64>,
    /// The metric of --eval that selects the best model, kept in OUT/best, such as auc_is_click. For errors and losses
    /// lower is better, for all other metrics higher.
    #[arg(long, value_name = "NAME", requires = "eval")]
    pub metric: Option<String>,
    /// Stop after this many consecutive evaluations without an improvement of --metric.
    #[arg(long, value_name = "N", requires = "metric")]
    pub stop_after: Option<NonZeroU64>,
}
