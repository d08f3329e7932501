//! A model of a folder with inputs and results.

use crate::backend::{Backend, Ready};
use rewire_graph::{DType, HostTensor};
use rewire_import::{ImportedModel, OutputKind, ScalarType, pt2};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Elements of a result: floats, or integers and bools.
#[derive(Debug)]
pub enum Elements {
    Floats(Vec<f64>),
    Integers(Vec<i64>),
}

#[derive(Debug)]
pub struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    elements: Elements,
}

pub struct Case {
    pub name: String,
    folder: PathBuf,
    meta: Value,
}

pub enum Outcome {
    Right { error: f64, nodes: usize },
    Wrong(String),
}

fn decoded<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|chunk| read(chunk.try_into().unwrap())).collect()
}

fn load(path: &Path) -> BTreeMap<String, Stored> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter().map(|(name, view)| {
        let data = view.data();
        let elements = match view.dtype() {
            Dtype::F64 => Elements::Floats(decoded(data, f64::from_le_bytes)),
            Dtype::F32 => Elements::Floats(decoded(data, |bytes| f32::from_le_bytes(bytes).into())),
            Dtype::F16 => Elements::Floats(decoded(data, |bytes| half::f16::from_le_bytes(bytes).into())),
            Dtype::BF16 => Elements::Floats(decoded(data, |bytes| half::bf16::from_le_bytes(bytes).into())),
            Dtype::I64 => Elements::Integers(decoded(data, i64::from_le_bytes)),
            Dtype::I32 => Elements::Integers(decoded(data, |bytes| i32::from_le_bytes(bytes).into())),
            Dtype::I16 => Elements::Integers(decoded(data, |bytes| i16::from_le_bytes(bytes).into())),
            Dtype::I8 => Elements::Integers(decoded(data, |bytes| i8::from_le_bytes(bytes).into())),
            Dtype::U8 | Dtype::BOOL => Elements::Integers(decoded(data, |[byte]: [u8; 1]| byte.into())),
            other => panic!("{other:?}"),
        };
        (name, Stored { dtype: view.dtype(), shape: view.shape().to_vec(), elements })
    });
    tensors.collect()
}

fn dtype(ty: ScalarType) -> Dtype {
    match ty {
        ScalarType::Bool => Dtype::BOOL,
        ScalarType::U8 => Dtype::U8,
        ScalarType::I8 => Dtype::I8,
        ScalarType::I16 => Dtype::I16,
        ScalarType::I32 => Dtype::I32,
        ScalarType::I64 => Dtype::I64,
        ScalarType::F16 => Dtype::F16,
        ScalarType::BF16 => Dtype::BF16,
        ScalarType::F32 => Dtype::F32,
        ScalarType::F64 => Dtype::F64,
    }
}

impl Stored {
    fn tensor(&self, dtype: DType) -> HostTensor {
        let shape = self.shape.clone();
        match &self.elements {
            Elements::Floats(values) => HostTensor::from_f64(dtype, shape, values).unwrap(),
            Elements::Integers(values) if dtype == DType::I64 => HostTensor::new(shape, values).unwrap(),
            Elements::Integers(values) => {
                let values: Vec<f64> = values.iter().map(|&value| value as f64).collect();
                HostTensor::from_f64(dtype, shape, &values).unwrap()
            }
        }
    }

    /// The largest error as a part of the tolerance, or why the result is wrong.
    fn compare(&self, got: &HostTensor, ty: ScalarType, [rtol, atol]: [f64; 2]) -> Result<f64, String> {
        if dtype(ty) != self.dtype {
            return Err(format!("type {ty}, expected {:?}", self.dtype));
        }
        if got.shape() != self.shape {
            return Err(format!("shape {:?}, expected {:?}", got.shape(), self.shape));
        }
        match &self.elements {
            Elements::Integers(expected) => {
                let wrong = expected.iter().zip(got.to_i64()).position(|(expected, got)| *expected != got);
                wrong.map_or(Ok(0.0), |at| {
                    Err(format!("element {at} is {}, expected {}", got.to_i64()[at], expected[at]))
                })
            }
            Elements::Floats(expected) => {
                let mut worst = 0f64;
                for (at, (&expected, got)) in expected.iter().zip(got.to_f64()).enumerate() {
                    let equal = expected == got || expected.is_nan() && got.is_nan();
                    let error = (got - expected).abs() / (atol + rtol * expected.abs());
                    if !equal && (error.is_nan() || error > 1.0 || !expected.is_finite()) {
                        return Err(format!("element {at} is {got}, expected {expected}"));
                    }
                    worst = if equal { worst } else { worst.max(error) };
                }
                Ok(worst)
            }
        }
    }
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
            inputs.insert(spec.name.clone(), stored.tensor(spec.ty.dtype()));
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
                    let error = stored.compare(&results[own], *ty, tolerance);
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
            worst = worst.max(stored.compare(&results[own], *ty, tolerance)?);
        }
        Ok(worst)
    }
}
