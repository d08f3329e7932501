use super::package::{check_inputs, config_of};
use super::runs::{Run, runs};
use super::sequence::{Capacity, Layout};
use super::sessions::Sessions;
use super::{Batch, Candidate, Column, RankError, RankOptions, Ranked, Schema, Task, unread};
use crate::package::Package;
use crate::weights::Weights;
use rewire_graph_rewrite::emit::Target;
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, Source};
use rewire_graph_rewrite::{lower, optimize};
use rewire_hstu::models::dlrm_hstu::{Config, InputRows, InputSpec, trace};
use rewire_hstu::modules::Mode;
use rewire_runtime::{Model, ModelOptions, Refinement, Session};
use std::sync::Arc;
use std::time::Duration;

const OUTPUT: &str = "logits";

/// A model, and what turns batches into its inputs and its outputs into ranked candidates.
#[derive(Debug)]
pub(super) struct Scorer {
    pub model: Model,
    pub sessions: Sessions,
    pub schema: Arc<Schema>,
    pub tasks: Vec<Task>,
    pub capacity: Capacity,
    inputs: Vec<InputSpec>,
    /// Rows of a run.
    most: usize,
}

impl Scorer {
    pub async fn new(config: &Config, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        let build = || {
            check_buffers(config, weights)?;
            let graph = trace(config).map_err(|error| RankError::Trace(Box::new(error)))?;
            if !options.allow_unread {
                unread::check(config, &graph, weights)?;
            }
            Ok(lower(&optimize(graph)?.0)?)
        };
        Self::build(config, build, (weights, vec![]), options).await
    }

    /// Takes what a package holds.
    pub async fn of_package(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        let config = config_of(package)?;
        let build = || {
            let plan = package.plan()?;
            check_inputs(&config, &plan)?;
            Ok(plan)
        };
        let targets = package.targets()?.into_iter().filter(|target| *target != Target::BASELINE);
        Self::build(&config, build, (package.weights(), targets.collect()), options).await
    }

    async fn build(
        config: &Config,
        plan: impl FnOnce() -> Result<Plan, RankError> + Send,
        (weights, targets): (&Weights<'_>, Vec<Target>),
        options: &RankOptions,
    ) -> Result<Self, RankError> {
        let inputs = config.inputs();
        let model = Model::build_async(plan, weights, ModelOptions { targets, ..options.of_model() }).await?;
        let schema = schema(&inputs, model.plan());
        let tasks = config.fusion_mtl_tower.task_configs.iter();
        Ok(Self {
            sessions: Sessions::default(),
            model,
            schema: Arc::new(schema),
            tasks: tasks.map(|t| Task { name: t.task_name.clone(), bitmask: t.task_bitmask }).collect(),
            capacity: capacity(config, options)?,
            inputs,
            most: options.batch_rows,
        })
    }

    /// Ranks the candidates of a batch of this schema.
    pub async fn rank(&self, batch: &Batch) -> Result<Vec<Ranked>, RankError> {
        let layouts = self.layouts(batch);
        let mut ranked = Ranked::of_batch(batch, &layouts);
        let mut session = self.sessions.lend(&self.model);
        let scored = self.score(&mut session, batch, &layouts, &mut ranked).await;
        self.sessions.give(session);
        scored?;
        ranked.iter_mut().for_each(Ranked::sort);
        Ok(ranked)
    }

    /// Measures tunings in runs with the first of the batch.
    pub async fn refine(&self, batch: &Batch, budget: Duration) -> Result<Refinement, RankError> {
        let layouts = self.layouts(batch);
        let runs = runs(&self.capacity, &layouts, self.most);
        let Some(first) = runs.first() else { return Ok(Refinement::default()) };
        let inputs = first.inputs(&self.inputs, batch)?;
        let mut session = self.sessions.lend(&self.model);
        let refinement = session.refine_async(&inputs, budget).await;
        self.sessions.give(session);
        Ok(refinement?)
    }

    fn layouts(&self, batch: &Batch) -> Vec<Layout> {
        (0..batch.len()).map(|request| self.capacity.lay_out(batch, request)).collect()
    }

    async fn score(
        &self,
        session: &mut Session,
        batch: &Batch,
        layouts: &[Layout],
        ranked: &mut [Ranked],
    ) -> Result<(), RankError> {
        for run in runs(&self.capacity, layouts, self.most) {
            let outputs = session.run_async(&run.inputs(&self.inputs, batch)?).await?;
            let logits = outputs.get(OUTPUT).map(|tensor| tensor.to_f32()).unwrap_or_default();
            self.take(batch, &run, &logits, ranked)?;
        }
        Ok(())
    }

    /// Hands the logits of a run to the requests that they are of.
    fn take(&self, batch: &Batch, run: &Run<'_>, logits: &[f32], ranked: &mut [Ranked]) -> Result<(), RankError> {
        let (candidates, tasks) = (run.candidates(), self.tasks.len());
        if logits.len() != candidates * tasks {
            let reason = format!("has {} values: expected {candidates} x {tasks}", logits.len());
            return Err(RankError::Output { output: OUTPUT.into(), reason });
        }
        let mut logits = logits.chunks_exact(tasks.max(1));
        for sequence in &run.sequences {
            let items = batch.rows().candidates.row(0, sequence.request).unwrap_or_default();
            let Some(ranked) = ranked.get_mut(sequence.request) else { continue };
            for (position, logits) in sequence.part.positions().zip(logits.by_ref()) {
                if sequence.part.scored.contains(&position) {
                    let item = items.get(position).copied().unwrap_or_default();
                    self.check_finite(ranked, item, logits)?;
                    ranked.candidates.push(Candidate::new(item, position, logits.to_vec()));
                }
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

/// Compares tensors of the weights that follow from the configuration.
pub(crate) fn check_buffers(config: &Config, weights: &Weights<'_>) -> Result<(), RankError> {
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

pub(crate) fn capacity(config: &Config, options: &RankOptions) -> Result<Capacity, RankError> {
    let (rows, contextual) = (config.max_seq_len, config.feature_groups.contextual.len());
    if contextual + 2 > rows {
        return Err(RankError::NoRoom { max_seq_len: rows, contextual });
    }
    let interleaved = config.hstu.input_preprocessor.doubles_targets(Mode::Train);
    let rows_per_event = if interleaved { 2 } else { 1 };
    Ok(Capacity { rows, contextual, rows_per_event, candidate_room: options.candidate_room })
}

/// The columns of a model's inputs. Those that the plan does not read may be left out of requests.
pub(crate) fn schema(inputs: &[InputSpec], plan: &Plan) -> Schema {
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
