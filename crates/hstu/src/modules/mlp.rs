use super::layers::layer_norm;
use super::{Activation, ConfigError, NORM_EPS, parts, ratio, width};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// An MLP: for every entry of `hidden_units` a linear map, a norm and the activation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpConfig {
    /// Width of every block.
    #[serde(default)]
    pub hidden_units: Vec<usize>,
    /// The function at the end of a block.
    #[serde(default)]
    pub activation: Activation,
    /// Batch norm, in the form used after learning.
    #[serde(default)]
    pub use_bn: bool,
    /// Layer norm.
    #[serde(default)]
    pub use_ln: bool,
    /// A bias in the linear map; never with batch norm.
    #[serde(default = "bias")]
    pub bias: bool,
    /// Dropout of every block while learning, one entry a block or one for all.
    #[serde(default)]
    pub dropout_ratio: Option<Vec<f32>>,
}

fn bias() -> bool {
    true
}

impl MlpConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that has no possible value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.use_bn && self.use_ln {
            return Err(ConfigError::new("use_ln", "false where `use_bn` is true", true));
        }
        let blocks = self.hidden_units.len();
        parts("hidden_units", blocks)?;
        if let Some(ratios) = &self.dropout_ratio {
            if ratios.len() > 1 && ratios.len() != blocks {
                let expected = format!("one entry, or {blocks}, one a block of `hidden_units`");
                return Err(ConfigError::new("dropout_ratio", expected, ratios.len()));
            }
            ratios.iter().try_for_each(|&value| ratio("dropout_ratio", value))?;
        }
        self.hidden_units.iter().try_for_each(|&units| width("hidden_units", units))
    }

    /// The width of the result for rows of width `input`.
    pub fn output_dim(&self, input: usize) -> usize {
        self.hidden_units.last().copied().unwrap_or(input)
    }

    /// Rows `[R, Din]` to rows `[R, last of hidden_units]`.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Tensor {
        self.forward_blocks(scope, x).pop().unwrap_or_else(|| x.clone())
    }

    /// The rows `[R, hidden_units[i]]` that each block gives, of which the last are those of [`MlpConfig::forward`].
    pub fn forward_blocks(&self, scope: &Scope, x: &Tensor) -> Vec<Tensor> {
        self.blocks(scope, x, 0)
    }

    /// [`MlpConfig::forward`] for steps of sequences, whose batch norms the reference places between two transpositions.
    pub fn forward_steps(&self, scope: &Scope, x: &Tensor) -> Tensor {
        self.blocks(scope, x, usize::from(self.use_bn)).pop().unwrap_or_else(|| x.clone())
    }

    /// `turns` transpositions precede a norm, and as many follow it.
    fn blocks(&self, scope: &Scope, x: &Tensor, turns: usize) -> Vec<Tensor> {
        let mut all: Vec<Tensor> = vec![];
        for (block, &width) in self.hidden_units.iter().enumerate() {
            let x = all.last().unwrap_or(x);
            let next = scope.module(&format!("mlp.{block}"), |scope| {
                scope.dropout(&self.block(scope, x, width, turns), self.dropout(block))
            });
            all.push(next);
        }
        all
    }

    fn dropout(&self, block: usize) -> f32 {
        match self.dropout_ratio.as_deref() {
            Some([all]) => *all,
            Some(ratios) => ratios.get(block).copied().unwrap_or(0.0),
            None => 0.0,
        }
    }

    fn block(&self, scope: &Scope, x: &Tensor, width: usize, turns: usize) -> Tensor {
        let h = scope.module("perceptron.0", |scope| {
            let weight = scope.weight("weight", &[width.into(), x.width().into()]);
            let bias = (self.bias && !self.use_bn).then(|| scope.weight("bias", &[width.into()]));
            x.linear(&weight, bias.as_ref())
        });
        let normed = match (self.use_bn, self.use_ln) {
            (true, _) => scope.module(&format!("perceptron.{}", 1 + turns), |scope| batch_norm(scope, &h)),
            (_, true) => layer_norm(scope, "perceptron.1", &h, NORM_EPS),
            _ => h,
        };
        let place = 1 + usize::from(self.use_bn || self.use_ln) + 2 * turns;
        scope.module(&format!("perceptron.{place}"), |scope| self.activation.forward(scope, &normed))
    }
}

fn batch_norm(scope: &Scope, x: &Tensor) -> Tensor {
    let [mean, variance, weight, bias] =
        ["running_mean", "running_var", "weight", "bias"].map(|name| scope.weight(name, &[x.width().into()]));
    // Statistics are no parameters that gradients move.
    x.batch_norm(x.rank().saturating_sub(1), [&mean.detach(), &variance.detach(), &weight, &bias], NORM_EPS)
}
