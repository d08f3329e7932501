//! The devices of a plan's steps.

use super::Report;
use super::cpu::{CpuKernels, CpuSite};
use super::device_rows::DeviceRows;
use super::emitter::usable;
use super::gpu::{GpuKernels, GpuSite, GpuWeights, Refused};
use super::load::{Emitter, ModelOptions};
use super::parameters::HostParameters;
use super::pipelines::Made;
use super::placement::{Placement, Site};
use super::row_patch::RowPatch;
use super::update::{Attachment, Changed};
use crate::session::Sizes;
use crate::timing::timed_async;
use crate::{Gpu, GpuError, Kernel, KernelRule, RuntimeError};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::{BufferId, Plan, Step};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The steps of a plan on their devices, with the tensors that stay in memory there.
#[derive(Clone, Debug)]
pub(crate) struct BoundModel {
    pub placement: Arc<Placement>,
    pub gpu: Option<GpuSite>,
    pub cpu: CpuSite,
    /// Parameters and constants that are outputs themselves.
    pub constants: Arc<HashMap<BufferId, HostTensor>>,
    /// The source of the parameters, as far as it may be needed again.
    pub resident: Arc<HostParameters>,
    /// Number of updates of parameters.
    pub updates: u64,
    /// The attached value of the app.
    pub attachment: Option<Attachment>,
}

impl BoundModel {
    /// Compiles all steps, for the device if it supports them, and moves parameters and constants there. Kernels suit
    /// the sizes of `expected` runs.
    pub async fn bind(
        (plan, expected): (&Plan, &[Sizes]),
        gpu: Option<Gpu>,
        resident: &Arc<HostParameters>,
        options: &ModelOptions,
        emitter: Emitter<'_>,
    ) -> Result<Self, RuntimeError> {
        if gpu.is_none() {
            refuse_tuning(options.device_kernel(), &options.tuning)?;
        }
        let kernels = kernels(plan, gpu.as_ref(), options)?;
        let mut gpu = match gpu {
            Some(gpu) => Some(GpuKernels::new(usable(gpu, plan, options).await, &plan.steps, options)),
            None => None,
        };
        let on_device = |position: usize, step: &Step, target: &Target, tuning: &Tuning| match resident.lookup(step) {
            None if kernels[position] == Kernel::Cpu => Err("the CPU runs it".to_owned()),
            None => emitter(position, step, target, tuning),
            Some(_) => Err("its table stays on the host".to_owned()),
        };
        let made = match &mut gpu {
            Some(kernels) => {
                let made = kernels.make((&plan.steps, expected), &on_device, options.pipelines.as_ref());
                timed_async("making kernels", made).await
            }
            None => vec![],
        };
        let mut made = made.into_iter();
        let mut cpu = CpuKernels::new(plan.steps.len());
        let mut sites = Vec::with_capacity(plan.steps.len());
        for (position, step) in plan.steps.iter().enumerate() {
            let made = gpu.as_mut().zip(made.next());
            if let Some(lookup) = resident.lookup(step) {
                cpu.look_up(position, lookup);
                sites.push(Site::Cpu);
                continue;
            }
            sites.push(place(position, step, kernels[position], made, &mut cpu)?);
        }
        let mut placement = Placement::new(plan, &sites);
        if !sites.contains(&Site::Gpu) && options.device_kernel() == Kernel::Auto {
            gpu = None;
        }
        let gpu = match gpu {
            Some(mut kernels) => {
                kernels.homes = placement.gpu.clone();
                let weights = GpuWeights::upload(&kernels, plan, resident);
                let weights = timed_async("uploading parameters", weights).await?;
                let rows = DeviceRows::new(kernels.gpu(), plan, resident, (&sites, options.device_row_bytes)).await?;
                rows.iter().for_each(|rows| leave_lookups(plan, rows, &mut cpu, &mut placement));
                Some(GpuSite { kernels: Arc::new(kernels), weights: Arc::new(weights), rows })
            }
            None => None,
        };
        let cpu = CpuSite::new(cpu, plan, placement.cpu.clone(), resident)?;
        let constants = Arc::new(resident.outputs(plan)?);
        let resident = match gpu.is_some() && can_move(options) {
            true => resident.clone(),
            false => Arc::new(resident.needed_again(plan)),
        };
        Ok(Self { placement: Arc::new(placement), gpu, cpu, constants, resident, updates: 0, attachment: None })
    }

    /// The same steps with other parameters; `changed` lists those that differ.
    pub async fn with_parameters(
        &self,
        plan: &Plan,
        resident: HostParameters,
        changed: &BTreeMap<BufferId, Changed>,
    ) -> Result<Self, RuntimeError> {
        let mut gpu = match &self.gpu {
            Some(site) => Some(site.with_parameters(plan, &resident, changed).await?),
            None => None,
        };
        let cpu = self.cpu.with_parameters(plan, &resident, changed)?;
        let mut constants = (*self.constants).clone();
        for (id, tensor) in &mut constants {
            let other = match changed.get(id) {
                Some(Changed::Rows(change)) => {
                    let mut patch = RowPatch::default();
                    patch.set(change);
                    patch.applied(tensor)
                }
                Some(Changed::Whole) => resident.tensor(plan, *id)?,
                None => None,
            };
            other.into_iter().for_each(|other| *tensor = other);
        }
        let kept = match self.resident.is_whole() {
            true => resident,
            false => resident.needed_again(plan),
        };
        let (constants, resident) = (Arc::new(constants), Arc::new(kept));
        let (placement, updates) = (self.placement.clone(), self.updates + 1);
        // The last part, since it ends the use of these rows by runs with the old parameters.
        if let Some(rows) = gpu.as_mut().and_then(|site| site.rows.as_mut()) {
            *rows = rows.next(changed);
        }
        Ok(Self { placement, gpu, cpu, constants, resident, updates, attachment: None })
    }

    /// The devices that run the steps, with the memory of parameters and constants.
    pub fn report(&self, kernel: Kernel) -> Report {
        let segments = &self.placement.segments;
        let kept = self.cpu.kernels.kept();
        let count = |site| segments.iter().filter(|s| s.site == site).map(|s| s.steps.len()).sum();
        Report {
            kernel,
            adapter: self.gpu.as_ref().map(|site| site.kernels.gpu().name()),
            gpu_steps: count(Site::Gpu),
            cpu_steps: count(Site::Cpu),
            tuned_steps: self.gpu.as_ref().map_or(0, |site| site.kernels.tunings.measured()),
            device_bytes: self.gpu.as_ref().map_or(0, GpuSite::bytes),
            host_bytes: self.cpu.bytes(),
            packed_bytes: kept.packed,
            scratch_bytes: kept.scratch,
        }
    }
}

/// Leaves lookups to the device, so that their rows need no memory on the CPU.
fn leave_lookups(plan: &Plan, rows: &DeviceRows, cpu: &mut CpuKernels, placement: &mut Placement) {
    for (position, step) in plan.steps.iter().enumerate() {
        let &[id] = &step.writes[..] else { continue };
        if rows.lookup(id).is_some() {
            cpu.leave(position);
            placement.cpu.slot[id.0 as usize] = None;
        }
    }
}

/// True if a model may continue without its device.
fn can_move(options: &ModelOptions) -> bool {
    options.gpu.is_none() || options.kernel == Kernel::Auto
}

/// The kernel of each step: [`Kernel::Cpu`] if requested, and if `auto` does not choose the device.
fn kernels(plan: &Plan, gpu: Option<&Gpu>, options: &ModelOptions) -> Result<Vec<Kernel>, RuntimeError> {
    // `auto` does not choose a software adapter that was opened for the steps of a rule.
    let is_chosen = options.adapter.is_some() || options.gpu.is_some() || options.device_kernel() == Kernel::Auto;
    let takes_device = gpu.is_some_and(|gpu| is_chosen || !gpu.target().software);
    let kernel = |rule: Option<&KernelRule>| match rule.map_or(options.kernel, |rule| rule.kernel) {
        Kernel::Auto if !takes_device => Kernel::Cpu,
        kernel => kernel,
    };
    Ok(KernelRule::of_steps(&options.kernel_rules, &plan.steps)?.into_iter().map(kernel).collect())
}

/// Prepares a step on the device if it supports the kernel, else on the CPU.
fn place(
    position: usize,
    step: &Step,
    kernel: Kernel,
    gpu: Option<(&mut GpuKernels, Made<Refused>)>,
    cpu: &mut CpuKernels,
) -> Result<Site, RuntimeError> {
    let error = |reason: String| RuntimeError::Step {
        step: position,
        name: step.name.clone(),
        path: step.path.clone(),
        kernel,
        reason,
    };
    let mut refused = String::new();
    if kernel == Kernel::Cpu {
        cpu.add(position, step).map_err(|reason| error(reason.to_string()))?;
        return Ok(Site::Cpu);
    }
    if let Some((kernels, made)) = gpu {
        match made {
            Ok(made) => {
                kernels.add(position, made);
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
    } else if kernel == Kernel::Wgpu {
        return Err(error("no device is open".to_owned()));
    }
    let joined = |reason: String| if refused.is_empty() { reason } else { format!("{refused}; {reason}") };
    cpu.add(position, step).map_err(|reason| error(joined(reason.to_string())))?;
    Ok(Site::Cpu)
}

/// Tunings apply to kernels on adapters. If `auto` found none, they have no effect.
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
