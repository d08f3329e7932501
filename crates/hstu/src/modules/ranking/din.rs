use crate::modules::layers::linear;
use crate::modules::{ConfigError, MlpConfig};
use rewire_graph::{Ragged, Scope, Tensor, TypeError};
use serde::Deserialize;

/// Attention of a candidate to a history, with an MLP that computes the score (Zhou et al., Deep Interest Network, 2018).
///
/// For candidate `q` and history rows `k_i` of a sample:
/// `s_i = W mlp([q, k_i, q - k_i, q * k_i]) + c`, `out = sum_i softmax(s)_i k_i`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DinConfig {
    /// The MLP of the score.
    pub attn_mlp: MlpConfig,
}

impl DinConfig {
    /// Checks every width.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.attn_mlp.check().map_err(|error| error.within("attn_mlp"))
    }

    /// Maps candidates `[B, D]` and histories `[total, D]` to `[B, D]`, 0 for an empty history, with the parameters of
    /// `mlp` and `linear`.
    pub fn forward(&self, scope: &Scope, query: &Tensor, history: &Tensor, rows: &Ragged) -> Tensor {
        if query.width() != history.width() {
            let expected = format!("of the width of the history, {}", history.width());
            return scope.fail("din", TypeError::new("query", expected, query.ty()));
        }
        let q = query.jagged_broadcast(rows);
        let pairs = scope.concat(&[&q, history, &(&q - history), &(&q * history)], 1);
        let h = scope.module("mlp", |scope| self.attn_mlp.forward(scope, &pairs));
        let weights = linear(scope, "linear", &h, 1).jagged_softmax(rows);
        (&weights * history).jagged_sum(rows)
    }
}
