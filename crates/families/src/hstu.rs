//! The HSTU family over the features of a pipeline.

use crate::models::{Model, Predictions};
use crate::trace::{Pipeline, TraceError, Traced, inputs, of_model};
use rewire_features::{Group, GroupConfig, GroupType, Problem, SequenceSteps};
use rewire_graph::{DType, Scope, Tensor};
use rewire_hstu::pipeline::{self, Groups, HstuModel};
use serde_json::Value;

/// Prefix of the history inputs of a [`TracedCached`].
pub const HISTORIES: &str = "history.";

/// A ranker traced in two parts that share KV caches: histories, whose keys and values are stored, and requests, which attend to
/// the stored histories.
///
/// Histories form a separate batch: their inputs are the inputs of [`rewire_features`] with the prefix [`HISTORIES`]. The row numbers
/// of the cache that histories write and requests read are inputs of [`HstuModel::forward_cached`].
#[derive(Debug)]
pub struct TracedCached {
    /// The graph of both parts, and the interface of requests.
    pub traced: Traced,
    /// The features that histories are encoded from.
    pub histories: Vec<String>,
}

/// Traces a `dlrm_hstu` or `ultra_hstu` pipeline in two parts. Keys and values of histories are stored as `dtype`.
///
/// # Errors
/// As [`trace`](crate::trace), and for pipelines of other models.
pub fn trace_cached(config: &Value, dtype: DType) -> Result<TracedCached, TraceError> {
    let pipeline = Pipeline::parse(config)?;
    let Some(hstu) = pipeline.hstu.as_ref().filter(|_| pipeline.interface().histories.is_some()) else {
        let reason = "must have a ranking model of the HSTU family whose histories can be separated from candidates";
        return Err(Problem::new("/model_config", reason).into());
    };
    let scope = Scope::new().without_places();
    let (kept, requests) = (pipeline.model(&scope, HISTORIES), pipeline.model(&scope, ""));
    let histories = groups(&kept, hstu.history_groups())?;
    let requested = groups(&requests, hstu.request_groups())?;
    let outputs = hstu.forward_cached(&scope, &histories, &requested, dtype);
    let outputs = outputs.map_err(|error| of_model(error, &requests.pointer()))?;
    let traced = pipeline.finish(scope, &outputs.values)?;
    let histories = traced.interface.columns(inputs(&traced.graph, HISTORIES));
    Ok(TracedCached { traced, histories })
}

/// Traces the HSTU model over the groups of its pipeline.
pub(crate) fn predictions(model: &Model<'_>, hstu: &HstuModel) -> Result<Predictions, TraceError> {
    let groups = groups(model, hstu.history_groups().into_iter().chain(hstu.candidate_groups()))?;
    let outputs = hstu.forward(model.scope, &groups).map_err(|error| of_model(error, &model.pointer()))?;
    Ok(outputs.values)
}

/// Traces the named groups, except those that the pipeline does not have.
fn groups(model: &Model<'_>, names: impl IntoIterator<Item = String>) -> Result<Groups, TraceError> {
    let present = names.into_iter().filter(|name| model.features.group(name).is_some());
    present.map(|name| Ok((name.clone(), group(model, &name)?))).collect()
}

fn group(model: &Model<'_>, name: &str) -> Result<pipeline::Group, TraceError> {
    let (scope, features) = (model.scope, model.features);
    let is_dense = |group: &GroupConfig| matches!(group.group_type, GroupType::Deep | GroupType::Wide);
    let (values, parts) = if features.group(name).is_some_and(is_dense) {
        let dense = model.dense(name)?;
        (dense.values, dense.parts)
    } else {
        match scope.module("embedding_group", |scope| features.trace_of(scope, model.prefix, name))? {
            Group::Jagged { values, rows } => return Ok(pipeline::Group::Jagged { values, rows }),
            Group::Dense { parts, .. } | Group::Sequence(SequenceSteps { query: parts, .. }) => {
                let parts: Vec<Tensor> = parts.into_iter().map(|part| part.values).collect();
                (scope.concat(&parts.iter().collect::<Vec<_>>(), 1), parts)
            }
        }
    };
    Ok(pipeline::Group::Dense { values, widths: parts.iter().map(Tensor::width).collect() })
}
