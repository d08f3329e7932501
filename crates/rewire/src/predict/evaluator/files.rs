//! Evaluators of models in files.

use super::super::imported::{check_buffers, is_table};
use super::Evaluator;
use crate::package::Package;
use crate::rank::{RankError, RankOptions, kind_of, read_config_text, read_package, read_weights, text_of};
use crate::weights::Weights;
use rewire_graph_rewrite::plan::{Named, Precision, Table};
use std::path::Path;

impl Evaluator {
    /// Loads a package, or a folder with `config.json` and `model.safetensors`, and returns its weights as well. Floats keep the
    /// package's storage types, unless the options override them.
    ///
    /// # Errors
    /// As [`Evaluator::new`], and for unreadable files and weights that do not fit the configuration.
    pub fn load(model: &Path, options: &RankOptions) -> Result<(Self, Weights<'static>), RankError> {
        let name = model.display().to_string();
        let (config, weights, precision) = match model.is_dir() {
            true => {
                (read_config_text(model, options.mapping)?, read_weights(model, options.mapping)?, options.precision)
            }
            false => {
                let package = read_package(model, options.mapping)?;
                let config = text_of(&package)?.to_owned();
                (config, package.weights().clone(), stored(&package, options.precision)?)
            }
        };
        let evaluator = Self::new(&name, &config, &RankOptions { precision, ..options.clone() })?;
        check_buffers(&evaluator.0.traced.buffers, &weights)?;
        Ok((evaluator, weights))
    }
}

/// The storage types of a package's floats, unless given.
fn stored(package: &Package, given: Precision) -> Result<Precision, RankError> {
    let plan = package.plan()?;
    let of = |kind: Option<Table>| {
        let is_own = |name: &str| is_table(name).then(|| kind_of(name)) == kind;
        let own =
            |parameter: &Named<'_>| is_own(parameter.name) && parameter.dtype.is_float() && parameter.shape.len() > 1;
        plan.parameters().find(own).map(|parameter| parameter.dtype)
    };
    Ok(Precision {
        tables: given.tables.or_else(|| of(Some(Table::Pooled))),
        sequence_tables: given.sequence_tables.or_else(|| of(Some(Table::Sequence))),
        weights: given.weights.or_else(|| of(None)),
        ..given
    })
}
