//! Training of TorchEasyRec pipelines.

use super::export::{export, is_of, of_table};
use super::listener::Listener;
use super::ranks::Group;
use super::report::Summary;
use super::watch;
use super::{Learner, Metrics, Source, TrainFailed, running};
use crate::args::{Common, Train};
use crate::error::CliError;
use crate::eval::{EvalError, Files};
use crate::import::{self, ImportError, WRAPPER};
use crate::predict::encoded;
use crate::requests::{InputError, title};
use crate::tables::{self, Table};
use rewire::delta::Changes;
use rewire::predict::{Column, Evaluator, Imported, is_imported};
use rewire::rank::{RankError, read_config_text, read_weights};
use rewire::runtime;
use rewire::train::{
    self, Data, DataError, NegativeRow, ParameterMoment, PipelineTask, RankTrainError, Share, Tensors, TrainConfig,
    TrainError, Trainer,
};
use rewire::{HostTensor, Mapping};
use rewire_tzrec::{Checkpoint, DynamicTable, Pipeline, read_dynamic};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// True if a pipeline is trained: a given one, or the source of an imported model.
pub fn is_asked_for(options: &Train) -> bool {
    options.pipeline.is_some() || options.model.as_deref().is_some_and(is_imported)
}

/// A pipeline, its initial tensors, and its evaluator.
struct Learned<'a> {
    task: PipelineTask,
    begin: train::Begin,
    evaluator: Option<(Evaluator, Files<'a>)>,
}

/// Trains a pipeline and writes it as an imported model.
pub fn run(options: &Train, common: &Common, group: Group, listener: &mut dyn Listener) -> Result<Summary, CliError> {
    if options.config.is_some() {
        return Err(TrainFailed::OtherKind { option: "--config", kind: "a model that is not a pipeline" }.into());
    }
    let Begin { pipeline, plan, tensors } = Begin::read(options, common.mapping)?;
    let seed = options.seed.unwrap_or(0);
    let running = running(common, &group);
    let task = PipelineTask::new(&pipeline, plan.as_ref(), running.clone());
    let task = task.map_err(|error| not_trained(options, error))?;
    if options.data.is_empty() {
        return Err(TrainFailed::NoData.into());
    }
    let config = TrainConfig {
        memory_limit: options.memory_limit.or(task.config().memory_limit),
        tables_folder: options.tables_folder.clone(),
        shuffle_seed: Some(seed),
        ..task.config().clone()
    };
    let task = task.with_config(config).with_group(group);
    let begin = tensors.map_or(train::Begin::Seed(seed), train::Begin::Tensors);
    let mut trainer = task.trainer(&begin).map_err(TrainFailed::from)?;
    if let Some(checkpoint) = &options.checkpoint {
        read_moments(&task, &mut trainer, checkpoint)?;
    }
    let parts = ["data_config", "feature_configs", "model_config"].map(|key| pipeline.get(key));
    let source = Source {
        config: import::config(&pipeline, plan.as_ref()),
        model: json!([parts, plan]).to_string(),
        training: pipeline.get("train_config").unwrap_or(&Value::Null).to_string(),
        files: options.data.iter().chain(&options.negatives).cloned().collect(),
    };
    let count = Arc::new(AtomicU64::new(0));
    let mut examples = Examples::new(&pipeline, task.clone(), options, count.clone())?;
    let evaluator = match &options.eval {
        Some(data) => {
            let evaluator = Evaluator::new("the pipeline", &source.config, &running)?;
            let negatives = options.eval_negatives.as_deref().or(options.negatives.as_deref());
            let files = Files { data, negatives };
            files.check(&evaluator)?;
            Some((evaluator, files))
        }
        None => None,
    };
    if let Some(dir) = &options.export_dcp {
        let file = dir.display().to_string();
        std::fs::create_dir_all(dir).map_err(|source| CliError::Write { file, source })?;
    }
    let learned = Learned { task, begin, evaluator };
    let ended = watch::train(&learned, &source, (options, common), &mut trainer, &mut examples, listener)?;
    if let Some(dir) = &options.export_dcp {
        export(dir, (&learned.task, &learned.begin), &trainer, plan.as_ref())?;
    }
    let passed = ended.from.batch * learned.task.config().batch_size.get() as u64;
    let rows = count.load(Ordering::Relaxed).saturating_sub(passed);
    let metrics = ended.metrics.iter().cloned().collect();
    let summary = Summary::new(trainer.steps(), ended, rows, &trainer.report());
    Ok(Summary { metrics, ..summary })
}

/// Sets the optimizer states of a checkpoint that has them.
fn read_moments(task: &PipelineTask, trainer: &mut Trainer, checkpoint: &Path) -> Result<(), CliError> {
    let failed = |source| ImportError::Checkpoint { file: checkpoint.display().to_string(), source };
    let (step, states) = (Checkpoint::last_step(checkpoint), Checkpoint::open_optimizer(checkpoint));
    let (Some(step), Some(states)) = (step.map_err(failed)?, states.map_err(failed)?) else { return Ok(()) };
    let names: BTreeSet<String> = states.names().into_iter().collect();
    let tables: BTreeSet<&str> = task.tables().collect();
    let identified = moments_of_ids(task, trainer, &read_dynamic(checkpoint).map_err(failed)?)?;
    trainer.begin_moments(step + 1, |parameter, moment| {
        if let Some(own) = identified.iter().find(|own| (own.parameter.as_str(), own.moment) == (parameter, moment)) {
            return Ok(Some(own.tensor.clone()));
        }
        let is_of_table = tables.contains(parameter);
        let key = if is_of_table { of_table(parameter, moment) } else { moment.to_owned() };
        let name = format!("state.{WRAPPER}{parameter}.{key}");
        if !names.contains(&name) {
            return Ok(None);
        }
        Ok(Some(import::tensor(states.read(&name).map_err(failed)?)?))
    })
}

/// The optimizer states of tables of `dynamicemb` that have them. The checkpoint's ids are in the first rows of a new training.
fn moments_of_ids(
    task: &PipelineTask,
    trainer: &Trainer,
    tables: &[DynamicTable],
) -> Result<Vec<ParameterMoment>, TrainError> {
    let mut all = trainer.moments_of(|parameter| task.is_identified(parameter))?;
    for table in tables.iter().filter(|table| !table.states.is_empty()) {
        let width = |own: &ParameterMoment| own.tensor.shape().iter().skip(1).product::<usize>();
        let mut own: Vec<_> = all.iter_mut().filter(|own| is_of(table, &own.parameter)).collect();
        let widths: usize = own.iter().map(|own| width(own)).sum();
        let mut start = 0;
        for ParameterMoment { parameter, tensor, .. } in own.iter_mut().map(|own| &mut **own) {
            if table.states.len() != table.keys.len() * widths {
                let expected = format!("{widths} optimizer states for each of {} ids", table.keys.len());
                return Err(TrainError::Checkpoint { name: parameter.clone(), expected });
            }
            let mut values = tensor.to_f32();
            let count = tensor.shape().iter().skip(1).product::<usize>();
            for (row, states) in values.chunks_exact_mut(count).zip(table.states.chunks_exact(widths)) {
                row.copy_from_slice(&states[start..start + count]);
            }
            *tensor = HostTensor::f32(tensor.shape(), &values)?;
            start += count;
        }
    }
    all.retain(|own| tables.iter().any(|table| !table.states.is_empty() && is_of(table, &own.parameter)));
    Ok(all)
}

/// Unsupported options of a pipeline, with their lines if it is a file.
fn not_trained(options: &Train, error: RankTrainError) -> CliError {
    match (error, &options.pipeline) {
        (RankTrainError::Pipeline(problems), Some(file)) => match Pipeline::read(file) {
            Ok(pipeline) => import::unsupported(&file.display().to_string(), &pipeline, &problems.0).into(),
            Err(_) => TrainFailed::from(RankTrainError::Pipeline(problems)).into(),
        },
        (error, _) => TrainFailed::from(error).into(),
    }
}

/// The start of a training.
struct Begin {
    pipeline: Value,
    plan: Option<Value>,
    /// `None` if they are random.
    tensors: Option<Tensors>,
}

impl Begin {
    fn read(options: &Train, mapping: Mapping) -> Result<Self, CliError> {
        match (&options.pipeline, &*options.model) {
            (Some(file), _) => Self::of_file(file, options.checkpoint.as_deref()),
            (None, Some(model)) => Self::of_model(model, options.fresh, mapping),
            (None, None) => Err(TrainFailed::NoData.into()),
        }
    }

    fn of_file(file: &Path, checkpoint: Option<&Path>) -> Result<Self, CliError> {
        let pipeline = import::pipeline(file)?;
        let (tensors, plan) = match checkpoint {
            Some(checkpoint) => {
                let (mut tensors, plan) = import::read(checkpoint)?;
                // Tracing reports unsupported options.
                if let Ok(imported) = Imported::new(pipeline.json()) {
                    tensors.extend(import::identified(&imported, checkpoint)?);
                }
                (Some(tensors), plan)
            }
            None => (None, None),
        };
        Ok(Self { pipeline: pipeline.json().clone(), plan, tensors })
    }

    /// From a folder or package written by `import` or another training.
    fn of_model(model: &Path, is_fresh: bool, mapping: Mapping) -> Result<Self, CliError> {
        let text = read_config_text(model, mapping)?;
        let mut config: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).unwrap_or_default();
        let weights = if is_fresh { None } else { Some(read_weights(model, mapping)?) };
        let tensors = weights.map(|weights| weights.tensors().map_err(RankError::from)).transpose()?;
        let mut take = |key: &str| config.get_mut(key).map(Value::take);
        Ok(Self { pipeline: take("pipeline").unwrap_or_default(), plan: take("plan"), tensors })
    }
}

impl Learner for Learned<'_> {
    fn loss_prefix(&self) -> &'static str {
        "loss."
    }

    fn metrics(&self) -> Vec<String> {
        self.evaluator.iter().flat_map(|(evaluator, _)| evaluator.metrics().map(str::to_owned)).collect()
    }

    fn evaluate(&self, trainer: &Trainer) -> Result<Metrics, CliError> {
        let Some((evaluator, files)) = &self.evaluator else { return Ok(vec![]) };
        let tensors = self.task.tensors(trainer, &self.begin).map_err(TrainFailed::from)?;
        let evaluation = evaluator.begin(|name: &str| tensors.get(name).cloned())?;
        Ok(files.evaluate(evaluator, evaluation, None)?.metrics)
    }

    fn write_weights(
        &self,
        trainer: &Trainer,
        metadata: &BTreeMap<String, String>,
        out: &mut dyn Write,
    ) -> Result<(), RankTrainError> {
        self.task.write_weights(trainer, &self.begin, metadata, out)
    }

    fn changes(&self, trainer: &Trainer) -> Result<Changes, RankTrainError> {
        self.task.changes(trainer, &self.begin)
    }

    fn write_averages(&self, _: &Trainer, _: &mut dyn Write) -> Result<(), RankTrainError> {
        Ok(())
    }
}

/// Batches of rows from files, in order.
struct Examples {
    task: PipelineTask,
    files: Vec<PathBuf>,
    /// The table with a row of negatives for every batch of an epoch.
    negatives: Option<PathBuf>,
    /// True if rows at the end of an epoch that do not fill a batch are dropped.
    drop_remainder: bool,
    /// Rows in batches so far.
    count: Arc<AtomicU64>,
}

impl Examples {
    fn new(pipeline: &Value, task: PipelineTask, options: &Train, count: Arc<AtomicU64>) -> Result<Self, EvalError> {
        match (task.negatives(), &options.negatives) {
            ([], Some(_)) => return Err(EvalError::OtherNegatives),
            (columns @ [_, ..], None) => return Err(EvalError::NoNegatives { columns: columns.to_vec() }),
            _ => {}
        }
        let drop_remainder = pipeline.pointer("/data_config/drop_remainder").and_then(Value::as_bool) == Some(true);
        let (files, negatives) = (options.data.clone(), options.negatives.clone());
        Ok(Self { task, files, negatives, drop_remainder, count })
    }
}

impl Data for Examples {
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<runtime::Inputs, DataError>> + '_> {
        Box::new(self.share(epoch, Share { from: 0, rank: 0, ranks: 1 }).filter_map(Result::transpose))
    }

    fn share(
        &mut self,
        _: u64,
        share: Share,
    ) -> Box<dyn Iterator<Item = Result<Option<runtime::Inputs>, DataError>> + '_> {
        let negatives = self.negatives.as_deref();
        let open = |file| Open::new(file, self.task.negatives());
        match negatives.map(open).transpose() {
            Ok(negatives) => {
                let (files, position) = (self.files.iter(), 0);
                let batches =
                    Batches { examples: self, files, open: None, negatives, share, position, is_failed: false };
                Box::new(batches.skip(usize::try_from(share.from).unwrap_or(usize::MAX)))
            }
            Err(error) => Box::new(std::iter::once(Err(error.into()))),
        }
    }
}

/// The batches of an epoch. Batches of other ranks are skipped.
struct Batches<'a> {
    examples: &'a Examples,
    files: std::slice::Iter<'a, PathBuf>,
    open: Option<Open<'a>>,
    negatives: Option<Open<'a>>,
    share: Share,
    position: u64,
    is_failed: bool,
}

impl Iterator for Batches<'_> {
    type Item = Result<Option<runtime::Inputs>, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_failed {
            return None;
        }
        let read = self.read();
        self.is_failed = read.is_err();
        read.transpose()
    }
}

impl Batches<'_> {
    /// The next batch; `None` at the end of the last file.
    fn read(&mut self) -> Result<Option<Option<runtime::Inputs>>, DataError> {
        let Examples { task, drop_remainder, count, .. } = self.examples;
        let is_own = self.share.has(self.position);
        let size = task.config().batch_size.get();
        loop {
            let open = match &mut self.open {
                Some(open) => open,
                None => match self.files.next() {
                    Some(file) => self.open.insert(Open::new(file, task.columns())?),
                    None => return Ok(None),
                },
            };
            let read = if is_own { open.read(size)? } else { open.skip(size)? };
            if read.count == 0 || read.count < size && *drop_remainder {
                self.open = None;
                continue;
            }
            self.position += 1;
            count.fetch_add(read.count as u64, Ordering::Relaxed);
            if !is_own {
                self.negatives.as_mut().map(|negatives| negatives.skip(1)).transpose()?;
                return Ok(Some(None));
            }
            let negatives = match &mut self.negatives {
                None => None,
                Some(negatives) => match negatives.read(1)? {
                    row if row.count == 0 => {
                        let (file, rows) = (title(Some(&negatives.file)), negatives.row as usize);
                        return Err(EvalError::FewNegatives { file, rows, batch: size }.into());
                    }
                    row => Some(row),
                },
            };
            let find = |name: &str| {
                let mut columns = negatives.iter().flat_map(|read| &read.columns);
                columns.find(|(known, _)| *known == name).map(|(_, column)| column)
            };
            let row = negatives.is_some().then_some(NegativeRow { column: &find, row: 0 });
            return Ok(Some(Some(task.inputs(read.count, &read.columns, row)?)));
        }
    }
}

/// A table that is being read.
struct Open<'a> {
    table: Box<dyn Table>,
    names: &'a [String],
    /// Rows that have been read.
    row: u64,
    file: PathBuf,
}

/// Rows that were read together.
struct Read<'a> {
    count: usize,
    columns: Vec<(&'a str, Column<'static>)>,
}

impl<'a> Open<'a> {
    fn new(file: &Path, names: &'a [String]) -> Result<Self, InputError> {
        let table = tables::open(file, names)?;
        Ok(Self { table, names, row: 0, file: file.to_owned() })
    }

    fn read(&mut self, rows: usize) -> Result<Read<'a>, InputError> {
        let read = self.table.read(rows)?;
        let columns = encoded(self.names, read.columns, (self.row, &self.file))?;
        self.row += read.count as u64;
        Ok(Read { count: read.count, columns })
    }

    fn skip(&mut self, rows: usize) -> Result<Read<'a>, InputError> {
        let count = self.table.skip(rows as u64)?;
        self.row += count;
        Ok(Read { count: count as usize, columns: vec![] })
    }
}
