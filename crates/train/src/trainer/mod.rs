//! Runs training steps.

mod changes;
mod error;
mod fit;
mod growth;
mod initial;
mod memory;
mod moments;
mod prepare;
mod profile;
mod ranks;
mod report;
mod states;

pub use changes::Changes;
pub use error::{DataError, TrainError};
pub use fit::{Data, Event, Fitted, Position, Share, fit};
pub use initial::InitialValues;
pub use prepare::{Prepared, Preparer};
pub use ranks::Held;
pub use report::StepReport;
pub use states::ParameterMoment;

use crate::config::Sharding;
use crate::step::{KeptMoment, Lookup, RankStep, State, StepGraph, kept, names};
use crate::{Objective, TrainConfig};
use changes::Recorded;
use growth::Grown;
use memory::Limited;
use profile::Fastest;
use ranks::Ranks;
use report::{Progress, Submitted};
use rewire_distributed::{Collectives, in_process};
use rewire_graph::op::Role;
use rewire_graph::{Graph, HostTensor, TensorSizeError, Type};
use rewire_graph_rewrite::passes::{PartialSums, Pass, Pipeline};
use rewire_graph_rewrite::plan::Plan;
use rewire_graph_rewrite::{RewriteError, lower, optimize};
use rewire_runtime::{DeviceKind, Inputs, Kernel, Model, ModelOptions, Outputs, Report, RunValue, Session, devices};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A training: a model with its parameters and optimizer states, on a device or the CPU.
///
/// Equal batches give equal bits, for any number of threads.
///
/// ```
/// use rewire_graph::{DType, HostTensor, Scope};
/// use rewire_runtime::{Inputs, Kernel, ModelOptions};
/// use rewire_train::{Objective, TrainConfig, Trainer};
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, (scope.size("rows"), 2));
/// let y = scope.input("y", DType::F32, (scope.size("rows"), 1));
/// let error = x.matmul(&scope.parameter("weight", DType::F32, [2, 1])) - y;
/// let loss = error.square().mean(0);
/// let objective = Objective::new(scope.finish(&[("loss", loss)])?, "loss");
///
/// let config = r#"{ "batch_size": 2, "steps": 50,
///     "dense_optimizer": { "adam_optimizer": { "lr": 0.3 } }, "sparse_optimizer": { "sgd_optimizer": { "lr": 0.1 } } }"#;
/// let begin = |_: &str| HostTensor::f32([2, 1], &[0.5, 0.5]).ok();
/// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
/// let mut trainer = Trainer::new(&objective, &TrainConfig::from_json(config)?, begin, options)?;
///
/// let mut preparer = trainer.preparer();
/// let batch = Inputs::new()
///     .with("x", HostTensor::f32([2, 2], &[1.0, 0.0, 0.0, 1.0])?)
///     .with("y", HostTensor::f32([2, 1], &[3.0, -1.0])?);
/// for _ in 0..50 {
///     let report = trainer.step(preparer.prepare(vec![batch.clone()])?)?;
///     assert!(report.loss.is_finite());
/// }
/// let weight = trainer.parameters()?["weight"].to_f32();
/// assert!((weight[0] - 3.0).abs() < 0.2 && (weight[1] + 1.0).abs() < 0.2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Trainer {
    /// Runs steps; with several ranks, the batches of this rank.
    session: Session,
    /// The states, for a training of ranks; else `None`.
    ranks: Option<Ranks>,
    /// `None` without a memory limit.
    limited: Option<Limited>,
    indices: Model,
    lookups: Arc<[Lookup]>,
    row_sums: Arc<BTreeMap<String, (usize, Type)>>,
    /// The map states of growing tables.
    grown: Grown,
    /// Tables, with the positions of their lookups.
    tables: BTreeMap<String, usize>,
    /// `None` unless changes are recorded.
    recorded: Option<Recorded>,
    /// `None` unless profiles are recorded.
    fastest: Option<Fastest>,
    states: BTreeMap<String, State>,
    moments: Vec<KeptMoment>,
    /// Trained parameters, in the order of the model, and states that the model sets.
    parameters: Vec<String>,
    /// Frozen parameters.
    fixed: BTreeMap<String, HostTensor>,
    reported: Vec<String>,
    loss: String,
    config: TrainConfig,
    steps: u64,
    /// Submitted steps with unread losses.
    submitted: Vec<Submitted>,
    /// Results up to the last loss that was read.
    progress: Progress,
}

/// A compiled step, of one trainer or of a rank.
struct Parts {
    session: Session,
    ranks: Option<Ranks>,
    limited: Option<Limited>,
    indices: Graph,
    lookups: Vec<Lookup>,
    row_sums: BTreeMap<String, (usize, Type)>,
    tables: BTreeMap<String, usize>,
    states: BTreeMap<String, State>,
    moments: Vec<KeptMoment>,
    reported: Vec<String>,
}

impl Trainer {
    /// Starts a training. `initial` has the initial parameters, and optionally states that the model sets, by default zeros. `options` select
    /// the device. With [`TrainConfig::tables_folder`] it is a training of one rank ([`Trainer::of_rank`]).
    ///
    /// # Errors
    /// [`TrainError`] names the invalid key, parameter, table or operator, or why no device is available.
    pub fn new(
        objective: &Objective,
        config: &TrainConfig,
        initial: impl Fn(&str) -> Option<HostTensor> + Sync,
        options: ModelOptions,
    ) -> Result<Self, TrainError> {
        Self::with_group(objective, config, &initial, options, None)
    }

    /// Starts a training of one trainer, or as a rank of `group` if that has several ranks.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn with_group(
        objective: &Objective,
        config: &TrainConfig,
        initial: &dyn InitialValues,
        options: ModelOptions,
        group: Option<Arc<dyn Collectives>>,
    ) -> Result<Self, TrainError> {
        let alone = config.tables_folder.is_some().then(|| in_process(1, Duration::ZERO).pop()).flatten();
        let others = group.filter(|group| group.ranks() > 1);
        if let Some(group) = others.or_else(|| alone.map(|alone| Arc::new(alone) as Arc<dyn Collectives>)) {
            return Self::of_rank(objective, config, initial, options, group);
        }
        config.check()?;
        let step = StepGraph::new(objective, config)?;
        let fixed = values(&step.graph, initial)?;
        let graph = passes(&options)?.run(step.graph)?.0;
        let model = Model::load(lower(&graph)?, |name: &str| fixed.get(name).cloned(), options)?;
        let limited = config.memory_limit.map(|limit| Limited::new(&graph, limit.get())).transpose()?;
        let mut session = model.session();
        for (name, state) in &step.states {
            session.set_state(name, state.begin(initial)?)?;
        }
        let of_table = |(table, ty): (String, Type)| {
            let lookup = step.tables.get(&table).copied().unwrap_or(usize::MAX);
            (table, (lookup, ty))
        };
        let row_sums = step.row_sums.into_iter().map(of_table).collect();
        let StepGraph { indices, lookups, tables, states, moments, reported, .. } = step;
        let parts =
            Parts { session, ranks: None, limited, indices, lookups, row_sums, tables, states, moments, reported };
        Self::of_parts(parts, fixed, objective, config)
    }

    /// Starts a training as one of several ranks. [`fit`] divides batches among the ranks. A step equals a step of one
    /// trainer on the examples of all ranks, except for the order of additions. Equal batches give equal bits.
    ///
    /// The device of a rank stores and updates parameters and moments; gradients are added on the host. The host also stores
    /// divided tables, those of [`TrainConfig::tables_folder`], and all tables without a device. [`TrainConfig::sharding`] divides
    /// tables among the ranks. All ranks must then call each method that reads parameters or states.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn of_rank(
        objective: &Objective,
        config: &TrainConfig,
        initial: &dyn InitialValues,
        options: ModelOptions,
        group: Arc<dyn Collectives>,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let has_device = !is_on_cpu(&options);
        let is_whole = |table: &str| group.ranks() == 1 || sharding(objective, config, table) == Sharding::DataParallel;
        let is_resident = |table: &str| has_device && config.tables_folder.is_none() && is_whole(table);
        let step = RankStep::new(objective, config, is_resident)?;
        let fixed = values(&step.gradients, initial)?;
        let update = updating(&step.update, if has_device { options.clone() } else { on_cpu() })?;
        // Both sessions use one device, on which they share tensors.
        let options = ModelOptions { gpu: update.gpu().cloned().or(options.gpu), ..options };
        let ranks = Ranks::new(&step, (objective, config), update, initial, group)?;
        let graph = passes(&options)?.run(step.gradients)?.0;
        let mut plan = lower(&graph)?;
        // Ranks add these blocks while the device computes the last one and the gradients of rows.
        let blocks: Vec<String> = (1..step.blocks.len()).map(|next| names::sum(&names::block(next - 1))).collect();
        plan.complete_early(|output| blocks.iter().any(|block| block == output));
        let session = Model::load(plan, |name: &str| fixed.get(name).cloned(), options)?.session();
        let limited = config.memory_limit.map(|limit| Limited::new(&graph, limit.get())).transpose()?;
        let tables = step.tables.iter().map(|table| (table.name.clone(), table.lookup));
        let tables = tables.chain(step.resident.iter().map(|table| (table.name.clone(), table.lookup))).collect();
        let RankStep { indices, lookups, states, moments, reported, row_sums, .. } = step;
        let ranks = Some(ranks);
        let parts = Parts { session, ranks, limited, indices, lookups, row_sums, tables, states, moments, reported };
        Self::of_parts(parts, fixed, objective, config)
    }

    fn of_parts(
        parts: Parts,
        fixed: BTreeMap<String, HostTensor>,
        objective: &Objective,
        config: &TrainConfig,
    ) -> Result<Self, TrainError> {
        let Parts { session, ranks, limited, indices, lookups, row_sums, tables, states, moments, reported } = parts;
        let learned = parameters(&objective.graph).into_iter();
        let learned = learned.chain(kept(&objective.graph).map(|(name, _)| name));
        Ok(Self {
            session,
            ranks,
            limited,
            indices: sorting(indices)?,
            lookups: lookups.into(),
            row_sums: Arc::new(row_sums),
            grown: Grown::new(&objective.growing),
            parameters: learned.filter(|name| states.contains_key(name)).collect(),
            fixed,
            tables,
            recorded: None,
            fastest: None,
            states,
            moments,
            reported,
            loss: objective.loss.clone(),
            config: config.clone(),
            steps: 0,
            submitted: vec![],
            progress: Progress::default(),
        })
    }

    /// The ranks of the training; `None` if it has one.
    pub fn group(&self) -> Option<&Arc<dyn Collectives>> {
        self.ranks.as_ref().map(|ranks| &ranks.group)
    }

    /// Creates a preparer of batches for [`Trainer::step`]. It may move to another thread. With growing tables, it must prepare all further
    /// steps, in order.
    pub fn preparer(&self) -> Preparer {
        Preparer::new(self.indices.session(), self.lookups.clone(), self.row_sums.clone(), self.grown.growth())
    }

    /// The number of completed or submitted steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The configuration.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The plan of a step.
    pub fn plan(&self) -> &Plan {
        self.session.plan()
    }

    /// Describes the device of the steps, and their memory.
    pub fn report(&self) -> Report {
        self.session.report()
    }

    /// The seed for random numbers of a batch, unique within the training.
    fn seed(&self, batch: usize, count: usize) -> i64 {
        let counter = (self.steps.wrapping_mul(count as u64) + batch as u64) & 0xffff_ffff;
        // Dropout operators add multiples of 2^32.
        let training = self.config.shuffle_seed.unwrap_or(0) & 0x7fff;
        (training << 48 | counter) as i64
    }

    /// Passes row gradients accumulated so far to the next batch of a step.
    fn carry(&self, inputs: &mut Inputs, sums: BTreeMap<String, RunValue>) {
        inputs.extend(sums);
        if !self.row_sums.is_empty() && self.report().gpu_steps > 0 {
            self.row_sums.keys().for_each(|table| inputs.keep_on_device(names::sum(table)));
        }
    }

    fn sums(&self, results: &Outputs) -> BTreeMap<String, RunValue> {
        let names = self.row_sums.keys().map(|table| names::sum(table));
        names.filter_map(|name| results.value(&name).cloned().map(|value| (name, value))).collect()
    }
}

/// Maximum number of tensors that a CPU kernel reads and writes.
const CPU_BINDINGS: usize = 32;

/// The passes for the backend. On the CPU, row sums use all threads without splitting, and kernels may bind more tensors, unless kernel
/// rules place some of them on a device.
fn passes(options: &ModelOptions) -> Result<Pipeline, RewriteError> {
    if !is_on_cpu(options) {
        return Ok(Pipeline::default());
    }
    let passes = Pipeline::default().without(PartialSums.name())?;
    Ok(if options.kernel_rules.is_empty() { passes.for_bindings(CPU_BINDINGS) } else { passes })
}

/// True if no device is expected to run steps.
fn is_on_cpu(options: &ModelOptions) -> bool {
    let is_named = options.gpu.is_some() || options.adapter.is_some();
    match options.kernel {
        Kernel::Cpu => true,
        Kernel::Wgpu => false,
        Kernel::Auto => !is_named && devices().iter().all(|device| !device.auto || device.kind == DeviceKind::Cpu),
    }
}

/// The division of a table among ranks.
fn sharding(objective: &Objective, config: &TrainConfig, table: &str) -> Sharding {
    objective.sharding.get(table).copied().unwrap_or(config.sharding)
}

/// The session of a rank's update.
fn updating(update: &Graph, options: ModelOptions) -> Result<Session, TrainError> {
    let graph = passes(&options)?.run(update.clone())?.0;
    Ok(Model::load(lower(&graph)?, |_: &str| None, options)?.session())
}

fn on_cpu() -> ModelOptions {
    ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() }
}

/// The model that computes the indices to sort, on the CPU.
fn sorting(indices: Graph) -> Result<Model, TrainError> {
    Ok(Model::load(lower(&optimize(indices)?.0)?, |_: &str| None, on_cpu())?)
}

/// The initial values of a graph's parameters.
fn values(graph: &Graph, initial: &dyn InitialValues) -> Result<BTreeMap<String, HostTensor>, TensorSizeError> {
    let value = |name: String| Ok(initial.tensor(&name)?.map(|tensor| (name, tensor)));
    parameters(graph).into_iter().filter_map(|name| value(name).transpose()).collect()
}

/// Names of a graph's parameters, in graph order.
fn parameters(graph: &Graph) -> Vec<String> {
    let parameter = |id| match graph.role(id) {
        Some(Role::Parameter(parameter)) => Some(parameter.name.clone()),
        _ => None,
    };
    graph.ids().filter_map(parameter).collect()
}
