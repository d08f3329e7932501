use super::{DenseOptimizer, Scheduled};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The optimizer of some dense parameters: an object with `parameters`, and the keys of [`Scheduled`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PartOptimizer {
    /// The parameters.
    pub parameters: BTreeSet<String>,
    /// Their optimizer, and its learning rate.
    #[serde(flatten)]
    pub scheduled: Scheduled<DenseOptimizer>,
}
