use super::layers::{layer_norm, statistics};
use super::{Activation, ConfigError, NORM_EPS, parts, ratio, width};
use rewire_graph::{DType, Mode, Ragged, Scope, Tensor};
use serde::Deserialize;

/// An MLP with one block per entry of `hidden_units`: a linear layer, an optional norm and the activation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpConfig {
    /// Widths of the blocks.
    #[serde(default)]
    pub hidden_units: Vec<usize>,
    /// The activation function of a block.
    #[serde(default)]
    pub activation: Activation,
    /// Batch norm, with running statistics in inference and batch statistics in training.
    #[serde(default)]
    pub use_bn: bool,
    /// Layer norm.
    #[serde(default)]
    pub use_ln: bool,
    /// Whether linear layers have a bias; never with batch norm.
    #[serde(default = "bias")]
    pub bias: bool,
    /// Dropout ratios of the blocks in training: one per block, or one for all.
    #[serde(default)]
    pub dropout_ratio: Option<Vec<f32>>,
}

fn bias() -> bool {
    true
}

/// Padding rows of sequences. The reference includes them in batch statistics in training.
pub struct Padding {
    /// The rows `[P, Din]`.
    pub rows: Tensor,
    /// Number of occurrences of each row, F32 `[P]`.
    pub counts: Tensor,
}

impl MlpConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
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

    /// Width of the output for rows of width `input`.
    pub fn output_dim(&self, input: usize) -> usize {
        self.hidden_units.last().copied().unwrap_or(input)
    }

    /// Maps rows `[R, Din]` to rows `[R, last of hidden_units]`.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Tensor {
        self.forward_blocks(scope, x).pop().unwrap_or_else(|| x.clone())
    }

    /// The output rows `[R, hidden_units[i]]` of each block. The last one is the result of [`MlpConfig::forward`].
    pub fn forward_blocks(&self, scope: &Scope, x: &Tensor) -> Vec<Tensor> {
        self.blocks(scope, x, 0, None)
    }

    /// [`MlpConfig::forward`] for steps of sequences. The reference transposes before and after their batch norms, which shifts parameter
    /// names, and pads the sequences: `padding` is called if batch statistics depend on it.
    pub fn forward_steps(&self, scope: &Scope, x: &Tensor, padding: impl FnOnce() -> Option<Padding>) -> Tensor {
        let turns = usize::from(self.use_bn);
        let last = |x: &Tensor, counts| self.blocks(scope, x, turns, counts).pop().unwrap_or_else(|| x.clone());
        let reads_batch = scope.mode() == Mode::Train && (self.use_bn || self.activation == Activation::Dice);
        let Some(Padding { rows, counts }) = reads_batch.then(padding).flatten() else {
            return last(x, None);
        };
        let all = scope.concat(&[x, &rows], 0);
        let once = scope.scalar(DType::F32, 1.0).broadcast([x.dim(0)]);
        let counts = scope.concat(&[&once, &counts], 0);
        let [whole, kept] = [&all, x].map(|x| Ragged::dense(scope, 1, &scope.host_size(x.dim(0))));
        last(&all, Some(&counts)).jagged_head(&whole, &kept)
    }

    /// The reference has `turns` transpositions before each norm and after it. Row `r` counts `counts[r]` times in batch statistics.
    fn blocks(&self, scope: &Scope, x: &Tensor, turns: usize, counts: Option<&Tensor>) -> Vec<Tensor> {
        let mut all: Vec<Tensor> = vec![];
        for (block, &width) in self.hidden_units.iter().enumerate() {
            let x = all.last().unwrap_or(x);
            let next = scope.module(&format!("mlp.{block}"), |scope| {
                scope.dropout(&self.block(scope, x, width, (turns, counts)), self.dropout(block))
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

    fn block(&self, scope: &Scope, x: &Tensor, width: usize, (turns, counts): (usize, Option<&Tensor>)) -> Tensor {
        let h = scope.module("perceptron.0", |scope| {
            let weight = scope.weight("weight", &[width.into(), x.width().into()]);
            let bias = (self.bias && !self.use_bn).then(|| scope.weight("bias", &[width.into()]));
            x.linear(&weight, bias.as_ref())
        });
        let normed = match (self.use_bn, self.use_ln) {
            (true, _) => scope.module(&format!("perceptron.{}", 1 + turns), |scope| batch_norm(scope, &h, counts)),
            (_, true) => layer_norm(scope, "perceptron.1", &h, NORM_EPS),
            _ => h,
        };
        let place = 1 + usize::from(self.use_bn || self.use_ln) + 2 * turns;
        scope.module(&format!("perceptron.{place}"), |scope| self.activation.counted(scope, &normed, counts))
    }
}

fn batch_norm(scope: &Scope, x: &Tensor, counts: Option<&Tensor>) -> Tensor {
    let [mean, variance] = statistics(scope, x, counts);
    let [weight, bias] = ["weight", "bias"].map(|name| scope.weight(name, [x.width()]));
    x.batch_norm(x.rank().saturating_sub(1), [&mean, &variance, &weight, &bias], NORM_EPS)
}
