//! Buffers: slots of the plan, buffers bound instead of them, and those for sizes and readback.

use super::bindings::BindGroups;
use super::{FEWER_ROWS, GpuSide};
use crate::device::SMALLEST;
use crate::memory::{Layout, Lease, SpareBuffers, lock};
use crate::model::{GpuSite, Placement, Site, check_size, title};
use crate::session::io::{DeviceTensor, Inputs, RunValue};
use crate::session::sizes::Sizes;
use crate::{Gpu, GpuError, RunError};

use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::{BufferId, Plan};

/// Buffers that a run binds instead of slots.
#[derive(Default)]
pub(super) struct Binds {
    /// By tensor: inputs that are on the device, and results that stay there.
    buffers: Vec<Option<wgpu::Buffer>>,
    /// The inputs among them that do not belong to the session.
    foreign: Vec<wgpu::Buffer>,
    /// Results that stay on the device, with their bytes.
    results: Vec<(BufferId, u64)>,
}

/// Sizes of the buffers of a run in bytes.
#[derive(Debug, Default)]
pub(super) struct Needed {
    pub slots: Vec<u64>,
    pub control: u64,
    pub readback: u64,
}

impl Binds {
    /// The tensors without a slot.
    pub fn ids(&self) -> Vec<BufferId> {
        let inputs = (0..).map(BufferId).zip(&self.buffers).filter(|(_, buffer)| buffer.is_some()).map(|(id, _)| id);
        inputs.chain(self.results.iter().map(|(id, _)| *id)).collect()
    }

    /// True if no result stays on the device.
    pub fn has_no_results(&self) -> bool {
        self.results.is_empty()
    }
}

impl GpuSide {
    /// Frees all memory except parameters and constants.
    pub fn trim(&mut self) {
        self.slots.fill(None);
        self.bound.fill(None);
        self.lent.clear();
        self.sent.clear();
        [&self.spares, &self.downloads, &self.uploads].iter().for_each(|spares| lock(spares).clear());
        self.prepared = None;
        (self.control, self.readback, self.staging) = (None, None, None);
        (self.arrived, self.pairs) = (None, None);
        self.unbind();
    }

    /// Replaces the parameters.
    pub fn set_weights(&mut self, site: &GpuSite) {
        self.site = site.clone();
        self.unbind();
    }

    /// Drops all bind groups and the buffers that they hold.
    fn unbind(&mut self) {
        self.groups.iter_mut().for_each(BindGroups::clear);
    }

    /// Bytes of device memory held, excluding parameters and results that callers hold.
    pub fn bytes(&self) -> u64 {
        let held = self.slots.iter().chain([&self.control, &self.readback, &self.staging, &self.arrived, &self.pairs]);
        let held: u64 = held.flatten().map(wgpu::Buffer::size).sum();
        held + [&self.spares, &self.downloads, &self.uploads].map(|spares| lock(spares).bytes()).iter().sum::<u64>()
    }

    /// The buffer of a tensor in this run.
    pub(super) fn buffer(&self, id: BufferId) -> Option<&wgpu::Buffer> {
        let n = id.0 as usize;
        if let Some(Some(buffer)) = self.bound.get(n) {
            return Some(buffer);
        }
        match self.kernels().homes.slot.get(n)? {
            Some(slot) => self.slots.get(*slot)?.as_ref(),
            None => self.site.weights.buffer(n),
        }
    }

    /// A tensor in separate memory, for a caller.
    pub async fn keep(&self, tensor: &HostTensor) -> Result<DeviceTensor, GpuError> {
        let layout = Layout::new(tensor.dtype(), tensor.shape().to_vec());
        let gpu = self.gpu();
        check_size(gpu, &layout, || "an output".to_owned(), FEWER_ROWS)?;
        let upload = || gpu.filled("uploaded", &layout.pad(tensor));
        let buffer = gpu.checked("uploading an output", upload).await?;
        Ok(DeviceTensor::new(buffer, layout.dtype, layout.shape))
    }

    /// Writes bytes of a tensor, after the runs that are submitted.
    pub fn write(&self, tensor: &DeviceTensor, offset: u64, bytes: &[u8]) {
        self.gpu().queue().write_buffer(tensor.buffer(), offset, bytes);
    }

    /// A tensor of zeros, for a caller.
    pub async fn zeros(&self, layout: Layout) -> Result<DeviceTensor, GpuError> {
        let gpu = self.gpu();
        check_size(gpu, &layout, || "a state".to_owned(), FEWER_ROWS)?;
        let buffer = gpu.checked("a state", || gpu.tensor_buffer("state", layout.bytes().max(16))).await?;
        Ok(DeviceTensor::new(buffer, layout.dtype, layout.shape))
    }

    /// The buffers of a run besides the slots. `kept` are results that stay on the device.
    pub(super) fn binds(
        &self,
        plan: &Plan,
        placement: &Placement,
        sizes: &Sizes,
        inputs: &Inputs,
        kept: &[BufferId],
    ) -> Result<Binds, RunError> {
        let mut binds = Binds { buffers: vec![None; plan.buffers.len()], ..Binds::default() };
        for ((buffer, layout), bound) in plan.buffers.iter().zip(&sizes.layouts).zip(&mut binds.buffers) {
            let Some(name) = buffer.source.run_name() else { continue };
            let Some(RunValue::Device(tensor)) = inputs.get(name) else { continue };
            let (needed, given) = (layout.bytes().max(16), tensor.buffer());
            let reason = if !given.usage().contains(wgpu::BufferUsages::STORAGE) {
                "its buffer lacks STORAGE usage".to_owned()
            } else if given.size() < needed {
                format!("its buffer has {} bytes, expected {needed}", given.size())
            } else {
                *bound = Some(given.clone());
                binds.foreign.extend((!tensor.memory().is_of(&self.spares)).then(|| given.clone()));
                continue;
            };
            return Err(RunError::InputPlace { name: name.to_owned(), reason });
        }
        let segments = placement.segments.iter().filter(|segment| segment.site == Site::Gpu);
        let results = segments.flat_map(|segment| &segment.results);
        // A state that is written in place has its own memory.
        for id in results.filter(|id| kept.contains(id) && !plan.is_state(**id)) {
            let layout = &sizes.layouts[id.0 as usize];
            check_size(self.gpu(), layout, || title(plan, id.0 as usize), FEWER_ROWS)?;
            binds.results.push((*id, layout.bytes()));
        }
        Ok(binds)
    }

    /// Bytes of each slot.
    pub(super) fn slot_bytes(&self, plan: &Plan, sizes: &Sizes, binds: &Binds) -> Result<Vec<u64>, GpuError> {
        let mut needed = vec![0u64; self.slots.len()];
        for (n, slot) in self.kernels().homes.slot.iter().enumerate() {
            let Some(slot) = *slot else { continue };
            let elsewhere = binds.buffers[n].is_some() || binds.results.iter().any(|(id, _)| id.0 as usize == n);
            if !elsewhere {
                check_size(self.gpu(), &sizes.layouts[n], || title(plan, n), FEWER_ROWS)?;
                needed[slot] = needed[slot].max(sizes.layouts[n].bytes());
            }
        }
        Ok(needed)
    }

    /// True if all buffers of a run exist and are large enough.
    pub(super) fn has_room(&self, needed: &Needed) -> bool {
        self.has_bound_room(needed) && (needed.readback == 0 || holds(&self.readback, needed.readback))
    }

    /// True if the buffers that kernels bind exist and are large enough.
    fn has_bound_room(&self, needed: &Needed) -> bool {
        let slots = self.slots.iter().zip(&needed.slots);
        slots.into_iter().all(|(slot, &bytes)| holds(slot, bytes)) && holds(&self.control, needed.control)
    }

    /// Allocates the memory of a run.
    pub(super) fn allocate(&mut self, needed: &Needed, binds: Binds) {
        self.bind(binds);
        let gpu = self.gpu().clone();
        let limit = gpu.limits().max_buffer_size & !3;
        if !self.has_bound_room(needed) {
            self.unbind();
        }
        for (slot, &bytes) in self.slots.iter_mut().zip(&needed.slots) {
            grow(slot, bytes, limit, |bytes| gpu.tensor_buffer("tensors of a run", bytes));
        }
        let make = |label: &'static str, usage| {
            let gpu = &gpu;
            move |bytes| gpu.buffer(label, bytes, usage)
        };
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        grow(&mut self.control, needed.control, limit.min(gpu.target().binding_bytes & !3), make("sizes", usage));
        if needed.readback > 0 {
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            grow(&mut self.readback, needed.readback, limit, make("results", usage));
        }
    }

    /// Takes memory for results that stay, and drops bind groups with replaced buffers.
    fn bind(&mut self, binds: Binds) {
        self.bound = binds.buffers;
        let gpu = self.gpu().clone();
        self.lent = binds.results.iter().map(|&(id, bytes)| (id, lease(&gpu, &self.spares, bytes))).collect();
        for (id, lease) in &self.lent {
            self.bound[id.0 as usize] = Some(lease.buffer().clone());
        }
        let mut spares = lock(&self.spares);
        spares.allow(self.lent.iter().map(|(_, lease)| lease.buffer().size()).sum());
        let dropped = std::mem::replace(&mut self.dropped, spares.dropped());
        drop(spares);
        let mut left = std::mem::replace(&mut self.foreign, binds.foreign);
        left.retain(|buffer| !self.foreign.contains(buffer));
        if dropped != self.dropped {
            self.unbind();
        } else if !left.is_empty() {
            self.groups.iter_mut().for_each(|groups| groups.forget(&left));
        }
    }
}

/// A spare buffer for a result, or a new one.
fn lease(gpu: &Gpu, spares: &SpareBuffers, bytes: u64) -> Lease {
    let bytes = bytes.max(SMALLEST);
    let spare = lock(spares).take(bytes);
    let limit = gpu.limits().max_buffer_size & !3;
    Lease::of(spares, spare.unwrap_or_else(|| gpu.tensor_buffer("a result", with_room(bytes, limit))))
}

/// True if a buffer exists and is large enough.
fn holds(place: &Option<wgpu::Buffer>, bytes: u64) -> bool {
    place.as_ref().is_some_and(|buffer| buffer.size() >= bytes)
}

/// Replaces a buffer that is too small.
pub(super) fn grow(place: &mut Option<wgpu::Buffer>, bytes: u64, limit: u64, make: impl FnOnce(u64) -> wgpu::Buffer) {
    let bytes = bytes.max(SMALLEST);
    if holds(place, bytes) {
        return;
    }
    *place = None;
    *place = Some(make(with_room(bytes, limit)));
}

/// Rounds up to sixteenths of a power of two, so that a slowly growing batch does not reallocate each time.
pub(super) fn with_room(bytes: u64, limit: u64) -> u64 {
    let unit = (bytes.next_power_of_two() / 16).max(SMALLEST);
    bytes.next_multiple_of(unit).min(limit.max(bytes))
}
