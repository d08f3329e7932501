use rewire_graph::{Scope, Tensor};

/// Name of the module that contains all tables.
pub const EMBEDDINGS: &str = "embedding";

/// An embedding table with one row per value of a feature.
#[derive(Clone, Debug)]
pub struct EmbeddingTable {
    /// The feature, which is the module's name under `embedding`.
    pub feature: String,
    /// Number of rows.
    pub num_embeddings: usize,
    /// Width of a row.
    pub embedding_dim: usize,
}

impl EmbeddingTable {
    /// The state-dict name of a feature's table.
    pub(crate) fn parameter(feature: &str) -> String {
        format!("{}.weight", module(feature))
    }

    /// Looks up `ids` `[n]`: `[n, embedding_dim]`. An id on the host that is beyond the table fails the run, unless the options of the run
    /// allow it.
    pub fn forward(&self, scope: &Scope, ids: &Tensor) -> Tensor {
        scope.module(&module(&self.feature), |scope| {
            scope.weight("weight", &[self.num_embeddings.into(), self.embedding_dim.into()]).gather(ids)
        })
    }
}

fn module(feature: &str) -> String {
    format!("{EMBEDDINGS}.{feature}")
}
