use crate::model::pipelines::Pipeline;
use rewire_graph_rewrite::device::{EmittedKernel, Slot, Tuning, Windows};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The kernels that were chosen last.
#[derive(Debug, Default)]
struct Remembered {
    /// Changes of tunings before.
    changes: u64,
    by_sizes: HashMap<Vec<Option<i64>>, Arc<StepKernel>>,
}

/// What of a kernel follows from the sizes of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    pub windows: Windows,
    pub tuning: Tuning,
}

/// A compiled kernel of a step.
#[derive(Debug)]
pub(crate) struct StepKernel {
    pub variant: Variant,
    pub kernel: EmittedKernel,
    pub pipeline: Pipeline,
}

/// Sizes of which a step remembers the kernel.
const REMEMBERED: usize = 256;

/// A step on the device: its kernels for the sizes that there were.
#[derive(Debug)]
pub(crate) struct GpuStep {
    kernels: RwLock<Vec<Arc<StepKernel>>>,
    remembered: RwLock<Remembered>,
    /// Position of its parameter block.
    pub block: usize,
}

impl GpuStep {
    pub fn new(first: StepKernel, block: usize) -> Self {
        Self { kernels: RwLock::new(vec![Arc::new(first)]), remembered: RwLock::default(), block }
    }

    /// The kernel that was chosen for the values of the step's sizes, after as many changes of tunings.
    pub fn recall(&self, changes: u64, sizes: &[Option<i64>]) -> Option<Arc<StepKernel>> {
        let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
        remembered.by_sizes.get(sizes).filter(|_| remembered.changes == changes).cloned()
    }

    /// Takes note of a choice.
    pub fn remember(&self, changes: u64, sizes: Vec<Option<i64>>, kernel: Arc<StepKernel>) {
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        if remembered.changes != changes || remembered.by_sizes.len() >= REMEMBERED {
            *remembered = Remembered { changes, ..Remembered::default() };
        }
        remembered.by_sizes.insert(sizes, kernel);
    }

    /// The kernel of a variant, if there is one.
    pub fn find(&self, variant: &Variant) -> Option<Arc<StepKernel>> {
        self.read().iter().find(|known| known.variant == *variant).cloned()
    }

    /// Keeps a kernel, or finds that someone else made it meanwhile.
    pub fn add(&self, kernel: StepKernel) -> Arc<StepKernel> {
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kernels.iter().find(|known| known.variant == kernel.variant) {
            return known.clone();
        }
        let kernel = Arc::new(kernel);
        kernels.push(kernel.clone());
        kernel
    }

    /// Lets go of the kernels of some tunings, unless there are no others.
    pub fn forget(&self, tunings: &[Tuning]) {
        let stays = |known: &Arc<StepKernel>| !tunings.contains(&known.variant.tuning);
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        if kernels.iter().any(stays) {
            kernels.retain(stays);
        }
    }

    /// What its kernels bind, which their sizes and tunings do not change.
    pub fn slots(&self) -> Vec<Slot> {
        self.read().first().map_or_else(Vec::new, |known| known.kernel.slots.clone())
    }

    /// The shaders of all its kernels.
    pub fn shaders(&self) -> Vec<String> {
        self.read().iter().map(|known| known.kernel.wgsl.clone()).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<StepKernel>>> {
        self.kernels.read().unwrap_or_else(PoisonError::into_inner)
    }
}
