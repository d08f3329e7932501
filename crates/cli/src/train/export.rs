//! Exports a training as a TorchEasyRec checkpoint.

use super::TrainFailed;
use crate::error::CliError;
use crate::import::{ImportError, WRAPPER};
use rewire::HostTensor;
use rewire::graph::DType;
use rewire::predict::IdentifiedRows;
use rewire::train::distributed::{CollectiveError, Collectives};
use rewire::train::{Begin, Held, ParameterMoment, PipelineTask, TrainError, Trainer};
use rewire_tzrec::{CheckpointError, DynamicTable, ElementType, Shard, ShardWriter, StoredTensor, Unfinished, Written};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// Bytes of a shard of a divided table. A rank with more rows writes several.
const SHARD: usize = 64 << 20;

/// Writes `dir/model.ckpt-N`, where `N` is the number of the last step, counted from 0 like in the reference. Each rank
/// of a training writes the rows of divided tables that it holds. The first rank writes everything else, and gathers
/// the tables of `dynamicemb` for that. All ranks need the folder at the same path.
pub fn export(
    dir: &Path,
    (task, begin): (&PipelineTask, &Begin),
    trainer: &Trainer,
    plan: Option<&Value>,
) -> Result<(), CliError> {
    let failed = |source| ImportError::Checkpoint { file: dir.display().to_string(), source };
    let group = trainer.group().map(AsRef::as_ref);
    let rank = group.map_or(0, |group| group.rank());
    let unfinished = match rank {
        0 => Some(Unfinished::new(dir, trainer.steps().saturating_sub(1)).map_err(failed)?),
        _ => None,
    };
    let folder = folder_of_all(unfinished.as_ref(), group)?;
    let mut writer = ShardWriter::new(folder, rank).map_err(failed)?;
    let divided: BTreeSet<&str> = trainer.held().iter().map(|held| held.parameter).collect();
    let is_gathered = |name: &str| divided.contains(name) && task.is_identified(name);
    let is_whole = |name: &str| !divided.contains(name) || is_gathered(name);
    match &unfinished {
        Some(unfinished) => {
            let dynamic = whole(&mut writer, (task, begin), trainer, is_whole)?;
            unfinished.dynamic(&dynamic).map_err(failed)?;
        }
        None => {
            trainer.parameters_of(is_gathered)?;
            trainer.moments_of(is_gathered)?;
        }
    }
    for held in trainer.held().iter().filter(|held| !is_gathered(held.parameter)) {
        write_held(&mut writer, task, held)?;
    }
    let written = of_all(&writer.finish().map_err(failed)?, group)?;
    if let Some(unfinished) = unfinished {
        unfinished.finish(&written, plan).map_err(failed)?;
    }
    if let Some(group) = group {
        group.barrier().map_err(TrainError::from)?;
    }
    Ok(())
}

/// The folder that the first rank created. The others receive its path as text.
fn folder_of_all(unfinished: Option<&Unfinished>, group: Option<&dyn Collectives>) -> Result<PathBuf, CliError> {
    let own = unfinished.map(Unfinished::folder);
    let mut path = own.as_ref().map_or_else(Vec::new, |own| own.as_os_str().as_encoded_bytes().to_vec());
    if let Some(group) = group {
        path = group.broadcast(0, path.into()).map_err(TrainError::from)?.into();
    }
    let received = |error: FromUtf8Error| {
        let (rank, expected) = (0, "a path in UTF-8".to_owned());
        TrainError::from(CollectiveError::Length { rank, expected, actual: error.as_bytes().len() })
    };
    Ok(own.map_or_else(|| String::from_utf8(path).map(PathBuf::from).map_err(received), Ok)?)
}

/// The data that all ranks have written.
fn of_all(own: &Written, group: Option<&dyn Collectives>) -> Result<Vec<Written>, CliError> {
    let Some(group) = group else { return Ok(vec![own.clone()]) };
    let bytes = serde_json::to_vec(own).map_err(|error| TrainError::Write(error.into()))?;
    let all = group.all_gather(bytes.into()).map_err(TrainError::from)?;
    let written = all.iter().enumerate().map(|(rank, bytes)| {
        let expected = "a list of shards".to_owned();
        serde_json::from_slice(bytes).map_err(|_| CollectiveError::Length { rank, expected, actual: bytes.len() })
    });
    Ok(written.collect::<Result<_, _>>().map_err(TrainError::from)?)
}

/// Writes tensors and moments that are requested as a whole, and returns the tables of `dynamicemb`.
fn whole(
    writer: &mut ShardWriter,
    (task, begin): (&PipelineTask, &Begin),
    trainer: &Trainer,
    is_whole: impl Fn(&str) -> bool,
) -> Result<Vec<DynamicTable>, CliError> {
    let mut tensors = task.tensors_of(trainer, begin, &is_whole).map_err(TrainFailed::from)?;
    let identified = task.take_identified(&mut tensors).map_err(TrainFailed::from)?;
    for (name, tensor) in tensors {
        let name = format!("{WRAPPER}{name}");
        writer.model(&name, &Shard::whole(&stored(&name, &tensor)?)).map_err(of_shard)?;
    }
    let tables: BTreeSet<&str> = task.tables().collect();
    let batches = task.config().gradient_accumulation_steps.get() as u64;
    let steps = HostTensor::f32([], &[(trainer.steps() / batches) as f32]).map_err(TrainError::from)?;
    let mut counted = BTreeSet::new();
    let (identified_moments, moments): (Vec<_>, Vec<_>) =
        trainer.moments_of(is_whole)?.into_iter().partition(|own| task.is_identified(&own.parameter));
    for ParameterMoment { parameter, moment, tensor } in moments {
        let name = format!("{WRAPPER}{parameter}");
        let mut write = |key: &str, tensor: &HostTensor| {
            writer.optimizer(&name, key, &Shard::whole(&stored(&name, tensor)?)).map_err(of_shard)
        };
        if tables.contains(parameter.as_str()) {
            write(&of_table(&parameter, moment), &tensor)?;
            continue;
        }
        // Torch counts the steps of every parameter; momentum has no such count.
        if moment != "momentum_buffer" && counted.insert(parameter.clone()) {
            write("step", &steps)?;
        }
        write(moment, &tensor)?;
    }
    Ok(identified.into_iter().map(|rows| of_ids(rows, &identified_moments)).collect())
}

/// True for the parameter of a table of `dynamicemb`.
pub fn is_of(table: &DynamicTable, parameter: &str) -> bool {
    let rest = table.module.strip_prefix(WRAPPER).and_then(|module| parameter.strip_prefix(module));
    rest.is_some_and(|rest| rest.ends_with(&format!(".{}.weight", table.table)))
}

/// A table of `dynamicemb` with the optimizer states of its ids; all moments of an id are adjacent.
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

/// Writes the rows of a divided table, or of a moment of it.
fn write_held(writer: &mut ShardWriter, task: &PipelineTask, held: &Held<'_>) -> Result<(), CliError> {
    let name = format!("{WRAPPER}{}", held.parameter);
    let row = held.shape.iter().skip(1).product::<usize>() * size_of::<f32>();
    let rows = (SHARD / row.max(1)).max(1);
    for first in held.rows.clone().step_by(rows) {
        let part = held.part(first..(first + rows).min(held.rows.end)).map_err(TrainError::from)?;
        let tensor = match held.moment {
            None => stored(&name, &task.stored(held.parameter, part).map_err(TrainFailed::from)?)?,
            Some(_) => stored(&name, &part)?,
        };
        let shard = Shard { shape: held.shape, row: first, tensor: &tensor };
        match held.moment {
            None => writer.model(&name, &shard),
            Some(moment) => writer.optimizer(&name, &of_table(held.parameter, moment), &shard),
        }
        .map_err(of_shard)?;
    }
    Ok(())
}

fn of_shard(source: CheckpointError) -> CliError {
    ImportError::Checkpoint { file: "the exported checkpoint".to_owned(), source }.into()
}

/// The key of a fused optimizer's state for a table: torchrec names the first one `<table>.momentum1` for every optimizer, and a second one
/// by its own name.
pub fn of_table(parameter: &str, moment: &str) -> String {
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

#[cfg(test)]
mod tests {
    use crate::args::{Args, Command};
    use crate::train::{listener::Silent, train_ranks};
    use rewire::weights::Weights;
    use rewire_tzrec::Checkpoint;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn each_rank_writes_the_rows_that_it_holds() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec/deepfm_taobao");
        let text = std::fs::read_to_string(golden.join("pipeline.config")).unwrap();
        for (ranks, sharding, parts) in [(1, "row_wise", 1), (3, "row_wise", 3), (2, "table_wise", 2)] {
            let folder = tempfile::tempdir().unwrap();
            let place = |name: &str| folder.path().join(name).display().to_string();
            let config = text.replace("table_wise", sharding).replace("num_steps: 12", "num_steps: 2");
            std::fs::write(place("pipeline.config"), config).unwrap();
            let data = golden.join("data.parquet").display().to_string();
            let (pipeline, out, exported, count) =
                (place("pipeline.config"), place("out"), place("checkpoint"), ranks.to_string());
            let all = ["rewire", "train", "--pipeline", &pipeline, "--data", &data, "--out", &out];
            let more = ["--kernel", "cpu", "--export-dcp", &exported, "--ranks", &count];
            let args = Args::parse_from_process(all.into_iter().chain(more).map(Into::into)).unwrap();
            let Command::Train(train) = &args.command else { panic!("another command") };
            train_ranks(train, &args.common, None, &mut Silent).unwrap();

            let read = Checkpoint::open(Path::new(&exported)).unwrap();
            let model = Weights::read(&Path::new(&out).join("model.safetensors")).unwrap();
            assert_eq!(read.names().len(), model.names().count());
            for name in model.names() {
                let (tensor, own) = (model.get(name).unwrap().unwrap(), read.read(&format!("model.{name}")).unwrap());
                assert_eq!((own.shape.as_slice(), own.bytes.as_slice()), (tensor.shape(), tensor.bytes()), "{name}");
            }
            let states = Checkpoint::open_optimizer(Path::new(&exported)).unwrap().unwrap();
            let moments = states.names().into_iter().filter(|name| name.ends_with(".momentum1"));
            let moments: Vec<_> = moments.map(|name| states.read(&name).unwrap()).collect();
            assert!(!moments.is_empty() && moments.iter().all(|moment| moment.bytes.iter().any(|byte| *byte > 0)));
            let shards = Path::new(&exported).join("model.ckpt-1/model");
            let files = std::fs::read_dir(shards).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
            let expected = (0..parts).map(|rank| format!("__{rank}_0.distcp")).chain([".metadata".to_owned()]);
            assert_eq!(files.collect::<BTreeSet<_>>(), expected.collect(), "{ranks} {sharding}");
        }
    }
    #[test]
    fn a_training_continues_with_the_optimizer_states_of_a_checkpoint() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec/deepfm_taobao");
        let text = std::fs::read_to_string(golden.join("pipeline.config")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name).display().to_string();
        let data = golden.join("data.parquet").display().to_string();
        let train = |out: &str, steps: usize, more: &[&str]| {
            // An epoch has 12 batches.
            let config =
                text.replace("table_wise", "row_wise").replace("num_steps: 12", &format!("num_steps: {steps}"));
            let (pipeline, out) = (place("pipeline.config"), place(out));
            std::fs::write(&pipeline, config).unwrap();
            let all = ["rewire", "train", "--pipeline", &pipeline, "--data", &data, "--out", &out, "--kernel", "cpu"];
            let args = Args::parse_from_process(all.iter().chain(more).map(Into::into)).unwrap();
            let Command::Train(train) = &args.command else { panic!("another command") };
            train_ranks(train, &args.common, None, &mut Silent).unwrap();
            Weights::read(&Path::new(&out).join("model.safetensors")).unwrap()
        };
        let exported = place("checkpoint");
        train("begun", 12, &["--export-dcp", &exported, "--ranks", "2"]);
        let whole = train("whole", 24, &["--ranks", "2"]);
        let rest = train("rest", 12, &["--checkpoint", &exported, "--ranks", "2"]);
        for name in whole.names() {
            let (expected, found) = (whole.get(name).unwrap().unwrap(), rest.get(name).unwrap().unwrap());
            assert_eq!(found.bytes(), expected.bytes(), "{name}");
        }
        // Without them, it does not.
        let model = place("checkpoint/model.ckpt-11/model");
        let fresh = train("fresh", 12, &["--checkpoint", &model, "--ranks", "2"]);
        assert!(whole.names().any(|name| fresh.get(name).unwrap() != rest.get(name).unwrap()));
    }
}
