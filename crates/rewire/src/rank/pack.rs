//! Ranking models as packages.

use super::kind::ModelConfig;
use super::package::{compiled, names_of_tables, store};
use super::{CacheOptions, RankError};
use crate::delta::ModelVersion;
use crate::package::{Contents, Package, PackageError, Tables, TargetKernels};
use crate::program::Signature;
use crate::weights::{Weights, serialize, with_columns};
use rewire_graph::{Dim, Graph, HostTensor};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Named, Plan, Precision};
use rewire_graph_rewrite::prove::confine;
use rewire_runtime::{Gpu, Kernel, Model, ModelOptions, RuntimeError, TuningStore};
use std::collections::{BTreeMap, HashMap, HashSet};
#[cfg(feature = "files")]
use std::path::PathBuf;

/// Options of a package.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// Storage types of floats; by default those of the configuration's model, `F32` if it sets none.
    pub precision: Precision,
    /// Devices to emit kernels for in addition to the baseline: a readable name, and its limits and features.
    pub devices: Vec<(String, Target)>,
    /// Open devices to emit kernels for as well, with their entries in `tunings`.
    pub gpus: Vec<Gpu>,
    /// Measured tunings of kernels, see [`Ranker::tune`](super::Ranker::tune).
    pub tunings: Option<TuningStore>,
    /// The file for embedding tables, next to the package; `None` stores them in the package.
    #[cfg(feature = "files")]
    pub tables_file: Option<PathBuf>,
    /// Accepts weights with tensors that the model does not use.
    pub allow_unread: bool,
    /// Layout of the KV cache of histories.
    pub cache: CacheOptions,
}

/// Packages a model: the text of its `config.json`, which errors refer to as `name`, and its weights.
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
/// [`RankError`] names the invalid key or tensor.
pub fn pack(name: &str, config: &str, weights: &Weights<'_>, options: &PackOptions) -> Result<Package, RankError> {
    let PackOptions { precision, allow_unread, cache, .. } = options;
    let parsed = ModelConfig::parse(name, config)?;
    let (graph, tables) = (parsed.trace(weights, cache, *allow_unread)?, parsed.tables());
    let tower = |(output, graph): (String, Graph)| Ok((output, compiled(&tables, graph, *precision)?));
    let towers = parsed.towers().into_iter().map(tower).collect::<Result<Vec<_>, RankError>>()?;
    let plan = compiled(&tables, graph, *precision)?;
    Packed { towers: &towers, config: Some(config), ..Packed::of(&plan) }.store(&tables, weights, options)
}

/// Repacks the model of a package with other options. A traced model without a configuration keeps its plan; its
/// embedding tables are the parameters that are only read by rows that inputs select.
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
    let states = package.states()?;
    let packed = Packed { signature: package.signature(), states: &states, ..Packed::of(&plan) };
    packed.store(&tables, package.weights(), options)
}

/// The content of a package, without its weights.
pub(crate) struct Packed<'a> {
    pub plan: &'a Plan,
    pub towers: &'a [(String, Plan)],
    pub config: Option<&'a str>,
    pub signature: Option<&'a Signature>,
    /// Initial values of states that do not start at zero.
    pub states: &'a BTreeMap<String, HostTensor>,
}

impl<'a> Packed<'a> {
    /// Only a plan.
    pub fn of(plan: &'a Plan) -> Self {
        const NONE: &BTreeMap<String, HostTensor> = &BTreeMap::new();
        Self { plan, towers: &[], config: None, signature: None, states: NONE }
    }

    /// Creates the package, given the names of its tables.
    pub fn store(
        &self,
        tables: &HashSet<String>,
        weights: &Weights<'_>,
        options: &PackOptions,
    ) -> Result<Package, RankError> {
        let Self { plan, towers, config, signature, states } = *self;
        // Loading reports all mismatches.
        let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let model = Model::load(plan.clone(), weights, on_cpu)?;
        let mut tensors = converted(plan, weights)?;
        let apart = apart(options, &mut tensors, tables)?;
        let mut metadata = with_columns(plan.parameters_by_column());
        metadata.extend(ModelVersion::entry(weights).map(|(key, version)| (key.clone(), version.clone())));
        let stored = serialize(&tensors, &metadata)?;
        let kernels = kernels(plan, model.plan(), options)?;
        let contents = Contents {
            towers,
            config,
            signature,
            states,
            weights: &stored,
            tables: apart.as_ref(),
            kernels: &kernels,
            ..Contents::of(plan)
        };
        Ok(contents.store()?)
    }
}

/// The kernels of a plan, given `prepared` as at loading, for the baseline and all listed devices.
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

/// Moves the tables to a separate file, if requested.
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

/// All tensors of the weights; those that a plan reads in the plan's types.
fn converted(plan: &Plan, weights: &Weights<'_>) -> Result<BTreeMap<String, HostTensor>, RankError> {
    let types: HashMap<&str, Named<'_>> = plan.parameters().map(|parameter| (parameter.name, parameter)).collect();
    let groups: HashSet<&str> = plan.parameters_in_groups().collect();
    let by_column: HashSet<&str> = plan.parameters_by_column().collect();
    let convert = |name: &str| {
        let tensor = weights.laid(name, by_column.contains(name))?;
        let tensor = match types.get(name) {
            Some(&Named { dtype, shape, .. }) => tensor
                .map(|tensor| {
                    let shape: Vec<usize> = shape.iter().filter_map(Dim::as_const).collect();
                    let laid = if groups.contains(name) { tensor.in_groups(&shape)? } else { tensor };
                    laid.stored_as(dtype)
                })
                .transpose()?,
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
