use super::layers::linear;
use super::{ConfigError, MlpConfig, width};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;
use std::collections::HashSet;

/// The tasks of a model, and their shared MLP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FusionMtlTowerConfig {
    /// The MLP between the product of the vectors and the linear layer; `None` for the identity.
    #[serde(default)]
    pub mlp: Option<MlpConfig>,
    /// The tasks, in the order of their logits.
    pub task_configs: Vec<TaskConfig>,
}

/// A task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// The name.
    pub task_name: String,
    /// Bits of the action mask that make its label positive.
    #[serde(default)]
    pub task_bitmask: i64,
    /// The weight of its loss in training.
    #[serde(default = "one")]
    pub weight: f64,
    /// Number of logits.
    #[serde(default = "num_class")]
    pub num_class: usize,
}

fn one() -> f64 {
    1.0
}

fn num_class() -> usize {
    1
}

/// Logits of all tasks from the elementwise product of a user vector and an item vector.
#[derive(Clone, Debug)]
pub struct FusionMtlTower {
    /// The tasks.
    pub config: FusionMtlTowerConfig,
}

impl FusionMtlTowerConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(mlp) = &self.mlp {
            mlp.check().map_err(|error| error.within("mlp"))?;
        }
        width("task_configs", self.task_configs.len())?;
        let mut names = HashSet::new();
        for task in &self.task_configs {
            width("task_configs.num_class", task.num_class)?;
            if !(task.weight >= 0.0 && task.weight.is_finite()) {
                return Err(ConfigError::new("task_configs.weight", "0 or above", task.weight));
            }
            if !names.insert(&task.task_name) {
                return Err(ConfigError::new("task_configs", "tasks of different names", &task.task_name));
            }
        }
        width("task_configs.num_class", self.num_logits())
    }

    /// Total number of logits of all tasks.
    pub fn num_logits(&self) -> usize {
        self.task_configs.iter().fold(0, |sum, task| sum.saturating_add(task.num_class))
    }
}

impl FusionMtlTower {
    /// Maps `user` and `item` `[R, D]` to logits `[R, logits]`, concatenated by task.
    pub fn forward(&self, scope: &Scope, user: &Tensor, item: &Tensor) -> Tensor {
        let product = user * item;
        let hidden = match &self.config.mlp {
            Some(mlp) => scope.module("tower_mlp", |scope| mlp.forward(scope, &product)),
            None => product,
        };
        linear(scope, "linear", &hidden, self.config.num_logits())
    }
}
