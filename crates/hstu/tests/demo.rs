//! The demo model, interpreted, reproduces the reference's logits.
#![allow(clippy::unwrap_used, clippy::panic)]

use rewire_graph::{DType, HostTensor, interpret};
use rewire_hstu::models::dlrm_hstu::{self, Config, InputRows};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;

fn demo(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cli/demo").join(file)
}

fn lines(file: &str, count: usize) -> Vec<Value> {
    let text = std::fs::read_to_string(demo(file)).unwrap();
    text.lines().take(count).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn integers(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(entries) => entries.iter().map(|entry| entry.as_i64().unwrap()).collect(),
        one => vec![one.as_i64().unwrap()],
    }
}

fn inputs(config: &Config, users: &[Value]) -> HashMap<String, HostTensor> {
    let mut inputs = HashMap::new();
    for spec in config.inputs() {
        let (group, feature) = spec.name.split_once('.').unwrap();
        let mut values: Vec<i64> = vec![];
        for user in users {
            let rows = match group {
                "uih" => &user["history"],
                "candidate" => &user["candidates"],
                _ => user,
            };
            match feature {
                "lengths" => values.push(integers(&rows["timestamp"]).len() as i64),
                _ => values.extend(integers(&rows[feature])),
            }
        }
        assert!(spec.rows != InputRows::Users || values.len() == users.len());
        let dtype = spec.dtype.unwrap_or(DType::I64);
        let tensor = match dtype {
            DType::I64 => HostTensor::lengths(&values),
            _ => HostTensor::u32(vec![values.len()], &values.iter().map(|&n| n as u32).collect::<Vec<_>>()).unwrap(),
        };
        inputs.insert(spec.name, tensor);
    }
    inputs
}

fn weights() -> HashMap<String, HostTensor> {
    let bytes = std::fs::read(demo("model/model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |view: &safetensors::tensor::TensorView<'_>| {
        let dtype = if view.dtype() == safetensors::Dtype::I64 { DType::I64 } else { DType::F32 };
        HostTensor::from_bytes(dtype, view.shape().to_vec(), view.data().to_vec()).unwrap()
    };
    file.tensors().iter().map(|(name, view)| (name.clone(), tensor(view))).collect()
}

#[test]
fn every_tensor_of_the_checkpoint_is_a_parameter_or_a_buffer() {
    let config = Config::from_json(&std::fs::read_to_string(demo("model/config.json")).unwrap()).unwrap();
    let mut stored = weights();
    for parameter in dlrm_hstu::trace(&config).unwrap().parameters() {
        let tensor = stored.remove(&parameter.name).unwrap_or_else(|| panic!("no {}", parameter.name));
        assert_eq!(
            (tensor.dtype(), tensor.shape()),
            (parameter.dtype, parameter.shape.as_slice()),
            "{}",
            parameter.name
        );
    }
    for buffer in config.buffers().unwrap() {
        assert_eq!(stored.remove(&buffer.name).as_ref(), Some(&buffer.value), "{}", buffer.name);
    }
    assert!(stored.is_empty(), "{:?}", stored.keys());
}

#[test]
fn logits_are_those_of_the_reference() {
    let config = Config::from_json(&std::fs::read_to_string(demo("model/config.json")).unwrap()).unwrap();
    let graph = dlrm_hstu::trace(&config).unwrap();
    let users = lines("interactions.jsonl", 24);
    let logits = interpret(&graph, &inputs(&config, &users), &weights()).unwrap()["logits"].to_f64();
    let tasks = config.task_names();
    let mut rows = logits.chunks(tasks.len());
    for expected in lines("expected.jsonl", users.len()) {
        let by_task: Vec<&Vec<Value>> = tasks.iter().map(|task| expected[task].as_array().unwrap()).collect();
        for (candidate, _) in by_task[0].iter().enumerate() {
            let row = rows.next().unwrap();
            for (references, &logit) in by_task.iter().zip(row) {
                let reference = references[candidate].as_f64().unwrap();
                assert!((logit - reference).abs() < 1e-4, "{}: {logit} is not {reference}", expected["user"]);
            }
        }
    }
    assert!(rows.next().is_none());
}
