//! Golden cases: every stored case has a graph with its parameters and outputs, and interpreted it gives them.
#![allow(clippy::unwrap_used, clippy::panic)]

use rewire_graph::{DType, HostTensor, interpret};
use rewire_hstu::models;
use rewire_verify::replay;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

struct Case {
    op: String,
    attrs: serde_json::Value,
    tensors: BTreeMap<String, HostTensor>,
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut files = vec![];
    for folder in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        files.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "safetensors"));
    files.sort();
    files
}

fn tensor(view: &TensorView<'_>) -> HostTensor {
    let dtype = match view.dtype() {
        Dtype::F16 => DType::F16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::F32 => DType::F32,
        other => panic!("{other:?}"),
    };
    HostTensor::from_bytes(dtype, view.shape().to_vec(), view.data().to_vec()).unwrap()
}

fn read(file: &Path) -> Case {
    let bytes = std::fs::read(file).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    Case {
        op: metadata["op"].clone(),
        attrs: serde_json::from_str(&metadata["attrs"]).unwrap(),
        tensors: stored.tensors().iter().map(|(name, view)| (name.clone(), tensor(view))).collect(),
    }
}

fn with_prefix(case: &Case, prefix: &str) -> HashMap<String, HostTensor> {
    let named = |(name, tensor): (&String, &HostTensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()));
    case.tensors.iter().filter_map(named).collect()
}

/// Stored tensors that follow from the attributes.
const BUFFERS: [&str; 4] = ["_combined_action_weights", "_period_units", "_units_per_period", "num_batches_tracked"];

fn check(case: &Case) -> Result<(), String> {
    let types = case.tensors.iter().map(|(name, t)| (name.clone(), (t.dtype(), t.shape().to_vec()))).collect();
    let replay = replay::trace(&case.op, &case.attrs, &types).map_err(|error| error.to_string())?;
    let mut parameters = with_prefix(case, "param.");
    for parameter in models::parameters(&replay.graph) {
        let stored = parameters.get(&parameter.name).ok_or(format!("no parameter {}", parameter.name))?;
        if stored.shape() != parameter.shape || stored.dtype() != parameter.dtype {
            return Err(format!("{}: {:?} for {parameter:?}", parameter.name, stored.shape()));
        }
    }
    let known: Vec<String> = models::parameters(&replay.graph).into_iter().map(|p| p.name).collect();
    parameters.retain(|name, _| !known.contains(name));
    parameters.retain(|name, _| !BUFFERS.iter().any(|buffer| name.ends_with(buffer)));
    if !parameters.is_empty() {
        return Err(format!("not in the graph: {:?}", parameters.keys()));
    }
    let computed = interpret(&replay.graph, &with_prefix(case, "in."), &with_prefix(case, "param."))
        .map_err(|error| error.to_string())?;
    let expected = with_prefix(case, "out.");
    if computed.len() != expected.len() {
        return Err(format!("outputs {:?} for {:?}", computed.keys(), expected.keys()));
    }
    expected.iter().try_for_each(|(name, expected)| {
        let actual = computed.get(name).ok_or(format!("no output {name}"))?;
        compare(name, actual, expected, replay.exact)
    })
}

fn compare(name: &str, actual: &HostTensor, expected: &HostTensor, exact: bool) -> Result<(), String> {
    let scalar = actual.shape().is_empty() && expected.shape() == [1];
    if actual.shape() != expected.shape() && !scalar {
        return Err(format!("{name}: {:?} instead of {:?}", actual.shape(), expected.shape()));
    }
    let (a, b) = (actual.to_f64(), expected.to_f64());
    let largest = b.iter().fold(0.0, |max: f64, b| max.max(b.abs()));
    let scale = if largest == 0.0 { 1.0 } else { largest };
    let error = a.iter().zip(&b).fold(0.0, |max: f64, (a, b)| max.max((a - b).abs() / scale));
    let limit = if exact || !expected.dtype().is_float() { 0.0 } else { 2e-5 };
    if error <= limit && a.iter().all(|a| a.is_finite()) { Ok(()) } else { Err(format!("{name}: error {error:.3e}")) }
}

#[test]
fn every_case_gives_its_outputs() {
    let mut failed = vec![];
    let files = files();
    for file in &files {
        let case = read(file);
        if let Err(reason) = check(&case) {
            failed.push(format!("{}/{}: {reason}", case.op, file.file_stem().unwrap().to_string_lossy()));
        }
    }
    assert!(files.len() > 200);
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), files.len(), failed.join("\n"));
}
