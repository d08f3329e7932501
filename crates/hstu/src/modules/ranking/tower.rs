use crate::modules::layers::linear;
use crate::modules::{ConfigError, MlpConfig, width};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// An MLP followed by a linear layer to logits: `W mlp(x) + c`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TowerConfig {
    /// The MLP.
    pub mlp: MlpConfig,
    /// Number of logits.
    #[serde(default = "num_class")]
    pub num_class: usize,
}

fn num_class() -> usize {
    1
}

impl TowerConfig {
    /// Checks every width.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.mlp.check().map_err(|error| error.within("mlp"))?;
        width("num_class", self.num_class)
    }

    /// Maps rows `[R, D]` to logits `[R, num_class]`, with the parameters of `tower_mlp` and `linear`.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Tensor {
        let h = scope.module("tower_mlp", |scope| self.mlp.forward(scope, x));
        linear(scope, "linear", &h, self.num_class)
    }
}
