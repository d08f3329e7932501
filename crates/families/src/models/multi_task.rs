use super::{Model, Predictions, named};
use crate::modules::{MaskNetConfig, TaskConfig, beside, intervene, optional_mlp};
use rewire_features::Problems;
use rewire_graph::Tensor;
use rewire_hstu::modules::ranking::{ExtractionConfig, MmoeConfig, PleConfig};
use rewire_hstu::modules::{MlpConfig, linear};
use serde::Deserialize;

/// Predictions of all tasks. Each task's tower reads its rows `[B, D]`.
pub(super) fn towers(model: &Model<'_>, tasks: &[TaskConfig], rows: &[Tensor]) -> Result<Predictions, Problems> {
    let mut all = vec![];
    for (index, (task, x)) in tasks.iter().zip(rows).enumerate() {
        let logits = model.scope.module(&format!("_task_tower.{index}"), |scope| task.tower(scope, x));
        all.extend(of_task(model, index, task, &logits)?);
    }
    Ok(all)
}

fn of_task(model: &Model<'_>, index: usize, task: &TaskConfig, logits: &Tensor) -> Result<Predictions, Problems> {
    let pointer = format!("{}/task_towers/{index}", model.pointer());
    named(logits, &format!("_{}", task.tower_name), &task.losses, &pointer)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simple {
    task_towers: Vec<TaskConfig>,
}

pub(super) fn simple(model: &Model<'_>) -> Result<Predictions, Problems> {
    let config: Simple = model.read()?;
    let x = model.dense(model.first_group()?)?.values;
    towers(model, &config.task_towers, &vec![x; config.task_towers.len()])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mmoe {
    expert_mlp: MlpConfig,
    #[serde(default)]
    gate_mlp: Option<MlpConfig>,
    #[serde(default = "three")]
    num_expert: usize,
    task_towers: Vec<TaskConfig>,
}

fn three() -> usize {
    3
}

pub(super) fn mmoe(model: &Model<'_>) -> Result<Predictions, Problems> {
    let Mmoe { expert_mlp, gate_mlp, num_expert, task_towers } = model.read()?;
    let x = model.dense(model.first_group()?)?.values;
    let experts = MmoeConfig { expert_mlp, num_expert, num_task: task_towers.len(), gate_mlp };
    let rows = model.scope.module("mmoe", |scope| experts.forward(scope, &x));
    towers(model, &task_towers, &rows)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ple {
    extraction_networks: Vec<ExtractionConfig>,
    task_towers: Vec<TaskConfig>,
}

pub(super) fn ple(model: &Model<'_>) -> Result<Predictions, Problems> {
    let Ple { extraction_networks, task_towers } = model.read()?;
    let x = model.dense(model.first_group()?)?.values;
    let networks = PleConfig { extraction_networks, num_task: task_towers.len() };
    towers(model, &task_towers, &networks.forward(model.scope, &x))
}

/// `dbmtl`, and `dc2vr`, which has interventions instead of relations between tasks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dbmtl {
    #[serde(default)]
    mask_net: Option<MaskNetConfig>,
    #[serde(default)]
    bottom_mlp: Option<MlpConfig>,
    #[serde(default)]
    expert_mlp: Option<MlpConfig>,
    #[serde(default)]
    gate_mlp: Option<MlpConfig>,
    #[serde(default = "three")]
    num_expert: usize,
    task_towers: Vec<TaskConfig>,
}

pub(super) fn dbmtl(model: &Model<'_>) -> Result<Predictions, Problems> {
    let Dbmtl { mask_net, bottom_mlp, expert_mlp, gate_mlp, num_expert, task_towers } = model.read()?;
    let (scope, count) = (model.scope, task_towers.len());
    let x = model.dense(model.first_group()?)?.values;
    let x = match &mask_net {
        Some(mask_net) => scope.module("mask_net", |scope| mask_net.forward(scope, &x)),
        None => x,
    };
    let x = optional_mlp(scope, "bottom_mlp", bottom_mlp.as_ref(), &x);
    let rows = match expert_mlp {
        Some(expert_mlp) => {
            let experts = MmoeConfig { expert_mlp, num_expert, num_task: count, gate_mlp };
            scope.module("mmoe", |scope| experts.forward(scope, &x))
        }
        None => vec![x; count],
    };
    let mut outputs: Vec<(&str, Tensor)> = vec![];
    let mut all = vec![];
    for (index, (task, x)) in task_towers.iter().zip(&rows).enumerate() {
        let name = &task.tower_name;
        let own = optional_mlp(scope, &format!("task_mlps.{name}"), task.mlp.as_ref(), x);
        let earlier = |key: &str, names: &[String]| {
            let find = |name: &String| {
                let found = outputs.iter().find(|(known, _)| known == name).map(|(_, x)| x.clone());
                let reason = || format!("`{name}` is not a task before this one");
                found.ok_or_else(|| model.problem(&format!("/task_towers/{index}/{key}"), reason()))
            };
            names.iter().map(find).collect::<Result<Vec<_>, _>>()
        };
        let out = match (&task.relation_mlp, task.low_rank_dim) {
            (Some(relation), _) => {
                let mut parts = vec![own];
                parts.extend(earlier("relation_tower_names", &task.relation_tower_names)?);
                let module = format!("relation_mlps.{name}");
                optional_mlp(scope, &module, Some(relation), &beside(scope, &parts))
            }
            (None, Some(rank)) if !task.intervention_tower_names.is_empty() => {
                let others = beside(scope, &earlier("intervention_tower_names", &task.intervention_tower_names)?);
                scope.module(&format!("intervention.{name}"), |scope| intervene(scope, &own, &others, rank))
            }
            _ => own,
        };
        let logits = linear(scope, &format!("task_outputs.{index}"), &out, task.num_class);
        all.extend(of_task(model, index, task, &logits)?);
        outputs.push((name, out));
    }
    Ok(all)
}
