//! The GPU part of a model: kernels and parameters, shared by all sessions.

mod dequantize;
mod tunings;
mod weights;

pub(crate) use tunings::{OpenTrial, Refused, Tunings, Verdict, distinct, size};
pub(crate) use weights::GpuWeights;

use super::device_rows::DeviceRows;
use super::load::{Emitter, ModelOptions};
use super::parameters::HostParameters;
use super::pipelines::{KernelCache, KernelKey, Made, PipelineStore, StepKernel, WantedKernel};
use super::placement::BufferAssignment;
use super::update::Changed;
use crate::memory::Layout;
use crate::parallel::map;
use crate::session::{ControlLayout, Sizes};
use crate::{Gpu, GpuError, RuntimeError};
use rewire_graph_rewrite::device::{BindingChunks, BindingSource, Tuning};
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, Source, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const BINDING_LIMIT: &str = "max_storage_buffer_binding_size";

/// A device with the kernels and parameters of a model.
#[derive(Clone, Debug)]
pub(crate) struct GpuSite {
    pub kernels: Arc<GpuKernels>,
    pub weights: Arc<GpuWeights>,
    /// Rows of tables on the host that are kept here.
    pub rows: Option<DeviceRows>,
}

impl GpuSite {
    /// Bytes of device memory for parameters.
    pub fn bytes(&self) -> u64 {
        self.weights.bytes() + self.rows.as_ref().map_or(0, DeviceRows::bytes)
    }

    /// The same steps with other parameters; `changed` lists those that differ.
    pub async fn with_parameters(
        &self,
        plan: &Plan,
        resident: &HostParameters,
        changed: &BTreeMap<BufferId, Changed>,
    ) -> Result<Self, RuntimeError> {
        let weights = self.weights.with(&self.kernels.gpu, plan, resident, changed).await?;
        Ok(Self { weights: Arc::new(weights), ..self.clone() })
    }
}

/// The forms in which kernels read a buffer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reads {
    as_stored: bool,
    /// As f16 in place of 8-bit rows: in the original layout, and transposed.
    as_f16: [bool; 2],
}

/// A step on the device.
#[derive(Debug)]
struct GpuStep {
    /// Position of its parameter block.
    block: usize,
    /// A kernel of it. The bindings of its kernels do not depend on sizes and tunings.
    kernel: Arc<StepKernel>,
}

/// The steps of a model on its device.
#[derive(Debug)]
pub(crate) struct GpuKernels {
    gpu: Gpu,
    pub tunings: Tunings,
    pub cache: KernelCache,
    steps: Vec<Option<GpuStep>>,
    pub layout: ControlLayout,
    pub homes: BufferAssignment,
}

impl GpuKernels {
    pub fn new(gpu: Gpu, steps: &[Step], options: &ModelOptions) -> Self {
        Self {
            tunings: Tunings::new(&gpu, steps, options),
            cache: KernelCache::new(options.checked),
            steps: steps.iter().map(|_| None).collect(),
            gpu,
            layout: ControlLayout::default(),
            homes: BufferAssignment::default(),
        }
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Compiles kernels of all steps: those for the sizes of `expected` runs, or for unknown sizes if a step has no work
    /// there or they are refused. Returns one for each step, or why it cannot run here; the first part of loading.
    pub async fn make(
        &mut self,
        (steps, expected): (&[Step], &[Sizes]),
        emitter: Emitter<'_>,
        store: Option<&PipelineStore>,
    ) -> Vec<Made<Refused>> {
        let target = self.gpu.target();
        let emit = |position: usize, step: &Step, tuning: Tuning| WantedKernel {
            label: label(step),
            kernel: emitter(position, step, target, &tuning).map_err(Refused::Kernel),
            key: KernelKey { step: position, windows: BindingChunks::of_constants(&step.computation, target), tuning },
            lasting: true,
        };
        let of_step = |(position, step): (usize, &Step)| {
            let tuning = self.tunings.base(position);
            let base = emit(position, step, tuning);
            let expected =
                if base.kernel.is_ok() { self.tunings.expected(position, step, target, expected) } else { vec![] };
            let others = expected.iter().filter(|other| **other != tuning).map(|other| emit(position, step, *other));
            let is_expected = expected.is_empty() || expected.contains(&tuning);
            (base, is_expected, others.collect::<Vec<_>>())
        };
        let emitted = map(steps.iter().enumerate().collect(), of_step);
        if let Some(store) = store {
            let shaders = emitted.iter().filter_map(|(base, ..)| base.kernel.as_ref().ok());
            self.cache.open(store, &self.gpu, shaders.map(|parsed| parsed.kernel.wgsl.as_str())).await;
        }
        let (mut wanted, mut spare) = (vec![], vec![]);
        for (base, is_expected, others) in emitted {
            if is_expected {
                wanted.push(base)
            } else {
                spare.push(base)
            }
            wanted.extend(others);
        }
        let mut made: Vec<Option<Made<Refused>>> = steps.iter().map(|_| None).collect();
        self.make_each(wanted, &mut made).await;
        spare.retain(|base| !matches!(made[base.key.step], Some(Ok(_))));
        self.make_each(spare, &mut made).await;
        made.into_iter().flatten().collect()
    }

    /// Compiles kernels, and keeps one of each step, or the last error.
    async fn make_each(&self, wanted: Vec<WantedKernel<Refused>>, kept: &mut [Option<Made<Refused>>]) {
        let steps: Vec<usize> = wanted.iter().map(|wanted| wanted.key.step).collect();
        for (step, made) in steps.into_iter().zip(self.cache.make(&self.gpu, wanted).await) {
            if !matches!(kept[step], Some(Ok(_))) {
                kept[step] = Some(made);
            }
        }
    }

    /// Adds the kernel of a step. Steps are added in order.
    pub fn add(&mut self, position: usize, kernel: Arc<StepKernel>) {
        let block = self.layout.reserve(&kernel.kernel);
        self.steps[position] = Some(GpuStep { block, kernel });
    }

    /// True if a step runs here.
    pub fn has(&self, position: usize) -> bool {
        self.step(position).is_some()
    }

    /// Position of the parameter block of a step.
    pub fn block(&self, position: usize) -> Option<usize> {
        Some(self.step(position)?.block)
    }

    /// A kernel of a step here, for any sizes.
    fn any_kernel(&self, position: usize) -> Option<&Arc<StepKernel>> {
        Some(&self.step(position)?.kernel)
    }

    /// The forms in which kernels read each buffer of a plan.
    pub fn reads(&self, plan: &Plan) -> Vec<Reads> {
        let mut reads = vec![Reads::default(); plan.buffers.len()];
        for (step, own) in plan.steps.iter().zip(&self.steps) {
            let Some(GpuStep { kernel, .. }) = own else { continue };
            for (position, read) in step.reads.iter().enumerate() {
                let Binding::Buffer(id) = read else { continue };
                let Some(reads) = reads.get_mut(id.0 as usize) else { continue };
                let as_f16 = |slot: &BindingSource| match slot {
                    BindingSource::Dequantized { operand, transposed } if usize::from(*operand) == position => {
                        Some(*transposed)
                    }
                    _ => None,
                };
                match kernel.kernel.slots.iter().find_map(as_f16) {
                    Some(transposed) => reads.as_f16[usize::from(transposed)] = true,
                    None => reads.as_stored = true,
                }
            }
        }
        reads
    }

    /// Stores compiled kernels for later processes.
    pub fn store(&self) {
        self.cache.store();
    }

    fn step(&self, position: usize) -> Option<&GpuStep> {
        self.steps.get(position)?.as_ref()
    }
}

pub(crate) fn check_bytes(
    what: impl FnOnce() -> String,
    bytes: u64,
    (limit, name): (u64, &'static str),
    way_out: &'static str,
) -> Result<(), GpuError> {
    if bytes > limit {
        return Err(GpuError::TooLarge { what: what(), bytes, limit, name, way_out });
    }
    Ok(())
}

/// Checks that a device supports buffers of a tensor's size.
pub(crate) fn check_size(
    gpu: &Gpu,
    layout: &Layout,
    what: impl Fn() -> String,
    way_out: &'static str,
) -> Result<(), GpuError> {
    let (what, bytes) = (|| format!("{} of shape {:?}", what(), layout.shape), layout.bytes());
    if layout.elements().is_none() {
        let (what, limit) = (what(), layout.dtype.format().bytes(i32::MAX as u64));
        return Err(GpuError::TooLarge { what, bytes, limit, name: "elements with a 32-bit index", way_out });
    }
    check_bytes(what, bytes, (gpu.limits().max_buffer_size, "max_buffer_size"), way_out)
}

pub(crate) fn label(step: &Step) -> String {
    format!("{} {}", step.name, step.path).trim().to_owned()
}

pub(crate) fn title(plan: &Plan, n: usize) -> String {
    let mut steps = plan.load.iter().chain(&plan.steps);
    let writer = steps.find(|step| step.writes.contains(&BufferId(n as u32)));
    match (&plan.buffers[n].source, writer) {
        (Source::Input(name) | Source::State(name) | Source::Parameter(name), _) => format!("`{name}`"),
        (_, Some(step)) => format!("the result of {} (`{}`)", step.name, step.path),
        _ => "a constant".to_owned(),
    }
}

/// The largest tensor of a step, and its bytes.
fn largest(plan: &Plan, step: &Step, sizes: &Sizes) -> (String, u64) {
    let reads = step.reads.iter().filter_map(|binding| match binding {
        Binding::Buffer(id) => Some(id),
        Binding::Host(_) => None,
    });
    let bytes = |id: &&BufferId| sizes.layouts[id.0 as usize].bytes();
    match reads.chain(&step.writes).max_by_key(bytes) {
        Some(id) => {
            let what = format!("{} of shape {:?}", title(plan, id.0 as usize), sizes.layouts[id.0 as usize].shape);
            (what, bytes(&id))
        }
        None => Default::default(),
    }
}
