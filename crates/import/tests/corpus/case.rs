//! A model in a folder, with inputs and expected results.

use crate::backend::{Backend, Ready};
use rewire_graph::HostTensor;
use rewire_import::{ImportedModel, OutputKind, ScalarType, TypedTensor, pt2, tensors};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub struct Case {
    pub name: String,
    folder: PathBuf,
    meta: Value,
}

pub enum Outcome {
    Right { error: f64, nodes: usize },
    Wrong(String),
}

fn load(path: &Path) -> BTreeMap<String, TypedTensor> {
    tensors::deserialize(&std::fs::read(path).unwrap()).unwrap()
}

/// The largest error relative to the tolerance, or why the result is wrong.
fn compare(expected: &TypedTensor, got: &HostTensor, ty: ScalarType, [rtol, atol]: [f64; 2]) -> Result<f64, String> {
    if ty != expected.ty {
        return Err(format!("type {ty}, expected {}", expected.ty));
    }
    let expected = &expected.tensor;
    if got.shape() != expected.shape() {
        return Err(format!("shape {:?}, expected {:?}", got.shape(), expected.shape()));
    }
    if !ty.is_float() {
        let (expected, got) = (expected.to_i64(), got.to_i64());
        let wrong = expected.iter().zip(&got).position(|(expected, got)| expected != got);
        return wrong.map_or(Ok(0.0), |at| Err(format!("element {at} is {}, expected {}", got[at], expected[at])));
    }
    let mut worst = 0f64;
    for (at, (expected, got)) in expected.to_f64().into_iter().zip(got.to_f64()).enumerate() {
        let equal = expected == got || expected.is_nan() && got.is_nan();
        let error = (got - expected).abs() / (atol + rtol * expected.abs());
        if !equal && (error.is_nan() || error > 1.0 || !expected.is_finite()) {
            return Err(format!("element {at} is {got}, expected {expected}"));
        }
        worst = if equal { worst } else { worst.max(error) };
    }
    Ok(worst)
}

impl Case {
    pub fn read(folder: &Path) -> Self {
        let meta = serde_json::from_slice(&std::fs::read(folder.join("meta.json")).unwrap()).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        Self { name, folder: folder.to_owned(), meta }
    }

    pub fn replay(&self, file: &str, backend: Backend) -> Outcome {
        self.replayed(file, backend).map_or_else(Outcome::Wrong, |(error, nodes)| Outcome::Right { error, nodes })
    }

    fn replayed(&self, file: &str, backend: Backend) -> Result<(f64, usize), String> {
        let model = pt2::read(&self.folder.join(file)).map_err(|error| error.to_string())?;
        let ready = Ready::new(&model, backend)?;
        let mut worst = 0f64;
        for set in 0..self.meta["sets"].as_array().unwrap().len() {
            let error = self.run(&model, &ready, set, file).map_err(|reason| format!("set {set}: {reason}"))?;
            worst = worst.max(error);
        }
        Ok((worst, model.graph.len()))
    }

    fn run(&self, model: &ImportedModel, ready: &Ready<'_>, set: usize, file: &str) -> Result<f64, String> {
        let given = load(&self.folder.join(format!("inputs_{set}.safetensors")));
        let names: Vec<&str> =
            self.meta["inputs"].as_array().unwrap().iter().map(|input| input["name"].as_str().unwrap()).collect();
        let mut inputs = HashMap::new();
        for (place, spec) in model.inputs.iter().enumerate() {
            let stored = given.get(&spec.name).or_else(|| given.get(*names.get(place)?));
            let stored = stored.ok_or_else(|| format!("no input `{}`", spec.name))?;
            inputs.insert(spec.name.clone(), stored.tensor.clone());
        }
        let results = ready.run(&inputs, &model.states)?;
        let expected = load(&self.folder.join(format!("outputs_{set}.safetensors")));
        let tolerance = ["rtol", "atol"].map(|name| self.meta["tolerance"][name].as_f64().unwrap());
        let outputs = self.meta["outputs"].as_array().unwrap();
        let (mut worst, mut found) = (0f64, 0);
        for (place, output) in outputs.iter().enumerate() {
            let name = output["name"].as_str().unwrap_or_default();
            let spec = model.outputs.get(place).ok_or_else(|| format!("no output {place} of {file}"))?;
            match (&spec.kind, expected.get(name)) {
                (OutputKind::Tensor(own, ty), Some(stored)) => {
                    let error = compare(stored, &results[own], *ty, tolerance);
                    worst = worst.max(error.map_err(|reason| format!("`{name}`: {reason}"))?);
                    found += 1;
                }
                (OutputKind::Size(own), None) => {
                    let scalar = &self.meta["sets"][set]["output_scalars"][name];
                    if scalar.as_i64() != results[own].to_i64().first().copied() {
                        return Err(format!("`{name}`: {:?}, expected {scalar}", results[own].to_i64()));
                    }
                }
                (OutputKind::Tensor(..), None) | (_, Some(_)) => return Err(format!("`{name}` is of another kind")),
                _ => {}
            }
        }
        if found != expected.len() {
            return Err(format!("{found} tensors of {}", expected.len()));
        }
        self.mutations(model, set, &results, tolerance).map(|error| worst.max(error))
    }

    fn mutations(
        &self,
        model: &ImportedModel,
        set: usize,
        results: &BTreeMap<String, HostTensor>,
        tolerance: [f64; 2],
    ) -> Result<f64, String> {
        let path = self.folder.join(format!("mutations_{set}.safetensors"));
        let mut worst = 0f64;
        for (name, stored) in if path.is_file() { load(&path) } else { BTreeMap::new() } {
            let own = model.mutations.iter().find(|mutation| mutation.name == name);
            let Some(OutputKind::Tensor(own, ty)) = own.map(|mutation| &mutation.kind) else {
                return Err(format!("no buffer `{name}`"));
            };
            worst = worst.max(compare(&stored, &results[own], *ty, tolerance)?);
        }
        Ok(worst)
    }
}
