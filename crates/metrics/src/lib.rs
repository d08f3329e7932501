//! Figures of how well models rank, gathered example by example.
//!
//! What has equal scores is in any order: every figure is its mean over all of them.
#![forbid(unsafe_code)]

mod auc;
mod grouped_auc;
mod normalized_entropy;
mod top_k;

pub use auc::Auc;
pub use grouped_auc::GroupedAuc;
pub use normalized_entropy::NormalizedEntropy;
pub use top_k::TopK;
