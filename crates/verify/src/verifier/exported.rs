//! Exported programs with expected results: folders with `model.pt2` or `model.onnx`, `meta.json` and safetensors files.

use super::{CaseReport, Failure, Status, Verifier};
use rewire::program::{self, ModelFile, Program, ResultValue, TypedTensor};
use rewire::rank::RankError;
use rewire::{RewriteError, write_file};
use rewire_import::{ImportError, onnx, pt2, tensors};
use rewire_runtime::RuntimeError;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Program files of a folder, and the name prefixes of their saved results.
const PROGRAMS: [(&str, &str); 3] = [("model.pt2", ""), (ONNX, ""), ("model_core.pt2", "core_")];

/// The program file of ONNX cases.
pub(super) const ONNX: &str = "model.onnx";

/// Why an exported program could not be replayed.
#[derive(Debug, Error)]
pub(super) enum ExportedError {
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Model(#[from] RankError),
    #[error("{}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {reason}", path.display())]
    Metadata { path: PathBuf, reason: String },
    #[error("set {set}: {reason}")]
    Wrong { set: usize, reason: String },
}

impl ExportedError {
    pub fn status(&self) -> Status {
        match self {
            Self::Import(ImportError::Unsupported(_) | ImportError::Version { .. }) => Status::Unsupported,
            Self::Model(error) if is_unsupported(error) => Status::Unsupported,
            Self::Wrong { .. } => Status::Fail,
            _ => Status::Error,
        }
    }
}

/// True if the device or the rewriter does not support the model.
fn is_unsupported(error: &RankError) -> bool {
    match error {
        RankError::Compile(error) => matches!(**error, RewriteError::Unsupported { .. }),
        RankError::Load(error) => matches!(**error, RuntimeError::Step { .. }),
        _ => false,
    }
}

/// True for a folder with an exported program and expected results.
pub(super) fn is_exported(folder: &Path) -> bool {
    folder.join("meta.json").is_file() && PROGRAMS[..2].iter().any(|(file, _)| folder.join(file).is_file())
}

/// Tensors by name.
type Tensors = BTreeMap<String, TypedTensor>;

/// The results of a run.
#[derive(Default)]
struct Results {
    outputs: Tensors,
    scalars: Map<String, Value>,
    mutations: Tensors,
}

/// A folder with an exported program, and its `meta.json`.
struct Exported<'a> {
    folder: &'a Path,
    meta: Value,
}

impl Exported<'_> {
    fn bad(&self, reason: &str) -> ExportedError {
        ExportedError::Metadata { path: self.folder.join("meta.json"), reason: reason.to_owned() }
    }

    fn list(&self, key: &str) -> Result<&Vec<Value>, ExportedError> {
        self.meta[key].as_array().ok_or_else(|| self.bad(&format!("no list `{key}`")))
    }

    /// Names of the entries of `key`, inputs or outputs.
    fn names(&self, key: &str) -> Result<Vec<String>, ExportedError> {
        let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
        Ok(self.list(key)?.iter().map(name).collect())
    }

    fn tolerance(&self) -> Result<[f64; 2], ExportedError> {
        let [rtol, atol] = ["rtol", "atol"].map(|name| self.meta["tolerance"][name].as_f64());
        rtol.zip(atol).map(|(rtol, atol)| [rtol, atol]).ok_or_else(|| self.bad("no tolerance"))
    }

    /// The tensors of a file; empty if it does not exist.
    fn tensors(&self, name: &str) -> Result<Tensors, ExportedError> {
        let path = self.folder.join(name);
        if !path.is_file() {
            return Ok(Tensors::new());
        }
        let bytes = std::fs::read(&path).map_err(|source| ExportedError::Read { path, source })?;
        Ok(tensors::deserialize(&bytes)?)
    }

    /// The inputs of a set by the program's names. The folder may name them by position instead.
    fn inputs(&self, program: &Program, set: usize) -> Result<Tensors, ExportedError> {
        let mut given = self.tensors(&format!("inputs_{set}.safetensors"))?;
        let names = self.names("inputs")?;
        let mut inputs = Tensors::new();
        for (place, spec) in program.inputs().iter().enumerate() {
            let stored = given.remove(&spec.name).or_else(|| given.remove(names.get(place)?));
            let stored = stored.ok_or_else(|| self.bad(&format!("no input `{}` in set {set}", spec.name)))?;
            inputs.insert(spec.name.clone(), stored);
        }
        Ok(inputs)
    }

    /// The largest error of a set, relative to the tolerance.
    fn compare(&self, set: usize, results: &Results) -> Result<f64, ExportedError> {
        let tolerance = self.tolerance()?;
        let wrong = |reason: String| ExportedError::Wrong { set, reason };
        let files = [("outputs", &results.outputs), ("mutations", &results.mutations)];
        let mut worst = 0f64;
        for (kind, computed) in files {
            for (name, expected) in self.tensors(&format!("{kind}_{set}.safetensors"))? {
                let computed = computed.get(&name).ok_or_else(|| wrong(format!("no {kind} `{name}`")))?;
                let error = error_of(computed, &expected, tolerance);
                worst = worst.max(error.map_err(|reason| wrong(format!("`{name}`: {reason}")))?);
            }
        }
        let scalars = self.meta["sets"][set]["output_scalars"].as_object();
        for (name, expected) in
            scalars.into_iter().flatten().filter(|(name, value)| !name.is_empty() && !value.is_null())
        {
            if results.scalars.get(name) != Some(expected) {
                return Err(wrong(format!("`{name}` is {:?}, expected {expected}", results.scalars.get(name))));
            }
        }
        Ok(worst)
    }
}

/// The largest error relative to the tolerance, or why the result is wrong. NaN equals NaN.
pub(super) fn error_of(computed: &TypedTensor, expected: &TypedTensor, [rtol, atol]: [f64; 2]) -> Result<f64, String> {
    if computed.ty != expected.ty {
        return Err(format!("of type {}, expected {}", computed.ty, expected.ty));
    }
    let (shape, wanted) = (computed.tensor.shape(), expected.tensor.shape());
    if shape != wanted {
        return Err(format!("of shape {shape:?}, expected {wanted:?}"));
    }
    if !expected.ty.is_float() {
        let (computed, expected) = (computed.tensor.to_i64(), expected.tensor.to_i64());
        let wrong = computed.iter().zip(&expected).position(|(computed, expected)| computed != expected);
        return wrong.map_or(Ok(0.0), |at| Err(format!("{} at element {at}, expected {}", computed[at], expected[at])));
    }
    let mut worst = 0f64;
    for (at, (value, wanted)) in computed.tensor.to_f64().into_iter().zip(expected.tensor.to_f64()).enumerate() {
        if value == wanted || value.is_nan() && wanted.is_nan() {
            continue;
        }
        let error = (value - wanted).abs() / (atol + rtol * wanted.abs());
        if error.is_nan() || error > 1.0 || !wanted.is_finite() {
            return Err(format!("{value} at element {at}, expected {wanted}"));
        }
        worst = worst.max(error);
    }
    Ok(worst)
}

impl Verifier {
    /// Replays the programs of a folder with all sets of inputs.
    pub(super) fn exported(&self, folder: &Path) -> CaseReport {
        let mut report = self.report(folder);
        report.op = if folder.join(ONNX).is_file() { "onnx" } else { "pt2" }.to_owned();
        let replayed = self.replay_exported(folder, &mut report);
        report.or_failure(replayed)
    }

    fn replay_exported(&self, folder: &Path, report: &mut CaseReport) -> Result<(), Failure> {
        let path = folder.join("meta.json");
        let text = std::fs::read(&path).map_err(|source| ExportedError::Read { path: path.clone(), source })?;
        let meta = serde_json::from_slice(&text);
        let meta = meta.map_err(|error| ExportedError::Metadata { path, reason: error.to_string() })?;
        let exported = Exported { folder, meta };
        let [rtol, _] = exported.tolerance()?;
        report.tolerance = rtol;
        let mut first = Ok(());
        // If a program fails, the results of the others are still saved.
        for (file, prefix) in PROGRAMS.iter().filter(|(file, _)| folder.join(file).is_file()) {
            let replayed = self.replay_program(&exported, (file, prefix), report);
            first = first.and(replayed);
        }
        first
    }

    fn replay_program(
        &self,
        exported: &Exported<'_>,
        (file, prefix): (&str, &str),
        report: &mut CaseReport,
    ) -> Result<(), Failure> {
        let path = exported.folder.join(file);
        let model = if file == ONNX { onnx::open(&path) } else { pt2::read(&path) }.map_err(ExportedError::from)?;
        let model = ModelFile::of_export(model);
        let mut program = Program::load_with(&model, self.session.clone()).map_err(ExportedError::from)?;
        let place = program.report();
        (report.gpu_steps, report.cpu_steps) = (place.gpu_steps, place.cpu_steps);
        report.adapter = place.adapter.unwrap_or_else(|| "cpu".into());
        let names = exported.names("outputs")?;
        let mut first = Ok(());
        for set in 0..exported.list("sets")?.len() {
            program.reset().map_err(ExportedError::from)?;
            let ran = program.run(exported.inputs(&program, set)?).map_err(ExportedError::from)?;
            let results = named(ran, &names);
            let compared = exported.compare(set, &results).map(|error| {
                let error = error * report.tolerance;
                report.max_rel_err = Some(report.max_rel_err.map_or(error, |worst| worst.max(error)));
            });
            self.save_exported(exported.folder, (prefix, set), &results)?;
            first = first.and(compared);
        }
        Ok(first?)
    }

    fn save_exported(&self, folder: &Path, (prefix, set): (&str, usize), results: &Results) -> Result<(), Failure> {
        let (Some(save), Some(name)) = (&self.options.save, folder.file_name()) else { return Ok(()) };
        let save = save.join(name);
        let write = |name: String, bytes: &[u8]| {
            let path = save.join(name);
            let written = std::fs::create_dir_all(&save).and_then(|()| write_file(&path, bytes));
            written.map_err(|error| Failure::Save { path, reason: error.to_string() })
        };
        let encoded = |tensors: &Tensors| tensors::serialize(tensors).map_err(ExportedError::from);
        write(format!("{prefix}outputs_{set}.safetensors"), &encoded(&results.outputs)?)?;
        if !results.scalars.is_empty() {
            let scalars = Value::Object(results.scalars.clone());
            write(format!("{prefix}scalars_{set}.json"), scalars.to_string().as_bytes())?;
        }
        if !results.mutations.is_empty() {
            write(format!("{prefix}mutations_{set}.safetensors"), &encoded(&results.mutations)?)?;
        }
        Ok(())
    }
}

/// Renames the results of a run to the folder's names.
fn named(results: program::Results, names: &[String]) -> Results {
    let mut own = Results { mutations: results.mutations.into_iter().collect(), ..Results::default() };
    for (place, (name, value)) in results.outputs.into_iter().enumerate() {
        let name = names.get(place).cloned().unwrap_or(name);
        let scalar = match value {
            ResultValue::Tensor(tensor) => {
                own.outputs.insert(name, tensor);
                continue;
            }
            ResultValue::Integer(value) => json!(value),
            ResultValue::Float(value) => json!(value),
            ResultValue::Bool(value) => json!(value),
            ResultValue::None => continue,
        };
        own.scalars.extend((!name.is_empty()).then_some((name, scalar)));
    }
    own
}
