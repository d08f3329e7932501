use crate::{CaseError, GoldenCase, relative_error};
use rewire_graph::op::{Input, Parameter};
use rewire_graph::{Graph, HostTensor, InterpretError, interpret};
use rewire_graph_rewrite::RewriteError;
use rewire_graph_rewrite::passes::{Application, Pipeline};
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// Maximum relative error that a rewrite may cause in the interpreter, whose results are rounded to f32.
const TOLERANCE: f64 = 2e-6;

/// Why a case could not be bisected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BisectError {
    /// The case has no graph.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// A rewrite pass failed.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// The traced graph cannot be interpreted.
    #[error("the traced graph cannot be interpreted")]
    Interpret(#[from] InterpretError),
}

/// Finds the first rewrite of a golden case that changes the interpreter's results; `None` if no rewrite changes them.
///
/// # Errors
/// [`BisectError`] if the case cannot be traced, interpreted or rewritten.
pub fn bisect(case: &GoldenCase, pipeline: &Pipeline) -> Result<Option<Application>, BisectError> {
    let replay = case.trace()?;
    let (mut inputs, mut parameters) = (HashMap::new(), HashMap::new());
    for node in replay.graph.ids().filter_map(|id| replay.graph.node(id)) {
        if let Some(Input { name, .. }) = node.op.downcast_ref() {
            inputs.extend(case.input(name).map(|tensor| (name.clone(), tensor)));
        } else if let Some(Parameter { name, .. }) = node.op.downcast_ref() {
            parameters.extend(case.parameter(name).map(|tensor| (name.clone(), tensor)));
        }
    }
    let run = |graph: &Graph| interpret(graph, &inputs, &parameters);
    let expected = run(&replay.graph)?;
    Ok(pipeline.bisect(&replay.graph, |graph| run(graph).is_ok_and(|actual| same(&actual, &expected, replay.exact)))?)
}

fn same(actual: &BTreeMap<String, HostTensor>, expected: &BTreeMap<String, HostTensor>, exact: bool) -> bool {
    expected.iter().all(|(name, expected)| {
        let error = actual.get(name).map(|actual| relative_error(name, actual, expected, exact));
        error.is_some_and(|error| error.is_ok_and(|error| error <= TOLERANCE))
    })
}
