//! Ranking models of packages.

use super::kind::ModelConfig;
use super::{Config, RankError, parse_config};
use crate::package::{Package, PackageError};
use rewire_graph::{DType, Dim, Graph};
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::plan::{Buffer, Named, Plan, PlanError, Precision, Source, Table};
use rewire_runtime::RuntimeError;
use std::collections::{HashMap, HashSet};

/// The module of unpooled sequence tables in imported models.
const UNPOOLED: &str = "ec_dict.";

/// The kind of a table.
pub(crate) fn kind_of(table: &str) -> Table {
    if table.contains(UNPOOLED) { Table::Sequence } else { Table::Pooled }
}

/// The names of a model's embedding tables, from the text of its `config.json`, which errors refer to as `name`.
///
/// # Errors
/// [`RankError::Config`].
pub fn tables_of(name: &str, config: &str) -> Result<HashSet<String>, RankError> {
    Ok(ModelConfig::parse(name, config)?.tables())
}

/// The embedding tables of a plan: parameters that are only read by rows that inputs select.
pub(crate) fn names_of_tables(plan: &Plan) -> HashSet<String> {
    let buffers = plan.tables().into_iter().filter_map(|id| plan.buffer(id));
    let name = |buffer: &Buffer| match &buffer.source {
        Source::Parameter(name) => Some(name.clone()),
        _ => None,
    };
    buffers.filter_map(name).collect()
}

/// Compiles a graph to a plan with floats stored at a precision.
pub(crate) fn compiled(tables: &HashSet<String>, graph: Graph, precision: Precision) -> Result<Plan, RankError> {
    let activations = precision.activations.unwrap_or(DType::F32);
    let mut plan = lower(&Pipeline::default().for_storage(activations).run(graph)?.0)?;
    store(tables, &mut plan, precision)?;
    Ok(plan)
}

/// Stores the floats of a plan with a precision.
pub(crate) fn store(tables: &HashSet<String>, plan: &mut Plan, precision: Precision) -> Result<(), RankError> {
    plan.store(precision, |name| tables.contains(name).then(|| kind_of(name)));
    let wrong = |error: PlanError| RuntimeError::Plan { reason: error.to_string() };
    Ok(plan.check_limits().map_err(wrong)?)
}

/// The configuration of a package, with its sizes checked.
pub(crate) fn config_of(package: &Package) -> Result<Config, RankError> {
    let config = parse_config("the configuration of the package", text_of(package)?)?;
    config.check().map_err(|error| RankError::Trace(Box::new(error.into())))?;
    Ok(config)
}

/// The text of the configuration of a package.
pub(crate) fn text_of(package: &Package) -> Result<&str, PackageError> {
    let none = || PackageError::part("head", "has no configuration: it is of no model that ranks");
    package.config().ok_or_else(none)
}

/// Checks that a plan belongs to the configuration's model: it reads no other inputs, and its tables have the sizes that ids of requests
/// are checked against.
pub(super) fn check_plan(
    known: &[(String, Option<DType>)],
    tables: impl IntoIterator<Item = (String, [usize; 2])>,
    plan: &Plan,
) -> Result<(), PackageError> {
    if let Some(other) = plan.inputs().find(|input| !known.iter().any(|(name, _)| name == input.name)) {
        let reason = format!("reads `{}`, which is not an input of the configuration's model", other.name);
        return Err(PackageError::part("plan", reason));
    }
    let tables: HashMap<String, [usize; 2]> = tables.into_iter().collect();
    for Named { name, shape, .. } in plan.parameters() {
        let Some(expected) = tables.get(name) else { continue };
        let actual: Vec<Option<usize>> = shape.iter().map(Dim::as_const).collect();
        if actual != expected.map(Some) {
            let actual: Vec<String> = shape.iter().map(Dim::to_string).collect();
            let reason =
                format!("has a table `{name}` of [{}]: expected {expected:?} by the configuration", actual.join(", "));
            return Err(PackageError::part("plan", reason));
        }
    }
    Ok(())
}
