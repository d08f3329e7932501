//! Optimizers of dense parameters, as `torch.optim` defines them and with its defaults.

use super::{ConfigError, Configured, number};
use crate::optimizer::{AdadeltaRule, AdagradRule, AdamRule, RmsPropRule, SgdRule};
use crate::{Optimizer, WeightDecay};
use serde::Deserialize;

/// The optimizer of dense parameters.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub enum DenseOptimizer {
    /// Stochastic gradient descent, with momentum.
    #[serde(rename = "sgd_optimizer")]
    Sgd(Sgd),
    /// Duchi et al., 2011.
    #[serde(rename = "adagrad_optimizer")]
    Adagrad(Adagrad),
    /// Kingma and Ba, 2015; its weight decay is part of the gradient.
    #[serde(rename = "adam_optimizer")]
    Adam(Adam),
    /// Loshchilov and Hutter, 2019: Adam with decoupled weight decay.
    #[serde(rename = "adamw_optimizer")]
    AdamW(AdamW),
    /// Zeiler, 2012.
    #[serde(rename = "adadelta_optimizer")]
    Adadelta(Adadelta),
    /// Tieleman and Hinton, 2012.
    #[serde(rename = "rmsprop_optimizer")]
    RmsProp(RmsProp),
}

/// `g += weight_decay w; b = momentum b + (1 - dampening) g; w -= lr b`; `b` is `g` in the first step.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Decay factor of `b`; 0 disables momentum.
    #[serde(default)]
    pub momentum: f64,
    /// Dampening of the gradient in `b`.
    #[serde(default)]
    pub dampening: f64,
    /// Nesterov momentum: `w -= lr (g + momentum b)`; requires a momentum and no dampening.
    #[serde(default)]
    pub nesterov: bool,
    /// Weight decay, part of the gradient.
    #[serde(default)]
    pub weight_decay: f64,
}

/// `g += weight_decay w; h += g^2; w -= lr g / (sqrt h + eps)`
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adagrad {
    /// Learning rate.
    pub lr: f64,
    /// Initial value of `h`.
    #[serde(default)]
    pub initial_accumulator_value: f64,
    /// Added to the root.
    #[serde(default = "eps::<10>")]
    pub eps: f64,
    /// Weight decay, part of the gradient.
    #[serde(default)]
    pub weight_decay: f64,
}

/// `g += weight_decay w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)`, `t` counting steps.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adam {
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
    /// Weight decay, part of the gradient.
    #[serde(default)]
    pub weight_decay: f64,
}

/// [`Adam`] without weight decay in the gradient, and `w -= lr weight_decay w`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamW {
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
    /// Decoupled weight decay: the fraction of the parameter subtracted in a step with learning rate 1.
    #[serde(default = "decoupled")]
    pub weight_decay: f64,
}

/// `g += weight_decay w; s = rho s + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(s + eps) g; u = rho u + (1 - rho) d^2;
/// w -= lr d`
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adadelta {
    /// Learning rate.
    pub lr: f64,
    /// Decay factor of `s` and `u`.
    #[serde(default = "beta1")]
    pub rho: f64,
    /// Added inside the roots.
    #[serde(default = "eps::<6>")]
    pub eps: f64,
    /// Weight decay, part of the gradient.
    #[serde(default)]
    pub weight_decay: f64,
}

/// `g += weight_decay w; s = alpha s + (1 - alpha) g^2; d = g / (sqrt s + eps); b = momentum b + d; w -= lr b`
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsProp {
    /// Learning rate.
    pub lr: f64,
    /// Decay factor of `s`.
    #[serde(default = "alpha")]
    pub alpha: f64,
    /// Added to the root.
    #[serde(default = "eps::<8>")]
    pub eps: f64,
    /// Decay factor of `b`; 0 disables momentum.
    #[serde(default)]
    pub momentum: f64,
    /// True for `sqrt(s - a^2)` instead of `sqrt s`, with `a = alpha a + (1 - alpha) g`.
    #[serde(default)]
    pub centered: bool,
    /// Weight decay, part of the gradient.
    #[serde(default)]
    pub weight_decay: f64,
}

pub(super) fn beta1() -> f64 {
    0.9
}

pub(super) fn beta2() -> f64 {
    0.999
}

fn alpha() -> f64 {
    0.99
}

fn decoupled() -> f64 {
    0.01
}

/// `10^-DIGITS`
pub(super) fn eps<const DIGITS: i32>() -> f64 {
    10f64.powi(-DIGITS)
}

impl Configured for DenseOptimizer {
    fn lr(&self) -> f64 {
        match self {
            Self::Sgd(Sgd { lr, .. })
            | Self::Adagrad(Adagrad { lr, .. })
            | Self::Adam(Adam { lr, .. })
            | Self::AdamW(AdamW { lr, .. })
            | Self::Adadelta(Adadelta { lr, .. })
            | Self::RmsProp(RmsProp { lr, .. }) => *lr,
        }
    }

    fn build(&self) -> Result<Optimizer, ConfigError> {
        let (key, built) = match *self {
            Self::Sgd(sgd) => ("sgd_optimizer", sgd.build()),
            Self::Adagrad(adagrad) => ("adagrad_optimizer", adagrad.build()),
            Self::Adam(adam) => ("adam_optimizer", adam.build()),
            Self::AdamW(adamw) => ("adamw_optimizer", adamw.build()),
            Self::Adadelta(adadelta) => ("adadelta_optimizer", adadelta.build()),
            Self::RmsProp(rmsprop) => ("rmsprop_optimizer", rmsprop.build()),
        };
        number("lr", self.lr(), 0.0..).and(built).map_err(|error| error.within(key))
    }
}

/// An optimizer with weight decay added to the gradient.
fn coupled(rule: impl crate::Rule + 'static, weight_decay: f64) -> Result<Optimizer, ConfigError> {
    number("weight_decay", weight_decay, 0.0..)?;
    Ok(Optimizer::new(rule).with_weight_decay(WeightDecay::Coupled(weight_decay)))
}

impl Sgd {
    fn build(self) -> Result<Optimizer, ConfigError> {
        let Self { momentum, dampening, nesterov, weight_decay, .. } = self;
        number("momentum", momentum, 0.0..)?;
        number("dampening", dampening, ..)?;
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            let actual = format!("true with momentum {momentum} and dampening {dampening}");
            return Err(ConfigError::new("nesterov", "false, or come with a momentum and without dampening", actual));
        }
        coupled(SgdRule { momentum, dampening, nesterov }, weight_decay)
    }
}

impl Adagrad {
    fn build(self) -> Result<Optimizer, ConfigError> {
        let rule = AdagradRule::new(self.initial_accumulator_value, self.eps, false)?;
        coupled(rule, self.weight_decay)
    }
}

impl Adam {
    fn build(self) -> Result<Optimizer, ConfigError> {
        coupled(AdamRule::new([self.beta1, self.beta2], self.eps, false)?, self.weight_decay)
    }
}

impl AdamW {
    fn build(self) -> Result<Optimizer, ConfigError> {
        number("weight_decay", self.weight_decay, 0.0..)?;
        let rule = AdamRule::new([self.beta1, self.beta2], self.eps, false)?;
        Ok(Optimizer::new(rule).with_weight_decay(WeightDecay::Decoupled(self.weight_decay)))
    }
}

impl Adadelta {
    fn build(self) -> Result<Optimizer, ConfigError> {
        number("rho", self.rho, 0.0..=1.0)?;
        number("eps", self.eps, 0.0..)?;
        coupled(AdadeltaRule { rho: self.rho, eps: self.eps }, self.weight_decay)
    }
}

impl RmsProp {
    fn build(self) -> Result<Optimizer, ConfigError> {
        let Self { alpha, eps, momentum, centered, .. } = self;
        number("alpha", alpha, 0.0..=1.0)?;
        number("eps", eps, 0.0..)?;
        number("momentum", momentum, 0.0..)?;
        coupled(RmsPropRule { alpha, eps, momentum, centered }, self.weight_decay)
    }
}
