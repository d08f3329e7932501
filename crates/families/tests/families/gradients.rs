//! Gradients of the training losses of every pipeline, computed by the interpreter, match finite differences.

use crate::replay::{folder, tensors};
use crate::table;
use rewire_families::{TOTAL, trace_losses};
use rewire_features::NegativeRow;
use rewire_graph::op::{Detach, Input};
use rewire_graph::{DType, HostTensor, Mode, Seed, differentiate, interpret};
use std::collections::HashMap;
use std::error::Error;

/// Rows of the batch.
const ROWS: usize = 8;

/// Change of the loss in each direction of the finite difference.
const CHANGE: f64 = 2e-3;

/// Tolerance of the difference, relative to the gradient.
const TOLERANCE: f64 = 0.05;

type Tensors = HashMap<String, HostTensor>;

/// Deterministic pseudorandom numbers between -1 and 1.
fn noise(name: &str, at: usize) -> f64 {
    let word = name.bytes().fold(at as u64 + 17, |word, byte| (word ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 23) as f64 - 1.0
}

/// A direction along the gradient plus noise. The noise also covers elements with a zero gradient.
fn direction(name: &str, gradient: &HostTensor) -> Vec<f64> {
    let values = gradient.to_f64();
    let size = (values.iter().map(|g| g * g).sum::<f64>() / values.len().max(1) as f64).sqrt();
    let aside = if size == 0.0 { 1e-3 } else { size };
    // The diagonal of an orthogonal parametrization is rounded to signs, and any change would flip them.
    let is_rounded = |g: f64| g == 0.0 && name.ends_with(".parametrizations.weight.original");
    let element = |(at, &g): (usize, &f64)| if is_rounded(g) { 0.0 } else { g + aside * noise(name, at) };
    values.iter().enumerate().map(element).collect()
}

fn check(name: &str) -> Result<(), Box<dyn Error>> {
    let folder = folder(name);
    let pipeline = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config"))?;
    let traced = trace_losses(pipeline.json(), Mode::Train)?;
    let mut weights = tensors(&folder.join("model.safetensors"))?;
    let data = table::read(&folder.join("data.parquet"))?;
    let negatives = match traced.negatives.is_empty() {
        true => None,
        false => Some(table::read(&folder.join("negatives.parquet"))?),
    };
    let column = |name: &str| data.get(name);
    let negative = |name: &str| negatives.as_ref()?.get(name);
    let row = negatives.is_some().then_some(NegativeRow { column: &negative, row: 0 });
    let mut inputs: Tensors = traced.encode(column, 0..ROWS, row)?.into_iter().collect();
    // Fixes the random numbers of all runs.
    inputs.insert("seed".to_owned(), HostTensor::i64([], &[7])?);
    for state in traced.graph.states() {
        let held = weights.remove(state).ok_or_else(|| format!("no `{state}`"))?;
        inputs.insert(state.clone(), held);
    }
    let is_read =
        |name: &str| traced.graph.ids().filter_map(|id| traced.graph.op::<Input>(id)).any(|op| op.name == name);
    inputs.retain(|name, _| is_read(name));
    let known = traced.graph.parameters();
    // `.0.base` is a buffer of the reference's module, which is not trained.
    let learned = || known.iter().map(|known| known.name.as_str()).filter(|name| !name.ends_with(".0.base"));
    let graph = differentiate(&traced.graph, &[(TOTAL, Seed::One)], &learned().collect::<Vec<_>>())?;
    let outputs = interpret(&graph, &inputs, &weights)?;
    let mut slope = 0.0;
    let mut directions = HashMap::new();
    for name in learned() {
        let gradient = &outputs[&format!("grad.{name}")];
        assert!(gradient.first_non_finite().is_none(), "{name}");
        let direction = direction(name, gradient);
        slope += gradient.to_f64().iter().zip(&direction).map(|(g, d)| g * d).sum::<f64>();
        directions.insert(name, direction);
    }
    assert!(slope > 0.0, "nothing learns");
    let has_detached = traced.graph.ids().any(|id| traced.graph.op::<Detach>(id).is_some());
    if has_detached {
        // `detach` hides gradients that the change of the loss includes, so finite differences do not apply.
        return Ok(());
    }
    let loss = |sign: f64| -> Result<f64, Box<dyn Error>> {
        let mut moved = weights.clone();
        for (name, direction) in &directions {
            let before = &weights[*name];
            let after =
                before.to_f64().iter().zip(direction).map(|(w, d)| w + sign * CHANGE / slope * d).collect::<Vec<_>>();
            moved.insert((*name).to_owned(), HostTensor::from_f64(DType::F32, before.shape().to_vec(), &after)?);
        }
        Ok(interpret(&traced.graph, &inputs, &moved)?[TOTAL].to_f64()[0])
    };
    let change = (loss(1.0)? - loss(-1.0)?) / 2.0;
    match (change / CHANGE - 1.0).abs() <= TOLERANCE {
        true => Ok(()),
        false => Err(format!("the loss changes by {change}, and by {CHANGE} after gradients").into()),
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let folders = std::fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let folders: Vec<String> = folders.collect();
    assert!(folders.len() >= 29);
    let failed = |name: &String| check(name).err().map(|error| format!("{name}: {error}"));
    let wrong: Vec<String> = folders.iter().filter_map(failed).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
