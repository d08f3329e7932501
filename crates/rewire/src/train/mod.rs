//! Training of ranking models: a [`RankTask`] trains the model that a [`Ranker`](crate::rank::Ranker) uses.
//!
//! [`rewire_train`], re-exported here, describes the training step and the training of custom models.

mod checkpoint;
mod error;
mod examples;
mod initial;
mod objective;
mod pipeline;
mod task;
mod written;

pub use checkpoint::Checkpoint;
pub use error::{ExampleError, RankTrainError};
pub use examples::Examples;
pub use initial::initial;
pub use objective::objective;
pub use pipeline::{Begin, PipelineTask, Tensors};
pub use rewire_features::NegativeRow;
pub use rewire_train::*;
pub use task::RankTask;
