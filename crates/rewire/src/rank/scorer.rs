use super::expected::Reads;
use super::package::{check_plan, compiled, config_of, store};
use super::runs::{Run, runs};
use super::sequence::{Capacity, Layout, layouts};
use super::sessions::Sessions;
use super::{Batch, CancellationToken, Candidate, Column, RankError, RankOptions, Ranked, Schema, Task, unread};
use crate::delta::Served;
use crate::package::Package;
use crate::weights::Weights;
use rewire_graph::{Arrange, DType, Graph};
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, Source};
use rewire_hstu::models::dlrm_hstu::{CacheOptions, Config, InputRows, InputSpec, trace};
use rewire_hstu::modules::Mode;
use rewire_runtime::{
    ExpectedPlan, ExpectedRun, Inputs, Kernel, Model, ModelOptions, Outputs, Refinement, Session, Tuned,
};
use std::sync::Arc;
use std::time::Duration;

const OUTPUT: &str = "logits";

/// A model, and the conversion of batches to its inputs and of its outputs to ranked candidates.
#[derive(Debug)]
pub(super) struct Scorer {
    pub model: Model,
    pub sessions: Sessions,
    pub served: Served,
    pub schema: Arc<Schema>,
    pub tasks: Vec<Task>,
    pub capacity: Capacity,
    pub inputs: Vec<(String, Option<DType>)>,
    /// Rows per run.
    pub most: usize,
    /// True if histories are computed separately from candidates.
    pub is_apart: bool,
    /// True if new events can be appended to a cached history.
    pub appends: bool,
    /// True if the cached values of a history depend on the time of the request.
    pub reads_time: bool,
}

impl Scorer {
    pub async fn new(config: &Config, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        let build = || {
            check_buffers(config, weights)?;
            let graph = trace_ranking(config, &options.cache)?;
            if !options.allow_unread {
                unread::check(config, &graph, weights)?;
            }
            compiled(&config.tables().collect(), graph, options.precision)
        };
        Self::build(config, build, weights, options, options.of_model()).await
    }

    /// Loads a package.
    pub async fn of_package(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        let config = config_of(package)?;
        let build = || {
            let mut plan = package.plan()?;
            check_plan(&inputs_of(&config, &plan), config.table_sizes(), &plan)?;
            store(&config.tables().collect(), &mut plan, options.precision)?;
            Ok(plan)
        };
        Self::build(&config, build, package.weights(), options, package.of_model(options)?).await
    }

    async fn build(
        config: &Config,
        plan: impl FnOnce() -> Result<Plan, RankError> + Send,
        weights: &Weights<'_>,
        options: &RankOptions,
        of_model: ModelOptions,
    ) -> Result<Self, RankError> {
        let build = || {
            let plan = plan()?;
            let runs = expected(config, &plan, options)?;
            Ok::<_, RankError>(ExpectedPlan { plan, runs })
        };
        let model = Model::build_async(build, weights, of_model).await?;
        let (is_apart, inputs) = (is_apart(model.plan()), inputs_of(config, model.plan()));
        let schema = schema(&config.inputs(), model.plan());
        let reads_time = reads(model.plan(), "uih.query_time");
        Ok(Self {
            sessions: Sessions::default(),
            served: Served::of(weights),
            model,
            schema: Arc::new(schema),
            tasks: Task::all_of(config),
            capacity: capacity(config, options)?,
            inputs,
            most: options.batch_rows,
            is_apart,
            appends: config.is_appendable(),
            reads_time,
        })
    }

    /// Ranks the candidates of a batch of this schema.
    pub async fn rank(&self, batch: &Batch, cancellation: &CancellationToken) -> Result<Vec<Ranked>, RankError> {
        let layouts = self.layouts(batch);
        let mut ranked = Ranked::of_batch(batch, &layouts);
        let mut session = self.sessions.lend(&self.model);
        let scored = self.score(&mut session, batch, &layouts, cancellation, &mut ranked).await;
        self.sessions.give(session);
        scored?;
        ranked.iter_mut().for_each(Ranked::sort);
        Ok(ranked)
    }

    /// Measures tunings of one kernel on the first run of the batch.
    pub async fn refine(&self, batch: &Batch, budget: Duration) -> Result<Refinement, RankError> {
        let mut session = self.sessions.lend(&self.model);
        let Some(inputs) = self.first(&mut session, batch).await? else { return Ok(Refinement::default()) };
        let refinement = session.refine_async(&inputs, budget).await;
        self.sessions.give(session);
        Ok(refinement?)
    }

    /// Measures tunings of all kernels on the first run of the batch.
    pub async fn tune(&self, batch: &Batch, budget: Duration) -> Result<Vec<Tuned>, RankError> {
        let mut session = self.sessions.lend(&self.model);
        let Some(inputs) = self.first(&mut session, batch).await? else { return Ok(vec![]) };
        let tuned = session.tune_async(&inputs, budget).await;
        self.sessions.give(session);
        Ok(tuned?)
    }

    /// The inputs of the first run of a batch.
    async fn first(&self, session: &mut Session, batch: &Batch) -> Result<Option<Inputs>, RankError> {
        let layouts = self.layouts(batch);
        if self.is_apart {
            return self.first_apart(session, batch, &layouts).await;
        }
        let runs = runs(&self.capacity, &layouts, self.most);
        Ok(runs.first().map(|first| first.inputs(&self.inputs, batch)).transpose()?)
    }

    pub fn layouts(&self, batch: &Batch) -> Vec<Layout> {
        layouts(batch, &self.capacity, self.is_apart)
    }

    async fn score(
        &self,
        session: &mut Session,
        batch: &Batch,
        layouts: &[Layout],
        cancellation: &CancellationToken,
        ranked: &mut [Ranked],
    ) -> Result<(), RankError> {
        if self.is_apart {
            return self.score_once(session, batch, layouts, cancellation, ranked).await;
        }
        for run in runs(&self.capacity, layouts, self.most) {
            cancellation.check()?;
            let outputs = session.run_async(&run.inputs(&self.inputs, batch)?).await?;
            self.take(batch, &run, &outputs, ranked)?;
        }
        Ok(())
    }

    /// Assigns the logits of a run to its requests.
    pub fn take(
        &self,
        batch: &Batch,
        run: &Run<'_>,
        outputs: &Outputs,
        ranked: &mut [Ranked],
    ) -> Result<(), RankError> {
        let logits = outputs.get(OUTPUT).map(|tensor| tensor.to_f32()).unwrap_or_default();
        let (candidates, tasks) = (run.candidates(), self.tasks.len());
        if logits.len() != candidates * tasks {
            let reason = format!("has {} values: expected {candidates} x {tasks}", logits.len());
            return Err(RankError::Output { output: OUTPUT.into(), reason });
        }
        let mut logits = logits.chunks_exact(tasks.max(1));
        for sequence in &run.sequences {
            let items = batch.rows().candidates.row(0, sequence.request).unwrap_or_default();
            let Some(ranked) = ranked.get_mut(sequence.request) else { continue };
            for (position, logits) in sequence.part.clone().zip(logits.by_ref()) {
                let item = items.get(position).copied().unwrap_or_default();
                self.check_finite(ranked, item, logits)?;
                ranked.candidates.push(Candidate::new(item, position, logits.to_vec()));
            }
        }
        Ok(())
    }

    fn check_finite(&self, ranked: &Ranked, item: i64, logits: &[f32]) -> Result<(), RankError> {
        match self.tasks.iter().zip(logits).find(|(_, logit)| !logit.is_finite()) {
            None => Ok(()),
            Some((task, logit)) => {
                let reason = format!("is {logit} for user `{}`, item {item}, task `{}`", ranked.user, task.name);
                Err(RankError::Output { output: OUTPUT.into(), reason })
            }
        }
    }
}

/// The ranking graph, with histories separate from candidates if the model allows it.
pub(super) fn trace_ranking(config: &Config, cache: &CacheOptions) -> Result<Graph, RankError> {
    let graph = if config.is_cacheable() { config.trace_cached(cache) } else { trace(config) };
    graph.map_err(|error| RankError::Trace(Box::new(error)))
}

/// The first runs to expect. The CPU compiles nothing for them.
fn expected(config: &Config, plan: &Plan, options: &RankOptions) -> Result<Vec<ExpectedRun>, RankError> {
    let Some(requests) = options.expected.as_ref().filter(|_| options.kernel != Kernel::Cpu) else { return Ok(vec![]) };
    let (capacity, inputs) = (&capacity(config, options)?, &inputs_of(config, plan));
    let reads = Reads { capacity, inputs, most: options.batch_rows, is_apart: is_apart(plan) };
    Ok(requests.runs(schema(&config.inputs(), plan), &reads)?)
}

/// The possible inputs of a plan, with their element types.
fn inputs_of(config: &Config, plan: &Plan) -> Vec<(String, Option<DType>)> {
    match is_apart(plan) {
        true => config.cached_inputs(),
        false => config.inputs().into_iter().map(|spec| (spec.name, spec.dtype)).collect(),
    }
}

/// True for a plan with histories separate from candidates.
pub(super) fn is_apart(plan: &Plan) -> bool {
    !plan.states().is_empty()
}

/// Compares tensors of the weights that follow from the configuration.
pub(crate) fn check_buffers(config: &Config, weights: &Weights<'_>) -> Result<(), RankError> {
    for buffer in config.buffers().map_err(|error| RankError::Trace(Box::new(error)))? {
        if let Some(stored) = weights.get(&buffer.name)?
            && (stored.shape() != buffer.value.shape() || stored.to_f64() != buffer.value.to_f64())
        {
            let (expected, actual) = (buffer.value.to_f64(), stored.to_f64());
            return Err(RankError::Buffer { name: buffer.name, expected, actual });
        }
    }
    Ok(())
}

pub(crate) fn capacity(config: &Config, options: &RankOptions) -> Result<Capacity, RankError> {
    let (rows, contextual) = (config.max_seq_len, config.feature_groups.contextual.len());
    if contextual + 2 > rows {
        return Err(RankError::NoRoom { max_seq_len: rows, contextual });
    }
    let interleaved = config.hstu.input_preprocessor.doubles_targets(Mode::Train);
    let rows_per_event = if interleaved { 2 } else { 1 };
    Ok(Capacity { rows, contextual, rows_per_event, candidate_room: options.candidate_room })
}

/// The schema of a model's inputs. Inputs that the plan does not read are optional in requests.
pub(crate) fn schema(inputs: &[InputSpec], plan: &Plan) -> Schema {
    let mut schema = Schema::default();
    for spec in inputs.iter().filter(|spec| spec.dtype.is_some()) {
        let Some((_, name)) = spec.name.split_once('.') else { continue };
        let tells_time = spec.name == "candidate.timestamp" && is_apart(plan);
        let read = reads(plan, &spec.name)
            || tells_time && ["uih.query_time", "candidate.query_time"].iter().any(|name| reads(plan, name));
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
        columns.arrange_by_key(|column| column.table.is_none());
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
