//! A plan loaded on a device or the CPU, shared by all sessions.

mod ahead;
mod cpu;
mod device_rows;
#[cfg_attr(not(feature = "emit"), path = "prebuilt.rs")]
mod emitter;
mod expected;
mod frequent_rows;
mod gpu;
mod host_table;
mod load;
#[cfg(feature = "emit")]
mod matrices;
mod named;
mod parameters;
mod pipelines;
mod placement;
mod pool;
mod recover;
mod refining;
mod row_cache;
mod row_patch;
mod sites;
mod tables;
mod update;
mod validate;
mod warm_up;
mod waves;

pub use device_rows::DeviceRowUse;
pub use expected::{ExpectedPlan, ExpectedRun};
pub use load::{GivenKernels, ModelOptions};
pub use named::{Backing, Parameters};
pub use pipelines::PipelineStore;
pub use placement::transfers;
pub use refining::{ParseRefiningError, Refining};
pub use tables::{ParseTablesError, Tables};
pub use update::{Attachment, ParameterUpdate};

pub(crate) use cpu::{CpuSite, CpuStep, CpuWeights};
pub(crate) use device_rows::{ALIGNMENT, DeviceRows, Known, Reservations, TableSlots};
pub(crate) use emitter::{EMITTER, ParsedKernel};
pub(crate) use gpu::{BINDING_LIMIT, GpuKernels, GpuSite, OpenTrial, Verdict, check_bytes, check_size, label, title};
pub(crate) use host_table::HostTable;
#[cfg(test)]
pub(crate) use load::{Emitter, open};
pub(crate) use pipelines::{KernelCache, KernelKey, StepKernel, WantedKernel};
pub(crate) use placement::{BufferAssignment, Placement, Site, SiteRun};
pub(crate) use pool::Pool;
pub(crate) use refining::Refiner;
pub(crate) use sites::BoundModel;

use crate::device::blocks;
use crate::session::{Declared, Session};
use crate::{Kernel, ThreadPool};
use async_lock::MutexGuard;
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Plan;
use serde::Serialize;
use std::sync::{Arc, PoisonError, RwLock};

/// A compiled plan loaded on a device, on the CPU, or on both, with its parameters. Clones share it, on any thread.
///
/// The memory of a run, such as that of its tensors, belongs to a [`Session`]. Any number of sessions run a model at
/// the same time and share one copy of its parameters.
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
pub struct Model {
    shared: Arc<Shared>,
    /// `None` if nothing is measured in the background, and for the runs that measure.
    refiner: Option<Arc<Refiner>>,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    options: ModelOptions,
    inputs: Vec<Declared>,
    /// By symbol.
    size_names: Arc<[String]>,
    /// The sites of new runs. Runs in progress keep their own.
    sites: RwLock<Arc<BoundModel>>,
    /// Held by blocking callers that change the sites: see [`Model::turn`].
    changing: async_lock::Mutex<()>,
}

/// The devices and memory of a model or a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The requested kernel.
    pub kernel: Kernel,
    /// Name of the adapter; `None` if all steps run on the CPU.
    pub adapter: Option<String>,
    /// Steps that run on the adapter.
    pub gpu_steps: usize,
    /// Steps that run on the CPU.
    pub cpu_steps: usize,
    /// Steps on the adapter with measured tunings.
    pub tuned_steps: usize,
    /// Device memory in bytes: for a model its parameters and the rows that are kept there, which all sessions share; for a session the tensors of its
    /// largest run so far.
    pub device_bytes: u64,
    /// Host memory in bytes of steps on the CPU, counted like device memory, without tables that are read in place, of which
    /// only replaced rows and copies of rows count.
    pub host_bytes: u64,
    /// Host memory in bytes of repacked weights for matmuls on the CPU, stored as f32. They are copies, not counted in
    /// `host_bytes`; all sessions share them, and [`Model::trim`] frees them.
    pub packed_bytes: u64,
    /// Host memory in bytes that kernels on the CPU keep between runs. Not counted in `host_bytes`; all sessions share
    /// it, and [`Model::trim`] frees it.
    pub scratch_bytes: u64,
}

impl Model {
    /// Creates a session, which runs the model for one caller at a time. It allocates memory on its first run.
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// The options with which it was loaded.
    pub fn options(&self) -> &ModelOptions {
        &self.shared.options
    }

    /// The devices that run the steps, with the memory of parameters and constants.
    pub fn report(&self) -> Report {
        self.sites().report(self.options().kernel)
    }

    /// The use of [`ModelOptions::device_row_bytes`] on the current device; `None` if no rows are kept there.
    ///
    /// ```
    /// use rewire_graph_rewrite::plan::Plan;
    /// use rewire_runtime::{Kernel, Model, ModelOptions};
    /// let options = ModelOptions { kernel: Kernel::Cpu, device_row_bytes: 1 << 20, ..ModelOptions::default() };
    /// assert_eq!(Model::load(Plan::default(), (), options)?.device_row_use(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn device_row_use(&self) -> Option<DeviceRowUse> {
        Some(self.sites().gpu.as_ref()?.rows.as_ref()?.used())
    }

    /// Tunings to which a step on the device can be forced: all that are worth measuring, including those that change
    /// the order of sums.
    pub fn candidate_tunings(&self, step: usize) -> Vec<Tuning> {
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

    /// Frees memory that kernels on the CPU keep between runs and no run uses: [`Report::packed_bytes`] and
    /// [`Report::scratch_bytes`]. The next run allocates it again.
    pub fn trim(&self) {
        self.sites().cpu.kernels.trim();
    }

    /// The threads that run it.
    pub(crate) fn threads(&self) -> ThreadPool {
        self.options().threads()
    }

    /// The measurements in the background, if there are any.
    pub(crate) fn refiner(&self) -> Option<&Arc<Refiner>> {
        self.refiner.as_ref()
    }

    /// The same model, whose runs are not measured in the background.
    fn without_refiner(&self) -> Self {
        Self { shared: self.shared.clone(), refiner: None }
    }

    pub(crate) fn inputs(&self) -> &[Declared] {
        &self.shared.inputs
    }

    /// The names of sizes, by symbol.
    pub(crate) fn size_names(&self) -> &Arc<[String]> {
        &self.shared.size_names
    }

    pub(crate) fn sites(&self) -> Arc<BoundModel> {
        self.shared.sites.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for other callers that change the sites, so that they do not all open a device or copy parameters at once.
    /// Only blocking callers take turns: a future that waits for a device holds no lock, since the thread that polls it
    /// may be the next caller.
    pub(crate) async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        if blocks() { Some(self.shared.changing.lock().await) } else { None }
    }

    /// Replaces sites that were derived from `current`; false if others replaced them first.
    fn replace_sites(&self, current: &Arc<BoundModel>, sites: BoundModel) -> bool {
        let mut place = self.shared.sites.write().unwrap_or_else(PoisonError::into_inner);
        let is_current = Arc::ptr_eq(&place, current);
        if is_current {
            *place = Arc::new(sites);
        }
        is_current
    }
}
