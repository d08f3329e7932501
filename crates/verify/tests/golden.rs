//! Every golden case can be traced, its graph has the stored parameters and outputs, and the interpreter reproduces the outputs.
#![allow(clippy::unwrap_used, clippy::panic)]

use rewire_graph::{HostTensor, interpret};
use rewire_verify::{GoldenCase, cases};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

fn with_prefix(tensors: &BTreeMap<String, HostTensor>, prefix: &str) -> HashMap<String, HostTensor> {
    let named = |(name, tensor): (&String, &HostTensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()));
    tensors.iter().filter_map(named).collect()
}

/// Names of stored tensors that follow from the attributes.
const BUFFERS: [&str; 4] = ["_combined_action_weights", "_period_units", "_units_per_period", "num_batches_tracked"];

fn check(case: &GoldenCase) -> Result<(), String> {
    let replay = case.trace().map_err(|error| error.to_string())?;
    let tensors = case.tensors();
    let mut parameters = with_prefix(tensors, "param.");
    if case.op() == "quantize_rows" {
        let rows = tensors["in.table"].clone().stored_as(tensors["out.rows"].dtype());
        parameters.insert("table".to_owned(), rows.map_err(|error| error.to_string())?);
    }
    let given = parameters.clone();
    for parameter in replay.graph.parameters() {
        let stored = parameters.get(&parameter.name).ok_or(format!("no parameter {}", parameter.name))?;
        if stored.shape() != parameter.shape || stored.dtype() != parameter.dtype {
            return Err(format!("{}: {:?} for {parameter:?}", parameter.name, stored.shape()));
        }
    }
    let known: Vec<String> = replay.graph.parameters().into_iter().map(|p| p.name).collect();
    parameters.retain(|name, _| !known.contains(name));
    parameters.retain(|name, _| !BUFFERS.iter().any(|buffer| name.ends_with(buffer)));
    if !parameters.is_empty() {
        return Err(format!("not in the graph: {:?}", parameters.keys()));
    }
    let computed = interpret(&replay.graph, &with_prefix(tensors, "in."), &given).map_err(|error| error.to_string())?;
    let expected = with_prefix(tensors, "out.");
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
    let files = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")).unwrap();
    for file in &files {
        let case = GoldenCase::read(file).unwrap();
        if let Err(reason) = check(&case) {
            failed.push(format!("{}/{}: {reason}", case.op(), file.file_stem().unwrap().to_string_lossy()));
        }
    }
    assert!(files.len() > 200);
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), files.len(), failed.join("\n"));
}
