use super::Objective;
use super::examples::{LABELS, WEIGHTS};
use rewire_graph::{DType, Mode, Scope, Tensor};
use rewire_hstu::models::ModelError;
use rewire_hstu::models::dlrm_hstu::{Config, EMBEDDINGS, forward};
use rewire_train::loss::{binary_cross_entropy, mean};

/// The loss of a ranking model. Each task has the binary cross entropy of its logits with the candidates' labels, as a mean over
/// all candidates, times the task's weight: the output `losses.<task>`. The output `loss` is their sum.
///
/// In addition to [the inputs of the model](rewire_hstu::models::dlrm_hstu) it reads `labels`, `I64` `[C]`, action bits of
/// the candidates, and `weights`, `F32` `[C]`, 0 for candidates that are excluded.
///
/// # Errors
/// [`ModelError`] names the invalid key of the configuration, or the operator that does not fit.
pub fn objective(config: &Config) -> Result<Objective, ModelError> {
    let scope = Scope::new().without_places().with_mode(Mode::Train);
    let logits = forward(config, &scope)?;
    let candidates = logits.dim(0);
    let labels = scope.input(LABELS, DType::I64, [&candidates]);
    let weights = scope.input(WEIGHTS, DType::F32, [&candidates]);
    let tasks = config.fusion_mtl_tower.task_configs.iter().enumerate();
    let losses: Vec<(String, Tensor)> = tasks
        .map(|(position, task)| {
            let label = labels.and(scope.scalar(DType::I64, task.task_bitmask)).not_equal(0).cast(DType::F32);
            let logit = logits.slice(1, position, 1).reshape([&candidates]);
            let loss = mean(&scope, &binary_cross_entropy(&logit, &label), Some(&weights)) * task.weight;
            (format!("losses.{}", task.task_name), loss)
        })
        .collect();
    let loss = losses.iter().map(|(_, loss)| loss.clone()).reduce(|sum, loss| sum + loss);
    let loss = loss.unwrap_or_else(|| scope.scalar(DType::F32, 0.0));
    let outputs = losses.iter().map(|(name, loss)| (name.as_str(), loss.clone())).chain([("loss", loss)]);
    let graph = scope.finish(&outputs.collect::<Vec<_>>())?;
    let tables = config.features.keys().map(|feature| format!("{EMBEDDINGS}.{feature}.weight"));
    let used = |name: &String| graph.parameters().iter().any(|parameter| parameter.name == *name);
    let tables: Vec<String> = tables.filter(used).collect();
    Ok(Objective::new(graph, "loss").tables(tables).examples(LABELS))
}
