use super::ConfigError;
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// The similarity of a user and an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Similarity {
    /// `<u, v>`
    InnerProduct,
    /// `<u, v> / (|u| |v|)`
    #[default]
    Cosine,
}

/// Finds the items of a table that are most similar to each user.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrievalConfig {
    /// The similarity.
    #[serde(default)]
    pub similarity: Similarity,
    /// Number of items per user.
    pub top_k: usize,
}

/// The retrieved items.
#[derive(Clone, Debug)]
pub struct Retrieved {
    /// Similarities, largest first, `[B, top_k]`.
    pub scores: Tensor,
    /// Row numbers in the item table, `[B, top_k]` of `I32`; -1 for missing items if the table has fewer rows.
    pub items: Tensor,
}

/// Lower bound of the length that vectors are divided by.
const SHORTEST: f64 = 1e-12;

/// Maximum number of items per user. Each item takes a pass over all similarities.
const MOST_ITEMS: usize = 1000;

impl RetrievalConfig {
    /// Checks the number of items.
    ///
    /// # Errors
    /// [`ConfigError`] if it is invalid.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.top_k {
            1..=MOST_ITEMS => Ok(()),
            got => Err(ConfigError::new("top_k", format!("1 to {MOST_ITEMS}"), got)),
        }
    }

    /// Maps users `[B, E]`, such as the rows of [`HstuMatchEncoder`](super::HstuMatchEncoder), and the item table `[N, E]` to the most
    /// similar items per user. Of equal similarities the smaller row number comes first.
    pub fn forward(&self, scope: &Scope, users: &Tensor, items: &Tensor) -> Retrieved {
        users.require("retrieval", "users", users.rank() == 2, "of 2 dimensions", users.ty());
        items.require_shape("retrieval", "items", &[items.dim(0), users.dim(1)]);
        let [users, items] = [users, items].map(|x| match self.similarity {
            Similarity::InnerProduct => x.clone(),
            Similarity::Cosine => x / x.square().sum(1).sqrt().clamp(Some(SHORTEST), None),
        });
        let (scores, items) = scope.top_k(&users.matmul(&items.transpose(0, 1)), self.top_k);
        Retrieved { scores, items }
    }
}
