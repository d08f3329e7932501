//! Runs training steps.

mod changes;
mod error;
mod fit;
mod growth;
mod initial;
mod memory;
mod prepare;
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

use crate::step::{KeptMoment, Lookup, RankStep, State, StepGraph, kept, names};
use crate::{Objective, TrainConfig};
use changes::Recorded;
use growth::Grown;
use memory::Limited;
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

/// A model in training: parameters and optimizer states, on a device or the CPU, updated by steps.
///
/// The same batches give the same bits, for any number of threads.
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
    /// Runs steps, or the batches of this rank.
    session: Session,
    /// Set if there are several ranks: the states.
    ranks: Option<Ranks>,
    /// Set if memory is limited.
    limited: Option<Limited>,
    indices: Model,
    lookups: Arc<[Lookup]>,
    row_sums: Arc<BTreeMap<String, (usize, Type)>>,
    /// The maps of growing tables.
    grown: Grown,
    /// Tables, with the positions of their lookups.
    tables: BTreeMap<String, usize>,
    /// Set if changes are recorded.
    recorded: Option<Recorded>,
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
    /// Steps whose losses are not yet read.
    submitted: Vec<Submitted>,
    /// The results of the steps up to the last loss that was read.
    progress: Progress,
}

/// The parts of a step, alone or as one of several ranks.
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
    /// Starts a training from the named parameters in `initial`, and the states that the model sets, by default zeros. `options` select
    /// where steps run. With [`TrainConfig::tables_folder`] it is a training of one rank ([`Trainer::of_rank`]).
    ///
    /// # Errors
    /// [`TrainError`] names the invalid key, parameter, table or operator, or the reason why no device is available.
    pub fn new(
        objective: &Objective,
        config: &TrainConfig,
        initial: impl Fn(&str) -> Option<HostTensor> + Sync,
        options: ModelOptions,
    ) -> Result<Self, TrainError> {
        Self::with_group(objective, config, &initial, options, None)
    }

    /// Starts a training alone, or as a rank of a group.
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
        if let Some(group) = group.or_else(|| alone.map(|alone| Arc::new(alone) as Arc<dyn Collectives>)) {
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

    /// Starts a training as one of several ranks, each with its own batches, which [`fit`] divides among them. A step
    /// equals a step of one trainer on the examples of all ranks, except for the order of additions. Equal batches give
    /// equal bits.
    ///
    /// Parameters, moments and tables are held by the host, and updated there: a device computes losses and gradients.
    /// [`TrainConfig::sharding`] divides tables among the ranks. A method that reads parameters or states is then an operation of
    /// all ranks, which all of them have to call.
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
        let step = RankStep::new(objective, config)?;
        let fixed = values(&step.gradients, initial)?;
        let ranks = Ranks::new(&step, objective, config, initial, group)?;
        let graph = passes(&options)?.run(step.gradients)?.0;
        let session = Model::load(lower(&graph)?, |name: &str| fixed.get(name).cloned(), options)?.session();
        let limited = config.memory_limit.map(|limit| Limited::new(&graph, limit.get())).transpose()?;
        let tables = step.tables.iter().map(|table| (table.name.clone(), table.lookup)).collect();
        let RankStep { indices, lookups, states, moments, reported, .. } = step;
        let (ranks, row_sums) = (Some(ranks), BTreeMap::new());
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

    /// The ranks of the training, if there are several.
    pub fn group(&self) -> Option<&Arc<dyn Collectives>> {
        self.ranks.as_ref().map(|ranks| &ranks.group)
    }

    /// Creates a preparer of batches for [`Trainer::step`], for any thread. With growing tables, it prepares the steps that follow now, in
    /// their order.
    pub fn preparer(&self) -> Preparer {
        Preparer::new(self.indices.session(), self.lookups.clone(), self.row_sums.clone(), self.grown.growth())
    }

    /// Steps so far.
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

    /// Describes where the steps run, with their memory.
    pub fn report(&self) -> Report {
        self.session.report()
    }

    /// The seed of a batch's random numbers: a different one for every batch of a training.
    fn seed(&self, batch: usize, count: usize) -> i64 {
        let counter = (self.steps.wrapping_mul(count as u64) + batch as u64) & 0xffff_ffff;
        // Dropouts of a model add multiples of 2^32.
        let training = self.config.shuffle_seed.unwrap_or(0) & 0x7fff;
        (training << 48 | counter) as i64
    }

    /// Passes accumulated row gradients to the next batch of a step.
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

/// The most tensors that a CPU kernel may read and write.
const CPU_BINDINGS: usize = 32;

/// The passes for the backend: on the CPU a sum over rows uses all threads without being split, and kernels may read more tensors if
/// none of them has to run on a device.
fn passes(options: &ModelOptions) -> Result<Pipeline, RewriteError> {
    let is_named = options.gpu.is_some() || options.adapter.is_some();
    let on_cpu = match options.kernel {
        Kernel::Cpu => true,
        Kernel::Wgpu => false,
        Kernel::Auto => !is_named && devices().iter().all(|device| !device.auto || device.kind == DeviceKind::Cpu),
    };
    if !on_cpu {
        return Ok(Pipeline::default());
    }
    let passes = Pipeline::default().without(PartialSums.name())?;
    Ok(if options.kernel_rules.is_empty() { passes.for_bindings(CPU_BINDINGS) } else { passes })
}

/// The model that computes the indices to sort.
fn sorting(indices: Graph) -> Result<Model, TrainError> {
    let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    Ok(Model::load(lower(&optimize(indices)?.0)?, |_: &str| None, on_cpu)?)
}

/// The initial values of a graph's parameters.
fn values(graph: &Graph, initial: &dyn InitialValues) -> Result<BTreeMap<String, HostTensor>, TensorSizeError> {
    let value = |name: String| Ok(initial.tensor(&name)?.map(|tensor| (name, tensor)));
    parameters(graph).into_iter().filter_map(|name| value(name).transpose()).collect()
}

/// Names of a graph's parameters, in their order.
fn parameters(graph: &Graph) -> Vec<String> {
    let parameter = |id| match graph.role(id) {
        Some(Role::Parameter(parameter)) => Some(parameter.name.clone()),
        _ => None,
    };
    graph.ids().filter_map(parameter).collect()
}
