use super::batch::{Sequence, inputs};
use super::sequence::{Capacity, Layout};
use super::sessions::Sessions;
use super::{Candidate, Column, RankError, Ranked, Request, Schema, unread};
use crate::weights::Weights;
use rewire_graph_rewrite::emit::Tuning;
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, Source};
use rewire_graph_rewrite::{lower, optimize};
use rewire_hstu::models::dlrm_hstu::{Config, InputRows, InputSpec, trace};
use rewire_hstu::modules::Mode;
use rewire_runtime::{
    Gpu, Kernel, Model, ModelOptions, PipelineStore, Refinement, Report, Session, TuningStore, Workers, block_on,
};
use std::path::Path;
use std::time::Duration;

const OUTPUT: &str = "logits";
/// Bytes of a `config.json` at most.
const LARGEST_CONFIG: u64 = 64 << 20;

/// How a model is loaded and run.
#[derive(Clone, Debug)]
pub struct RankOptions {
    /// What runs it.
    pub kernel: Kernel,
    /// A part of the name, driver, backend or PCI address of the adapter to use, or `#` and its number.
    pub adapter: Option<String>,
    /// An open device to use, the app's own for instance.
    pub gpu: Option<Gpu>,
    /// Threads on which futures wait for the device, where they are not run by [`rewire_runtime::block_on`].
    pub workers: Option<Workers>,
    /// Choices of the emitter.
    pub tuning: Tuning,
    /// Tunings of kernels that were measured, where `tuning` is the default.
    pub tunings: Option<TuningStore>,
    /// Where compiled kernels are kept for later processes.
    pub pipelines: Option<PipelineStore>,
    /// Takes weights with tensors that the model does not read. Without it they are an error, as they tell that the
    /// configuration is not the one that they were made with.
    pub allow_unread: bool,
    /// Rows of a batch: sequences are run together until they have so many. A longer sequence is run alone.
    pub batch_rows: usize,
    /// Rows that a history which is too long leaves to candidates, at least 1. More makes fewer sequences of
    /// many candidates.
    pub candidate_room: usize,
}

/// A task of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The name.
    pub name: String,
    /// The bits of an action that make it positive.
    pub bitmask: i64,
}

/// A ranking model, ready to run. Any number of threads rank with it at the same time, behind an [`Arc`](std::sync::Arc) for
/// instance: parameters and kernels are there once, and every call that is under way has the memory of a run.
#[derive(Debug)]
pub struct Ranker {
    model: Model,
    sessions: Sessions,
    schema: Schema,
    tasks: Vec<Task>,
    inputs: Vec<InputSpec>,
    capacity: Capacity,
    batch_rows: usize,
}

impl Default for RankOptions {
    fn default() -> Self {
        Self {
            kernel: Kernel::Auto,
            adapter: None,
            gpu: None,
            workers: None,
            tuning: Tuning::default(),
            tunings: None,
            pipelines: None,
            allow_unread: false,
            batch_rows: 1 << 13,
            candidate_room: 1,
        }
    }
}

/// Reads the `config.json` of a model folder.
///
/// # Errors
/// [`RankError::Read`] and [`RankError::Config`].
pub fn read_config(folder: &Path) -> Result<Config, RankError> {
    let path = folder.join("config.json");
    let unread = |source| RankError::Read { path: path.clone(), source };
    let found = std::fs::metadata(&path).map_err(unread)?;
    if !found.is_file() || found.len() > LARGEST_CONFIG {
        let reason = format!("not a file of at most {LARGEST_CONFIG} bytes");
        return Err(unread(std::io::Error::other(reason)));
    }
    let text = std::fs::read_to_string(&path).map_err(unread)?;
    parse_config(&path.display().to_string(), &text)
}

/// Takes the text of a `config.json`; `name` stands for it in errors.
///
/// # Errors
/// [`RankError::Config`].
pub fn parse_config(name: &str, text: &str) -> Result<Config, RankError> {
    let bad = |source| RankError::Config { name: name.to_owned(), source: Box::new(source) };
    Config::from_json(text.trim_start_matches('\u{feff}')).map_err(bad)
}

impl Ranker {
    /// Loads a folder with `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// [`RankError`] names the file, key or tensor that is not good, or what is missing for a device.
    pub async fn load_async(folder: &Path, options: &RankOptions) -> Result<Self, RankError> {
        let config = read_config(folder)?;
        let weights = Weights::read(&folder.join("model.safetensors"))?;
        Self::new_async(&config, &weights, options).await
    }

    /// [`Ranker::load_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::load_async`].
    pub fn load(folder: &Path, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::load_async(folder, options))
    }

    /// Takes a configuration and weights.
    ///
    /// # Errors
    /// As [`Ranker::load_async`].
    pub async fn new_async(config: &Config, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        let build = || {
            check_buffers(config, weights)?;
            let graph = trace(config).map_err(|error| RankError::Trace(Box::new(error)))?;
            if !options.allow_unread {
                unread::check(config, &graph, weights)?;
            }
            Ok::<_, RankError>(lower(&optimize(graph)?.0)?)
        };
        let with = ModelOptions {
            kernel: options.kernel,
            adapter: options.adapter.clone(),
            gpu: options.gpu.clone(),
            workers: options.workers.clone(),
            tuning: options.tuning,
            tunings: options.tunings.clone(),
            pipelines: options.pipelines.clone(),
            ..ModelOptions::default()
        };
        let inputs = config.inputs();
        let model = Model::build_async(build, |name| weights.get(name), with).await?;
        let schema = schema(&inputs, model.plan());
        let tasks = config.fusion_mtl_tower.task_configs.iter();
        Ok(Self {
            sessions: Sessions::default(),
            model,
            schema,
            tasks: tasks.map(|t| Task { name: t.task_name.clone(), bitmask: t.task_bitmask }).collect(),
            inputs,
            capacity: capacity(config, options)?,
            batch_rows: options.batch_rows,
        })
    }

    /// [`Ranker::new_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::load_async`].
    pub fn new(config: &Config, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::new_async(config, weights, options))
    }

    /// What the model reads from a request.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The tasks, in the order of logits.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Rows that a sequence has at most.
    pub fn max_seq_len(&self) -> usize {
        self.capacity.rows
    }

    /// What it runs on. The memory is that of parameters and of all runs that are not under way.
    pub fn report(&self) -> Report {
        self.sessions.report(&self.model)
    }

    /// The model itself: its inputs, parameters and kernels.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Frees the memory of runs that are not under way. The next ones take it anew.
    pub fn trim(&self) {
        self.sessions.trim();
    }

    /// Measures tunings of one kernel in runs with these requests, the first batch of them, until `budget` is spent, as
    /// [`Session::refine`](rewire_runtime::Session::refine) does. Later calls rank with what is found.
    ///
    /// # Errors
    /// As [`Ranker::rank_async`], and those of [`Session::refine_async`](rewire_runtime::Session::refine_async).
    pub async fn refine_async(&self, requests: &[Request], budget: Duration) -> Result<Refinement, RankError> {
        requests.iter().try_for_each(|request| request.check(&self.schema))?;
        let layouts: Vec<Layout> = requests.iter().map(|request| self.capacity.lay_out(request)).collect();
        let Some(batch) = self.batches(requests, &layouts).into_iter().next() else { return Ok(Refinement::default()) };
        let inputs = inputs(&self.inputs, &batch.sequences)?;
        let mut session = self.sessions.lend(&self.model);
        let refinement = session.refine_async(&inputs, budget).await;
        self.sessions.give(session);
        Ok(refinement?)
    }

    /// [`Ranker::refine_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::refine_async`].
    pub fn refine(&self, requests: &[Request], budget: Duration) -> Result<Refinement, RankError> {
        block_on(self.refine_async(requests, budget))
    }

    /// Ranks the candidates of each request. Scores do not depend on what else is ranked with them.
    ///
    /// A history too long for [`Ranker::max_seq_len`] keeps its newest events, whatever the number of
    /// candidates. Candidates that do not fit beside it are split over several sequences, which changes no score, as
    /// candidates do not see each other; the time of the request is that of the last candidate. A history that is not
    /// in order of time is sorted by `timestamp`, equal times as given. [`Ranked`] tells all three.
    ///
    /// The future waits for a device as [`Session::run_async`](rewire_runtime::Session::run_async) does. Steps on the CPU, and
    /// the layout of requests, take the thread that polls it: to keep one free, rank on another, with [`Ranker::rank`].
    ///
    /// # Errors
    /// The first request that does not fit the model, or what failed while it ran. Nothing is ranked then.
    pub async fn rank_async(&self, requests: &[Request]) -> Result<Vec<Ranked>, RankError> {
        requests.iter().try_for_each(|request| request.check(&self.schema))?;
        let layouts: Vec<Layout> = requests.iter().map(|request| self.capacity.lay_out(request)).collect();
        let mut ranked: Vec<Ranked> = requests.iter().zip(&layouts).map(|(r, l)| Ranked::empty(r, l)).collect();
        let mut session = self.sessions.lend(&self.model);
        let scored = self.score(&mut session, &self.batches(requests, &layouts), &mut ranked).await;
        self.sessions.give(session);
        scored?;
        ranked.iter_mut().for_each(Ranked::sort);
        Ok(ranked)
    }

    /// [`Ranker::rank_async`], blocking.
    ///
    /// # Errors
    /// As [`Ranker::rank_async`].
    pub fn rank(&self, requests: &[Request]) -> Result<Vec<Ranked>, RankError> {
        block_on(self.rank_async(requests))
    }

    /// Sequences that are run together, in the order of their requests.
    fn batches<'a>(&self, requests: &'a [Request], layouts: &'a [Layout]) -> Vec<Batch<'a>> {
        let mut batches: Vec<Batch<'a>> = Vec::new();
        let mut rows = 0;
        for (owner, (request, layout)) in requests.iter().zip(layouts).enumerate() {
            for part in &layout.parts {
                let more = self.capacity.rows_of(layout, part);
                if batches.is_empty() || (rows > 0 && rows + more > self.batch_rows) {
                    batches.push(Batch::default());
                    rows = 0;
                }
                if let Some(batch) = batches.last_mut() {
                    batch.sequences.push(Sequence { request, layout, part });
                    batch.owners.push(owner);
                }
                rows += more;
            }
        }
        batches
    }

    async fn score(
        &self,
        session: &mut Session,
        batches: &[Batch<'_>],
        ranked: &mut [Ranked],
    ) -> Result<(), RankError> {
        for batch in batches {
            self.score_batch(session, batch, ranked).await?;
        }
        Ok(())
    }

    async fn score_batch(
        &self,
        session: &mut Session,
        Batch { sequences: batch, owners }: &Batch<'_>,
        ranked: &mut [Ranked],
    ) -> Result<(), RankError> {
        let outputs = session.run_async(&inputs(&self.inputs, batch)?).await?;
        let logits = outputs.get(OUTPUT).map(|tensor| tensor.to_f32()).unwrap_or_default();
        let candidates: usize = batch.iter().map(|sequence| sequence.part.len()).sum();
        let tasks = self.tasks.len();
        if logits.len() != candidates * tasks {
            let reason = format!("has {} values: expected {candidates} x {tasks}", logits.len());
            return Err(RankError::Output { output: OUTPUT.into(), reason });
        }
        let mut logits = logits.chunks_exact(tasks.max(1));
        for (sequence, &owner) in batch.iter().zip(owners) {
            let Some(ranked) = ranked.get_mut(owner) else { continue };
            for (position, logits) in sequence.part.positions().zip(logits.by_ref()) {
                if sequence.part.scored.contains(&position) {
                    ranked.candidates.push(self.candidate(sequence.request, position, logits)?);
                }
            }
        }
        Ok(())
    }

    fn candidate(&self, request: &Request, position: usize, logits: &[f32]) -> Result<Candidate, RankError> {
        let column = self.schema.candidates.first().and_then(|column| request.candidates.get(&column.name));
        let item = column.and_then(|items| items.get(position)).copied().unwrap_or_default();
        if let Some((task, logit)) = self.tasks.iter().zip(logits).find(|(_, logit)| !logit.is_finite()) {
            let reason = format!("is {logit} for user `{}`, item {item}, task `{}`", request.user, task.name);
            return Err(RankError::Output { output: OUTPUT.into(), reason });
        }
        Ok(Candidate::new(item, position, logits.to_vec()))
    }
}

/// Sequences that are run together.
#[derive(Default)]
struct Batch<'a> {
    sequences: Vec<Sequence<'a>>,
    /// The position of the request of each.
    owners: Vec<usize>,
}

/// Compares tensors of the weights that follow from the configuration.
fn check_buffers(config: &Config, weights: &Weights<'_>) -> Result<(), RankError> {
    for buffer in config.buffers().map_err(|error| RankError::Trace(Box::new(error)))? {
        if let Some(stored) = weights.get(&buffer.name)
            && (stored.shape() != buffer.value.shape() || stored.to_f64() != buffer.value.to_f64())
        {
            let (expected, actual) = (buffer.value.to_f64(), stored.to_f64());
            return Err(RankError::Buffer { name: buffer.name, expected, actual });
        }
    }
    Ok(())
}

fn capacity(config: &Config, options: &RankOptions) -> Result<Capacity, RankError> {
    let (rows, contextual) = (config.max_seq_len, config.feature_groups.contextual.len());
    if contextual + 2 > rows {
        return Err(RankError::NoRoom { max_seq_len: rows, contextual });
    }
    let interleaved = config.hstu.input_preprocessor.doubles_targets(Mode::Train);
    let rows_per_event = if interleaved { 2 } else { 1 };
    Ok(Capacity { rows, contextual, rows_per_event, candidate_room: options.candidate_room })
}

/// The columns of a model's inputs. Those that the plan does not read may be left out of requests.
fn schema(inputs: &[InputSpec], plan: &Plan) -> Schema {
    let mut schema = Schema::default();
    for spec in inputs.iter().filter(|spec| spec.dtype.is_some()) {
        let Some((_, name)) = spec.name.split_once('.') else { continue };
        let read = reads(plan, &spec.name);
        let column = match spec.num_embeddings {
            Some(rows) => Column::ids(name, rows),
            None => Column::numbers(name, read),
        };
        match spec.rows {
            InputRows::Users => schema.contextual.push(column),
            InputRows::History => schema.history.push(column),
            InputRows::Candidates => schema.candidates.push(column),
        }
    }
    for columns in [&mut schema.history, &mut schema.candidates] {
        columns.sort_by_key(|column| column.table.is_none());
    }
    schema
}

/// True if a step or an output of the plan reads the input.
fn reads(plan: &Plan, name: &str) -> bool {
    let input = plan.buffers.iter().position(|buffer| matches!(&buffer.source, Source::Input(known) if known == name));
    let Some(input) = input else { return false };
    let binding = Binding::Buffer(BufferId(input as u32));
    plan.steps.iter().any(|step| step.reads.contains(&binding))
        || plan.outputs.iter().any(|output| output.value == binding)
}
