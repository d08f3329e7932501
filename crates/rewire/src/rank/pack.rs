//! Ranking models as packages.

use super::kind::ModelConfig;
use super::package::{compiled, store};
use super::{CacheOptions, RankError};
use crate::package::{Contents, Package, PackageError, Tables, TargetKernels};
use crate::weights::{Weights, serialize, with_columns};
use rewire_graph::{DType, Graph, HostTensor};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Buffer, Named, Plan, Precision, Source};
use rewire_graph_rewrite::prove::confine;
use rewire_runtime::{Gpu, Kernel, Model, ModelOptions, RuntimeError, TuningStore};
use std::collections::{BTreeMap, HashMap, HashSet};
#[cfg(feature = "files")]
use std::path::PathBuf;

/// How a model is packaged.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// How floats are stored: as the configuration's model has them, `F32`, where it does not say.
    pub precision: Precision,
    /// Devices that the package has kernels for beside the baseline's: a name for people, and what each offers.
    pub devices: Vec<(String, Target)>,
    /// Open devices that the package has kernels for as well, with what `tunings` has of them.
    pub gpus: Vec<Gpu>,
    /// Tunings of kernels that were measured, see [`Ranker::tune`](super::Ranker::tune).
    pub tunings: Option<TuningStore>,
    /// The file that embedding tables go to, beside the package; into the package if `None`.
    #[cfg(feature = "files")]
    pub tables_file: Option<PathBuf>,
    /// Takes weights with tensors that the model does not read.
    pub allow_unread: bool,
    /// How histories are kept from the candidates that read them.
    pub cache: CacheOptions,
}

/// Packages a model: the text of its `config.json`, which `name` stands for in errors, and its weights.
///
/// ```no_run
/// use rewire::Mapping;
/// use rewire::rank::{PackOptions, RankOptions, Ranker, pack, read_config_text, read_weights};
/// let folder = "model".as_ref();
/// let (config, weights) = (read_config_text(folder, Mapping::Large)?, read_weights(folder, Mapping::Large)?);
/// let package = pack("model", &config, &weights, &PackOptions::default())?;
/// rewire::write_file("model.rewire".as_ref(), package.bytes())?;
/// let ranker = Ranker::load("model.rewire".as_ref(), &RankOptions::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RankError`] names the key or tensor that is not good.
pub fn pack(name: &str, config: &str, weights: &Weights<'_>, options: &PackOptions) -> Result<Package, RankError> {
    let PackOptions { precision, allow_unread, cache, .. } = options;
    let parsed = ModelConfig::parse(name, config)?;
    let (graph, tables) = (parsed.trace(weights, cache, *allow_unread)?, parsed.tables());
    let tower = |(output, graph): (String, Graph)| Ok((output, compiled(&tables, graph, *precision)?));
    let towers = parsed.towers().into_iter().map(tower).collect::<Result<Vec<_>, RankError>>()?;
    of_plan((&compiled(&tables, graph, *precision)?, &towers), Some(config), &tables, weights, options)
}

/// Packages the model of a package again, with other options. A traced model, which has no configuration, keeps its plan; its embedding
/// tables are the parameters of which it reads nothing but rows that inputs name.
///
/// # Errors
/// As [`pack`].
pub fn repack(package: &Package, options: &PackOptions) -> Result<Package, RankError> {
    if let Some(config) = package.config() {
        return pack("the configuration of the package", config, package.weights(), options);
    }
    let mut plan = package.plan()?;
    let tables = names_of_tables(&plan);
    store(&tables, &mut plan, options.precision)?;
    of_plan((&plan, &[]), None, &tables, package.weights(), options)
}

/// The names of the embedding tables of a plan.
fn names_of_tables(plan: &Plan) -> HashSet<String> {
    let buffers = plan.tables().into_iter().filter_map(|id| plan.buffer(id));
    let name = |buffer: &Buffer| match &buffer.source {
        Source::Parameter(name) => Some(name.clone()),
        _ => None,
    };
    buffers.filter_map(name).collect()
}

fn of_plan(
    (plan, towers): (&Plan, &[(String, Plan)]),
    config: Option<&str>,
    tables: &HashSet<String>,
    weights: &Weights<'_>,
    options: &PackOptions,
) -> Result<Package, RankError> {
    // Loading names all that does not fit.
    let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let model = Model::load(plan.clone(), weights, on_cpu)?;
    let mut tensors = converted(plan, weights)?;
    let apart = apart(options, &mut tensors, tables)?;
    let stored = serialize(&tensors, &with_columns(plan.parameters_by_column()))?;
    let kernels = kernels(plan, model.plan(), options)?;
    let tables = apart.as_ref();
    Ok(Contents { plan, towers, config, weights: &stored, tables, kernels: &kernels }.store()?)
}

/// The kernels of a plan, which is `prepared` where it is loaded, for the baseline and all devices that are told.
fn kernels(plan: &Plan, prepared: &Plan, options: &PackOptions) -> Result<Vec<TargetKernels>, RuntimeError> {
    let mut proven = plan.clone();
    confine(&mut proven).map_err(|error| RuntimeError::Plan { reason: error.to_string() })?;
    let plan = &proven;
    let baseline = ("baseline".to_owned(), Target::BASELINE);
    let told = [&baseline].into_iter().chain(&options.devices);
    let told = told.map(|(name, target)| TargetKernels::of(plan, name, target));
    let open = options.gpus.iter().map(|gpu| {
        let kernels = TargetKernels::of(plan, &gpu.name(), gpu.target());
        match options.tunings.as_ref().and_then(|store| store.of(gpu, prepared)) {
            Some(tunings) => kernels.with_tunings(prepared, tunings),
            None => kernels,
        }
    });
    Ok(told.chain(open).collect())
}

/// Moves the tables into a file of their own, if there is to be one.
#[cfg(feature = "files")]
fn apart(
    options: &PackOptions,
    tensors: &mut BTreeMap<String, HostTensor>,
    tables: &HashSet<String>,
) -> Result<Option<Tables>, PackageError> {
    let Some(path) = &options.tables_file else { return Ok(None) };
    let (moved, stay) = std::mem::take(tensors).into_iter().partition(|(name, _)| tables.contains(name));
    *tensors = stay;
    Tables::write(path, &moved).map(Some)
}

#[cfg(not(feature = "files"))]
fn apart(
    _: &PackOptions,
    _: &mut BTreeMap<String, HostTensor>,
    _: &HashSet<String>,
) -> Result<Option<Tables>, PackageError> {
    Ok(None)
}

/// All tensors of weights, those that a plan reads as it has them.
fn converted(plan: &Plan, weights: &Weights<'_>) -> Result<BTreeMap<String, HostTensor>, RankError> {
    let types: HashMap<&str, DType> = plan.parameters().map(|Named { name, dtype, .. }| (name, dtype)).collect();
    let by_column: HashSet<&str> = plan.parameters_by_column().collect();
    let convert = |name: &str| {
        let tensor = weights.laid(name, by_column.contains(name))?;
        let tensor = match types.get(name) {
            Some(&expected) => tensor.map(|tensor| tensor.stored_as(expected)).transpose()?,
            None => tensor,
        };
        Ok(tensor.map(|tensor| (name.to_owned(), tensor)))
    };
    let mut converted = BTreeMap::new();
    for name in weights.names() {
        converted.extend(convert(name).map_err(|error| RuntimeError::of_stored(name, error))?);
    }
    Ok(converted)
}
