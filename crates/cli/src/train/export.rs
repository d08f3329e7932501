//! Exports a training as a TorchEasyRec checkpoint.

use super::TrainFailed;
use crate::error::CliError;
use crate::import::{ImportError, WRAPPER};
use rewire::HostTensor;
use rewire::graph::DType;
use rewire::predict::IdentifiedRows;
use rewire::train::{ParameterMoment, PipelineTask, Tensors, TrainError, Trainer};
use rewire_tzrec::{DynamicTable, ElementType, OptimizerState, Saved, StoredTensor, write_checkpoint};
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
    let mut tensors = tensors.clone();
    let identified = task.take_identified(&mut tensors).map_err(TrainFailed::from)?;
    let model = tensors.iter().map(|(name, tensor)| Ok((format!("{WRAPPER}{name}"), stored(name, tensor)?)));
    let model = model.collect::<Result<_, TrainError>>()?;
    let tables: BTreeSet<&str> = task.tables().collect();
    let batches = task.config().gradient_accumulation_steps.get() as u64;
    let steps = HostTensor::f32([], &[(trainer.steps() / batches) as f32]).map_err(TrainError::from)?;
    let mut optimizer = vec![];
    let mut counted = BTreeSet::new();
    let moments = trainer.moments()?;
    let dynamic: Vec<DynamicTable> = identified.into_iter().map(|rows| of_ids(rows, &moments)).collect();
    let is_other = |own: &ParameterMoment| dynamic.iter().all(|table| !is_of(table, &own.parameter));
    for ParameterMoment { parameter, moment, tensor } in moments.iter().filter(|own| is_other(own)) {
        let moment = *moment;
        let state = |key: String, tensor: &HostTensor| {
            let parameter = format!("{WRAPPER}{parameter}");
            Ok::<_, TrainError>(OptimizerState { tensor: stored(&parameter, tensor)?, parameter, key })
        };
        if tables.contains(parameter.as_str()) {
            optimizer.push(state(of_table(parameter, moment), tensor)?);
            continue;
        }
        // Torch counts the steps of every parameter; momentum has no such count.
        if moment != "momentum_buffer" && counted.insert(parameter.clone()) {
            optimizer.push(state("step".to_owned(), &steps)?);
        }
        optimizer.push(state(moment.to_owned(), tensor)?);
    }
    if trainer.group().is_some_and(|group| group.rank() > 0) {
        return Ok(());
    }
    let saved = Saved { model, optimizer, plan, dynamic };
    let written = write_checkpoint(dir, trainer.steps().saturating_sub(1), &saved);
    written.map_err(|source| ImportError::Checkpoint { file: dir.display().to_string(), source })?;
    Ok(())
}

/// True for the parameter of a table of `dynamicemb`.
fn is_of(table: &DynamicTable, parameter: &str) -> bool {
    let rest = table.module.strip_prefix(WRAPPER).and_then(|module| parameter.strip_prefix(module));
    rest.is_some_and(|rest| rest.ends_with(&format!(".{}.weight", table.table)))
}

/// A table of `dynamicemb`, with the optimizer states of its ids: all moments of an id follow each other.
fn of_ids(rows: IdentifiedRows, moments: &[ParameterMoment]) -> DynamicTable {
    let IdentifiedRows { module, table, ids, rows, scores, places } = rows;
    let mut own =
        DynamicTable { module: format!("{WRAPPER}{module}"), table, keys: ids, values: rows, scores, states: vec![] };
    let moments = moments.iter().filter(|moment| is_of(&own, &moment.parameter));
    let moments: Vec<(Vec<f32>, usize)> =
        moments.map(|own| (own.tensor.to_f32(), own.tensor.shape().iter().skip(1).product())).collect();
    for place in places {
        for (values, width) in &moments {
            let start = place as usize * width;
            own.states.extend(values.get(start..start + width).unwrap_or_default());
        }
    }
    own
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
