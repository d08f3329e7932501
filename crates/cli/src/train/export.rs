//! Exports a training as a TorchEasyRec checkpoint.

use crate::error::CliError;
use crate::import::{ImportError, WRAPPER};
use rewire::HostTensor;
use rewire::graph::DType;
use rewire::train::{ParameterMoment, PipelineTask, Tensors, TrainError, Trainer};
use rewire_tzrec::{ElementType, OptimizerState, Saved, StoredTensor, write_checkpoint};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Writes `dir/model.ckpt-N`, where `N` is the number of the last step, counted from 0 like the reference. All ranks of a training take
/// part, and the first one writes.
pub fn export(
    dir: &Path,
    task: &PipelineTask,
    trainer: &Trainer,
    tensors: &Tensors,
    plan: Option<&Value>,
) -> Result<(), CliError> {
    let model = tensors.iter().map(|(name, tensor)| Ok((format!("{WRAPPER}{name}"), stored(name, tensor)?)));
    let model = model.collect::<Result<_, TrainError>>()?;
    let tables: BTreeSet<&str> = task.tables().collect();
    let batches = task.config().gradient_accumulation_steps.get() as u64;
    let steps = HostTensor::f32([], &[(trainer.steps() / batches) as f32]).map_err(TrainError::from)?;
    let mut optimizer = vec![];
    let mut counted = BTreeSet::new();
    for ParameterMoment { parameter, moment, tensor } in trainer.moments()? {
        let state = |key: String, tensor: &HostTensor| {
            let parameter = format!("{WRAPPER}{parameter}");
            Ok::<_, TrainError>(OptimizerState { tensor: stored(&parameter, tensor)?, parameter, key })
        };
        if tables.contains(parameter.as_str()) {
            optimizer.push(state(of_table(&parameter, moment), &tensor)?);
            continue;
        }
        // Torch counts the steps of every parameter; momentum has no such count.
        if moment != "momentum_buffer" && counted.insert(parameter.clone()) {
            optimizer.push(state("step".to_owned(), &steps)?);
        }
        optimizer.push(state(moment.to_owned(), &tensor)?);
    }
    if trainer.group().is_some_and(|group| group.rank() > 0) {
        return Ok(());
    }
    let saved = Saved { model, optimizer, plan };
    let written = write_checkpoint(dir, trainer.steps().saturating_sub(1), &saved);
    written.map_err(|source| ImportError::Checkpoint { file: dir.display().to_string(), source })?;
    Ok(())
}

/// The key of a fused optimizer's state for a table: torchrec names the first one `<table>.momentum1` for every optimizer, and a second one
/// by its own name.
fn of_table(parameter: &str, moment: &str) -> String {
    let table = parameter.strip_suffix(".weight").and_then(|path| path.rsplit('.').next()).unwrap_or(parameter);
    format!("{table}.{}", if moment == "exp_avg_sq" { moment } else { "momentum1" })
}

fn stored(name: &str, tensor: &HostTensor) -> Result<StoredTensor, TrainError> {
    let element = match tensor.dtype() {
        DType::F32 => ElementType::F32,
        DType::F16 => ElementType::F16,
        DType::BF16 => ElementType::BF16,
        DType::I64 => ElementType::I64,
        DType::I32 => ElementType::I32,
        other => {
            let expected = "floats of 16 or 32 bits, or signed integers".to_owned();
            return Err(TrainError::Parameter { name: name.to_owned(), expected, actual: other.to_string() });
        }
    };
    Ok(StoredTensor { element, shape: tensor.shape().to_vec(), bytes: tensor.bytes().to_vec() })
}
