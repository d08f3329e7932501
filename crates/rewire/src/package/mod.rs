//! A model as one file: a plan, its weights and its configuration. Loading it needs no tracing, rewriting or lowering.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `rewire\r\n` |
//! | 8..12 | the format: 3 if tables are in a separate file, else 2 if parameters are rows of 4 or 2 bits, else 1 |
//! | 12..24 | the version of the program that wrote it: major, minor, patch |
//! | 24..32 | bytes of the file |
//! | 32..48 | XXH3 of all other bytes, 128 bits |
//! | 48..56 | bytes of the head |
//! | from 56 on | the head, JSON: configuration, inputs and outputs, and where the parts lie |
//! | at multiples of 64 | the parts: `plan` and, if there are any, `kernels` and the plans of towers, `tower.<output>`, JSON, and `weights` and the first values of `states`, safetensors files |
//!
//! For tables in a separate file the head holds the file's name, its length, the hash of its header and the hash of its tensors. The file
//! lies next to the package. It is a safetensors file with the hash of its tensors in its metadata. Reading a package checks the length and
//! the header of this file; the tensors are only checked on request, since tables are read row by row.
//!
//! Numbers are little-endian. All formats share the first 48 bytes, so that a program can distinguish a file of a newer
//! version from a damaged one. Packages are untrusted input: the hash detects accidental changes, and all other content
//! is checked like a plan from a file, with all indices proven.

mod error;
mod head;
mod header;
mod kernels;
mod tables;

pub use error::PackageError;
pub use head::Vocabulary;
pub(crate) use head::vocabulary;
pub use header::Version;
pub use kernels::{TargetKernels, TunedKernel};
pub use tables::Tables;

use crate::program::Signature;
use crate::rank::RankOptions;
use crate::weights::{Part, Weights, serialize};
use error::decoded;
use head::{Head, WEIGHTS};
use kernels::Told;
use rewire_graph::{DType, HostTensor, Ordered, SharedBytes};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Named, Plan, Precision};
use rewire_runtime::{DeviceTunings, ModelOptions};
#[cfg(feature = "files")]
use rewire_runtime::{Mapping, read_file};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
#[cfg(feature = "files")]
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};
use tables::{Identity, SharedTables};

/// The first format that can hold a plan.
fn format(plan: &Plan) -> u32 {
    let is_later = |parameter: Named<'_>| matches!(parameter.dtype, DType::Rows4 | DType::Rows2);
    if plan.parameters().any(is_later) { 2 } else { 1 }
}

/// The content of a package.
pub(crate) struct Contents<'a> {
    pub plan: &'a Plan,
    /// Plans of single outputs.
    pub towers: &'a [(String, Plan)],
    pub config: Option<&'a str>,
    /// Element types of the source file, if they differ from those of the plan.
    pub signature: Option<&'a Signature>,
    /// Initial values of states that do not start at zero.
    pub states: &'a BTreeMap<String, HostTensor>,
    pub weights: &'a [u8],
    pub tables: Option<&'a Tables>,
    pub kernels: &'a [TargetKernels],
}

impl<'a> Contents<'a> {
    /// Only a plan.
    pub fn of(plan: &'a Plan) -> Self {
        const NONE: &BTreeMap<String, HostTensor> = &BTreeMap::new();
        Self {
            plan,
            towers: &[],
            config: None,
            signature: None,
            states: NONE,
            weights: &[],
            tables: None,
            kernels: &[],
        }
    }

    pub fn store(&self) -> Result<Package, PackageError> {
        let Self { plan, towers, states, weights, tables, kernels, .. } = *self;
        kernels::check(kernels.iter().map(|kernels| (&kernels.target, kernels.tunings.as_ref())))?;
        let json = |plan: &Plan| serde_json::to_vec(plan).map_err(|error| PackageError::part("plan", error));
        let emitted = serde_json::to_vec(kernels).map_err(|error| PackageError::part("kernels", error))?;
        let mut parts = vec![("plan".to_owned(), json(plan)?)];
        parts.extend((!kernels.is_empty()).then_some(("kernels".to_owned(), emitted)));
        for (output, plan) in towers {
            parts.push((tower_part(output), json(plan)?));
        }
        if !states.is_empty() {
            parts.push((STATES.to_owned(), serialize(states, &BTreeMap::new())?));
        }
        let mut parts: Vec<(&str, &[u8])> = parts.iter().map(|(name, part)| (name.as_str(), part.as_slice())).collect();
        parts.push((WEIGHTS, weights));
        let content = Head::of(self).content(&parts)?;
        let header = header::header(if tables.is_some() { 3 } else { format(plan) }, &content);
        let bytes = [&header[..], &content].concat();
        Package::of(Arc::new(bytes), |_| Ok(tables.map(|tables| tables.data.clone())))
    }
}

/// The part with the initial values of states.
const STATES: &str = "states";

fn tower_part(output: &str) -> String {
    format!("tower.{output}")
}

/// A model as one file.
///
/// ```
/// use rewire::package::Package;
/// use rewire::prelude::*;
/// use rewire::weights::serialize;
/// use std::collections::BTreeMap;
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, (scope.size("rows"), 2));
/// let weight = scope.parameter("weight", DType::F32, [2, 3]);
/// let graph = scope.finish(&[("y", x.matmul(&weight))])?;
/// let plan = rewire::lower(&rewire::optimize(graph)?.0)?;
/// let weights = BTreeMap::from([("weight".to_owned(), HostTensor::f32([2, 3], &[0.5; 6])?)]);
///
/// let written = Package::new(&plan, None, &serialize(&weights, &BTreeMap::new())?, &[])?;
/// let package = Package::parse(written.bytes().to_vec())?;
/// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
/// let mut session = Model::load(package.plan()?, package.weights(), options)?.session();
/// let outputs = session.run(&Inputs::new().with("x", HostTensor::f32([1, 2], &[1.0, 3.0])?))?;
/// assert_eq!(outputs.get("y").map(HostTensor::to_f32), Some(vec![2.0; 3]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Package {
    bytes: Part,
    head: Head,
    plan: Part,
    towers: BTreeMap<String, Part>,
    kernels: Option<Part>,
    states: Option<Part>,
    weights: Weights<'static>,
    tables: Option<SharedTables>,
}

impl Package {
    /// Creates a package from a plan, its weights (the bytes of a safetensors file), the text of the model's configuration, if
    /// it has one, and its kernels for some devices.
    ///
    /// # Errors
    /// [`PackageError`] names the part that cannot be stored.
    pub fn new(
        plan: &Plan,
        config: Option<&str>,
        weights: &[u8],
        kernels: &[TargetKernels],
    ) -> Result<Self, PackageError> {
        Contents { config, weights, kernels, ..Contents::of(plan) }.store()
    }

    /// Like [`Package::new`], for a plan with tables in a separate file; all other weights are in `weights`.
    ///
    /// # Errors
    /// As [`Package::new`].
    pub fn with_tables(
        plan: &Plan,
        config: Option<&str>,
        weights: &[u8],
        tables: &Tables,
        kernels: &[TargetKernels],
    ) -> Result<Self, PackageError> {
        Contents { config, weights, tables: Some(tables), kernels, ..Contents::of(plan) }.store()
    }

    /// Parses the bytes of a package.
    ///
    /// # Errors
    /// [`PackageError`] if the bytes are not a package, of a newer format, truncated, or changed; [`PackageError::NoTables`] if the
    /// tables are in a separate file.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, PackageError> {
        Self::of(Arc::new(bytes), |_| Ok(None))
    }

    /// Parses the bytes of a package and of the file with its tables.
    ///
    /// # Errors
    /// As [`Package::parse`], and [`PackageError::OtherTables`] if the tables do not belong to the package.
    pub fn parse_with_tables(bytes: Vec<u8>, tables: Vec<u8>) -> Result<Self, PackageError> {
        Self::of(Arc::new(bytes), |identity| identity.check(Arc::new(tables)).map(Some))
    }

    /// Reads a package file and, if its tables are in a separate file, the length and header of that file; see [`Package::check_tables`].
    /// Large files are memory-mapped. They must not be written to or truncated while the package or a model of it exists: replace them by
    /// renaming other files over them, see [`Mapping`].
    ///
    /// # Errors
    /// [`PackageError::Read`] if the file does not exist, [`PackageError::File`] if it is invalid, and
    /// [`PackageError::Tables`] if the file of its tables is not the original one.
    #[cfg(feature = "files")]
    pub fn read(path: &Path) -> Result<Self, PackageError> {
        Self::read_mapping(path, Mapping::Large)
    }

    /// [`Package::read`], with a choice of the files that are mapped.
    ///
    /// # Errors
    /// As [`Package::read`].
    #[cfg(feature = "files")]
    pub fn read_mapping(path: &Path, mapping: Mapping) -> Result<Self, PackageError> {
        let unread = |path: &Path, source| PackageError::Read { path: path.to_owned(), source };
        let file = read_file(path, mapping).map_err(|source| unread(path, source))?;
        let tables = |identity: &Identity| {
            let path = path.with_file_name(&identity.file);
            let file = read_file(&path, mapping).map_err(|source| unread(&path, source))?;
            let other = |source| PackageError::Tables { path: path.clone(), source: Box::new(source) };
            let mut tables = identity.check(file.bytes().clone()).map_err(other)?;
            tables.weights = tables.weights.resting_on(&file);
            Ok(Some(tables))
        };
        let mut package = Self::of(file.bytes().clone(), tables).map_err(|source| match source {
            of_tables @ (PackageError::Read { .. } | PackageError::Tables { .. }) => of_tables,
            source => PackageError::File { path: path.to_owned(), source: Box::new(source) },
        })?;
        package.weights = package.weights.resting_on(&file);
        Ok(package)
    }

    /// True for bytes that start like a package.
    #[cfg(feature = "import")]
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&header::MAGIC)
    }

    /// True for a file that starts like a package.
    #[cfg(feature = "files")]
    pub fn is_at(path: &Path) -> bool {
        let mut first = [0; header::MAGIC.len()];
        let mut read = || File::open(path)?.read_exact(&mut first);
        path.is_file() && read().is_ok() && first == header::MAGIC
    }

    /// The file with the tables of the package at `path`, if they are in a separate file. Reads only the head and checks nothing:
    /// also `None` if the file is not a package.
    #[cfg(feature = "files")]
    pub fn tables_beside(path: &Path) -> Option<std::path::PathBuf> {
        let file = Self::head_at(path)?.tables?.file;
        tables::check_name(&file).ok()?;
        Some(path.with_file_name(file))
    }

    /// The text of the `config.json` of the package at `path`, if it has one. Reads only the head and checks nothing: also `None` if the
    /// file is not a package.
    #[cfg(feature = "files")]
    pub(crate) fn config_at(path: &Path) -> Option<String> {
        Self::head_at(path)?.config
    }

    #[cfg(feature = "files")]
    fn head_at(path: &Path) -> Option<Head> {
        let mut file = Self::is_at(path).then(|| File::open(path).ok()).flatten()?;
        Head::peek(&mut file)
    }

    fn of(
        bytes: SharedBytes,
        tables: impl FnOnce(&Identity) -> Result<Option<SharedTables>, PackageError>,
    ) -> Result<Self, PackageError> {
        let (head, parts) = Head::read(header::check((*bytes).as_ref())?)?;
        let mut weights = Weights::shared(Arc::new(Part::of(&bytes, parts.get(WEIGHTS)?)))?;
        let tables = match &head.tables {
            None => None,
            Some(identity) => {
                tables::check_name(&identity.file)?;
                let found = tables(identity)?.ok_or_else(|| PackageError::NoTables { file: identity.file.clone() })?;
                weights = weights.and(&found.weights);
                Some(found)
            }
        };
        let plan = Part::of(&bytes, parts.get("plan")?);
        let kernels = parts.get("kernels").ok().map(|range| Part::of(&bytes, range));
        let states = parts.get(STATES).ok().map(|range| Part::of(&bytes, range));
        let tower = |(name, range): (&str, Range<usize>)| {
            Some((name.strip_prefix(&tower_part(""))?.to_owned(), Part::of(&bytes, range)))
        };
        let towers = parts.iter().filter_map(tower).ordered_map();
        let all = 0..(*bytes).as_ref().len();
        Ok(Self { bytes: Part::of(&bytes, all), head, plan, towers, kernels, states, weights, tables })
    }

    /// Writes the package with other weights, a file of `bytes` bytes that `weights` writes at the current position of
    /// the file, and other tables in a separate file.
    #[cfg(feature = "files")]
    pub(crate) fn write_with(
        &self,
        file: &mut File,
        tables: Option<&Tables>,
        (bytes, weights): (usize, impl FnOnce(&mut File) -> io::Result<()>),
    ) -> io::Result<()> {
        let head = self.head.with_weights(bytes, tables.map(|tables| tables.identity.clone()));
        head.write(file, self.bytes(), weights)?;
        header::write(file, header::format(self.bytes()))
    }

    /// The tables in a separate file.
    #[cfg(feature = "files")]
    pub(crate) fn names_of_tables_apart(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().flat_map(|tables| tables.weights.names())
    }

    /// The name of the file with the tables, next to the package, if they are in a separate file.
    pub fn tables_file(&self) -> Option<&str> {
        self.head.tables.as_ref().map(|identity| identity.file.as_str())
    }

    /// Reads the whole file of the tables, if they are in a separate file, and checks that it is unchanged since the package was
    /// written.
    ///
    /// # Errors
    /// [`PackageError::Tables`].
    pub fn check_tables(&self) -> Result<(), PackageError> {
        match (&self.head.tables, &self.tables) {
            (Some(identity), Some(tables)) => identity.check_content(tables).map_err(|source| PackageError::Tables {
                path: identity.file.clone().into(),
                source: Box::new(source),
            }),
            _ => Ok(()),
        }
    }

    /// All bytes of the package, without those of a separate file of tables.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The decoded plan. Its computation is checked when a model is loaded from it.
    ///
    /// # Errors
    /// [`PackageError::Part`].
    pub fn plan(&self) -> Result<Plan, PackageError> {
        let plan = decoded("plan", self.plan.as_ref())?;
        self.head.check(&plan)?;
        Ok(plan)
    }

    /// The plan that computes a single output from the inputs it needs: the vectors of users or of items of an imported matching model.
    /// `None` if the package has no such plan.
    ///
    /// # Errors
    /// [`PackageError::Part`].
    pub fn tower(&self, output: &str) -> Result<Option<Plan>, PackageError> {
        let Some(part) = self.towers.get(output) else { return Ok(None) };
        let plan: Plan = decoded("tower", part.as_ref())?;
        match plan.outputs.iter().all(|known| known.name == output) {
            true => Ok(Some(plan)),
            false => Err(PackageError::part("tower", format!("has other outputs than `{output}`"))),
        }
    }

    /// The targets that the package has kernels for.
    ///
    /// # Errors
    /// [`PackageError::Part`].
    pub fn targets(&self) -> Result<Vec<Target>, PackageError> {
        Ok(self.told()?.into_iter().map(|told| told.target).collect())
    }

    /// Tunings measured on the devices that the package has kernels for.
    ///
    /// # Errors
    /// [`PackageError::Part`].
    pub fn tunings(&self) -> Result<Vec<DeviceTunings>, PackageError> {
        Ok(self.kernels()?.into_iter().filter_map(|kernels| kernels.tunings).collect())
    }

    /// The model options for loading it, with its devices and their tunings.
    pub(crate) fn of_model(&self, options: &RankOptions) -> Result<ModelOptions, PackageError> {
        let mut told = self.told()?;
        // The tunings apply to floats in the storage types of the package.
        let is_own = options.precision == Precision::default();
        let kernels = told.iter_mut().filter(|_| is_own).filter_map(Told::given).collect();
        let device_tunings = told.iter_mut().filter_map(Told::tunings).collect();
        let targets = told.into_iter().map(|told| told.target).filter(|target| *target != Target::BASELINE).collect();
        Ok(ModelOptions { targets, device_tunings, kernels, ..options.of_model() })
    }

    fn told(&self) -> Result<Vec<Told>, PackageError> {
        self.kernels.as_ref().map_or(Ok(vec![]), |part| kernels::told(part.as_ref()))
    }

    /// The kernels. A program built without `emit` runs them. With `emit` they are only for inspection: the program
    /// emits its own, and does so while the device opens if [`Package::targets`] lists it.
    ///
    /// # Errors
    /// [`PackageError::Part`].
    pub fn kernels(&self) -> Result<Vec<TargetKernels>, PackageError> {
        self.kernels.as_ref().map_or(Ok(vec![]), |part| decoded("kernels", part.as_ref()))
    }

    /// The weights, by the names of the plan's parameters.
    pub fn weights(&self) -> &Weights<'static> {
        &self.weights
    }

    /// The text of the model's `config.json`, if it has one.
    pub fn config(&self) -> Option<&str> {
        self.head.config.as_deref()
    }

    /// Names and element types of an exported model, if they differ from those of the plan.
    pub fn signature(&self) -> Option<&Signature> {
        self.head.signature.as_ref()
    }

    /// Initial values of states that do not start at zero.
    ///
    /// # Errors
    /// [`PackageError::Weights`].
    pub fn states(&self) -> Result<BTreeMap<String, HostTensor>, PackageError> {
        let Some(part) = &self.states else { return Ok(BTreeMap::new()) };
        Ok(Weights::parse(part.as_ref())?.tensors()?)
    }

    /// The inputs of a run.
    pub fn inputs(&self) -> &[Vocabulary] {
        &self.head.inputs
    }

    /// The outputs of a run.
    pub fn outputs(&self) -> &[Vocabulary] {
        &self.head.outputs
    }
}
