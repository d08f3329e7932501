use super::layers::linear;
use super::{ConfigError, width};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;
use std::collections::HashSet;

/// The tasks of a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FusionMtlTowerConfig {
    /// One a logit.
    pub task_configs: Vec<TaskConfig>,
}

/// A task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// The name.
    pub task_name: String,
    /// The action bits that are its label.
    #[serde(default)]
    pub task_bitmask: i64,
    /// What its loss is multiplied by in training.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// Logits of all tasks from the product of a user's and an item's vector.
#[derive(Clone, Debug)]
pub struct FusionMtlTower {
    /// The tasks.
    pub config: FusionMtlTowerConfig,
}

impl FusionMtlTowerConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that has no possible value.
    pub fn check(&self) -> Result<(), ConfigError> {
        width("task_configs", self.task_configs.len())?;
        let mut names = HashSet::new();
        for task in &self.task_configs {
            if !(task.weight >= 0.0 && task.weight.is_finite()) {
                return Err(ConfigError::new("task_configs.weight", "0 or above", task.weight));
            }
            if !names.insert(&task.task_name) {
                return Err(ConfigError::new("task_configs", "tasks of different names", &task.task_name));
            }
        }
        Ok(())
    }
}

impl FusionMtlTower {
    /// `[R, D]` each to logits `[R, tasks]`.
    pub fn forward(&self, scope: &Scope, user: &Tensor, item: &Tensor) -> Tensor {
        linear(scope, "linear", &(user * item), self.config.task_configs.len())
    }
}
