//! Losses of the reference's pipelines, batch by batch in evaluation mode, by the interpreter.

use crate::replay::{folder, tensors};
use crate::table;
use rewire_families::{LOSS, TOTAL, trace_losses};
use rewire_features::NegativeRow;
use rewire_graph::{Mode, interpret};
use serde_json::Value;
use std::error::Error;

/// Batches of each pipeline that are replayed; `crates/cli/tests/eval.rs` replays all of them by kernels.
const BATCHES: usize = 1;

fn replay(name: &str) -> Result<(), Box<dyn Error>> {
    let folder = folder(name);
    let pipeline = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config"))?;
    let traced = trace_losses(pipeline.json(), Mode::Eval)?;
    let weights = tensors(&folder.join("model.safetensors"))?;
    let data = table::read(&folder.join("data.parquet"))?;
    let negatives = match traced.negatives.is_empty() {
        true => None,
        false => Some(table::read(&folder.join("negatives.parquet"))?),
    };
    // Python writes NaN for losses of what evaluation does not compute.
    let text = std::fs::read_to_string(folder.join("expected_eval.json"))?.replace("NaN", "null");
    let expected: Value = serde_json::from_str(&text)?;
    let size = pipeline.json().pointer("/data_config/batch_size").and_then(Value::as_u64).unwrap_or(1024) as usize;
    let column = |name: &str| data.get(name).map(table::Owned::column);
    let negative = |name: &str| negatives.as_ref()?.get(name).map(table::Owned::column);
    for (batch, expected) in expected["batch_losses"].as_array().into_iter().flatten().enumerate().take(BATCHES) {
        let row = negatives.is_some().then_some(NegativeRow { column: &negative, row: batch });
        let inputs = traced.encode(column, batch * size..(batch + 1) * size, row)?;
        let outputs = interpret(&traced.graph, &inputs.into_iter().collect(), &weights)?;
        let loss = |name: &str| outputs.get(name).and_then(|loss| loss.to_f64().first().copied()).unwrap_or(f64::NAN);
        let expected = expected.as_object().ok_or("no map")?;
        if !traced.losses.iter().eq(expected.keys()) {
            return Err(format!("expected {:?}, got {:?}", expected.keys(), traced.losses).into());
        }
        let mut total = 0.0;
        for (name, expected) in expected {
            let (expected, actual) = (expected.as_f64().unwrap_or(f64::NAN), loss(&format!("{LOSS}{name}")));
            total += actual;
            // NaN is no match.
            let is_near = (actual - expected).abs() <= 1e-5;
            if !is_near {
                return Err(format!("batch {batch}, {name}: expected {expected}, got {actual}").into());
            }
        }
        assert!((loss(TOTAL) - total).abs() < 1e-5);
    }
    Ok(())
}

#[test]
fn batches_have_the_losses_of_the_reference() {
    let folders = std::fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let folders: Vec<String> = folders.collect();
    assert!(folders.len() >= 29);
    let failed = |name: &String| replay(name).err().map(|error| format!("{name}: {error}"));
    let wrong: Vec<String> = folders.iter().filter_map(failed).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
