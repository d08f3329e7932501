//! Metrics of predictions, accumulated example by example or, with messages of a configuration, batch by batch.
//!
//! With tied scores, [`Auc`], [`GroupedAuc`] and [`TopK`] are means over all orders of the ties.
#![forbid(unsafe_code)]

mod accuracy;
mod auc;
mod binned_auc;
mod config;
mod grouped_auc;
mod mean_error;
mod normalized_entropy;
mod top_k;
mod xauc;

pub use accuracy::Accuracy;
pub use auc::Auc;
pub use binned_auc::{Average, BinnedAuc, MulticlassAuc};
pub use config::{Batch, Metric, MetricConfig, MetricError, Read};
pub use grouped_auc::GroupedAuc;
pub use mean_error::MeanError;
pub use normalized_entropy::NormalizedEntropy;
pub use top_k::TopK;
pub use xauc::{GroupedXauc, xauc};
