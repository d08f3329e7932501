use crate::modules::{ConfigError, rows, width};
use rewire_graph::{Ragged, Scope, Tensor};
use serde::Deserialize;

/// How a bag is pooled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The sum of the embeddings.
    #[default]
    Sum,
    /// The mean of the embeddings.
    Mean,
}

/// Pools the embeddings of a sample's ids: `out_b = pool(W[id] for id of sample b)`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingBag {
    /// Rows of the table.
    pub num_embeddings: usize,
    /// Width of a row.
    pub embedding_dim: usize,
    /// How a bag is pooled.
    #[serde(default)]
    pub mode: Pooling,
}

impl EmbeddingBag {
    /// Checks the extents of the table.
    pub fn check(&self) -> Result<(), ConfigError> {
        rows("num_embeddings", self.num_embeddings)?;
        width("embedding_dim", self.embedding_dim)
    }

    /// Maps ids `[total]` to `[B, embedding_dim]`, zeros for a sample without ids, with the parameter `weight`. An id on the host that is
    /// beyond the table fails the run, unless the options of the run allow it.
    pub fn forward(&self, scope: &Scope, ids: &Tensor, rows: &Ragged) -> Tensor {
        let table = scope.weight("weight", &[self.num_embeddings.into(), self.embedding_dim.into()]);
        match self.mode {
            Pooling::Sum => table.embedding_bag_sum(ids, rows),
            Pooling::Mean => table.embedding_bag_mean(ids, rows),
        }
    }
}
