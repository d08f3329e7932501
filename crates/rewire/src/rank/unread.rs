use super::RankError;
use crate::weights::Weights;
use rewire_graph::Graph;
use rewire_hstu::models::dlrm_hstu::{Config, trace};
use thiserror::Error;

/// Tensors of weights that a model does not use: the weights belong to another model, or its configuration is incomplete.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "the configuration's model does not use {} of the {all} tensors of the weights, such as {}: expected the weights of this \
     model; `allow_unread` ignores unused tensors", names.len(), some(names)
)]
pub struct UnreadTensors {
    /// Their names.
    pub names: Vec<String>,
    /// Total number of tensors.
    pub all: usize,
}

fn some(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(3).map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Checks that a configuration's model uses all tensors of its weights.
///
/// # Errors
/// [`RankError::Unread`] names some unused tensors; [`RankError::Trace`] if the configuration is invalid.
pub fn check_unread(config: &Config, weights: &Weights<'_>) -> Result<(), RankError> {
    check(config, &trace(config).map_err(|error| RankError::Trace(Box::new(error)))?, weights)
}

/// [`check_unread`] for a traced graph. If a parameter is missing, that error is reported instead, because it is more
/// informative.
pub(super) fn check(config: &Config, graph: &Graph, weights: &Weights<'_>) -> Result<(), RankError> {
    let unread = config.unread(graph, weights.names()).map_err(|error| RankError::Trace(Box::new(error)))?;
    refuse(unread, graph, weights)
}

/// Returns an error for unused tensors, unless a parameter is missing.
pub(super) fn refuse(unread: Vec<&str>, graph: &Graph, weights: &Weights<'_>) -> Result<(), RankError> {
    let is_whole = || graph.parameters().iter().all(|parameter| weights.describe(&parameter.name).is_some());
    if unread.is_empty() || !is_whole() {
        return Ok(());
    }
    let names = unread.into_iter().map(str::to_owned).collect();
    Err(UnreadTensors { names, all: weights.names().count() }.into())
}
