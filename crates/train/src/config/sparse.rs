//! Optimizers of tables. They change only the rows looked up in a step.

use super::dense::{beta1, beta2, eps};
use super::{ConfigError, Configured, number};
use crate::optimizer::{AdagradRule, AdamRule, SgdRule};
use crate::{Optimizer, WeightDecay};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The optimizer of tables.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub enum SparseOptimizer {
    /// `w -= lr g`
    #[serde(rename = "sgd_optimizer")]
    Sgd(TableSgd),
    /// `h += g^2; w -= lr g / (sqrt h + eps)`
    #[serde(rename = "adagrad_optimizer")]
    Adagrad(TableAdagrad),
    /// `h += mean(g^2); w -= lr g / (sqrt h + eps)`, with one `h` per row.
    #[serde(rename = "rowwise_adagrad_optimizer")]
    RowwiseAdagrad(TableAdagrad),
    /// `w -= lr ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w)`, with `m` and `v` as in
    /// [`Adam`](super::Adam), changed only in the looked-up rows, and `t` counting all steps.
    #[serde(rename = "adam_optimizer")]
    Adam(TableAdam),
    /// As `Adam`, with one `v` per row, of `mean(g^2)`.
    #[serde(rename = "partial_rowwise_adam_optimizer")]
    PartialRowwiseAdam(TableAdam),
    /// Optimizers of the LAMB and LARS families, Adadelta and RMSprop, which are not supported for tables.
    #[serde(
        rename = "lamb_optimizer",
        alias = "partial_rowwise_lamb_optimizer",
        alias = "lars_sgd_optimizer",
        alias = "adadelta_optimizer",
        alias = "rmsprop_optimizer"
    )]
    Unsupported(IgnoredAny),
}

/// Gradient descent on rows.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSgd {
    /// Learning rate.
    pub lr: f64,
    /// True clips each element of the gradient to `-max_gradient..=max_gradient`.
    #[serde(default)]
    pub gradient_clipping: bool,
    /// The largest absolute value of a clipped element.
    #[serde(default = "unit")]
    pub max_gradient: f64,
}

/// Adagrad on rows.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableAdagrad {
    /// Learning rate.
    pub lr: f64,
    /// Initial value of `h`.
    #[serde(default)]
    pub initial_accumulator_value: f64,
    /// Added to the root.
    #[serde(default = "eps::<8>")]
    pub eps: f64,
    /// The weight decay that `weight_decay_mode` applies.
    #[serde(default)]
    pub weight_decay: f64,
    /// How weight decay is applied.
    #[serde(default)]
    pub weight_decay_mode: WeightDecayMode,
    /// True clips each element of the gradient to `-max_gradient..=max_gradient`.
    #[serde(default)]
    pub gradient_clipping: bool,
    /// The largest absolute value of a clipped element.
    #[serde(default = "unit")]
    pub max_gradient: f64,
}

/// How weight decay is applied to looked-up rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum WeightDecayMode {
    /// No weight decay.
    #[default]
    #[serde(rename = "NONE")]
    None,
    /// The gradient is `g + weight_decay w`.
    #[serde(rename = "L2")]
    L2,
    /// Additionally `w -= lr weight_decay w`.
    #[serde(rename = "DECOUPLE")]
    Decouple,
}

/// Adam on rows.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableAdam {
    /// Learning rate.
    pub lr: f64,
    /// Decay factor of `m`.
    #[serde(default = "beta1")]
    pub beta1: f64,
    /// Decay factor of `v`.
    #[serde(default = "beta2")]
    pub beta2: f64,
    /// Added to the root.
    #[serde(default = "eps::<8>")]
    pub eps: f64,
    /// Decoupled weight decay: the fraction of a row subtracted in a step with learning rate 1.
    #[serde(default)]
    pub weight_decay: f64,
    /// True clips each element of the gradient to `-max_gradient..=max_gradient`.
    #[serde(default)]
    pub gradient_clipping: bool,
    /// The largest absolute value of a clipped element.
    #[serde(default = "unit")]
    pub max_gradient: f64,
}

fn unit() -> f64 {
    1.0
}

impl Configured for SparseOptimizer {
    fn lr(&self) -> f64 {
        match self {
            Self::Sgd(TableSgd { lr, .. })
            | Self::Adagrad(TableAdagrad { lr, .. })
            | Self::RowwiseAdagrad(TableAdagrad { lr, .. })
            | Self::Adam(TableAdam { lr, .. })
            | Self::PartialRowwiseAdam(TableAdam { lr, .. }) => *lr,
            Self::Unsupported(_) => 0.0,
        }
    }

    fn build(&self) -> Result<Optimizer, ConfigError> {
        let (key, built) = match *self {
            Self::Sgd(sgd) => ("sgd_optimizer", sgd.build()),
            Self::Adagrad(adagrad) => ("adagrad_optimizer", adagrad.build(false)),
            Self::RowwiseAdagrad(adagrad) => ("rowwise_adagrad_optimizer", adagrad.build(true)),
            Self::Adam(adam) => ("adam_optimizer", adam.build(false)),
            Self::PartialRowwiseAdam(adam) => ("partial_rowwise_adam_optimizer", adam.build(true)),
            Self::Unsupported(_) => {
                return Err(ConfigError::Unsupported {
                    key: String::new(),
                    actual: "of the LAMB or LARS family, Adadelta or RMSprop".to_owned(),
                    supported: "sgd_optimizer, adagrad_optimizer, rowwise_adagrad_optimizer, adam_optimizer and \
                                partial_rowwise_adam_optimizer"
                        .to_owned(),
                });
            }
        };
        number("lr", self.lr(), 0.0..).and(built).map_err(|error| error.within(key))
    }
}

/// An optimizer that clips elements of gradients if `gradient_clipping` is true.
fn clipped(optimizer: Optimizer, gradient_clipping: bool, max_gradient: f64) -> Result<Optimizer, ConfigError> {
    number("max_gradient", max_gradient, 0.0..)?;
    Ok(if gradient_clipping { optimizer.with_max_gradient(max_gradient) } else { optimizer })
}

impl TableSgd {
    fn build(self) -> Result<Optimizer, ConfigError> {
        let rule = SgdRule { momentum: 0.0, dampening: 0.0, nesterov: false };
        clipped(Optimizer::new(rule), self.gradient_clipping, self.max_gradient)
    }
}

impl TableAdagrad {
    fn build(self, by_row: bool) -> Result<Optimizer, ConfigError> {
        number("weight_decay", self.weight_decay, 0.0..)?;
        let rule = AdagradRule::new(self.initial_accumulator_value, self.eps, by_row)?;
        let decay = match self.weight_decay_mode {
            WeightDecayMode::None => WeightDecay::None,
            WeightDecayMode::L2 => WeightDecay::Coupled(self.weight_decay),
            WeightDecayMode::Decouple => WeightDecay::Decoupled(self.weight_decay),
        };
        clipped(Optimizer::new(rule).with_weight_decay(decay), self.gradient_clipping, self.max_gradient)
    }
}

impl TableAdam {
    fn build(self, by_row: bool) -> Result<Optimizer, ConfigError> {
        number("weight_decay", self.weight_decay, 0.0..)?;
        let rule = AdamRule::new([self.beta1, self.beta2], self.eps, by_row)?;
        let optimizer = Optimizer::new(rule).with_weight_decay(WeightDecay::Decoupled(self.weight_decay));
        clipped(optimizer, self.gradient_clipping, self.max_gradient)
    }
}
