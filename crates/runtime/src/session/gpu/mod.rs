//! The GPU's part of a session.

mod bindings;
mod dispatch;
mod step;
mod timer;

use super::control::{Control, ControlLayout};
use super::io::{DeviceTensor, Inputs, Value};
use super::load::SessionOptions;
use super::packed::Packed;
use super::pipelines::Pipelines;
use super::placement::{Homes, Placement, Segment, Site};
use super::profile::Recorder;
use super::sizes::Sizes;
use crate::device::Mapping;
use crate::memory::Layout;
use crate::{Gpu, GpuError, RunError};
use rewire_graph::{DType, Dim, HostTensor};
use rewire_graph_rewrite::emit::{EmittedKernel, Tuning, Windows, emit_with_windows};
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, Source, Step};
use std::collections::{BTreeSet, HashMap};
use step::{GpuStep, Variant};
use timer::Timer;

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
    tuning: Tuning,
    pipelines: Pipelines,
    steps: Vec<Option<GpuStep>>,
    layout: ControlLayout,
    homes: Homes,
    resident: Vec<Option<wgpu::Buffer>>,
    packed: Packed,
    packed_buffers: HashMap<DType, wgpu::Buffer>,
    slots: Vec<Option<wgpu::Buffer>>,
    /// Device inputs of the latest run.
    bound: HashMap<BufferId, wgpu::Buffer>,
    control: Option<wgpu::Buffer>,
    readback: Option<wgpu::Buffer>,
    /// Counts changes of buffers; bind groups of earlier generations are stale.
    generation: u64,
    grids: Vec<(u32, u32)>,
}

/// A tensor to copy out of a segment.
struct Copy {
    id: BufferId,
    source: wgpu::Buffer,
    /// `None`: into the readback buffer.
    kept: Option<wgpu::Buffer>,
}

impl GpuSide {
    pub fn new(gpu: Gpu, steps: usize, options: &SessionOptions) -> Self {
        Self {
            tuning: options.tuning,
            pipelines: Pipelines::new(options.checked),
            steps: (0..steps).map(|_| None).collect(),
            gpu,
            layout: ControlLayout::default(),
            homes: Homes::default(),
            resident: Vec::new(),
            packed: Packed::default(),
            packed_buffers: HashMap::new(),
            slots: Vec::new(),
            bound: HashMap::new(),
            control: None,
            readback: None,
            generation: 0,
            grids: Vec::new(),
        }
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Makes the pipeline of a step. Steps come in order.
    pub async fn add(&mut self, position: usize, step: &Step, kernel: EmittedKernel) -> Result<(), GpuError> {
        let pipeline = self.pipelines.get(&self.gpu, &kernel, &label(step)).await?;
        let block = self.layout.reserve(&kernel);
        let windows = Windows::of_constants(&step.kernel, self.gpu.target());
        let variant = Variant { windows, tuning: self.tuning };
        self.steps[position] = Some(GpuStep::new(variant, kernel, pipeline, block));
        Ok(())
    }

    /// Uploads parameters and constants; the last part of loading.
    pub async fn settle(
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
            self.check_size(&layout, &title(plan, n), SMALLER_PARAMETERS)?;
            let gpu = &self.gpu;
            let upload = || upload(gpu, &layout, tensor);
            self.resident[n] = Some(gpu.checked("uploading parameters", upload).await?);
        }
        for (dtype, content) in self.packed.take() {
            let limit = self.gpu.target().binding_bytes;
            let what = format!("the buffer of all small {dtype} parameters");
            check_bytes(&what, content.len() as u64, (limit, BINDING_LIMIT), SMALLER_PARAMETERS)?;
            let gpu = &self.gpu;
            let buffer = gpu.checked("uploading parameters", || filled(gpu, &content)).await?;
            self.packed_buffers.insert(dtype, buffer);
        }
        self.homes = homes;
        // Starts the uploads, so that their staging memory is not held until the first run.
        self.gpu.checked("uploading parameters", || self.gpu.queue().submit([])).await?;
        Ok(())
    }

    /// Makes room for a run, and uploads sizes and parameter blocks.
    pub async fn prepare(
        &mut self,
        plan: &Plan,
        placement: &Placement,
        sizes: &Sizes,
        inputs: &Inputs,
    ) -> Result<(), RunError> {
        self.gpu.alive()?;
        self.bind_inputs(plan, inputs, sizes)?;
        let mut needed = vec![0u64; self.slots.len()];
        for (n, slot) in self.homes.slot.iter().enumerate() {
            let Some(slot) = *slot else { continue };
            if !self.bound.contains_key(&BufferId(n as u32)) {
                self.check_size(&sizes.layouts[n], &title(plan, n), FEWER_ROWS)?;
                needed[slot] = needed[slot].max(sizes.layouts[n].bytes());
            }
        }
        self.choose_kernels(plan, sizes).await?;
        let kernels = self.steps.iter().zip(&plan.steps).filter_map(|(own, step)| Some((own.as_ref()?.kernel(), step)));
        let limit = self.gpu.limits().max_compute_workgroups_per_dimension;
        let control = Control::new(kernels, &self.layout, sizes, &self.packed, limit)?;
        let readback = placement.segments.iter().map(|segment| readback_bytes(segment, sizes)).max().unwrap_or(0);
        let gpu = self.gpu.clone();
        let bytes = control.words.len() as u64 * 4;
        check_bytes("the sizes of a run", bytes, (gpu.target().binding_bytes, BINDING_LIMIT), FEWER_ROWS)?;
        gpu.checked("allocating tensors", || self.allocate(&needed, bytes, readback)).await?;
        if let Some(buffer) = &self.control {
            gpu.queue().write_buffer(buffer, 0, bytemuck::cast_slice(&control.words));
        }
        self.grids = control.grids;
        Ok(())
    }

    /// Takes the kernels that suit the sizes of a run, and bind tensors above the binding limit in several windows.
    async fn choose_kernels(&mut self, plan: &Plan, sizes: &Sizes) -> Result<(), RunError> {
        let gpu = self.gpu.clone();
        let size = |dim: &Dim| u64::try_from(sizes.dim(dim).ok()?).ok();
        for (position, step) in plan.steps.iter().enumerate() {
            let Some(own) = self.steps.get_mut(position).and_then(Option::as_mut) else { continue };
            let windows = Windows::new(&step.kernel, gpu.target(), size);
            let tuning = self.tuning.suited(&step.kernel, gpu.target(), size);
            let variant = Variant { windows, tuning };
            if own.choose(&variant) {
                continue;
            }
            let emitted = emit_with_windows(&step.kernel, gpu.target(), &tuning, &variant.windows);
            let kernel = emitted.map_err(|error| {
                let (tensor, bytes) = largest(plan, step, sizes);
                RunError::Binding {
                    step: position,
                    name: step.name.clone(),
                    path: step.path.clone(),
                    tensor,
                    bytes,
                    limit: gpu.target().binding_bytes,
                    reason: error.to_string(),
                }
            })?;
            let pipeline = self.pipelines.get(&gpu, &kernel, &label(step)).await?;
            own.add(variant, kernel, pipeline);
        }
        Ok(())
    }

    /// Frees all memory except parameters and constants.
    pub fn trim(&mut self) {
        self.slots.fill(None);
        self.bound.clear();
        (self.control, self.readback) = (None, None);
        self.unbind();
    }

    /// Makes all bind groups stale and lets go of the buffers that they hold.
    fn unbind(&mut self) {
        self.generation += 1;
        self.steps.iter_mut().flatten().for_each(GpuStep::unbind);
    }

    /// Bytes of device memory held.
    pub fn bytes(&self) -> u64 {
        let held = self.resident.iter().chain(&self.slots).chain([&self.control, &self.readback]);
        held.flatten().chain(self.packed_buffers.values()).map(wgpu::Buffer::size).sum()
    }

    /// A buffer of its own for a tensor.
    pub async fn keep(&self, tensor: &HostTensor) -> Result<DeviceTensor, GpuError> {
        let layout = Layout::new(tensor.dtype(), tensor.shape().to_vec());
        self.check_size(&layout, "an output", FEWER_ROWS)?;
        let buffer = self.gpu.checked("uploading an output", || upload(&self.gpu, &layout, tensor)).await?;
        Ok(DeviceTensor { buffer, dtype: layout.dtype, shape: layout.shape })
    }

    /// Reads a tensor of the device; its buffer needs `COPY_SRC` usage.
    pub async fn read(&self, tensor: &DeviceTensor) -> Result<HostTensor, GpuError> {
        let layout = Layout::new(tensor.dtype, tensor.shape.clone());
        let bytes = layout.bytes();
        let unpad = |bytes: &[u8]| {
            layout
                .unpad(bytes)
                .ok_or_else(|| GpuError::Readback { reason: "the buffer is smaller than its tensor".into() })
        };
        if bytes == 0 || bytes > tensor.buffer.size() {
            return unpad(&[]);
        }
        let work = || {
            let target = buffer(&self.gpu, bytes, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
            let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.copy_buffer_to_buffer(&tensor.buffer, 0, &target, 0, bytes);
            self.gpu.queue().submit([encoder.finish()]);
            Mapping::start(&target, bytes)
        };
        self.gpu.checked("reading a tensor", work).await?.read(&self.gpu, unpad).await?
    }

    /// Runs the steps of a segment. `fetched` is content for its tensors; those of `kept` stay on the device.
    ///
    /// Returns what the segment hands out: downloads and results.
    pub async fn run(
        &mut self,
        plan: &Plan,
        segment: &Segment,
        sizes: &Sizes,
        fetched: &[(BufferId, HostTensor)],
        kept: &[BufferId],
        recorder: &mut Recorder,
    ) -> Result<Vec<(BufferId, Value)>, GpuError> {
        let gpu = self.gpu.clone();
        let begun = recorder.now();
        let timer = recorder.detail().and_then(|detail| Timer::new(&gpu, segment.steps.clone(), detail));
        let work = || {
            for (id, tensor) in fetched {
                if let Some(buffer) = self.buffer(*id)
                    && !tensor.is_empty()
                {
                    gpu.queue().write_buffer(buffer, 0, &sizes.layouts[id.0 as usize].pad(tensor));
                }
            }
            let copies = self.copies(segment, sizes, kept);
            let read = self.submit(plan, segment, sizes, &copies, timer.as_ref())?;
            let mapping = self.readback.as_ref().filter(|_| read > 0).map(|buffer| Mapping::start(buffer, read));
            Ok::<_, GpuError>((copies, mapping))
        };
        let (copies, mapping) = gpu.checked("running a plan", work).await??;
        recorder.host("submit", begun);
        let submitted = recorder.now();
        let values = match mapping {
            Some(mapping) => mapping.read(&gpu, |bytes| collect(copies, bytes, sizes)).await?,
            None => collect(copies, &[], sizes),
        };
        if let Some(timer) = timer {
            timer.read(&gpu, plan, submitted, recorder).await?;
        }
        recorder.host("wait", submitted);
        Ok(values)
    }

    fn buffer(&self, id: BufferId) -> Option<&wgpu::Buffer> {
        if let Some(buffer) = self.bound.get(&id) {
            return Some(buffer);
        }
        let n = id.0 as usize;
        match self.homes.slot.get(n)? {
            Some(slot) => self.slots.get(*slot)?.as_ref(),
            None => self.resident.get(n)?.as_ref(),
        }
    }

    fn copies(&self, segment: &Segment, sizes: &Sizes, kept: &[BufferId]) -> Vec<Copy> {
        let keep = |id: &BufferId| {
            let bytes = sizes.layouts[id.0 as usize].bytes().max(SMALLEST);
            kept.contains(id).then(|| tensor_buffer(&self.gpu, bytes))
        };
        let read: Vec<(BufferId, Option<wgpu::Buffer>)> = segment
            .results
            .iter()
            .map(|id| (*id, keep(id)))
            .chain(segment.downloads.iter().filter(|id| !segment.results.contains(id)).map(|id| (*id, None)))
            .collect();
        // A tensor that stays on the device may be wanted on the CPU too.
        let both = segment.downloads.iter().filter(|id| kept.contains(id) && segment.results.contains(id));
        read.into_iter()
            .chain(both.map(|id| (*id, None)))
            .filter_map(|(id, kept)| Some(Copy { id, source: self.buffer(id)?.clone(), kept }))
            .collect()
    }

    fn bind_inputs(&mut self, plan: &Plan, inputs: &Inputs, sizes: &Sizes) -> Result<(), RunError> {
        let mut bound = HashMap::new();
        for (n, buffer) in plan.buffers.iter().enumerate() {
            let Source::Input(name) = &buffer.source else { continue };
            let Some(Value::Device(tensor)) = inputs.get(name) else { continue };
            let reason = if !tensor.buffer.usage().contains(wgpu::BufferUsages::STORAGE) {
                "its buffer lacks STORAGE usage".to_owned()
            } else if tensor.buffer.size() < sizes.layouts[n].bytes().max(16) {
                format!("its buffer has {} bytes, expected {}", tensor.buffer.size(), sizes.layouts[n].bytes().max(16))
            } else {
                bound.insert(BufferId(n as u32), tensor.buffer.clone());
                continue;
            };
            return Err(RunError::InputPlace { name: name.clone(), reason });
        }
        if bound != self.bound {
            self.unbind();
            self.bound = bound;
        }
        Ok(())
    }

    fn allocate(&mut self, needed: &[u64], control: u64, readback: u64) {
        let limit = self.gpu.limits().max_buffer_size & !3;
        let small = |buffer: &Option<wgpu::Buffer>, bytes| buffer.as_ref().is_none_or(|buffer| buffer.size() < bytes);
        if self.slots.iter().zip(needed).any(|(slot, &bytes)| small(slot, bytes)) || small(&self.control, control) {
            self.unbind();
        }
        for (slot, &bytes) in self.slots.iter_mut().zip(needed) {
            grow(slot, bytes, limit, |bytes| tensor_buffer(&self.gpu, bytes));
        }
        let make = |usage| {
            let gpu = &self.gpu;
            move |bytes| buffer(gpu, bytes, usage)
        };
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        grow(&mut self.control, control, limit.min(self.gpu.target().binding_bytes & !3), make(usage));
        if readback > 0 {
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            grow(&mut self.readback, readback, limit, make(usage));
        }
    }

    fn check_size(&self, layout: &Layout, what: &str, way_out: &'static str) -> Result<(), GpuError> {
        let (what, bytes) = (format!("{what} of shape {:?}", layout.shape), layout.bytes());
        if layout.elements().is_none() {
            let limit = i32::MAX as u64 * layout.dtype.bytes() as u64;
            return Err(GpuError::TooLarge { what, bytes, limit, name: "elements with a 32-bit index", way_out });
        }
        check_bytes(&what, bytes, (self.gpu.limits().max_buffer_size, "max_buffer_size"), way_out)
    }
}

fn check_bytes(
    what: &str,
    bytes: u64,
    (limit, name): (u64, &'static str),
    way_out: &'static str,
) -> Result<(), GpuError> {
    if bytes > limit {
        return Err(GpuError::TooLarge { what: what.to_owned(), bytes, limit, name, way_out });
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

fn readback_bytes(segment: &Segment, sizes: &Sizes) -> u64 {
    if segment.site == Site::Cpu {
        return 0;
    }
    let only_results = segment.results.iter().filter(|id| !segment.downloads.contains(id));
    segment.downloads.iter().chain(only_results).map(|id| sizes.layouts[id.0 as usize].bytes()).sum()
}

/// What was copied: from `bytes` in order, or buffers of their own.
fn collect(copies: Vec<Copy>, bytes: &[u8], sizes: &Sizes) -> Vec<(BufferId, Value)> {
    let mut rest = bytes;
    let mut values = Vec::with_capacity(copies.len());
    for Copy { id, kept, .. } in copies {
        let layout = &sizes.layouts[id.0 as usize];
        let value = match kept {
            Some(buffer) => {
                Some(Value::Device(DeviceTensor { buffer, dtype: layout.dtype, shape: layout.shape.clone() }))
            }
            None => {
                let (own, others) = rest.split_at_checked(layout.bytes() as usize).unwrap_or((rest, &[]));
                rest = others;
                layout.unpad(own).map(Value::Host)
            }
        };
        values.extend(value.map(|value| (id, value)));
    }
    values
}

/// Replaces a buffer that is too small.
fn grow(place: &mut Option<wgpu::Buffer>, bytes: u64, limit: u64, make: impl FnOnce(u64) -> wgpu::Buffer) {
    let bytes = bytes.max(SMALLEST);
    if place.as_ref().is_some_and(|buffer| buffer.size() >= bytes) {
        return;
    }
    // Sixteenths of a power of two: slow growth of a batch does not allocate anew each time.
    let unit = (bytes.next_power_of_two() / 16).max(SMALLEST);
    *place = None;
    *place = Some(make(bytes.next_multiple_of(unit).min(limit.max(bytes))));
}

fn tensor_buffer(gpu: &Gpu, bytes: u64) -> wgpu::Buffer {
    let copies = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    buffer(gpu, bytes, wgpu::BufferUsages::STORAGE | copies)
}

fn buffer(gpu: &Gpu, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    gpu.device().create_buffer(&descriptor)
}

fn upload(gpu: &Gpu, layout: &Layout, tensor: &HostTensor) -> wgpu::Buffer {
    filled(gpu, &layout.pad(tensor))
}

fn filled(gpu: &Gpu, content: &[u8]) -> wgpu::Buffer {
    let buffer = tensor_buffer(gpu, (content.len() as u64).max(SMALLEST));
    if !content.is_empty() {
        gpu.queue().write_buffer(&buffer, 0, content);
    }
    buffer
}
