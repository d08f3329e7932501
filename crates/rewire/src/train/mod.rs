//! Training of ranking models: [`RankTask`] makes the model that a [`Ranker`](crate::rank::Ranker) ranks with.
//!
//! What a step computes, and how models of one's own are trained, is in [`rewire_train`], which is here as well.

mod checkpoint;
mod error;
mod examples;
mod initial;
mod objective;
mod pipeline;
mod task;

pub use checkpoint::Checkpoint;
pub use error::{ExampleError, RankTrainError};
pub use examples::Examples;
pub use initial::initial;
pub use objective::objective;
pub use pipeline::{PipelineTask, Tensors};
pub use rewire_features::NegativeRow;
pub use rewire_train::*;
pub use task::RankTask;
