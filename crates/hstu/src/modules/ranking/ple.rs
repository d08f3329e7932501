use super::gate::mixture;
use crate::modules::layers::linear;
use crate::modules::{ConfigError, MlpConfig, some_parts};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// Layers of task experts and shared experts (Tang et al., Progressive Layered Extraction, 2020).
///
/// A layer reads one row per task and a shared row. A task's gate mixes the task's experts and the shared experts. The shared gate mixes
/// all experts; the last layer has no shared gate: `x_t' = sum_e softmax(W_t x_t + c_t)_e [experts_t(x_t), shared(x_s)]_e`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PleConfig {
    /// The layers, in order.
    pub extraction_networks: Vec<ExtractionConfig>,
    /// Number of tasks.
    pub num_task: usize,
}

/// A layer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtractionConfig {
    /// Name of the layer, which is ignored.
    #[serde(default)]
    pub network_name: String,
    /// Number of experts per task.
    pub expert_num_per_task: usize,
    /// Number of shared experts.
    pub share_num: usize,
    /// The MLP of every expert of a task.
    pub task_expert_net: MlpConfig,
    /// The MLP of every shared expert.
    pub share_expert_net: MlpConfig,
}

impl ExtractionConfig {
    fn check(&self) -> Result<(), ConfigError> {
        some_parts("expert_num_per_task", self.expert_num_per_task)?;
        some_parts("share_num", self.share_num)?;
        self.task_expert_net.check().map_err(|error| error.within("task_expert_net"))?;
        self.share_expert_net.check().map_err(|error| error.within("share_expert_net"))?;
        let (task, share) = (self.task_expert_net.hidden_units.last(), self.share_expert_net.hidden_units.last());
        if task == share {
            return Ok(());
        }
        let expected = format!("an MLP to the width of `task_expert_net`, {}", text(task));
        Err(ConfigError::new("share_expert_net.hidden_units", expected, text(share)))
    }

    fn experts(scope: &Scope, name: &str, mlp: &MlpConfig, count: usize, x: &Tensor) -> Vec<Tensor> {
        let expert = |n| scope.module(&format!("{name}.{n}"), |scope| mlp.forward(scope, x));
        (0..count).map(expert).collect()
    }

    /// The output rows of the tasks, and the shared rows. In the last layer the shared rows are returned unchanged.
    fn forward(&self, scope: &Scope, tasks: &[Tensor], shared: &Tensor, last: bool) -> (Vec<Tensor>, Tensor) {
        let common = Self::experts(scope, "_shared_layers", &self.share_expert_net, self.share_num, shared);
        let mut all = vec![];
        let mut outputs = vec![];
        for (task, x) in tasks.iter().enumerate() {
            let name = format!("_task_layers.{task}");
            let own = Self::experts(scope, &name, &self.task_expert_net, self.expert_num_per_task, x);
            let experts: Vec<&Tensor> = own.iter().chain(&common).collect();
            let logits = linear(scope, &format!("_task_gates.{task}"), x, experts.len());
            outputs.push(mixture(scope, &logits, &experts));
            all.extend(own);
        }
        if last {
            return (outputs, shared.clone());
        }
        let experts: Vec<&Tensor> = all.iter().chain(&common).collect();
        let logits = linear(scope, "_shared_gate", shared, experts.len());
        (outputs, mixture(scope, &logits, &experts))
    }
}

fn text(width: Option<&usize>) -> String {
    width.map_or_else(|| "that of its input".to_owned(), usize::to_string)
}

impl PleConfig {
    /// Checks every width and number.
    pub fn check(&self) -> Result<(), ConfigError> {
        some_parts("extraction_networks", self.extraction_networks.len())?;
        some_parts("num_task", self.num_task)?;
        let within = |n: usize, error: ConfigError| error.within(&format!("extraction_networks.{n}"));
        self.extraction_networks.iter().enumerate().try_for_each(|(n, layer)| layer.check().map_err(|e| within(n, e)))
    }

    /// Maps rows `[R, D]` to rows `[R, last width]` per task, with the parameters of `_extraction_nets.n._task_layers.t.e`,
    /// `_task_gates.t`, `_shared_layers.e` and `_shared_gate`.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Vec<Tensor> {
        let mut tasks = vec![x.clone(); self.num_task];
        let mut shared = x.clone();
        for (n, layer) in self.extraction_networks.iter().enumerate() {
            let last = n + 1 == self.extraction_networks.len();
            (tasks, shared) =
                scope.module(&format!("_extraction_nets.{n}"), |scope| layer.forward(scope, &tasks, &shared, last));
        }
        tasks
    }
}
