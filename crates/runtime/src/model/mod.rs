//! A plan bound to a device or the CPU, for all sessions.

mod ahead;
mod cpu;
#[cfg_attr(not(feature = "emit"), path = "given.rs")]
mod emitter;
mod gpu;
mod load;
#[cfg(feature = "emit")]
mod matrices;
mod named;
mod parameters;
mod pipelines;
mod placement;
mod pool;
mod recover;
mod sites;
mod tables;
mod update;
mod validate;
mod warm_up;
mod waves;

pub use load::{GivenKernels, ModelOptions};
pub use named::{Backing, Parameters};
pub use pipelines::PipelineStore;
pub use placement::transfers;
pub use tables::{ParseTablesError, Tables};

pub(crate) use cpu::{CpuSite, CpuStep, CpuWeights};
pub(crate) use emitter::{EMITTER, ParsedKernel};
pub(crate) use gpu::{
    BINDING_LIMIT, GpuKernels, GpuSite, GpuWeights, OpenTrial, Verdict, check_bytes, check_size, label, title,
};
#[cfg(test)]
pub(crate) use load::{Emitter, open};
pub(crate) use pipelines::{KernelCache, KernelKey, StepKernel, WantedKernel};
pub(crate) use placement::{Homes, Placement, Segment, Site};
pub(crate) use pool::Pool;
pub(crate) use sites::Sites;

use crate::device::blocks;
use crate::session::{Declared, Session};
use crate::{Kernel, ThreadPool};
use async_lock::MutexGuard;
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Plan;
use serde::Serialize;
use std::sync::{Arc, PoisonError, RwLock};

/// A plan with its kernels and parameters in place, on a device, on the CPU, or on both. Clones share it, on any thread.
///
/// What a run needs for itself, such as the memory of its tensors, is in a [`Session`]. Any number of sessions run a model at
/// the same time, and take the memory of its parameters once.
///
/// ```
/// use rewire_graph_rewrite::plan::Plan;
/// use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};
///
/// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
/// let model = Model::load(Plan::default(), (), options)?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| model.session().run(&Inputs::new()).map(|outputs| outputs.iter().count()));
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    plan: Plan,
    options: ModelOptions,
    inputs: Vec<Declared>,
    /// By symbol.
    size_names: Arc<[String]>,
    /// What runs take from now on. Those that began keep what they have.
    sites: RwLock<Arc<Sites>>,
    /// Held by callers that change the sites and block their thread: see [`Model::turn`].
    changing: async_lock::Mutex<()>,
}

/// What a model or a session runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was asked for.
    pub kernel: Kernel,
    /// Name of the adapter; `None` if all steps run on the CPU.
    pub adapter: Option<String>,
    /// Steps that run on the adapter.
    pub gpu_steps: usize,
    /// Steps that run on the CPU.
    pub cpu_steps: usize,
    /// Steps on the adapter with tunings that were measured.
    pub tuned_steps: usize,
    /// Bytes of device memory held now: parameters, which all sessions share, and of a session the tensors of its largest run
    /// so far.
    pub device_bytes: u64,
    /// Bytes of host memory held now for steps on the CPU, as on the device, without tables that stay where they were given.
    pub host_bytes: u64,
    /// Bytes of host memory held now for weights that products on the CPU read in another order, as f32 whatever their type: copies, beside
    /// those in `host_bytes`, which all sessions share and [`Model::trim`] frees.
    pub packed_bytes: u64,
    /// Bytes of host memory that kernels on the CPU hold now from run to run, beside those in `host_bytes`, which all sessions share and
    /// [`Model::trim`] frees.
    pub scratch_bytes: u64,
}

impl Model {
    /// What runs the model for one caller at a time. It takes memory when it runs.
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// How it was loaded.
    pub fn options(&self) -> &ModelOptions {
        &self.0.options
    }

    /// Where the steps run, with the memory of parameters and constants.
    pub fn report(&self) -> Report {
        self.sites().report(self.options().kernel)
    }

    /// Tunings that a step on the device can be forced to: of every order of sums, all that are worth a measurement.
    pub fn variants(&self, step: usize) -> Vec<Tuning> {
        let sites = self.sites();
        let (Some(site), Some(own)) = (&sites.gpu, self.plan().steps.get(step)) else { return vec![] };
        if !site.kernels.has(step) {
            return vec![];
        }
        let (computation, target) = (&own.computation, site.kernels.gpu().target());
        emitter::families(computation, target)
            .iter()
            .flat_map(|family| emitter::candidates(family, computation, target))
            .collect()
    }

    /// Frees the memory that kernels on the CPU keep from run to run and no run uses: [`Report::packed_bytes`] and
    /// [`Report::scratch_bytes`]. The next run takes it again.
    pub fn trim(&self) {
        self.sites().cpu.kernels.trim();
    }

    /// The threads that it runs on.
    pub(crate) fn threads(&self) -> ThreadPool {
        self.options().threads()
    }

    pub(crate) fn inputs(&self) -> &[Declared] {
        &self.0.inputs
    }

    /// The names of sizes, by symbol.
    pub(crate) fn size_names(&self) -> &Arc<[String]> {
        &self.0.size_names
    }

    pub(crate) fn sites(&self) -> Arc<Sites> {
        self.0.sites.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for other callers that change the sites, so that they do not all open a device or copy parameters at once. Only callers that
    /// block their thread take turns: a future that waits for a device holds nothing, as the thread that polls it may be the next caller.
    pub(crate) async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        if blocks() { Some(self.0.changing.lock().await) } else { None }
    }

    /// Replaces sites that were made from `current`; false if others were put in their place meanwhile.
    fn replace_sites(&self, current: &Arc<Sites>, sites: Sites) -> bool {
        let mut place = self.0.sites.write().unwrap_or_else(PoisonError::into_inner);
        let is_current = Arc::ptr_eq(&place, current);
        if is_current {
            *place = Arc::new(sites);
        }
        is_current
    }
}
