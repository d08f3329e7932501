use super::{beside, optional_mlp};
use rewire_graph::{Scope, Tensor};
use rewire_hstu::modules::{MlpConfig, NORM_EPS, layer_norm, linear};
use serde::Deserialize;

/// Feed-forward blocks whose input is multiplied by a mask, which is computed from the whole row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MaskNetConfig {
    n_mask_blocks: usize,
    mask_block: MaskBlockConfig,
    #[serde(default)]
    top_mlp: Option<MlpConfig>,
    #[serde(default = "yes")]
    use_parallel: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskBlockConfig {
    #[serde(default = "one")]
    reduction_ratio: f64,
    #[serde(default)]
    aggregation_dim: usize,
    hidden_dim: usize,
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

impl MaskBlockConfig {
    fn forward(&self, scope: &Scope, input: &Tensor, mask: &Tensor) -> Tensor {
        // `reduction_ratio` defaults to a value other than 0, so `aggregation_dim` only applies if the ratio is set to 0.
        let hidden = match self.reduction_ratio {
            ratio if ratio > 0.0 => (input.width() as f64 * ratio) as usize,
            _ => self.aggregation_dim,
        };
        let weights = scope.module("mask_generator", |scope| {
            linear(scope, "2", &linear(scope, "0", mask, hidden).relu(), input.width())
        });
        scope.module("ffn", |scope| {
            layer_norm(scope, "1", &linear(scope, "0", &(input * &weights), self.hidden_dim), NORM_EPS).relu()
        })
    }
}

impl MaskNetConfig {
    /// Maps rows `[B, D]` to the output rows of the top MLP, or of the blocks if there is no top MLP.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Tensor {
        let normed = layer_norm(scope, "ln_emb", x, NORM_EPS);
        let block = |index: usize, input: &Tensor| {
            scope.module(&format!("mask_blocks.{index}"), |scope| self.mask_block.forward(scope, input, x))
        };
        let hidden = match self.use_parallel {
            true => beside(scope, &(0..self.n_mask_blocks).map(|index| block(index, &normed)).collect::<Vec<_>>()),
            false => (0..self.n_mask_blocks).fold(normed, |hidden, index| block(index, &hidden)),
        };
        optional_mlp(scope, "top_mlp", self.top_mlp.as_ref(), &hidden)
    }
}
