//! Imports models of other frameworks as model folders and packages.

use crate::args::{Common, Import as Options};
use crate::error::CliError;
use crate::output::Output;
use rewire::predict::{IdentifiedRows, Imported, Problems, size_vocabularies, vocabulary_files};
use rewire::program::{ModelFile, Port};
use rewire::rank::{PackOptions, RankError, pack};
use rewire::weights::{Weights, serialize};
use rewire::{HostTensor, graph::DType, write_file};
use rewire_tzrec::{
    Checkpoint, CheckpointError, DynamicTable, ElementType, Pipeline, PipelineError, StoredTensor, read_dynamic,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use thiserror::Error;

/// The prefix of all tensors in a checkpoint.
pub const WRAPPER: &str = "model.";

/// The files of a model folder.
pub const MODEL_FILES: [&str; 2] = ["model.safetensors", "config.json"];

/// True for the name of a package, false for that of a folder.
pub fn is_package_name(out: &Path) -> bool {
    out.extension().is_some_and(|ending| ending == "rewire")
}

/// Why a model cannot be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    #[error(
        "{file}: expected a TorchEasyRec pipeline configuration (.config), an ONNX model (.onnx) or an archive of torch.export (.pt2)"
    )]
    Source { file: String },
    #[error("{file}: an exported model is imported as a package: expected a name that ends in .rewire")]
    Folder { file: String },
    #[error("{file} contains its parameters: leave out --checkpoint and --ema")]
    Checkpoints { file: String },
    #[error(
        "a pipeline configuration has no parameters: pass a checkpoint by --checkpoint, a folder or a .safetensors file"
    )]
    NoCheckpoint,
    #[error("{file}")]
    Pipeline { file: String, source: PipelineError },
    #[error("{file}: {problems}")]
    Unsupported { file: String, problems: Unsupported },
    #[error("{file}")]
    Checkpoint { file: String, source: CheckpointError },
    #[error("{file} does not fit the configuration: {}", tensors.join("; "))]
    Tensors { file: String, tensors: Vec<String> },
}

/// Unsupported options, with their lines.
#[derive(Debug)]
pub struct Unsupported(Vec<(usize, String)>);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|(line, problem)| format!("line {line}: {problem}")).collect();
        f.write_str(&lines.join("; "))
    }
}

impl From<ImportError> for CliError {
    fn from(error: ImportError) -> Self {
        Self::Import(Box::new(error))
    }
}

impl ImportError {
    /// True if the arguments themselves are invalid.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Source { .. } | Self::Folder { .. } | Self::Checkpoints { .. } | Self::NoCheckpoint)
    }
}

/// The summary of an import.
#[derive(Debug, Serialize)]
struct Line<'a> {
    file: String,
    source: &'static str,
    /// Elements of all parameters.
    parameters: usize,
    inputs: &'a [Port],
    outputs: &'a [Port],
    /// Tensors of the checkpoint that predictions do not use.
    unmapped: Vec<String>,
}

/// Imports a pipeline or an exported model.
pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    if rewire::import::is_model(&options.source) {
        return exported(options, common, output);
    }
    let file = options.source.display().to_string();
    let checkpoint = options.checkpoint.as_deref();
    let pipeline = pipeline(&options.source)?;
    let checkpoint = checkpoint.ok_or(ImportError::NoCheckpoint)?;
    let refused = |problems: Problems| unsupported(&file, &pipeline, &problems.0);
    let (mut config, mut stored) = (pipeline.json().clone(), None);
    if !vocabulary_files(&config).is_empty() {
        let (tensors, _) = stored.insert(read(checkpoint)?);
        let shapes = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape()));
        size_vocabularies(&mut config, shapes).map_err(refused)?;
    }
    let imported = Imported::new(&config).map_err(refused)?;
    let (mut tensors, plan) = stored.map_or_else(|| read(checkpoint), Ok)?;
    tensors.extend(identified(&imported, checkpoint)?);
    if let Some(averages) = &options.ema {
        average(&mut tensors, averages)?;
    }
    check(&imported, &tensors, checkpoint)?;
    imported.check_ids(|name| Ok(tensors.get(name).cloned()))?;
    write(&options.out, &self::config(&config, plan.as_ref()), &tensors)?;
    let line = Line {
        file: options.out.display().to_string(),
        source: "tzrec",
        parameters: imported.parameters().iter().map(|known| known.shape.iter().product::<usize>()).sum(),
        inputs: imported.inputs(),
        outputs: imported.outputs(),
        unmapped: tensors.keys().filter(|name| !imported.reads(name)).cloned().collect(),
    };
    line.print(common, output)
}

/// Imports an exported model.
fn exported(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let (source, out) = (options.source.display().to_string(), options.out.display().to_string());
    if options.checkpoint.is_some() || options.ema.is_some() {
        return Err(ImportError::Checkpoints { file: source }.into());
    }
    if !is_package_name(&options.out) {
        return Err(ImportError::Folder { file: out }.into());
    }
    let file = ModelFile::open(&options.source, common.mapping)?;
    let package = file.pack(&PackOptions::default())?;
    write_file(&options.out, package.bytes()).map_err(|source| CliError::Write { file: out.clone(), source })?;
    let (weights, inputs, outputs) = (package.weights().tensors()?, file.inputs()?, file.outputs()?);
    let parameters = weights.values().map(HostTensor::len).sum();
    let line = Line { file: out, source: "export", parameters, inputs: &inputs, outputs: &outputs, unmapped: vec![] };
    line.print(common, output)
}

/// Reads the configuration of a pipeline.
pub fn pipeline(source: &Path) -> Result<Pipeline, ImportError> {
    let file = source.display().to_string();
    if source.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("config")) {
        return Err(ImportError::Source { file });
    }
    Pipeline::read(source).map_err(|source| ImportError::Pipeline { file, source })
}

/// The error for unsupported options.
pub fn unsupported(file: &str, pipeline: &Pipeline, problems: &[rewire::predict::Problem]) -> ImportError {
    let line = |problem: &rewire::predict::Problem| (pipeline.line(&problem.key), problem.to_string());
    let mut problems: Vec<(usize, String)> = problems.iter().map(line).collect();
    problems.sort();
    ImportError::Unsupported { file: file.to_owned(), problems: Unsupported(problems) }
}

/// The configuration for the folder: that of the pipeline, and the sharding plan of its tables.
pub fn config(pipeline: &Value, plan: Option<&Value>) -> String {
    let mut config = json!({ "pipeline": pipeline });
    if let (Some(plan), Some(config)) = (plan, config.as_object_mut()) {
        config.insert("plan".to_owned(), plan.clone());
    }
    format!("{config:#}\n")
}

/// All tensors of a checkpoint by the names of the model's parameters, and its plan.
pub fn read(path: &Path) -> Result<(BTreeMap<String, HostTensor>, Option<Value>), CliError> {
    let failed = |source| ImportError::Checkpoint { file: path.display().to_string(), source };
    let checkpoint = Checkpoint::open(path).map_err(failed)?;
    let mut tensors = BTreeMap::new();
    for name in checkpoint.names() {
        let tensor = tensor(checkpoint.read(&name).map_err(failed)?)?;
        tensors.insert(name.strip_prefix(WRAPPER).unwrap_or(&name).to_owned(), tensor);
    }
    Ok((tensors, checkpoint.plan().cloned()))
}

/// The tensors of the model for the `dynamicemb` tables of a checkpoint.
pub fn identified(imported: &Imported, checkpoint: &Path) -> Result<BTreeMap<String, HostTensor>, CliError> {
    let failed = |source| ImportError::Checkpoint { file: checkpoint.display().to_string(), source };
    let own = |DynamicTable { module, table, keys, values, scores, .. }: DynamicTable| {
        let module = module.strip_prefix(WRAPPER).unwrap_or(&module).to_owned();
        IdentifiedRows { module, table, ids: keys, rows: values, scores, places: vec![] }
    };
    let tables: Vec<IdentifiedRows> = read_dynamic(checkpoint).map_err(failed)?.into_iter().map(own).collect();
    Ok(imported.identified(&tables)?)
}

/// The name of the tensor with the number of averaged updates.
const UPDATES: &str = "__n_averaged__";

/// Replaces parameters by their averages from a separate checkpoint.
fn average(tensors: &mut BTreeMap<String, HostTensor>, averages: &Path) -> Result<(), CliError> {
    let mut wrong = vec![];
    for (name, average) in read(averages)?.0.into_iter().filter(|(name, _)| name != UPDATES) {
        match tensors.get_mut(&name) {
            Some(tensor) if tensor.shape() == average.shape() => *tensor = average,
            Some(tensor) => wrong.push(format!("`{name}` is {:?}: expected {:?}", average.shape(), tensor.shape())),
            None => wrong.push(format!("`{name}` is not a parameter of the checkpoint")),
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(ImportError::Tensors { file: averages.display().to_string(), tensors: wrong }.into()),
    }
}

/// A tensor of a checkpoint; f64 becomes f32.
pub fn tensor(stored: StoredTensor) -> Result<HostTensor, CliError> {
    let dtype = match stored.element {
        ElementType::F32 => DType::F32,
        ElementType::F16 => DType::F16,
        ElementType::BF16 => DType::BF16,
        ElementType::I64 => DType::I64,
        ElementType::I32 => DType::I32,
        ElementType::F64 => {
            let values = stored.to_f64();
            return Ok(HostTensor::from_f64(DType::F32, stored.shape, &values).map_err(RankError::from)?);
        }
    };
    Ok(HostTensor::from_bytes(dtype, stored.shape, stored.bytes).map_err(RankError::from)?)
}

/// Checks that all parameters exist with their shapes, and that tensors which follow from the configuration have the expected
/// values.
fn check(imported: &Imported, tensors: &BTreeMap<String, HostTensor>, file: &Path) -> Result<(), ImportError> {
    let missing = |name: &str, shape: &[usize]| match tensors.get(name) {
        None => Some(format!("there is no `{WRAPPER}{name}` {shape:?}")),
        Some(found) if found.shape() != shape => {
            Some(format!("`{WRAPPER}{name}` is {:?}: expected {shape:?}", found.shape()))
        }
        Some(_) => None,
    };
    let parameters = imported.parameters();
    let mut wrong: Vec<String> = parameters.iter().filter_map(|known| missing(&known.name, &known.shape)).collect();
    for buffer in imported.buffers() {
        let other = tensors.get(&buffer.name).filter(|found| found.to_f64() != buffer.value.to_f64());
        wrong.extend(other.map(|found| {
            let (name, expected) = (&buffer.name, buffer.value.to_f64());
            format!("`{WRAPPER}{name}` is {:?}: expected {expected:?} by the configuration", found.to_f64())
        }));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(ImportError::Tensors { file: file.display().to_string(), tensors: wrong }),
    }
}

/// Writes a folder, or a package if the name has that extension.
fn write(out: &Path, config: &str, tensors: &BTreeMap<String, HostTensor>) -> Result<(), CliError> {
    let stored = serialize(tensors, &BTreeMap::new())?;
    let unwritten = |path: &Path| {
        let file = path.display().to_string();
        move |source| CliError::Write { file, source }
    };
    if is_package_name(out) {
        let weights = Weights::parse(stored)?;
        let with = PackOptions { allow_unread: true, ..PackOptions::default() };
        let package = pack(&out.display().to_string(), config, &weights, &with)?;
        return write_file(out, package.bytes()).map_err(unwritten(out));
    }
    std::fs::create_dir_all(out).map_err(unwritten(out))?;
    for (name, content) in MODEL_FILES.into_iter().zip([stored.as_slice(), config.as_bytes()]) {
        let path = out.join(name);
        write_file(&path, content).map_err(unwritten(&path))?;
    }
    Ok(())
}

impl Line<'_> {
    fn print(&self, common: &Common, output: &mut Output) -> Result<(), CliError> {
        match common.json {
            true => output.json(self)?,
            false => output.line(self.text())?,
        }
        Ok(())
    }

    fn text(&self) -> String {
        let names = |ports: &[Port]| ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        let unread = match self.unmapped.len() {
            0 => String::new(),
            count => format!("; {count} tensors are kept that predictions do not read: {}", self.unmapped.join(", ")),
        };
        format!(
            "{}: {} parameters, {} inputs, outputs {}{unread}",
            self.file,
            self.parameters,
            self.inputs.len(),
            names(self.outputs)
        )
    }
}
