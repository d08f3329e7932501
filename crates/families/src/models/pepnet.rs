use super::{Model, Predictions, named};
use crate::modules::{TaskConfig, beside};
use rewire_features::Problems;
use rewire_graph::{Scope, Tensor};
use rewire_hstu::modules::{Activation, linear};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pepnet {
    #[serde(default)]
    epnet_hidden_unit: Option<usize>,
    #[serde(default = "two")]
    epnet_gamma: f64,
    ppnet_hidden_units: Vec<usize>,
    #[serde(default)]
    ppnet_activation: Activation,
    #[serde(default = "two")]
    ppnet_gamma: f64,
    #[serde(default)]
    domain_input_name: Option<String>,
    #[serde(default = "one")]
    task_domain_num: usize,
    task_towers: Vec<TaskConfig>,
    #[serde(default)]
    ppnet_dropout_ratio: Vec<f32>,
}

impl Pepnet {
    /// The dropout ratio of a layer. A list with one entry applies to all layers.
    fn dropout(&self, layer: usize) -> f32 {
        match self.ppnet_dropout_ratio.as_slice() {
            [all] => *all,
            ratios => ratios.get(layer).copied().unwrap_or(0.0),
        }
    }
}

fn two() -> f64 {
    2.0
}

fn one() -> usize {
    1
}

/// `gamma sigmoid(W_2 relu(W_0 z))`
fn gate(scope: &Scope, z: &Tensor, hidden: usize, out: usize, gamma: f64) -> Tensor {
    scope.module("dense_layers", |scope| {
        linear(scope, "2", &linear(scope, "0", z, hidden).relu(), out).sigmoid() * gamma
    })
}

pub(super) fn pepnet(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Pepnet = model.read()?;
    let scope = model.scope;
    let mut x = model.dense("all")?.values;
    if model.features.group("domain").is_some() {
        let z = beside(scope, &[model.dense("domain")?.values, x.detach()]);
        let hidden = config.epnet_hidden_unit.unwrap_or(x.width());
        let weights = scope.module("epnet.gate_nu", |scope| gate(scope, &z, hidden, x.width(), config.epnet_gamma));
        x = &x * &weights;
    }
    let z = beside(scope, &[model.dense("uia")?.values, x.detach()]);
    let domains = if config.domain_input_name.is_some() { config.task_domain_num } else { 1 };
    let mut all = vec![];
    for (index, task) in config.task_towers.iter().enumerate() {
        let hidden = scope.module("ppnet", |scope| personalized(scope, &config, index, &x, &z));
        for domain in 0..domains {
            let module = format!("_task_tower.{}", index * domains + domain);
            let logits = scope.module(&module, |scope| task.tower(scope, &hidden));
            let suffix = match config.domain_input_name {
                Some(_) => format!("_{}_{domain}", task.tower_name),
                None => format!("_{}", task.tower_name),
            };
            let pointer = format!("{}/task_towers/{index}", model.pointer());
            all.extend(named(&logits, &suffix, &task.losses, &pointer)?);
        }
    }
    Ok(all)
}

/// The hidden layers of a task; a gate scales the output of each.
fn personalized(scope: &Scope, config: &Pepnet, task: usize, x: &Tensor, z: &Tensor) -> Tensor {
    let layers = config.ppnet_hidden_units.len();
    config.ppnet_hidden_units.iter().enumerate().fold(x.clone(), |h, (layer, &width)| {
        let index = task * layers + layer;
        let mapped = linear(scope, &format!("linears.{index}"), &h, width);
        let weights =
            scope.module(&format!("gate_nus.{index}"), |scope| gate(scope, z, width, width, config.ppnet_gamma));
        let active =
            scope.module(&format!("activations.{index}"), |scope| config.ppnet_activation.forward(scope, &mapped));
        scope.dropout(&(active * weights), config.dropout(layer))
    })
}
