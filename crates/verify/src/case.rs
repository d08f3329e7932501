use crate::replay::{self, Replay, ReplayError};
use crate::verifier::is_folder_case;
use rewire::weights::{Weights, WeightsError};
use rewire_graph::{DType, DifferentiateError, Graph, HostTensor, Seed, differentiate};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a golden case could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The file cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The file is not a golden case.
    #[error("{}: {reason}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The case cannot be traced.
    #[error("{}", path.display())]
    Replay {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<ReplayError>,
    },
}

/// An expected result of a golden case.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    /// Its name in the file.
    pub stored: &'a str,
    /// Its name in the graph.
    pub computed: String,
    pub is_gradient: bool,
}

/// A golden case: inputs, parameters and expected outputs of an operator or module.
#[derive(Debug)]
pub struct GoldenCase {
    op: String,
    path: PathBuf,
    attrs: Value,
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, HostTensor>,
}

impl GoldenCase {
    /// Reads a file.
    ///
    /// # Errors
    /// [`CaseError`] if it is not a safetensors file, or its metadata do not describe a case.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let file = Weights::read_rows(path, |metadata| replay::rows(metadata.get("attrs")))?;
        let bad = |reason: String| CaseError::Metadata { path: path.to_owned(), reason };
        let entry = |key: &str| {
            let value = file.metadata().get(key);
            value.ok_or_else(|| bad(format!("the file is not a golden case: its metadata have no `{key}`")))
        };
        let op = entry("op")?.clone();
        if op.is_empty() || !op.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) || op.starts_with('.') {
            return Err(bad(format!("`{op}` is not the name of an operator")));
        }
        let attrs = serde_json::from_str(entry("attrs")?).map_err(|error| bad(format!("attrs: {error}")))?;
        Ok(Self { op, path: path.to_owned(), attrs, metadata: file.metadata().clone(), tensors: file.tensors()? })
    }

    /// The operator.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// The attributes of the operator.
    pub fn attrs(&self) -> &Value {
        &self.attrs
    }

    /// All tensors, by their names in the file.
    pub fn tensors(&self) -> &BTreeMap<String, HostTensor> {
        &self.tensors
    }

    /// Traces the graph. Inputs, parameters and outputs are named as in the file, without `in.`, `param.` and `out.`.
    ///
    /// # Errors
    /// [`CaseError::Replay`] if the operator is unknown or does not accept the tensors.
    pub fn trace(&self) -> Result<Replay, CaseError> {
        replay::trace(&self.op, &self.attrs, &self.types())
            .map_err(|source| CaseError::Replay { path: self.path.clone(), source: Box::new(source) })
    }

    /// True if inputs or parameters are 16-bit floats.
    pub fn half(&self) -> bool {
        self.tensors.iter().any(|(name, tensor)| {
            (name.starts_with("in.") || name.starts_with("param."))
                && matches!(tensor.dtype(), DType::F16 | DType::BF16)
        })
    }

    /// The file's metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    pub(crate) fn input(&self, name: &str) -> Option<HostTensor> {
        self.tensors.get(&format!("in.{name}")).or_else(|| self.tensors.get(name)).cloned()
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<HostTensor> {
        self.tensors.get(&format!("param.{name}")).or_else(|| self.tensors.get(&format!("in.{name}"))).cloned()
    }

    /// True if the file contains gradients.
    pub fn has_gradients(&self) -> bool {
        self.expected().any(|expected| expected.is_gradient)
    }

    /// Adds gradients `grad.x` of all inputs and parameters for which the file has expected gradients. Gradients of outputs are inputs
    /// `grad_out.y`.
    ///
    /// # Errors
    /// [`DifferentiateError`] if a gradient does not exist.
    pub fn differentiate(&self, graph: &Graph) -> Result<Graph, DifferentiateError> {
        let names = |prefix: &'static str| self.tensors.keys().filter_map(move |name| name.strip_prefix(prefix));
        let inputs: Vec<(&str, String)> = names("grad_out.").map(|name| (name, format!("grad_out.{name}"))).collect();
        let seeds: Vec<_> = inputs.iter().map(|(name, input)| (*name, Seed::Input(input))).collect();
        let wanted: Vec<&str> = names("grad.").chain(names("grad_param.")).collect();
        differentiate(graph, &seeds, &wanted)
    }

    /// The expected results, by their names in the file.
    pub(crate) fn expected(&self) -> impl Iterator<Item = Expected<'_>> {
        self.tensors.keys().filter_map(|stored| {
            let (prefix, name) = stored.split_once('.')?;
            let (computed, is_gradient) = match prefix {
                "out" => (name.to_owned(), false),
                "grad" | "grad_param" => (format!("grad.{name}"), true),
                _ => return None,
            };
            Some(Expected { stored, computed, is_gradient })
        })
    }

    /// A tensor by its name in the file.
    pub(crate) fn tensor(&self, stored: &str) -> Option<HostTensor> {
        self.tensors.get(stored).cloned()
    }

    fn types(&self) -> BTreeMap<String, (DType, Vec<usize>)> {
        let ty = |tensor: &HostTensor| (tensor.dtype(), tensor.shape().to_vec());
        self.tensors.iter().map(|(name, tensor)| (name.clone(), ty(tensor))).collect()
    }
}

/// The golden cases at a path: the file itself, or all `.safetensors` files in a folder and its subfolders, sorted by name.
///
/// # Errors
/// The operating system's error if the path cannot be read.
pub fn cases(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    if is_folder_case(path) {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries = std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            files.extend(cases(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    Ok(files)
}
