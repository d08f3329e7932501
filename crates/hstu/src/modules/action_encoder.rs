use super::{Buffer, ConfigError, parts, scalar, width};
use crate::ops::concat_2d_jagged;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Ragged, Scope, Tensor, TensorSizeError, TypeError};
use serde::Deserialize;

/// The encoder of a user's actions, as `{kind: options}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionEncoderConfig {
    /// A learned embedding for every action bit.
    SimpleActionEncoder(SimpleActionEncoder),
}

/// Options of the simple action encoder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimpleActionEncoder {
    /// Width of the embedding of an action bit.
    pub action_embedding_dim: usize,
    /// Bit masks of the actions.
    pub action_weights: Vec<i64>,
    /// Watch times in seconds from which the corresponding bit of `watchtime_to_action_weights` is set.
    #[serde(default)]
    pub watchtime_to_action_thresholds: Vec<i64>,
    /// Bit masks that are set by watch times.
    #[serde(default)]
    pub watchtime_to_action_weights: Vec<i64>,
    /// Standard deviation of initial embeddings in training.
    #[serde(default)]
    pub embedding_init_std: Option<f64>,
}

impl ActionEncoderConfig {
    /// The encoder.
    pub fn encoder(&self) -> &SimpleActionEncoder {
        let Self::SimpleActionEncoder(encoder) = self;
        encoder
    }
}

impl SimpleActionEncoder {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        width("action_embedding_dim", self.action_embedding_dim)?;
        width("action_weights", self.action_weights.len())?;
        let (thresholds, weights) = (self.watchtime_to_action_thresholds.len(), self.watchtime_to_action_weights.len());
        if thresholds != weights {
            let expected = format!("{thresholds} bits, one a threshold");
            return Err(ConfigError::new("watchtime_to_action_weights", expected, weights));
        }
        parts("watchtime_to_action_thresholds", thresholds)?;
        self.watchtime_to_action_thresholds
            .iter()
            .try_for_each(|&threshold| scalar("watchtime_to_action_thresholds", threshold))
    }

    /// True if watch times are used.
    pub fn reads_watchtimes(&self) -> bool {
        !self.watchtime_to_action_thresholds.is_empty()
    }

    /// All bit masks; those that watch times set come last.
    pub fn combined_action_weights(&self) -> Vec<i64> {
        self.action_weights.iter().chain(&self.watchtime_to_action_weights).copied().collect()
    }

    /// Width of an encoded row.
    pub fn output_dim(&self) -> usize {
        self.combined_action_weights().len() * self.action_embedding_dim
    }

    /// State-dict tensors that follow from the configuration.
    pub fn buffers(&self) -> Result<Vec<Buffer>, TensorSizeError> {
        let weights = HostTensor::lengths(&self.combined_action_weights());
        Ok(vec![Buffer { name: "_combined_action_weights".to_owned(), value: weights }])
    }

    /// For every sample the encoded history rows, followed by the learned target row for every target.
    ///
    /// `actions` are bit masks and `watchtimes` seconds, `[Lu]` or `[Lu, 1]`.
    pub fn forward(
        &self,
        scope: &Scope,
        actions: &Tensor,
        watchtimes: Option<&Tensor>,
        uih: &Ragged,
        targets: &Ragged,
    ) -> (Tensor, Ragged) {
        let history = self.encode(scope, actions, watchtimes, uih);
        let of_targets = self.target(scope).broadcast(&[targets.total.clone(), self.output_dim().into()]);
        concat_2d_jagged(&history, uih, &of_targets, targets)
    }

    /// The learned row of targets, `[1, n * d]`.
    pub fn target(&self, scope: &Scope) -> Tensor {
        scope.weight("_target_action_embedding_table", &[1.into(), self.output_dim().into()])
    }

    /// Encoded history rows, `[Lu, n * d]`, without rows for targets.
    pub fn encode(&self, scope: &Scope, actions: &Tensor, watchtimes: Option<&Tensor>, uih: &Ragged) -> Tensor {
        let weights = self.combined_action_weights();
        let (bits, width) = (weights.len(), self.action_embedding_dim);
        let column = |x: &Tensor| x.reshape(&[uih.total.clone(), 1.into()]);
        let mut mask = column(actions).cast(DType::I64);
        if let Some(watchtimes) = watchtimes {
            for (&threshold, &bit) in self.watchtime_to_action_thresholds.iter().zip(&self.watchtime_to_action_weights)
            {
                let long = column(watchtimes).binary_scalar(BinaryOp::Ge, threshold as f64);
                mask = mask.or(long.select(&long_integer(scope, bit), &long_integer(scope, 0)));
            }
        }
        self.target(scope);
        let table = scope.weight("_action_embedding_table", &[bits.into(), width.into()]);
        let set = mask.and(scope.constant(HostTensor::lengths(&weights))).binary_scalar(BinaryOp::Ne, 0.0);
        let set = set.reshape(&[uih.total.clone(), bits.into(), 1.into()]);
        let rows = set.select(&table, &scope.scalar(DType::F32, 0.0));
        rows.reshape(&[uih.total.clone(), (bits * width).into()])
    }
}

/// An `I64` constant.
fn long_integer(scope: &Scope, value: i64) -> Tensor {
    match HostTensor::i64(vec![], &[value]) {
        Ok(tensor) => scope.constant(tensor),
        Err(error) => scope.fail("constant", TypeError::new("value", "an integer", error)),
    }
}
