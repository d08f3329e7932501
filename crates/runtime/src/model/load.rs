use super::ahead::EmittedAhead;
use super::emitter::{ParsedKernel, emit_step};
use super::expected::{ExpectedPlan, sizes};
use super::parameters::HostParameters;
use super::sites::BoundModel;
use super::tables::{Room, Tables, exceeding, may_exceed};
use super::validate::validate;
use super::{Model, Parameters, Refiner, Refining, Shared};
use crate::boxed::BoxedFuture;
use crate::device::Opening;
use crate::session::{Declared, Sizes};
use crate::timing::timed;
use crate::{
    DeviceTunings, Gpu, GpuError, Kernel, KernelRule, MatrixTier, PipelineStore, RuntimeError, ThreadPool, TuningStore,
    Workers, block_on,
};
use rewire_graph::op::Registry;
use rewire_graph_rewrite::device::{EmittedKernel, Target, Tuning};
use rewire_graph_rewrite::plan::{BufferId, Lookup, Plan, Step};
use rewire_graph_rewrite::prove::confine;
use std::future::{poll_fn, ready};
use std::sync::{Arc, Once, RwLock};
use std::task::Poll;

/// Options of loading a model.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// The kernels that run the steps.
    pub kernel: Kernel,
    /// Other kernels for certain operators or modules. Tensors move between device and host where the kernel changes.
    pub kernel_rules: Vec<KernelRule>,
    /// A substring of the name, driver, backend or PCI address of the adapter, or `#` and its index in the list of
    /// [`crate::devices`]; any adapter if `None`.
    pub adapter: Option<String>,
    /// f16 matmul tier of its kernels; the best available if `None`.
    pub matrices: Option<MatrixTier>,
    /// An open device to use, for instance the app's own.
    pub gpu: Option<Gpu>,
    /// Threads of the app for the blocking work of futures, except within [`crate::block_on`].
    pub workers: Option<Workers>,
    /// Threads that run kernels on the CPU and compile kernels; other models may share them. If `None`, the pool
    /// installed on the caller's thread ([`ThreadPool::install`]), else the default pool of the process.
    pub threads: Option<ThreadPool>,
    /// Shaders check every index and bound every loop, including those that are proven. This costs time.
    pub checked: bool,
    /// Clamps ids beyond a table. By default such an id in a host tensor is an error; ids that are computed, or on a
    /// device, are always clamped.
    pub clamp_ids: bool,
    /// Tuning for all kernels. A kernel that it does not fit cannot run.
    pub tuning: Tuning,
    /// Expected targets: kernels are emitted for them while the device opens. If empty, the latest target in
    /// `pipelines` is used.
    pub targets: Vec<Target>,
    /// Measured tunings by kernel and size; used if `tuning` is the default.
    pub tunings: Option<TuningStore>,
    /// Tunings shipped with the model, by device; those in `tunings` have priority.
    pub device_tunings: Vec<DeviceTunings>,
    /// When tunings of kernels are measured between runs: by default on GPUs of unknown families.
    pub refining: Refining,
    /// Kernels shipped with the model, for GPUs in builds without the feature `emit`. If the device satisfies several
    /// targets, the last one is used.
    pub kernels: Arc<[GivenKernels]>,
    /// Stores compiled kernels for later processes.
    pub pipelines: Option<PipelineStore>,
    /// Placement of embedding tables.
    pub tables: Tables,
    /// Limit in bytes of all parameters together, on the device or the CPU, above which [`Tables::Auto`] places tables
    /// on the host. If `None`, three quarters of the device's memory, or the available host memory.
    pub parameter_bytes: Option<u64>,
    /// Limit in bytes of the memory cache for frequent rows of tables on the host; no cache if 0. For tables in mapped
    /// files that are larger than the memory: other rows are read from the disk.
    pub hot_row_bytes: u64,
    /// Limit in bytes of copies, on the device, of the rows of tables on the host that are looked up most often; none if
    /// 0. All sessions share them. Rows that are not among them are uploaded with the run that looks them up. For tables
    /// that only steps on a device read; on the CPU it has no effect.
    pub device_row_bytes: u64,
    /// The user-defined functions and custom operators that a plan from a file may contain.
    pub registry: Registry,
}

impl ModelOptions {
    /// The kernel choice that determines the device.
    pub(crate) fn device_kernel(&self) -> Kernel {
        KernelRule::device(self.kernel, &self.kernel_rules)
    }

    /// The threads that the model runs on.
    pub(crate) fn threads(&self) -> ThreadPool {
        self.threads.clone().unwrap_or_else(ThreadPool::current)
    }
}

/// Prebuilt kernels of a plan for a device.
#[derive(Clone, Debug)]
pub struct GivenKernels {
    /// The device's capabilities.
    pub target: Target,
    /// By step of the plan, with proven indices; `None` for steps that run on the CPU.
    pub kernels: Vec<Option<EmittedKernel>>,
}

/// Emits the kernel of a step, at its position, for a target and a tuning, or returns why it cannot.
pub(crate) type Emitter<'a> = &'a (dyn Fn(usize, &Step, &Target, &Tuning) -> Result<ParsedKernel, String> + Sync);

impl Model {
    /// Binds a plan to a device or the CPU. Proving and compiling run on the polling thread.
    ///
    /// # Errors
    /// [`RuntimeError`] names the parameter that is missing or does not fit, the step that cannot run as requested, or
    /// the problem with the device.
    pub async fn load_async(
        plan: Plan,
        parameters: impl Parameters,
        options: ModelOptions,
    ) -> Result<Self, RuntimeError> {
        Self::build_async(move || Ok::<_, RuntimeError>(plan), parameters, options).await
    }

    /// [`Model::load_async`] of a plan that `build` creates while the device opens, with the runs to expect, if known.
    /// Kernels are compiled in parallel, on the threads of [`ModelOptions`].
    ///
    /// # Errors
    /// As [`Model::load_async`], and the errors of `build`.
    pub async fn build_async<P: Into<ExpectedPlan>, E: From<RuntimeError> + Send>(
        build: impl FnOnce() -> Result<P, E> + Send,
        parameters: impl Parameters,
        options: ModelOptions,
    ) -> Result<Self, E> {
        let threads = options.threads();
        threads.within(Self::build_here(build, parameters, options)).await
    }

    /// [`Model::build_async`] on the installed threads.
    async fn build_here<P: Into<ExpectedPlan>, E: From<RuntimeError> + Send>(
        build: impl FnOnce() -> Result<P, E> + Send,
        parameters: impl Parameters,
        options: ModelOptions,
    ) -> Result<Self, E> {
        let mut parameters = Some(parameters);
        let prepare = || {
            let ExpectedPlan { plan, runs } = timed("making the plan", build)?.into();
            timed("checking the plan", || validate(&plan))?;
            let is_open = options.tables == Tables::Auto && may_exceed(&plan, options.parameter_bytes);
            let whole = is_open.then(|| plan.clone());
            let tables = if options.tables == Tables::Host { plan.tables() } else { vec![] };
            let prepared = timed("proving the plan", || Prepared::new(plan, &tables, &options))?;
            let ahead = timed("emitting kernels ahead", || {
                EmittedAhead::of(&prepared.plan, &sizes(&prepared.plan, &runs), &options)
            });
            // The placement of tables depends on the device.
            let given = parameters.take_if(|_| whole.is_none());
            let resident = given.map(|given| prepared.resident(given, &options)).transpose()?;
            Ok::<_, E>((whole, prepared, ahead, resident, runs))
        };
        let (made, gpu) = open_beside(&options, prepare).await;
        let ((whole, mut prepared, mut ahead, mut resident, runs), gpu) = (made?, gpu?);
        if let Some(whole) = whole {
            let tables = exceeding(&whole, Room::of(gpu.as_ref(), options.parameter_bytes));
            if !tables.is_empty() {
                (prepared, ahead) = (Prepared::new(whole, &tables, &options)?, EmittedAhead::default());
            }
        }
        if let Some(given) = parameters {
            resident = Some(prepared.resident(given, &options)?);
        }
        let given = options.clone();
        let emit = |position: usize, step: &Step, target: &Target, tuning: &Tuning| {
            ahead.take(position, target, tuning).unwrap_or_else(|| emit_step(&given, position, step, target, tuning))
        };
        let expected = if gpu.is_some() { sizes(&prepared.plan, &runs) } else { vec![] };
        Ok(Self::load_prepared((prepared.plan, expected), gpu, resident.unwrap_or_default(), options, &emit).await?)
    }

    /// [`Model::build_async`], blocking.
    ///
    /// # Errors
    /// As [`Model::build_async`].
    pub fn build<P: Into<ExpectedPlan>, E: From<RuntimeError> + Send>(
        build: impl FnOnce() -> Result<P, E> + Send,
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
        let resident = prepared.resident(parameters, &options)?;
        Self::load_prepared((prepared.plan, vec![]), gpu, resident, options, emitter).await
    }

    /// Boxed, since every crate that awaits a future contains a copy of its code.
    fn load_prepared(
        (plan, expected): (Plan, Vec<Sizes>),
        gpu: Option<Gpu>,
        resident: HostParameters,
        options: ModelOptions,
        emitter: Emitter<'_>,
    ) -> BoxedFuture<'_, Result<Self, RuntimeError>> {
        Box::pin(async move {
            let resident = Arc::new(resident);
            let mut sites = BoundModel::bind((&plan, &expected), gpu, &resident, &options, emitter).await;
            if let (Err(RuntimeError::Gpu(lost @ GpuError::Lost { .. })), Kernel::Auto) = (&sites, options.kernel) {
                tracing::warn!("{lost}; continuing on the CPU");
                sites = BoundModel::bind((&plan, &[]), None, &resident, &options, emitter).await;
            }
            let refiner = Refiner::of(&plan, &options);
            let shared = Shared {
                inputs: Declared::of(&plan),
                size_names: plan.shapes.names.clone().into(),
                sites: RwLock::new(Arc::new(sites?)),
                changing: async_lock::Mutex::new(()),
                options,
                plan,
            };
            let model = Self { shared: Arc::new(shared), refiner };
            model.announce();
            Ok(model)
        })
    }

    /// Logs the choice of `auto` once.
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

/// A plan with proven indices, with the steps that copy rows of tables on the host.
struct Prepared {
    plan: Plan,
    lookups: Vec<Lookup>,
}

impl Prepared {
    /// Prepares a plan that was checked.
    fn new(mut plan: Plan, tables: &[BufferId], options: &ModelOptions) -> Result<Self, RuntimeError> {
        plan.bind(&options.registry)?;
        let wrong = |reason: String| RuntimeError::Plan { reason };
        let lookups = plan.look_up_first(tables).map_err(|error| wrong(error.to_string()))?;
        confine(&mut plan).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { plan, lookups })
    }

    /// The parameters that stay in memory.
    fn resident(&self, parameters: impl Parameters, options: &ModelOptions) -> Result<HostParameters, RuntimeError> {
        let read = || HostParameters::new(&self.plan, self.lookups.clone(), options.hot_row_bytes, parameters);
        timed("reading parameters", read)
    }
}

/// The requested device, `None` for the CPU only, and the result of work done meanwhile.
async fn open_beside<M: Send>(
    options: &ModelOptions,
    build: impl FnOnce() -> M + Send,
) -> (M, Result<Option<Gpu>, RuntimeError>) {
    // If opening does not wait, no thread is started.
    #[cfg(not(target_arch = "wasm32"))]
    if options.device_kernel() != Kernel::Cpu && options.gpu.is_none() {
        return crate::parallel::join(build, || block_on(open(options)));
    }
    // The browser opens the device during the work.
    let opening = match opening(options).await {
        Ok(opening) => begun(opening).await,
        Err(error) => Box::pin(ready(Err(error))),
    };
    let made = build();
    (made, opened(options, opening).await)
}

/// The requested device; `None` for the CPU only.
pub(crate) async fn open(options: &ModelOptions) -> Result<Option<Gpu>, RuntimeError> {
    opened(options, opening(options).await?).await
}

/// The requested device, which the returned future opens if it is not open yet.
async fn opening(options: &ModelOptions) -> Result<Opening, GpuError> {
    let kernel = options.device_kernel();
    match (&options.gpu, kernel) {
        (Some(gpu), Kernel::Auto | Kernel::Wgpu) => {
            gpu.check_process()?;
            Ok(Box::pin(ready(Ok(Some(gpu.clone())))))
        }
        _ => Gpu::opening(kernel, options.adapter.as_deref()).await,
    }
}

/// A future after its first poll, which requests the device.
async fn begun(mut opening: Opening) -> Opening {
    match poll_fn(|context| Poll::Ready(opening.as_mut().poll(context))).await {
        Poll::Ready(gpu) => Box::pin(ready(gpu)),
        Poll::Pending => opening,
    }
}

async fn opened(options: &ModelOptions, opening: Opening) -> Result<Option<Gpu>, RuntimeError> {
    let gpu = opening.await?;
    let gpu = Gpu::with_matrix_tier_if(gpu, options.matrices)?;
    Ok(match &options.workers {
        Some(workers) => gpu.map(|gpu| gpu.with_workers(workers.clone())),
        None => gpu,
    })
}
