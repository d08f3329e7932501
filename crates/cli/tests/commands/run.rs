//! Exported models in all commands that accept models, and runs of models of all kinds on named tensors.

use crate::program::{DEMO, Folder, Run, run};
use rewire::graph::{DType, HostTensor};
use rewire::import::tensors;
use rewire::program::TypedTensor;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn exported(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pt2").join(name)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn read(path: &Path) -> BTreeMap<String, TypedTensor> {
    tensors::deserialize(&std::fs::read(path).unwrap()).unwrap()
}

/// Runs a model on the CPU.
fn run_model(model: &Path, inputs: &Path, out: &Path) -> Run {
    run(&["run", &text(model), "--inputs", &text(inputs), "--out", &text(out), "--kernel", "cpu", "--json"])
}

fn assert_close(found: &BTreeMap<String, TypedTensor>, expected: &BTreeMap<String, TypedTensor>) {
    for (name, expected) in expected {
        let found = &found[name];
        assert_eq!((found.ty, found.tensor.shape()), (expected.ty, expected.tensor.shape()), "{name}");
        for (found, expected) in found.tensor.to_f64().into_iter().zip(expected.tensor.to_f64()) {
            assert!((found - expected).abs() <= 1e-4 + 1e-4 * expected.abs(), "{name}: {found}, expected {expected}");
        }
    }
}

#[test]
fn an_exported_model_runs_and_so_does_its_package() {
    let folder = Folder::new();
    let (package, out, again) =
        (folder.0.join("m.rewire"), folder.0.join("o.safetensors"), folder.0.join("a.safetensors"));
    for (name, set) in [("hf_qwen3", 0), ("slicing", 1), ("hstu_stu_layer", 2)] {
        let (source, inputs) = (exported(name), exported(name).join(format!("inputs_{set}.safetensors")));
        let program = source.join("model.pt2");
        let ran = run_model(&program, &inputs, &out);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        assert_close(&read(&out), &read(&source.join(format!("outputs_{set}.safetensors"))));
        let imported = run(&["import", &text(&program), "--out", &text(&package), "--json"]);
        assert_eq!(imported.code, Some(0), "{name}: {}", imported.stderr);
        assert_eq!(imported.json()[0]["source"], "export");
        assert_eq!(run_model(&package, &inputs, &again).code, Some(0), "{name}");
        assert_eq!(std::fs::read(&out).unwrap(), std::fs::read(&again).unwrap(), "{name}");
        let halved = folder.0.join("f16.rewire");
        let made = run(&["package", "--model", &text(&package), "--dtype", "f16", "--out", &text(&halved), "--json"]);
        assert_eq!(made.code, Some(0), "{name}: {}", made.stderr);
        assert_eq!(run_model(&halved, &inputs, &again).code, Some(0), "{name}");
        assert_eq!(read(&out).keys().collect::<Vec<_>>(), read(&again).keys().collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn an_onnx_model_runs() {
    let folder = Folder::new();
    let (inputs, out) = (folder.0.join("i.safetensors"), folder.0.join("o.safetensors"));
    let x = BTreeMap::from([("x".to_owned(), HostTensor::vector(&[-1.0f32, 0.0, 2.0]))]);
    std::fs::write(&inputs, rewire::weights::serialize(&x, &BTreeMap::new()).unwrap()).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/onnx/test_leakyrelu_example/model.onnx");
    let ran = run_model(&model, &inputs, &out);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let expected = HostTensor::vector(&[-0.1f32, 0.0, 2.0]);
    assert_close(&read(&out), &BTreeMap::from([("y".to_owned(), TypedTensor::from(expected))]));
}

#[test]
fn the_inputs_of_an_imported_model_have_the_types_of_its_file() {
    let folder = Folder::new();
    let source = text(&exported("slicing").join("model.pt2"));
    let imported = run(&["import", &source, "--out", &text(&folder.0.join("m.rewire")), "--json"]);
    let line = imported.json().remove(0);
    let given = read(&exported("slicing").join("inputs_0.safetensors"));
    let inputs = line["inputs"].as_array().unwrap();
    assert_eq!(inputs.len(), given.len());
    for input in inputs {
        let tensor = &given[input["name"].as_str().unwrap()];
        assert_eq!(input["dtype"], tensor.ty.to_string());
        let shape = input["shape"].as_array().unwrap();
        assert_eq!(shape.len(), tensor.tensor.shape().len());
        for (declared, extent) in shape.iter().zip(tensor.tensor.shape()) {
            assert!(declared.is_string() || declared.as_u64() == Some(*extent as u64), "{declared} for {extent}");
        }
    }
    run(&["import", &source, "--out", "folder"]).refused_with(&["folder", ".rewire"]);
    run(&["import", &source, "--checkpoint", "x", "--out", "m.rewire"]).refused_with(&["--checkpoint"]);
}

#[test]
fn commands_on_models_take_exported_ones() {
    let model = text(&exported("mlp_bn_dropout").join("model.pt2"));
    let describe = run(&["describe", &model, "--json"]);
    assert_eq!(describe.code, Some(0), "{}", describe.stderr);
    assert!(!describe.json()[0]["inputs"].as_array().unwrap().is_empty());
    let graph = run(&["graph", &model, "--json"]);
    assert!(graph.json()[0]["kernels"].as_u64().unwrap() > 0, "{}", graph.stderr);
    let bench = run(&["bench", &model, "--rows", "3", "--seconds", "0", "--kernel", "cpu", "--json"]);
    assert!(bench.json()[0]["wall_ms"].as_f64().unwrap() > 0.0, "{}", bench.stderr);
    let profile = run(&["profile", &model, "--rows", "3", "--kernel", "cpu"]);
    assert_eq!(profile.code, Some(0), "{}", profile.stderr);
    let folder = Folder::new();
    let packaged = run(&["package", "--model", &model, "--out", &text(&folder.0.join("m.rewire")), "--json"]);
    assert!(packaged.json()[0]["kernels"].as_u64().unwrap() > 0, "{}", packaged.stderr);
}

#[test]
fn what_does_not_fit_a_model_is_named() {
    let folder = Folder::new();
    let (model, out) = (exported("linear_relu").join("model.pt2"), folder.0.join("o.safetensors"));
    let given = read(&exported("linear_relu").join("inputs_0.safetensors"));
    let (name, tensor) = given.iter().next().unwrap();
    let with = |tensors: BTreeMap<String, TypedTensor>| {
        let path = folder.write("i.safetensors", tensors::serialize(&tensors).unwrap());
        run_model(&model, Path::new(&path), &out)
    };
    with(BTreeMap::new()).failed_with(&[name]);
    let ids = HostTensor::i64(tensor.tensor.shape().to_vec(), &vec![1; tensor.tensor.len()]).unwrap();
    with(BTreeMap::from([(name.clone(), ids.into())])).failed_with(&[name, "i64", "expected f32"]);
    with(BTreeMap::from([(name.clone(), tensor.clone()), ("other".to_owned(), tensor.clone())]))
        .failed_with(&["other"]);
    assert!(!out.exists());
    let inputs = exported("linear_relu").join("inputs_0.safetensors");
    run_model(Path::new("/nowhere.pt2"), &inputs, &out).failed_with(&["/nowhere.pt2"]);
    run_model(&model, &inputs, &inputs).refused_with(&["used twice"]);
}

/// A folder of the program's own kind is a model as others are.
#[test]
fn a_model_folder_runs_on_tensors() {
    let folder = Folder::new();
    let model = Path::new(DEMO).join("model");
    let described = run(&["describe", &text(&model), "--json"]).json().remove(0);
    let wanted = described["inputs"].as_array().unwrap();
    let inputs: BTreeMap<String, TypedTensor> = wanted
        .iter()
        .map(|input| {
            let rank = input["shape"].as_array().unwrap().len();
            // A run uses words as 32-bit integers.
            let dtype = if input["dtype"] == "I64" || input["dtype"] == "i64" { DType::I64 } else { DType::I32 };
            let name = input["name"].as_str().unwrap();
            // A sample of one row; `kept` has three words for it.
            let extent = if name.ends_with(".kept") { 3 } else { 1 };
            let values = vec![if name.ends_with("lengths") { 1.0 } else { 0.0 }; extent];
            let tensor = HostTensor::from_f64(dtype, vec![extent; rank], &values).unwrap();
            (name.to_owned(), TypedTensor::from(tensor))
        })
        .collect();
    let path = folder.write("i.safetensors", tensors::serialize(&inputs).unwrap());
    let out = folder.0.join("o.safetensors");
    let ran = run_model(&model, Path::new(&path), &out);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(read(&out).values().all(|output| output.tensor.to_f64().into_iter().all(f64::is_finite)));
}

#[test]
fn a_run_writes_a_trace_of_its_kernels() {
    let folder = Folder::new();
    let (source, out, trace) = (exported("hf_qwen3"), folder.0.join("o.safetensors"), folder.0.join("trace.json"));
    let (model, inputs) = (text(&source.join("model.pt2")), text(&source.join("inputs_0.safetensors")));
    let paths = (text(&out), text(&trace));
    let command =
        ["run", &model, "--inputs", &inputs, "--out", &paths.0, "--profile", &paths.1, "--kernel", "cpu", "--json"];
    let ran = run(&command);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let is_kernel = |event: &&serde_json::Value| event["cat"] == "kernel";
    let kernels = trace["traceEvents"].as_array().unwrap().iter().filter(is_kernel).count();
    assert_eq!(ran.json()[0]["kernels"], kernels);
    let nowhere = run(&["run", &model, "--inputs", &inputs, "--out", &paths.0, "--profile", "/nowhere/trace.json"]);
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.stderr);
}
