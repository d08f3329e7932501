//! Pipelines of TorchEasyRec with their checkpoints: every family reproduces TorchEasyRec's predictions.
//!
//! The interpreter evaluates the graphs as traced; `crates/cli/tests/commands/import.rs` replays the same folders with kernels.

use crate::table;
use rewire_families::{Traced, trace};
use rewire_graph::{DType, HostTensor, interpret};
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::path::{Path, PathBuf};

pub type Tensors = HashMap<String, HostTensor>;

/// Maximum difference, relative to the largest value and to the norm.
const TOLERANCE: f64 = 2e-5;

/// Number of replayed rows.
const ROWS: usize = 24;

pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec").join(name)
}

/// The tensors of a file by name without the leading `model.`, except 64-bit counters.
pub fn tensors(path: &Path) -> Result<Tensors, Box<dyn Error>> {
    let bytes = std::fs::read(path)?;
    let file = safetensors::SafeTensors::deserialize(&bytes)?;
    let mut all = HashMap::new();
    for (name, view) in file.tensors() {
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::F16 => DType::F16,
            safetensors::Dtype::I64 => DType::I64,
            safetensors::Dtype::I32 => DType::I32,
            other => return Err(format!("{name}: {other:?}").into()),
        };
        let name = name.strip_prefix("model.").unwrap_or(&name).to_owned();
        all.insert(name, HostTensor::from_bytes(dtype, view.shape().to_vec(), view.data().to_vec())?);
    }
    Ok(all)
}

/// Checks that the graph's parameters and the checkpoint's tensors have the same names, ignoring buffers and training-only tensors.
fn check_names(traced: &Traced, weights: &Tensors) -> Result<(), Box<dyn Error>> {
    let read: BTreeSet<String> = traced.graph.parameters().into_iter().map(|parameter| parameter.name).collect();
    let is_other = |name: &str| {
        ["num_batches_tracked", "windows_len", "feature_dim_repeat"].iter().any(|end| name.ends_with(end))
            || name.starts_with("booster_")
    };
    let known: BTreeSet<String> = weights.keys().filter(|name| !is_other(name)).cloned().collect();
    let missing: Vec<&String> = read.difference(&known).collect();
    let unread: Vec<&String> = known.difference(&read).collect();
    match (missing.is_empty(), unread.is_empty()) {
        (true, true) => Ok(()),
        _ => Err(format!("not in the checkpoint: {missing:?}; not in the graph: {unread:?}").into()),
    }
}

/// Compares outputs with the first rows of the expected ones.
fn compare(outputs: &Tensors, expected: &Tensors) -> Result<(), Box<dyn Error>> {
    // Similarities are a matrix of the whole batch, not an output of the model.
    let names: BTreeSet<&String> = expected.keys().filter(|name| !name.starts_with("similarity.")).collect();
    if names != outputs.keys().collect() {
        return Err(format!("expected outputs {names:?}, got {:?}", outputs.keys().collect::<BTreeSet<_>>()).into());
    }
    for name in names {
        let (found, reference) = (&outputs[name], &expected[name]);
        if found.shape()[1..] != reference.shape()[1..] {
            return Err(format!("{name}: expected {:?}, got {:?}", reference.shape(), found.shape()).into());
        }
        let pairs: Vec<(f64, f64)> = found.to_f64().into_iter().zip(reference.to_f64()).collect();
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let largest =
            |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |most: f64, value| most.max(value.abs()));
        let differences = || pairs.iter().map(|(a, b)| a - b);
        let references = || pairs.iter().map(|(_, b)| *b);
        let error = (norm(&mut differences()) / norm(&mut references()))
            .max(largest(&mut differences()) / largest(&mut references()));
        if error.is_nan() || error > TOLERANCE {
            return Err(format!("{name}: differs by {error}").into());
        }
    }
    Ok(())
}

fn replay(folder: &Path) -> Result<(), Box<dyn Error>> {
    let pipeline = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config"))?;
    let traced = trace(pipeline.json())?;
    let weights = tensors(&folder.join("model.safetensors"))?;
    check_names(&traced, &weights)?;
    let columns = table::read(&folder.join("data.parquet"))?;
    let inputs =
        traced.interface.features.encode(&traced.columns, |name| columns.get(name), 0..ROWS)?.into_iter().collect();
    let outputs = interpret(&traced.graph, &inputs, &weights)?;
    compare(&outputs.into_iter().collect(), &tensors(&folder.join("expected.safetensors"))?)
}

/// Replays all folders, and reports every failure.
fn all(names: &[&str]) {
    let wrong: Vec<String> =
        names.iter().filter_map(|name| replay(&folder(name)).err().map(|error| format!("{name}: {error}"))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ranking_models() {
    all(&[
        "deepfm_taobao",
        "deepfm_small_tables",
        "wide_and_deep_taobao",
        "dcn_v1_taobao",
        "dcn_v2_taobao",
        "dlrm_criteo",
        "masknet_criteo",
        "xdeepfm_taobao",
        "wukong_criteo",
        "rocket_launching_criteo",
    ]);
}

#[test]
fn sequence_models() {
    all(&["multi_tower_taobao", "multi_tower_din_taobao", "tdm_taobao"]);
}

#[test]
fn multi_task_models() {
    all(&["mmoe_taobao", "ple_taobao", "dbmtl_taobao", "dbmtl_seq_jrc", "pepnet_taobao", "dc2vr_taobao"]);
}

#[test]
fn matching_models() {
    all(&["dssm_taobao", "dssm_v2_taobao", "dat_taobao", "mind_taobao"]);
}

/// The initial routing logits only depend on a step's position in its history.
#[test]
fn drawn_logits_do_not_depend_on_the_batch() -> Result<(), Box<dyn Error>> {
    let folder = folder("mind_taobao");
    let mut config = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config"))?.json().clone();
    let weights = tensors(&folder.join("model.safetensors"))?;
    let columns = table::read(&folder.join("data.parquet"))?;
    let users = |config: &serde_json::Value, rows| {
        let traced = trace(config)?;
        let inputs = traced.interface.features.encode(&traced.columns, |name| columns.get(name), rows)?;
        let outputs = interpret(&traced.graph, &inputs.into_iter().collect(), &weights)?;
        Ok::<_, Box<dyn Error>>(outputs["user_tower_emb"].to_f32())
    };
    let zeros = users(&config, 0..ROWS)?;
    config["model_config"]["mind"]["user_tower"]["capsule_config"]["routing_init_method"] = "normal".into();
    let drawn = users(&config, 0..ROWS)?;
    let width = drawn.len() / ROWS;
    assert_ne!(drawn, zeros);
    assert_eq!(users(&config, 6..12)?, drawn[6 * width..12 * width]);
    Ok(())
}
