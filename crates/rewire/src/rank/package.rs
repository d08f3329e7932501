//! Ranking models as packages.

use super::scorer::{check_buffers, is_apart, trace_ranking};
use super::{CacheOptions, Config, RankError, parse_config, unread};
use crate::package::{Package, PackageError, TargetKernels};
use crate::weights::{Weights, serialize};
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::emit::Target;
use rewire_graph_rewrite::plan::{Named, Plan};
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Kernel, Model, ModelOptions, RuntimeError};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How the parameters of a packaged model are stored. Arithmetic stays in single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Weights and biases: `F32`, `F16` or `BF16`.
    pub weights: DType,
    /// Embedding tables: also [`DType::Rows8`], rows of 8 bits.
    pub tables: DType,
}

impl Default for Precision {
    fn default() -> Self {
        Self { weights: DType::F32, tables: DType::F32 }
    }
}

/// How a model is packaged.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// How parameters are stored.
    pub precision: Precision,
    /// Devices that the package has kernels for beside the baseline's: a name for people, and what each offers.
    pub devices: Vec<(String, Target)>,
    /// Takes weights with tensors that the model does not read.
    pub allow_unread: bool,
    /// How histories are kept from the candidates that read them.
    pub cache: CacheOptions,
}

/// Packages a model: the text of its `config.json`, which `name` stands for in errors, and its weights.
///
/// ```no_run
/// use rewire::rank::{PackOptions, RankOptions, Ranker, pack, read_config_text, read_weights};
/// let folder = "model".as_ref();
/// let package = pack("model", &read_config_text(folder)?, &read_weights(folder)?, &PackOptions::default())?;
/// rewire::write_file("model.rewire".as_ref(), package.bytes())?;
/// let ranker = Ranker::load("model.rewire".as_ref(), &RankOptions::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RankError`] names the key or tensor that is not good.
pub fn pack(name: &str, config: &str, weights: &Weights<'_>, options: &PackOptions) -> Result<Package, RankError> {
    let PackOptions { precision, devices, allow_unread, cache } = options;
    let parsed = parse_config(name, config)?;
    check_buffers(&parsed, weights)?;
    let graph = trace_ranking(&parsed, cache)?;
    if !*allow_unread {
        unread::check(&parsed, &graph, weights)?;
    }
    let mut plan = lower(&optimize(graph)?.0)?;
    let tables: HashSet<String> = parsed.tables().collect();
    plan.store_parameters_as(precision.tables, |name| tables.contains(name));
    plan.store_parameters_as(precision.weights, |name| !tables.contains(name));
    let stored = serialize(&converted(&plan, weights)?, &BTreeMap::new())?;
    // Loading names all that does not fit.
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    Model::load(plan.clone(), &Weights::parse(&stored[..])?, options)?;
    let baseline = ("baseline".to_owned(), Target::BASELINE);
    let kernels = |(name, target): &(String, Target)| TargetKernels::of(&plan, name, target);
    let kernels: Vec<TargetKernels> = [&baseline].into_iter().chain(devices).map(kernels).collect();
    Ok(Package::new(&plan, Some(config), &stored, &kernels)?)
}

/// All tensors of weights, those that a plan reads in its types.
fn converted(plan: &Plan, weights: &Weights<'_>) -> Result<BTreeMap<String, HostTensor>, RankError> {
    let types: HashMap<&str, DType> = plan.parameters().map(|Named { name, dtype, .. }| (name, dtype)).collect();
    let tensor = |name: &str| Some((name.to_owned(), weights.get(name)?));
    let convert = |(name, tensor): (String, HostTensor)| match types.get(name.as_str()) {
        None => Ok((name, tensor)),
        Some(&expected) => match tensor.stored_as(expected) {
            Ok(tensor) => Ok((name, tensor)),
            Err(actual) => Err(RuntimeError::ParameterType { name, expected, actual }.into()),
        },
    };
    weights.names().filter_map(tensor).map(convert).collect()
}

/// The configuration of a package, its sizes checked.
pub(super) fn config_of(package: &Package) -> Result<Config, RankError> {
    let config = parse_config("the configuration of the package", text_of(package)?)?;
    config.check().map_err(|error| RankError::Trace(Box::new(error.into())))?;
    Ok(config)
}

/// The text of the configuration of a package.
pub(super) fn text_of(package: &Package) -> Result<&str, PackageError> {
    let none = || PackageError::part("head", "has no configuration: it is of no ranking model");
    package.config().ok_or_else(none)
}

/// Checks that a plan reads nothing that requests do not have.
pub(super) fn check_inputs(config: &Config, plan: &Plan) -> Result<(), PackageError> {
    let known: Vec<String> = match is_apart(plan) {
        true => config.cached_inputs().into_iter().map(|(name, _)| name).collect(),
        false => config.inputs().into_iter().map(|spec| spec.name).collect(),
    };
    match plan.inputs().find(|input| !known.iter().any(|name| name == input.name)) {
        None => Ok(()),
        Some(other) => {
            let reason = format!("reads `{}`, which is no input of the configuration's model", other.name);
            Err(PackageError::part("plan", reason))
        }
    }
}
