//! Layers of ranking models that are often combined with a sequence model.

mod cross;
mod din;
mod embedding_bag;
mod fm;
mod gate;
mod interaction;
mod mmoe;
mod ple;
mod tower;

pub use cross::{CrossConfig, CrossV2Config};
pub use din::DinConfig;
pub use embedding_bag::{EmbeddingBag, Pooling};
pub use fm::{DeepFmConfig, factorization_machine};
pub use interaction::{dlrm_interaction, pairwise_dots};
pub use mmoe::MmoeConfig;
pub use ple::{ExtractionConfig, PleConfig};
pub use tower::TowerConfig;
