use super::signature::{described, given};
use super::{Port, Signature, stored};
use crate::package::Package;
#[cfg(all(feature = "emit", feature = "files"))]
use crate::rank::pack;
#[cfg(feature = "files")]
use crate::rank::{CacheOptions, compiled};
use crate::rank::{Description, ModelConfig, Precision, RankError, trace_text};
#[cfg(feature = "emit")]
use crate::rank::{PackOptions, Packed, names_of_tables, repack};
use crate::weights::{Weights, serialize};
use rewire_graph::{Graph, HostTensor};
use rewire_graph_rewrite::plan::Plan;
use rewire_graph_rewrite::{lower, optimize};
use rewire_import::ImportedModel;
#[cfg(feature = "files")]
use rewire_runtime::Mapping;
use std::collections::{BTreeMap, HashMap};
#[cfg(feature = "files")]
use std::path::{Path, PathBuf};

/// A model, by the kind of its file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelFile {
    /// A model folder.
    #[cfg(feature = "files")]
    Folder(Folder),
    /// A package.
    Package(Box<Package>),
    /// A model exported from another framework.
    Exported(Box<ImportedModel>),
}

/// The kind of a model, by which a program chooses the type that loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Scores candidates of requests: [`Ranker`](crate::rank::Ranker).
    Ranking,
    /// Computes vectors of users and items: [`Embedder`](crate::rank::Embedder).
    Matching,
    /// Reads tables: [`Predictor`](crate::predict::Predictor).
    Imported,
    /// Continues prompts: [`Decoder`](crate::generate::decoder::Decoder).
    Language,
    /// Reads named tensors: [`Program`](super::Program).
    Tensors,
}

/// A folder with `config.json` and `model.safetensors`, which is read on demand.
#[cfg(feature = "files")]
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    config: String,
    mapping: Mapping,
}

/// The text of a package's configuration, and its name in errors.
pub(crate) fn config_of_package(package: &Package) -> Option<(String, &str)> {
    package.config().map(|text| ("the configuration of the package".to_owned(), text))
}

#[cfg(feature = "files")]
impl Folder {
    /// The name of the configuration in errors.
    fn name(&self) -> String {
        self.path.join("config.json").display().to_string()
    }

    fn weights(&self) -> Result<Weights<'static>, RankError> {
        crate::rank::read_weights(&self.path, self.mapping)
    }
}

#[cfg(feature = "files")]
impl ModelFile {
    /// True for a path that may hold a model: a folder, a file that starts like a package, or one with the extension of an exported
    /// model.
    pub fn is_at(path: &Path) -> bool {
        crate::rank::is_model(path) || path.is_file() && rewire_import::is_model(path)
    }

    /// Opens a folder, a package or an exported model.
    ///
    /// # Errors
    /// [`RankError`] names the invalid file.
    pub fn open(path: &Path, mapping: Mapping) -> Result<Self, RankError> {
        if path.is_dir() {
            let config = crate::rank::read_config_text(path, mapping)?;
            return Ok(Self::Folder(Folder { path: path.to_owned(), config, mapping }));
        }
        if rewire_import::is_model(path) && !Package::is_at(path) {
            let failed = |source| RankError::Export { name: path.display().to_string(), source: Box::new(source) };
            return Ok(Self::of_export(rewire_import::read(path).map_err(failed)?));
        }
        Ok(Self::Package(Box::new(crate::rank::read_package(path, mapping)?)))
    }
}

impl ModelFile {
    /// Parses the bytes of a package, of an archive by `torch.export.save`, or of an ONNX model.
    ///
    /// # Errors
    /// [`RankError`] describes the invalid part.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, RankError> {
        #[cfg(feature = "import")]
        if !Package::begins(&bytes) {
            let failed = |source| RankError::Export { name: "the model".to_owned(), source: Box::new(source) };
            return Ok(Self::of_export(rewire_import::parse(&bytes).map_err(failed)?));
        }
        Ok(Self::of_package(Package::parse(bytes)?))
    }

    /// An exported model.
    pub fn of_export(model: ImportedModel) -> Self {
        Self::Exported(Box::new(model))
    }

    /// A package.
    pub fn of_package(package: Package) -> Self {
        Self::Package(Box::new(package))
    }

    /// The text of its configuration, and its name in errors.
    pub fn config(&self) -> Option<(String, &str)> {
        match self {
            #[cfg(feature = "files")]
            Self::Folder(folder) => Some((folder.name(), &folder.config)),
            Self::Package(package) => config_of_package(package),
            Self::Exported(_) => None,
        }
    }

    /// The kind of the model, judged by its configuration.
    ///
    /// # Errors
    /// [`RankError`] names the invalid key.
    pub fn kind(&self) -> Result<ModelKind, RankError> {
        let Some((name, text)) = self.config() else { return Ok(ModelKind::Tensors) };
        Ok(match ModelConfig::parse(&name, text)? {
            ModelConfig::Ranking(_) => ModelKind::Ranking,
            ModelConfig::Matching(_) => ModelKind::Matching,
            ModelConfig::Imported(_) => ModelKind::Imported,
            ModelConfig::Language(_) => ModelKind::Language,
        })
    }

    /// The graph as traced or exported; `None` for a package that holds no configuration to trace.
    ///
    /// # Errors
    /// [`RankError`] names the invalid key.
    pub fn graph(&self) -> Result<Option<Graph>, RankError> {
        match self {
            #[cfg(feature = "files")]
            Self::Folder(folder) => trace_text(&folder.name(), &folder.config).map(Some),
            Self::Package(package) => {
                package.config().map(|config| trace_text("the configuration of the package", config)).transpose()
            }
            Self::Exported(model) => Ok(Some(model.graph.clone())),
        }
    }

    /// The plan that runs it, with floats stored at a precision.
    ///
    /// # Errors
    /// [`RankError`] describes the invalid part.
    pub fn plan(&self, precision: Precision) -> Result<Plan, RankError> {
        let plan = match self {
            #[cfg(feature = "files")]
            Self::Folder(folder) => {
                let parsed = ModelConfig::parse(&folder.name(), &folder.config)?;
                let graph = parsed.trace(&folder.weights()?, &CacheOptions::default(), false)?;
                return compiled(&parsed.tables(), graph, precision);
            }
            Self::Package(package) => package.plan()?,
            Self::Exported(model) => lower(&optimize(model.graph.clone())?.0)?,
        };
        stored(plan, precision)
    }

    /// The inputs of a run.
    ///
    /// # Errors
    /// As [`ModelFile::plan`].
    pub fn inputs(&self) -> Result<Vec<Port>, RankError> {
        let plan = self.plan(Precision::default())?;
        Ok(described(&plan, &self.signature(&plan)))
    }

    /// The outputs of a run; tensors that the run changes come last.
    ///
    /// # Errors
    /// As [`ModelFile::plan`].
    pub fn outputs(&self) -> Result<Vec<Port>, RankError> {
        let plan = self.plan(Precision::default())?;
        Ok(given(&plan, &self.signature(&plan)))
    }

    /// Describes its inputs and outputs without loading it on a device.
    ///
    /// # Errors
    /// As [`ModelFile::plan`].
    pub fn describe(&self) -> Result<Description, RankError> {
        match self {
            #[cfg(feature = "files")]
            Self::Folder(folder) => Description::parse(&folder.name(), &folder.config),
            Self::Package(package) => Description::of_package(package),
            Self::Exported(_) => Ok(Description::of_plan(&self.plan(Precision::default())?)),
        }
    }

    /// Initial values of states that do not start at zero.
    pub(super) fn states(&self) -> Result<HashMap<String, HostTensor>, RankError> {
        Ok(match self {
            #[cfg(feature = "files")]
            Self::Folder(_) => HashMap::new(),
            Self::Package(package) => package.states()?.into_iter().collect(),
            Self::Exported(model) => model.states.clone(),
        })
    }

    pub(super) fn signature(&self, plan: &Plan) -> Signature {
        match self {
            #[cfg(feature = "files")]
            Self::Folder(_) => Signature::of_plan(plan),
            Self::Package(package) => package.signature().cloned().unwrap_or_else(|| Signature::of_plan(plan)),
            Self::Exported(model) => Signature::of_import(model),
        }
    }

    /// Parameters by name.
    ///
    /// # Errors
    /// [`RankError::Weights`] names the invalid file.
    pub fn weights(&self) -> Result<Weights<'static>, RankError> {
        Ok(match self {
            #[cfg(feature = "files")]
            Self::Folder(folder) => folder.weights()?,
            Self::Package(package) => package.weights().clone(),
            Self::Exported(model) => {
                let tensors = model.parameters.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
                Weights::parse(serialize(&tensors, &BTreeMap::new())?)?
            }
        })
    }

    /// Writes it as a package. A package is repacked with other options.
    ///
    /// # Errors
    /// [`RankError`] describes the invalid part.
    #[cfg(feature = "emit")]
    pub fn pack(&self, options: &PackOptions) -> Result<Package, RankError> {
        match self {
            #[cfg(feature = "files")]
            Self::Folder(folder) => pack(&folder.name(), &folder.config, &folder.weights()?, options),
            Self::Package(package) => repack(package, options),
            Self::Exported(model) => {
                let plan = self.plan(options.precision)?;
                let states: BTreeMap<String, HostTensor> = self.states()?.into_iter().collect();
                let packed =
                    Packed { signature: Some(&Signature::of_import(model)), states: &states, ..Packed::of(&plan) };
                packed.store(&names_of_tables(&plan), &self.weights()?, options)
            }
        }
    }
}
