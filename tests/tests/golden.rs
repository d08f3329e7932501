//! Stored cases of the reference implementation, on every backend.

use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::optimize;
use rewire_hstu::replay::trace;
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, gpu, oracle, run, session};
use rewire_tests::compare::{Results, Tolerance, difference};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

struct Golden {
    op: String,
    attrs: serde_json::Value,
    half: bool,
    tensors: BTreeMap<String, HostTensor>,
}

fn read(path: &Path) -> Golden {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap_or_default();
    let tensors = SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter().map(|(name, view)| {
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::I64 => DType::I64,
            Dtype::I32 => DType::I32,
            other => panic!("{name} is {other:?}"),
        };
        (name, HostTensor::from_bytes(dtype, view.shape().to_vec(), view.data().to_vec()).unwrap())
    });
    Golden {
        op: metadata["op"].clone(),
        attrs: serde_json::from_str(&metadata["attrs"]).unwrap(),
        half: metadata["dtype"] == "f16",
        tensors: tensors.collect(),
    }
}

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut found: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .collect();
    found.sort();
    if let Ok(part) = std::env::var("REWIRE_TEST_GOLDEN") {
        found.retain(|path| path.to_string_lossy().contains(&part));
    }
    found
}

fn named(golden: &Golden, prefix: &str) -> Tensors {
    let strip = |(name, tensor): (&String, &HostTensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()));
    golden.tensors.iter().filter_map(strip).collect()
}

/// The inputs and parameters that a graph knows, among all that are stored.
fn known(graph: &rewire_graph::Graph, stored: Tensors, kind: &str) -> Tensors {
    let names: Vec<String> = graph
        .ids()
        .filter_map(|id| {
            let op = graph.node(id)?.op.as_ref();
            match kind {
                "input" => op.downcast_ref::<rewire_graph::op::Input>().map(|input| input.name.clone()),
                _ => op.downcast_ref::<rewire_graph::op::Parameter>().map(|parameter| parameter.name.clone()),
            }
        })
        .collect();
    stored.into_iter().filter(|(name, _)| names.contains(name)).collect()
}

fn check(golden: &Golden, backend: Option<Kernel>) -> Result<(), String> {
    let types = golden.tensors.iter().map(|(n, t)| (n.clone(), (t.dtype(), t.shape().to_vec()))).collect();
    let replay = trace(&golden.op, &golden.attrs, &types).map_err(|error| format!("replay: {error}"))?;
    let inputs = known(&replay.graph, named(golden, "in."), "input");
    let parameters = known(&replay.graph, named(golden, "param."), "parameter");
    let results = match backend {
        None => {
            let (fused, _) = optimize(replay.graph.clone()).map_err(|error| format!("optimize: {error}"))?;
            oracle(&fused, &inputs, &parameters)?
        }
        Some(kernel) => {
            let Some(mut session) = session(&replay.graph, &parameters, kernel)? else { return Ok(()) };
            run(&mut session, &inputs)?
        }
    };
    let relative = match (replay.exact, golden.half) {
        (true, _) => 0.0,
        (_, true) => 3e-3,
        _ => 2e-5,
    };
    let found: Vec<String> = compare(&results, &named(golden, "out."), Tolerance { relative, floor: 1e-30 });
    if found.is_empty() { Ok(()) } else { Err(found.join("\n  ")) }
}

fn compare(results: &Results, expected: &Tensors, tolerance: Tolerance) -> Vec<String> {
    let mut found = vec![];
    for (name, expected) in expected {
        match results.get(name) {
            None => found.push(format!("{name}: missing")),
            Some(actual) => {
                let shape = if actual.len() == expected.len() { expected.shape() } else { actual.shape() };
                let actual = actual.clone().reshape(shape.to_vec()).unwrap();
                found.extend(difference(&actual, expected, tolerance).map(|what| format!("{name}: {what}")));
            }
        }
    }
    found
}

fn all(backend: Option<Kernel>) {
    let cases = cases();
    assert!(!cases.is_empty(), "no golden cases are found");
    let failed: Vec<String> = cases
        .iter()
        .filter_map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let golden = read(path);
            check(&golden, backend).err().map(|error| format!("{}/{name}: {error}", golden.op))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} cases failed\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn the_interpreter_meets_the_golden_cases() {
    all(None);
}

#[test]
fn the_cpu_meets_the_golden_cases() {
    all(Some(Kernel::Cpu));
}

#[test]
fn the_gpu_meets_the_golden_cases() {
    if gpu().is_some() {
        all(Some(Kernel::Wgpu));
    }
}
