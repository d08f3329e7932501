use super::ahead::EmittedAhead;
use super::emitter::{ParsedKernel, emit_step};
use super::parameters::Resident;
use super::sites::Sites;
use super::tables::{Room, Tables, exceeding, may_exceed};
use super::validate::validate;
use super::{Model, Parameters, Shared};
use crate::boxed::BoxedFuture;
use crate::session::Declared;
use crate::timing::timed;
use crate::{
    DeviceTunings, Gpu, GpuError, Kernel, KernelRule, MatrixTier, PipelineStore, RuntimeError, ThreadPool, TuningStore,
    Workers, block_on,
};
use rewire_graph::op::Registry;
use rewire_graph_rewrite::device::{EmittedKernel, Target, Tuning};
use rewire_graph_rewrite::plan::{BufferId, Lookup, Plan, Step};
use rewire_graph_rewrite::prove::confine;
use std::sync::{Arc, Once, RwLock};

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// What runs the steps.
    pub kernel: Kernel,
    /// What runs the steps of some operators or modules instead. Tensors move between the device and the host where it changes.
    pub kernel_rules: Vec<KernelRule>,
    /// A part of the name, driver, backend or PCI address of the adapter to use, or `#` and its number in the list of
    /// [`crate::devices`]; any if `None`.
    pub adapter: Option<String>,
    /// How its kernels multiply halves; as fast as it can if `None`.
    pub matrices: Option<MatrixTier>,
    /// An open device to use, the app's own for instance, instead of opening one.
    pub gpu: Option<Gpu>,
    /// Threads of the app's that do the work of futures, where it is not [`crate::block_on`] that runs them.
    pub workers: Option<Workers>,
    /// Threads that run kernels on the CPU and compile kernels: those of the app, which other models may share. The pool that is installed
    /// on the thread of the caller ([`ThreadPool::install`]), else the default one of the process, if `None`.
    pub threads: Option<ThreadPool>,
    /// Shaders check every index and bound every loop, at a cost, those too whose indices are proven.
    pub checked: bool,
    /// Ids beyond a table take its nearest row. Otherwise an id in a host tensor that is beyond the table it chooses from is an
    /// error; ids that are computed, or on a device, always take the nearest row.
    pub clamp_ids: bool,
    /// Choices of the emitter, for all kernels. A kernel that they do not fit cannot run.
    pub tuning: Tuning,
    /// What the device probably offers: kernels are emitted for it while the device opens. What `pipelines` has of the latest
    /// one, if there is nothing here.
    pub targets: Vec<Target>,
    /// Tunings that were measured, for kernels and sizes that it has some of; used where `tuning` is the default.
    pub tunings: Option<TuningStore>,
    /// Tunings that came with the model, for devices; those of `tunings` go before them.
    pub device_tunings: Vec<DeviceTunings>,
    /// Kernels that came with the model, which GPUs run where the feature `emit` is not built in; of those for several devices that one
    /// can stand for, the last.
    pub kernels: Arc<[GivenKernels]>,
    /// Where compiled kernels are kept for later processes.
    pub pipelines: Option<PipelineStore>,
    /// Where embedding tables lie.
    pub tables: Tables,
    /// Bytes that parameters may take together where kernels run, before [`Tables::Auto`] leaves tables on the host; three quarters of
    /// the device's memory, or what the host has left, if `None`.
    pub parameter_bytes: Option<u64>,
    /// The functions and operators of a user's own that a plan from a file may hold.
    pub registry: Registry,
}

impl ModelOptions {
    /// What a device is opened for.
    pub(crate) fn device_kernel(&self) -> Kernel {
        KernelRule::device(self.kernel, &self.kernel_rules)
    }

    /// The threads that the model runs on.
    pub(crate) fn threads(&self) -> ThreadPool {
        self.threads.clone().unwrap_or_else(ThreadPool::current)
    }
}

/// Kernels of a plan for a device.
#[derive(Clone, Debug)]
pub struct GivenKernels {
    /// What the device offers.
    pub target: Target,
    /// By step of the plan, proven; `None` where the CPU has to run it.
    pub kernels: Vec<Option<EmittedKernel>>,
}

/// Makes the kernel of a step, at its position, for a target and a tuning, or says why not.
pub(crate) type Emitter<'a> = &'a (dyn Fn(usize, &Step, &Target, &Tuning) -> Result<ParsedKernel, String> + Sync);

impl Model {
    /// Binds a plan to a device or the CPU. Proving and compiling take the thread that
    /// polls.
    ///
    /// # Errors
    /// [`RuntimeError`] names the parameter that is missing or does not fit, the step that cannot run as asked,
    /// or what is missing for a device.
    pub async fn load_async(
        plan: Plan,
        parameters: impl Parameters,
        options: ModelOptions,
    ) -> Result<Self, RuntimeError> {
        Self::build_async(move || Ok::<_, RuntimeError>(plan), parameters, options).await
    }

    /// [`Model::load_async`] of a plan that `build` makes while the device opens. Kernels are compiled side by side, on
    /// [`ModelOptions`].
    ///
    /// # Errors
    /// As [`Model::load_async`], and those of `build`.
    pub async fn build_async<E: From<RuntimeError> + Send>(
        build: impl FnOnce() -> Result<Plan, E> + Send,
        parameters: impl Parameters,
        options: ModelOptions,
    ) -> Result<Self, E> {
        let threads = options.threads();
        threads.within(Self::build_here(build, parameters, options)).await
    }

    /// [`Model::build_async`] on the threads that are installed.
    async fn build_here<E: From<RuntimeError> + Send>(
        build: impl FnOnce() -> Result<Plan, E> + Send,
        parameters: impl Parameters,
        options: ModelOptions,
    ) -> Result<Self, E> {
        let mut parameters = Some(parameters);
        let prepare = || {
            let plan = timed("making the plan", build)?;
            timed("checking the plan", || validate(&plan))?;
            let is_open = options.tables == Tables::Auto && may_exceed(&plan, options.parameter_bytes);
            let whole = is_open.then(|| plan.clone());
            let tables = if options.tables == Tables::Host { plan.tables() } else { vec![] };
            let prepared = timed("proving the plan", || Prepared::new(plan, &tables, &options))?;
            let ahead = timed("emitting kernels ahead", || EmittedAhead::of(&prepared.plan, &options));
            // What stays on the host is not known before the device is.
            let given = parameters.take_if(|_| whole.is_none());
            let resident = given.map(|given| prepared.resident(given)).transpose()?;
            Ok::<_, E>((whole, prepared, ahead, resident))
        };
        let (made, gpu) = open_beside(&options, prepare).await;
        let ((whole, mut prepared, mut ahead, mut resident), gpu) = (made?, gpu?);
        if let Some(whole) = whole {
            let tables = exceeding(&whole, Room::of(gpu.as_ref(), options.parameter_bytes));
            if !tables.is_empty() {
                (prepared, ahead) = (Prepared::new(whole, &tables, &options)?, EmittedAhead::default());
            }
        }
        if let Some(given) = parameters {
            resident = Some(prepared.resident(given)?);
        }
        let given = options.clone();
        let emit = |position: usize, step: &Step, target: &Target, tuning: &Tuning| {
            ahead.take(position, target, tuning).unwrap_or_else(|| emit_step(&given, position, step, target, tuning))
        };
        Ok(Self::load_prepared(prepared.plan, gpu, resident.unwrap_or_default(), options, &emit).await?)
    }

    /// [`Model::build_async`], blocking.
    ///
    /// # Errors
    /// As [`Model::build_async`].
    pub fn build<E: From<RuntimeError> + Send>(
        build: impl FnOnce() -> Result<Plan, E> + Send,
        parameters: impl Parameters,
        options: ModelOptions,
    ) -> Result<Self, E> {
        block_on(Self::build_async(build, parameters, options))
    }

    /// [`Model::load_async`], blocking.
    ///
    /// # Errors
    /// As [`Model::load_async`].
    pub fn load(plan: Plan, parameters: impl Parameters, options: ModelOptions) -> Result<Self, RuntimeError> {
        block_on(Self::load_async(plan, parameters, options))
    }

    #[cfg(test)]
    pub(crate) async fn load_with(
        plan: Plan,
        gpu: Option<Gpu>,
        parameters: impl Parameters,
        options: ModelOptions,
        emitter: Emitter<'_>,
    ) -> Result<Self, RuntimeError> {
        validate(&plan)?;
        let prepared = Prepared::new(plan, &[], &options)?;
        let resident = prepared.resident(parameters)?;
        Self::load_prepared(prepared.plan, gpu, resident, options, emitter).await
    }

    /// Boxed, as each crate that awaits a future has code of its own for it.
    fn load_prepared(
        plan: Plan,
        gpu: Option<Gpu>,
        resident: Resident,
        options: ModelOptions,
        emitter: Emitter<'_>,
    ) -> BoxedFuture<'_, Result<Self, RuntimeError>> {
        Box::pin(async move {
            let resident = Arc::new(resident);
            let mut sites = Sites::bind(&plan, gpu, &resident, &options, emitter).await;
            if let (Err(RuntimeError::Gpu(lost @ GpuError::Lost { .. })), Kernel::Auto) = (&sites, options.kernel) {
                tracing::warn!("{lost}; going on on the CPU");
                sites = Sites::bind(&plan, None, &resident, &options, emitter).await;
            }
            let model = Self(Arc::new(Shared {
                inputs: Declared::of(&plan),
                size_names: plan.shapes.names.clone().into(),
                sites: RwLock::new(Arc::new(sites?)),
                changing: async_lock::Mutex::new(()),
                options,
                plan,
            }));
            model.announce();
            Ok(model)
        })
    }

    /// Says once what `auto` took.
    fn announce(&self) {
        static ONCE: Once = Once::new();
        if self.options().kernel == Kernel::Auto {
            ONCE.call_once(|| match self.report().adapter {
                Some(adapter) => tracing::info!("kernel auto: running on {adapter}"),
                None => tracing::info!("kernel auto: no hardware GPU is usable, running on the CPU"),
            });
        }
    }
}

/// A plan whose indices are proven, with the steps of it that copy rows of tables on the host.
struct Prepared {
    plan: Plan,
    lookups: Vec<Lookup>,
}

impl Prepared {
    /// Prepares a plan that is checked.
    fn new(mut plan: Plan, tables: &[BufferId], options: &ModelOptions) -> Result<Self, RuntimeError> {
        plan.bind(&options.registry)?;
        let wrong = |reason: String| RuntimeError::Plan { reason };
        let lookups = plan.look_up_first(tables).map_err(|error| wrong(error.to_string()))?;
        confine(&mut plan).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { plan, lookups })
    }

    /// What stays in memory of parameters.
    fn resident(&self, parameters: impl Parameters) -> Result<Resident, RuntimeError> {
        timed("reading parameters", || Resident::new(&self.plan, self.lookups.clone(), parameters))
    }
}

/// The device that the options ask for, `None` for the CPU alone, and what is made meanwhile.
async fn open_beside<M: Send>(
    options: &ModelOptions,
    build: impl FnOnce() -> M + Send,
) -> (M, Result<Option<Gpu>, RuntimeError>) {
    // Where there is nothing to wait for, no thread has to start.
    #[cfg(not(target_arch = "wasm32"))]
    if options.device_kernel() != Kernel::Cpu && options.gpu.is_none() {
        return crate::parallel::join(build, || block_on(open(options)));
    }
    (build(), open(options).await)
}

/// The device that the options ask for; `None` for the CPU alone.
pub(crate) async fn open(options: &ModelOptions) -> Result<Option<Gpu>, RuntimeError> {
    let kernel = options.device_kernel();
    let gpu = match (&options.gpu, kernel) {
        (Some(gpu), Kernel::Auto | Kernel::Wgpu) => {
            gpu.check_process()?;
            Some(gpu.clone())
        }
        _ => Gpu::for_kernel_async(kernel, options.adapter.as_deref()).await?,
    };
    let gpu = Gpu::with_matrix_tier_if(gpu, options.matrices)?;
    Ok(match &options.workers {
        Some(workers) => gpu.map(|gpu| gpu.with_workers(workers.clone())),
        None => gpu,
    })
}
