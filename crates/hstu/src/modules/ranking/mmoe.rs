use super::gate::mixture;
use crate::modules::layers::linear;
use crate::modules::{ConfigError, MlpConfig, some_parts};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// Shared experts with one gate per task (Ma et al., Multi-gate Mixture-of-Experts, 2018).
///
/// `out_t = sum_e softmax(W_t gate_t(x) + c_t)_e expert_e(x)`. Typically followed by a [`TowerConfig`](super::TowerConfig) per task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmoeConfig {
    /// The MLP of every expert.
    pub expert_mlp: MlpConfig,
    /// Number of experts.
    pub num_expert: usize,
    /// Number of tasks.
    pub num_task: usize,
    /// The MLP before the linear layer of every gate.
    #[serde(default)]
    pub gate_mlp: Option<MlpConfig>,
}

impl MmoeConfig {
    /// Checks every width and number.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.expert_mlp.check().map_err(|error| error.within("expert_mlp"))?;
        some_parts("num_expert", self.num_expert)?;
        some_parts("num_task", self.num_task)?;
        self.gate_mlp.as_ref().map_or(Ok(()), |mlp| mlp.check().map_err(|error| error.within("gate_mlp")))
    }

    /// Maps rows `[R, D]` to rows `[R, last of expert_mlp]` per task, with the parameters of `expert_mlps.e`, `gate_mlps.t`
    /// and `gate_finals.t`.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Vec<Tensor> {
        let experts: Vec<Tensor> = (0..self.num_expert)
            .map(|expert| scope.module(&format!("expert_mlps.{expert}"), |scope| self.expert_mlp.forward(scope, x)))
            .collect();
        let experts: Vec<&Tensor> = experts.iter().collect();
        (0..self.num_task)
            .map(|task| {
                let h = self.gate_mlp.as_ref().map_or_else(
                    || x.clone(),
                    |mlp| scope.module(&format!("gate_mlps.{task}"), |scope| mlp.forward(scope, x)),
                );
                let logits = linear(scope, &format!("gate_finals.{task}"), &h, self.num_expert);
                mixture(scope, &logits, &experts)
            })
            .collect()
    }
}
