use super::Session;
use super::cpu::CpuSide;
use super::gpu::{GpuSide, Refused};
use super::matrices::trusted;
use super::packed::Packed;
use super::parameters::resident;
use super::pipelines::Made;
use super::placement::{Placement, Site};
use super::recover::Backup;
use super::sizes::Declared;
use super::validate::validate;
use crate::{Gpu, GpuError, Kernel, PipelineStore, RuntimeError, TuningStore, Workers, block_on};
use rewire_graph::HostTensor;
use rewire_graph::op::Registry;
use rewire_graph_rewrite::emit::{ParsedKernel, Target, Tuning, Windows, emit_with_windows};
use rewire_graph_rewrite::plan::{self, Binding, Plan, Step};
use rewire_graph_rewrite::prove::confine;
use std::collections::HashMap;
use std::sync::{Arc, Once};

/// How a session is loaded.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// What runs the steps.
    pub kernel: Kernel,
    /// A part of the name, driver, backend or PCI address of the adapter to use, or `#` and its number in the list of
    /// [`crate::devices`]; any if `None`.
    pub adapter: Option<String>,
    /// An open device to use, the app's own for instance, instead of opening one.
    pub gpu: Option<Gpu>,
    /// Threads on which futures wait for the device, where they are not run by [`crate::block_on`].
    pub workers: Option<Workers>,
    /// Shaders check every index and bound every loop, at a cost, those too whose indices are proven.
    pub checked: bool,
    /// Ids beyond a table take its nearest row. Otherwise an id in a host tensor that is beyond the table it chooses from is an
    /// error; ids that are computed, or on a device, always take the nearest row.
    pub clamp_ids: bool,
    /// Choices of the emitter, for all kernels. A kernel that they do not fit cannot run.
    pub tuning: Tuning,
    /// Tunings that were measured, for kernels and sizes that it has some of; used where `tuning` is the default.
    pub tunings: Option<TuningStore>,
    /// Where compiled kernels are kept for later processes.
    pub pipelines: Option<PipelineStore>,
    /// The functions and operators of a user's own that a plan from a file may hold.
    pub registry: Registry,
}

/// Makes the kernel of a step, at its position, for a target and a tuning, or says why not.
pub(crate) type Emitter<'a> = &'a (dyn Fn(usize, &Step, &Target, &Tuning) -> Result<ParsedKernel, String> + Sync);

impl Session {
    /// Binds a plan to a device or the CPU. `parameters` gives a parameter by its name.
    ///
    /// # Errors
    /// [`RuntimeError`] names the parameter that is missing or does not fit, the step that cannot run as asked,
    /// or what is missing for a device.
    pub async fn load_async(
        plan: Plan,
        parameters: impl Fn(&str) -> Option<HostTensor>,
        options: SessionOptions,
    ) -> Result<Self, RuntimeError> {
        Self::build_async(move || Ok::<_, RuntimeError>(plan), parameters, options).await
    }

    /// [`Session::load_async`] of a plan that `build` makes while the device opens. Kernels are compiled side by side, on the
    /// threads of rayon.
    ///
    /// # Errors
    /// As [`Session::load_async`], and those of `build`.
    pub async fn build_async<E: From<RuntimeError> + Send>(
        build: impl FnOnce() -> Result<Plan, E> + Send,
        parameters: impl Fn(&str) -> Option<HostTensor>,
        options: SessionOptions,
    ) -> Result<Self, E> {
        let (plan, gpu) = open_beside(&options, build).await;
        Ok(Self::load_with(plan?, gpu?, parameters, options, &emit_step).await?)
    }

    /// [`Session::load_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::load_async`].
    pub fn load(
        plan: Plan,
        parameters: impl Fn(&str) -> Option<HostTensor>,
        options: SessionOptions,
    ) -> Result<Self, RuntimeError> {
        block_on(Self::load_async(plan, parameters, options))
    }

    pub(crate) async fn load_with(
        mut plan: Plan,
        gpu: Option<Gpu>,
        parameters: impl Fn(&str) -> Option<HostTensor>,
        options: SessionOptions,
        emitter: Emitter<'_>,
    ) -> Result<Self, RuntimeError> {
        validate(&plan)?;
        plan.bind(&options.registry)?;
        confine(&mut plan).map_err(|error| RuntimeError::Plan { reason: error.to_string() })?;
        let tensors = resident(&plan, parameters)?;
        let mut sites = Sites::bind(&plan, gpu, &tensors, &options, emitter).await;
        if let (Err(RuntimeError::Gpu(lost @ GpuError::Lost { .. })), Kernel::Auto) = (&sites, options.kernel) {
            tracing::warn!("{lost}; going on on the CPU");
            sites = Sites::bind(&plan, None, &tensors, &options, emitter).await;
        }
        let Sites { placement, gpu, cpu } = sites?;
        let constants = constants(&plan, &tensors);
        let session = Self {
            inputs: Declared::of(&plan),
            sizes: None,
            placement: Arc::new(placement),
            kernel: options.kernel,
            clamp_ids: options.clamp_ids,
            constants,
            tunings: options.tunings.clone(),
            backup: (gpu.is_some() && options.kernel == Kernel::Auto).then(|| Arc::new(Backup { tensors, options })),
            plan,
            gpu,
            cpu,
        };
        announce(&session);
        Ok(session)
    }
}

/// The kernel of a step as the emitter makes it.
pub(super) fn emit_step(_: usize, step: &Step, target: &Target, tuning: &Tuning) -> Result<ParsedKernel, String> {
    let windows = Windows::of_constants(&step.kernel, target);
    emit_with_windows(&step.kernel, target, tuning, &windows).map_err(|error| error.to_string())
}

/// The steps of a plan where they run, with what stays in memory there.
pub(super) struct Sites {
    pub placement: Placement,
    pub gpu: Option<GpuSide>,
    pub cpu: CpuSide,
}

impl Sites {
    /// Compiles all steps, for the device where there is a kernel, and brings parameters and constants there.
    pub async fn bind(
        plan: &Plan,
        gpu: Option<Gpu>,
        tensors: &[Option<HostTensor>],
        options: &SessionOptions,
        emitter: Emitter<'_>,
    ) -> Result<Self, RuntimeError> {
        let kernel = options.kernel;
        if gpu.is_none() {
            refuse_tuning(kernel, &options.tuning)?;
        }
        let mut gpu = match gpu {
            Some(gpu) => Some(GpuSide::new(trusted(gpu, plan).await, &plan.steps, options)),
            None => None,
        };
        let made = match &mut gpu {
            Some(side) => side.make(&plan.steps, emitter, options.pipelines.as_ref()).await,
            None => vec![],
        };
        let mut made = made.into_iter();
        let mut cpu = CpuSide::new(plan.steps.len());
        let mut sites = Vec::with_capacity(plan.steps.len());
        for (position, step) in plan.steps.iter().enumerate() {
            sites.push(place(position, step, kernel, gpu.as_mut().zip(made.next()), &mut cpu)?);
        }
        let placement = Placement::new(plan, &sites);
        if !sites.contains(&Site::Gpu) && kernel == Kernel::Auto {
            gpu = None;
        }
        if let Some(side) = &mut gpu {
            side.place(plan, placement.gpu.clone(), tensors, &Packed::of(plan)).await?;
        }
        cpu.place(placement.cpu.clone(), tensors)
            .map_err(|error| RuntimeError::Memory { reason: error.to_string() })?;
        Ok(Self { placement, gpu, cpu })
    }
}

/// The device that the options ask for, `None` for the CPU alone, and a plan that is made meanwhile.
async fn open_beside<E: Send>(
    options: &SessionOptions,
    build: impl FnOnce() -> Result<Plan, E> + Send,
) -> (Result<Plan, E>, Result<Option<Gpu>, RuntimeError>) {
    #[cfg(not(target_arch = "wasm32"))]
    return rayon::join(build, || block_on(open(options)));
    #[cfg(target_arch = "wasm32")]
    return (build(), open(options).await);
}

/// The device that the options ask for; `None` for the CPU alone.
pub(super) async fn open(options: &SessionOptions) -> Result<Option<Gpu>, RuntimeError> {
    let gpu = match (&options.gpu, options.kernel) {
        (Some(gpu), Kernel::Auto | Kernel::Wgpu) => Some(gpu.clone()),
        _ => Gpu::for_kernel_async(options.kernel, options.adapter.as_deref()).await?,
    };
    Ok(match &options.workers {
        Some(workers) => gpu.map(|gpu| gpu.with_workers(workers.clone())),
        None => gpu,
    })
}

/// Prepares a step where it runs: on the device if there is a kernel.
fn place(
    position: usize,
    step: &Step,
    kernel: Kernel,
    gpu: Option<(&mut GpuSide, Made<Refused>)>,
    cpu: &mut CpuSide,
) -> Result<Site, RuntimeError> {
    let error = |reason: String| RuntimeError::Step {
        step: position,
        name: step.name.clone(),
        path: step.path.clone(),
        kernel,
        reason,
    };
    let mut refused = String::new();
    if let Some((side, made)) = gpu {
        match made {
            Ok((kernel, pipeline)) => {
                side.add(position, step, kernel, pipeline);
                return Ok(Site::Gpu);
            }
            Err(Refused::Device(lost @ GpuError::Lost { .. })) => return Err(lost.into()),
            Err(Refused::Device(reason)) => refused = reason.to_string(),
            Err(Refused::Kernel(reason)) => refused = reason,
        }
        if kernel == Kernel::Wgpu {
            return Err(error(refused));
        }
        tracing::warn!("step {position} ({}, `{}`) runs on the CPU: {refused}", step.name, step.path);
    }
    let joined = |reason: String| if refused.is_empty() { reason } else { format!("{refused}; {reason}") };
    cpu.add(position, step).map_err(|reason| error(joined(reason.to_string())))?;
    Ok(Site::Cpu)
}

/// Tunings are of kernels on adapters; where `auto` found none they have no effect.
fn refuse_tuning(kernel: Kernel, tuning: &Tuning) -> Result<(), RuntimeError> {
    if *tuning == Tuning::default() {
        return Ok(());
    }
    if kernel == Kernel::Cpu {
        return Err(RuntimeError::Untuned { tuning: tuning.to_string() });
    }
    tracing::warn!("no hardware GPU is usable: the tuning {tuning} has no effect on the CPU");
    Ok(())
}

/// Parameters and constants that are outputs themselves.
fn constants(plan: &Plan, tensors: &[Option<HostTensor>]) -> HashMap<plan::BufferId, HostTensor> {
    let wanted = |id| plan.outputs.iter().any(|output| output.value == Binding::Buffer(id));
    let tensors = (0..).map(plan::BufferId).zip(tensors).filter(|(id, _)| wanted(*id));
    tensors.filter_map(|(id, tensor)| Some((id, tensor.clone()?))).collect()
}

/// Says once what `auto` took.
fn announce(session: &Session) {
    static ONCE: Once = Once::new();
    if session.kernel == Kernel::Auto {
        ONCE.call_once(|| match session.report().adapter {
            Some(adapter) => tracing::info!("kernel auto: running on {adapter}"),
            None => tracing::info!("kernel auto: no hardware GPU is usable, running on the CPU"),
        });
    }
}
