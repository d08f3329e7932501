//! Ranking models as packages.

use super::kind::ModelConfig;
use super::package::{compiled, names_of_tables, store};
use super::{CacheOptions, RankError};
use crate::package::{Contents, Package, PackageError, Tables, TargetKernels};
use crate::program::Signature;
use crate::weights::{Weights, serialize, with_columns};
use rewire_graph::{DType, Graph, HostTensor};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Named, Plan, Precision};
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
    let plan = compiled(&tables, graph, *precision)?;
    Packed { towers: &towers, config: Some(config), ..Packed::of(&plan) }.store(&tables, weights, options)
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
    let states = package.states()?;
    let packed = Packed { signature: package.signature(), states: &states, ..Packed::of(&plan) };
    packed.store(&tables, package.weights(), options)
}

/// What a package is made of beside its weights.
pub(crate) struct Packed<'a> {
    pub plan: &'a Plan,
    pub towers: &'a [(String, Plan)],
    pub config: Option<&'a str>,
    pub signature: Option<&'a Signature>,
    /// The values that states begin with, where they are not zeros.
    pub states: &'a BTreeMap<String, HostTensor>,
}

impl<'a> Packed<'a> {
    /// A plan alone.
    pub fn of(plan: &'a Plan) -> Self {
        const NONE: &BTreeMap<String, HostTensor> = &BTreeMap::new();
        Self { plan, towers: &[], config: None, signature: None, states: NONE }
    }

    /// The package, with the names of its tables.
    pub fn store(
        &self,
        tables: &HashSet<String>,
        weights: &Weights<'_>,
        options: &PackOptions,
    ) -> Result<Package, RankError> {
        let Self { plan, towers, config, signature, states } = *self;
        // Loading names all that does not fit.
        let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let model = Model::load(plan.clone(), weights, on_cpu)?;
        let mut tensors = converted(plan, weights)?;
        let apart = apart(options, &mut tensors, tables)?;
        let stored = serialize(&tensors, &with_columns(plan.parameters_by_column()))?;
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
