//! The GPU's part of a session.

mod bindings;
mod dispatch;
mod memory;
mod staging;
mod step;
mod timer;
mod tuning;

use super::control::{Control, ControlLayout};
use super::io::{DeviceTensor, Inputs, Value, Wanted};
use super::load::{Emitter, SessionOptions};
use super::packed::Packed;
use super::pipelines::{Made, Pipeline, PipelineStore, Pipelines, WantedPipeline};
use super::placement::{Homes, Placement, Segment, Site};
use super::profile::Recorder;
use super::sizes::Sizes;
use crate::device::Mapping;
use crate::memory::{Layout, Lease, SpareBuffers};
use crate::{Gpu, GpuError, RunError};
use memory::{Binds, Needed, filled, upload};
use rayon::prelude::*;
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::emit::{EmittedKernel, Windows};
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, Source, Step};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use step::{GpuStep, Variant};
use timer::Timer;
pub(crate) use tuning::{Refused, Tunings, Verdict};

/// The smallest buffer. Shaders bind whole vectors even of empty tensors.
const SMALLEST: u64 = 64;

/// What to do about a tensor of a run that is too large.
const FEWER_ROWS: &str = "run fewer rows at once, or use kernel cpu";

/// What to do about parameters that are too large.
const SMALLER_PARAMETERS: &str = "store it as f16, cut it into several parameters, or use kernel cpu";

const BINDING_LIMIT: &str = "max_storage_buffer_binding_size";

/// The GPU's part of a session.
#[derive(Debug)]
pub(crate) struct GpuSide {
    gpu: Gpu,
    pub tunings: Tunings,
    pipelines: Pipelines,
    steps: Vec<Option<GpuStep>>,
    layout: ControlLayout,
    homes: Homes,
    resident: Vec<Option<wgpu::Buffer>>,
    packed: Packed,
    packed_buffers: HashMap<DType, wgpu::Buffer>,
    slots: Vec<Option<wgpu::Buffer>>,
    /// By tensor, what the latest run had in place of slots: device inputs, and results that stay on the device.
    bound: Vec<Option<wgpu::Buffer>>,
    /// Device inputs of the latest run that are no memory of the session.
    foreign: Vec<wgpu::Buffer>,
    /// Memory of results that stay, until they are handed out.
    lent: Vec<(BufferId, Lease)>,
    spares: SpareBuffers,
    /// Spare buffers that were dropped when the latest run began.
    dropped: u64,
    control: Option<wgpu::Buffer>,
    readback: Option<wgpu::Buffer>,
    staging: Option<wgpu::Buffer>,
    /// Content of the control buffer that has still to go there.
    words: Option<Vec<i32>>,
    grids: Vec<(u32, u32)>,
    prepared: Option<Prepared>,
}

/// What the control buffer, the grids and the chosen kernels are for.
#[derive(Debug)]
struct Prepared {
    sizes: Arc<Sizes>,
    wanted: Wanted,
    /// Tensors outside the slots.
    bound: Vec<BufferId>,
    needed: Needed,
}

impl Prepared {
    fn fits(&self, sizes: &Arc<Sizes>, wanted: &Wanted, binds: &Binds) -> bool {
        Arc::ptr_eq(&self.sizes, sizes) && self.wanted == *wanted && self.bound == binds.ids()
    }
}

impl GpuSide {
    pub fn new(gpu: Gpu, steps: &[Step], options: &SessionOptions) -> Self {
        Self {
            tunings: Tunings::new(&gpu, steps, options),
            pipelines: Pipelines::new(options.checked),
            steps: steps.iter().map(|_| None).collect(),
            gpu,
            layout: ControlLayout::default(),
            homes: Homes::default(),
            resident: Vec::new(),
            packed: Packed::default(),
            packed_buffers: HashMap::new(),
            slots: Vec::new(),
            bound: Vec::new(),
            foreign: Vec::new(),
            lent: Vec::new(),
            spares: SpareBuffers::default(),
            dropped: 0,
            control: None,
            readback: None,
            staging: None,
            words: None,
            grids: Vec::new(),
            prepared: None,
        }
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The kernels of all steps, compiled, or why a step cannot run here; the first part of loading.
    pub async fn make(
        &mut self,
        steps: &[Step],
        emitter: Emitter<'_>,
        store: Option<&PipelineStore>,
    ) -> Vec<Made<Refused>> {
        let target = self.gpu.target();
        let wanted = steps.par_iter().enumerate().map(|(position, step)| WantedPipeline {
            label: label(step),
            kernel: emitter(position, step, target, &self.tunings.base(position)).map_err(Refused::Kernel),
            lasting: true,
        });
        let wanted: Vec<_> = wanted.collect();
        if let Some(store) = store {
            let shaders = wanted.iter().filter_map(|wanted| wanted.kernel.as_ref().ok());
            self.pipelines.open(store, &self.gpu, shaders.map(|parsed| parsed.kernel.wgsl.as_str())).await;
        }
        self.pipelines.get(&self.gpu, wanted).await
    }

    /// Takes the kernel of a step. Steps come in order.
    pub fn add(&mut self, position: usize, step: &Step, kernel: EmittedKernel, pipeline: Pipeline) {
        let block = self.layout.reserve(&kernel);
        let windows = Windows::of_constants(&step.kernel, self.gpu.target());
        let variant = Variant { windows, tuning: self.tunings.base(position) };
        self.steps[position] = Some(GpuStep::new(variant, kernel, pipeline, block));
    }

    /// Uploads parameters and constants; the last part of loading.
    pub async fn place(
        &mut self,
        plan: &Plan,
        homes: Homes,
        resident: &[Option<HostTensor>],
        packed: &BTreeSet<BufferId>,
    ) -> Result<(), GpuError> {
        self.slots = vec![None; homes.slots];
        self.resident = vec![None; homes.resident.len()];
        for (n, tensor) in resident.iter().enumerate() {
            let (Some(tensor), Some(true)) = (tensor, homes.resident.get(n)) else { continue };
            let id = BufferId(n as u32);
            if packed.contains(&id) {
                self.packed.push(id, tensor);
                continue;
            }
            let layout = Layout::new(tensor.dtype(), tensor.shape().to_vec());
            self.check_size(&layout, || title(plan, n), SMALLER_PARAMETERS)?;
            let gpu = &self.gpu;
            let upload = || upload(gpu, &layout, tensor);
            self.resident[n] = Some(gpu.checked("uploading parameters", upload).await?);
        }
        for (dtype, content) in self.packed.take() {
            let limit = self.gpu.target().binding_bytes;
            let what = || format!("the buffer of all small {dtype} parameters");
            check_bytes(what, content.len() as u64, (limit, BINDING_LIMIT), SMALLER_PARAMETERS)?;
            let gpu = &self.gpu;
            let buffer = gpu.checked("uploading parameters", || filled(gpu, &content)).await?;
            self.packed_buffers.insert(dtype, buffer);
        }
        self.homes = homes;
        // Starts the uploads, so that their staging memory is not held until the first run.
        self.gpu.checked("uploading parameters", || self.gpu.queue().submit([])).await?;
        Ok(())
    }

    /// Keeps what a run has compiled for later processes, now that its results are there.
    pub fn store(&self) {
        self.pipelines.store();
    }

    /// Makes room for a run, and takes the kernels and grids that suit its sizes.
    pub async fn prepare(
        &mut self,
        plan: &Plan,
        placement: &Placement,
        sizes: &Arc<Sizes>,
        inputs: &Inputs,
        wanted: &Wanted,
    ) -> Result<(), RunError> {
        let binds = self.binds(plan, placement, sizes, inputs, &wanted.on_device)?;
        let known = self.prepared.take();
        let prepared = match known.filter(|known| known.fits(sizes, wanted, &binds)) {
            Some(known) => known,
            None => self.prepare_sizes(plan, placement, sizes, wanted, &binds).await?,
        };
        let gpu = self.gpu.clone();
        // The loss of the device is noticed when the work on these buffers is submitted.
        let ((), error) = gpu.watched(|| self.allocate(&prepared.needed, binds));
        if let Some(error) = error.await {
            // Buffers that were refused are among the others.
            self.trim();
            return Err(gpu.refused("allocating tensors", error).into());
        }
        self.prepared = Some(prepared);
        Ok(())
    }

    /// What follows from sizes: kernels, grids, bytes of buffers, and the content of the control buffer.
    async fn prepare_sizes(
        &mut self,
        plan: &Plan,
        placement: &Placement,
        sizes: &Arc<Sizes>,
        wanted: &Wanted,
        binds: &Binds,
    ) -> Result<Prepared, RunError> {
        let slots = self.slot_bytes(plan, sizes, binds)?;
        self.choose_kernels(plan, sizes).await?;
        let kernels = self.steps.iter().zip(&plan.steps).filter_map(|(own, step)| Some((own.as_ref()?.kernel(), step)));
        let limit = self.gpu.limits().max_compute_workgroups_per_dimension;
        let Control { words, grids } = Control::new(kernels, &self.layout, sizes, &self.packed, limit)?;
        let control = words.len() as u64 * 4;
        let limit = (self.gpu.target().binding_bytes, BINDING_LIMIT);
        check_bytes(|| "the sizes of a run".to_owned(), control, limit, FEWER_ROWS)?;
        let read = placement.segments.iter().filter(|segment| segment.site == Site::Gpu);
        let readback = read.map(|segment| readback_bytes(segment, sizes, wanted)).max().unwrap_or(0);
        (self.grids, self.words) = (grids, Some(words));
        let needed = Needed { slots, control, readback };
        Ok(Prepared { sizes: sizes.clone(), wanted: wanted.clone(), bound: binds.ids(), needed })
    }

    /// Reads a tensor of the device; its buffer needs `COPY_SRC` usage.
    pub async fn read(&self, tensor: &DeviceTensor) -> Result<HostTensor, GpuError> {
        let layout = Layout::new(tensor.dtype, tensor.shape.clone());
        let bytes = layout.bytes();
        let unpad = |bytes: &[u8]| layout.unpad(bytes).ok_or_else(short);
        if bytes == 0 || bytes > tensor.buffer().size() {
            return unpad(&[]);
        }
        let work = || {
            let target = self.gpu.buffer(bytes, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
            let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.copy_buffer_to_buffer(tensor.buffer(), 0, &target, 0, bytes);
            let submission = self.gpu.queue().submit([encoder.finish()]);
            Mapping::start(&target, bytes, submission)
        };
        self.gpu.checked("reading a tensor", work).await?.read(&self.gpu, unpad).await?
    }

    /// Runs the steps of a segment. `fetched` is content for its tensors.
    ///
    /// Returns what the segment hands out: downloads and results. A tensor can be among them twice, on the host and on
    /// the device. After an error memory has to be trimmed: what came to the device is not known.
    pub async fn run(
        &mut self,
        plan: &Plan,
        segment: &Segment,
        sizes: &Sizes,
        fetched: &[(BufferId, HostTensor)],
        wanted: &Wanted,
        recorder: &mut Recorder,
    ) -> Result<Vec<(BufferId, Value)>, GpuError> {
        let gpu = self.gpu.clone();
        let begun = recorder.now();
        let copies: Vec<BufferId> = read_back(segment, wanted).collect();
        let work = || {
            let timer = recorder.detail().and_then(|detail| Timer::new(&gpu, segment.steps.clone(), detail));
            let staged = self.stage(sizes, fetched)?;
            let (read, submission) = self.submit(plan, segment, sizes, (&staged, &copies), timer.as_ref())?;
            let timer = timer.map(|timer| (timer.start(submission.clone()), timer));
            let readback = self.readback.as_ref().filter(|_| read > 0);
            Ok((readback.map(|buffer| Mapping::start(buffer, read, submission)), timer))
        };
        let (submitted_work, error) = gpu.watched(work);
        if let Some(error) = error.await {
            return Err(gpu.refused("running a plan", error));
        }
        let (mapping, timer): (Option<Mapping>, _) = submitted_work?;
        recorder.host("submit", begun);
        let submitted = recorder.now();
        let mut values = match mapping {
            Some(mapping) => mapping.read(&gpu, |bytes| collect(&copies, bytes, sizes)).await??,
            // Who reads nothing does not notice a loss by reading.
            None => gpu.alive().and_then(|()| collect(&copies, &[], sizes))?,
        };
        for (id, memory) in self.lent.extract_if(.., |(id, _)| segment.results.contains(id)) {
            let Layout { dtype, shape } = sizes.layouts[id.0 as usize].clone();
            values.push((id, Value::Device(DeviceTensor::leased(memory, dtype, shape))));
        }
        if let Some((times, timer)) = timer {
            timer.read((&gpu, times), plan, submitted, recorder).await?;
        }
        recorder.host("wait", submitted);
        Ok(values)
    }
}

fn check_bytes(
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

fn label(step: &Step) -> String {
    format!("{} {}", step.name, step.path).trim().to_owned()
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

fn title(plan: &Plan, n: usize) -> String {
    let mut steps = plan.load.iter().chain(&plan.steps);
    let writer = steps.find(|step| step.writes.contains(&BufferId(n as u32)));
    match (&plan.buffers[n].source, writer) {
        (Source::Input(name) | Source::Parameter(name), _) => format!("`{name}`"),
        (_, Some(step)) => format!("the result of {} (`{}`)", step.name, step.path),
        _ => "a constant".to_owned(),
    }
}

/// What the host reads of a segment: what steps on the CPU take, and results.
fn read_back(segment: &Segment, wanted: &Wanted) -> impl Iterator<Item = BufferId> {
    let results = segment.results.iter().filter(|id| !segment.downloads.contains(id) && wanted.on_host.contains(id));
    segment.downloads.iter().chain(results).copied()
}

fn readback_bytes(segment: &Segment, sizes: &Sizes, wanted: &Wanted) -> u64 {
    read_back(segment, wanted).map(|id| sizes.layouts[id.0 as usize].bytes()).sum()
}

/// The tensors that lie in `bytes` one after the other.
fn collect(copies: &[BufferId], bytes: &[u8], sizes: &Sizes) -> Result<Vec<(BufferId, Value)>, GpuError> {
    let mut rest = bytes;
    let mut values = Vec::with_capacity(copies.len());
    for &id in copies {
        let layout = &sizes.layouts[id.0 as usize];
        let (own, others) = rest.split_at_checked(layout.bytes() as usize).unwrap_or((rest, &[]));
        rest = others;
        values.push((id, Value::Host(layout.unpad(own).ok_or_else(short)?)));
    }
    Ok(values)
}

fn short() -> GpuError {
    GpuError::Readback { reason: "the buffer is smaller than its tensor".into() }
}
