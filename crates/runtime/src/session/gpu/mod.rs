//! The memory of a session on its device, and its runs there.

mod bindings;
mod dispatch;
mod memory;
mod rows;
mod staging;
mod timer;
mod transfers;

use super::control::LaunchParams;
use super::io::{DeviceTensor, Inputs, RunValue, Wanted};
use super::profile::Recorder;
use super::sizes::Sizes;
use crate::device::Mapping;
use crate::memory::{Layout, Lease, SpareBuffers};
use crate::model::{BINDING_LIMIT, GpuKernels, GpuSite, OpenTrial, Placement, Site, SiteRun, StepKernel, check_bytes};
use crate::{Gpu, GpuError, RunError};
pub(crate) use rows::{LookedUp, LookupError};

use bindings::BindGroups;
use memory::{Binds, Needed};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::{BufferId, Plan};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use timer::Timer;
use transfers::Download;

/// Workaround for a tensor of a run that is too large.
const FEWER_ROWS: &str = "run fewer rows at once, or use kernel cpu";

/// Limit of runs in flight whose results are not read.
const AHEAD: usize = 3;

/// The memory of a session on its device.
#[derive(Debug)]
pub(crate) struct GpuSide {
    site: GpuSite,
    /// By step, the kernels of the latest run.
    chosen: Vec<Option<Arc<StepKernel>>>,
    /// By step.
    groups: Vec<BindGroups>,
    /// Forced tunings by step; they override all others.
    forced: HashMap<usize, Tuning>,
    /// Trials in progress, by step.
    pub trials: HashMap<usize, OpenTrial>,
    slots: Vec<Option<wgpu::Buffer>>,
    /// By tensor, the buffers of the latest run instead of slots: device inputs, and results that stay on the device.
    bound: Vec<Option<wgpu::Buffer>>,
    /// Device inputs of the latest run that do not belong to the session.
    foreign: Vec<wgpu::Buffer>,
    /// Memory of results that stay, until they are returned.
    lent: Vec<(BufferId, Lease)>,
    spares: SpareBuffers,
    /// Number of spare buffers dropped before the latest run.
    dropped: u64,
    control: Option<wgpu::Buffer>,
    readback: Option<wgpu::Buffer>,
    staging: Option<wgpu::Buffer>,
    /// Uploaded rows of the latest run's lookups.
    arrived: Option<wgpu::Buffer>,
    /// Copies of rows for these lookups.
    pairs: Option<wgpu::Buffer>,
    /// The launch parameters, for the control buffer.
    words: Vec<i32>,
    /// True if the control buffer holds them.
    steered: bool,
    grids: Vec<(u32, u32)>,
    prepared: Option<Prepared>,
    /// Outputs of the latest run on their way to the host, in the order of their steps.
    sent: VecDeque<Download>,
    /// Memory of such outputs, and mapped memory for uploads.
    downloads: SpareBuffers,
    uploads: SpareBuffers,
    /// Bytes uploaded since the latest run.
    written: AtomicU64,
    /// Runs in flight, the earliest first.
    under_way: VecDeque<wgpu::SubmissionIndex>,
}

/// The key of the control buffer's content, the grids and the chosen kernels.
#[derive(Debug)]
struct Prepared {
    sizes: Arc<Sizes>,
    wanted: Wanted,
    /// Tensors outside the slots.
    bound: Vec<BufferId>,
    needed: Needed,
    /// The change counter of the model's tunings.
    tunings: u64,
}

impl GpuSide {
    pub fn new(site: GpuSite) -> Self {
        let (slots, buffers) = (site.kernels.homes.slots, site.kernels.homes.slot.len());
        Self {
            site,
            chosen: Vec::new(),
            groups: Vec::new(),
            forced: HashMap::new(),
            trials: HashMap::new(),
            slots: vec![None; slots],
            bound: vec![None; buffers],
            foreign: Vec::new(),
            lent: Vec::new(),
            spares: SpareBuffers::default(),
            dropped: 0,
            control: None,
            readback: None,
            staging: None,
            arrived: None,
            pairs: None,
            words: Vec::new(),
            steered: false,
            grids: Vec::new(),
            prepared: None,
            sent: VecDeque::new(),
            downloads: SpareBuffers::default(),
            uploads: SpareBuffers::default(),
            written: AtomicU64::new(0),
            under_way: VecDeque::new(),
        }
    }

    pub fn gpu(&self) -> &Gpu {
        self.kernels().gpu()
    }

    pub fn kernels(&self) -> &GpuKernels {
        &self.site.kernels
    }

    /// Forces a step to run with a tuning, or with the model's again.
    pub fn force(&mut self, position: usize, tuning: Option<Tuning>) {
        self.forced.remove(&position);
        self.forced.extend(tuning.map(|tuning| (position, tuning)));
        self.prepared = None;
    }

    /// The tuning that a step ran with last.
    #[cfg(test)]
    pub fn tuning_of(&self, position: usize) -> Option<Tuning> {
        Some(self.kernels().cache.key_of(self.chosen.get(position)?.as_ref()?)?.tuning)
    }

    /// Stores compiled kernels for later processes, once the run's results have arrived.
    pub fn store(&self) {
        self.kernels().store();
    }

    /// Allocates the memory of a run, and chooses the kernels and grids for its sizes.
    pub async fn prepare(
        &mut self,
        plan: &Plan,
        placement: &Placement,
        sizes: &Arc<Sizes>,
        inputs: &Inputs,
        wanted: &Wanted,
    ) -> Result<(), RunError> {
        self.gpu().check_process()?;
        self.sent.clear();
        *self.written.get_mut() = 0;
        let binds = self.binds(plan, placement, sizes, inputs, &wanted.on_device)?;
        let known = self.prepared.take();
        let prepared = match known.filter(|known| self.still_fits(known, sizes, wanted, &binds)) {
            Some(known) => known,
            None => self.prepare_sizes(plan, placement, sizes, wanted, &binds).await?,
        };
        self.make_room(&prepared.needed, binds).await?;
        self.prepared = Some(prepared);
        Ok(())
    }

    /// Creates the buffers of a run. A browser takes a while to confirm them, so it is not asked if all exist.
    async fn make_room(&mut self, needed: &Needed, binds: Binds) -> Result<(), RunError> {
        if binds.has_no_results() && self.has_room(needed) {
            self.allocate(needed, binds);
            return Ok(());
        }
        let gpu = self.gpu().clone();
        // A loss of the device is detected when the work on these buffers is submitted.
        let ((), error) = gpu.watched(|| self.allocate(needed, binds));
        if let Some(error) = error.await {
            // Refused buffers are among the others.
            self.trim();
            return Err(gpu.refused("allocating tensors", error).into());
        }
        Ok(())
    }

    /// Derives kernels, grids, buffer sizes and the control buffer's content from the sizes.
    async fn prepare_sizes(
        &mut self,
        plan: &Plan,
        placement: &Placement,
        sizes: &Arc<Sizes>,
        wanted: &Wanted,
        binds: &Binds,
    ) -> Result<Prepared, RunError> {
        let slots = self.slot_bytes(plan, sizes, binds)?;
        let (site, tunings) = (self.site.clone(), self.kernels().tunings.changes());
        self.chosen = site.kernels.choose(plan, sizes, &self.forced).await?;
        self.groups.resize_with(self.chosen.len(), BindGroups::default);
        let chosen = self.chosen.iter().zip(&plan.steps);
        let kernels = chosen.filter_map(|(own, step)| Some((&own.as_ref()?.kernel, step)));
        let limit = self.gpu().limits().max_compute_workgroups_per_dimension;
        let LaunchParams { words, grids } =
            LaunchParams::new(kernels, &site.kernels.layout, sizes, &site.weights.pool, limit)?;
        let control = words.len() as u64 * 4;
        let limit = (self.gpu().target().binding_bytes, BINDING_LIMIT);
        check_bytes(|| "the sizes of a run".to_owned(), control, limit, FEWER_ROWS)?;
        let read = placement.segments.iter().filter(|segment| segment.site == Site::Gpu);
        let readback = read.map(|segment| readback_bytes(segment, sizes, wanted)).max().unwrap_or(0);
        (self.grids, self.words, self.steered) = (grids, words, false);
        let needed = Needed { slots, control, readback };
        Ok(Prepared { sizes: sizes.clone(), wanted: wanted.clone(), bound: binds.ids(), needed, tunings })
    }

    fn still_fits(&self, known: &Prepared, sizes: &Arc<Sizes>, wanted: &Wanted, binds: &Binds) -> bool {
        let same = Arc::ptr_eq(&known.sizes, sizes) && known.tunings == self.kernels().tunings.changes();
        same && known.wanted == *wanted && known.bound == binds.ids()
    }

    /// Reads a tensor of the device; its buffer needs `COPY_SRC` usage.
    pub async fn read(&self, tensor: &DeviceTensor) -> Result<HostTensor, GpuError> {
        self.gpu().check_process()?;
        let layout = Layout::new(tensor.dtype, tensor.shape.clone());
        let bytes = layout.bytes();
        let unpad = |bytes: &[u8]| layout.unpad(bytes).ok_or_else(short);
        if bytes == 0 || bytes > tensor.buffer().size() {
            return unpad(&[]);
        }
        let gpu = self.gpu();
        let work = || {
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            let target = gpu.buffer("a tensor to read", bytes, usage);
            let label = Some("reading a tensor");
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label });
            encoder.copy_buffer_to_buffer(tensor.buffer(), 0, &target, 0, bytes);
            let submission = gpu.submit([encoder.finish()]);
            Mapping::start(&target, bytes, submission)
        };
        gpu.checked("reading a tensor", work).await?.read(gpu, unpad).await?
    }

    /// Records the steps of a segment in the app's encoder. Returns the results, which stay on the device.
    pub fn encode(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        plan: &Plan,
        segment: &SiteRun,
        sizes: &Sizes,
        fetched: &[(BufferId, HostTensor)],
    ) -> Result<Vec<(BufferId, DeviceTensor)>, GpuError> {
        self.stage_into(encoder, sizes, fetched)?;
        self.record(encoder, plan, vec![segment.steps.clone()], None)?;
        Ok(self.take_lent(segment, sizes).collect())
    }

    /// The results of a segment that stay on the device.
    fn take_lent<'a>(
        &'a mut self,
        segment: &'a SiteRun,
        sizes: &'a Sizes,
    ) -> impl Iterator<Item = (BufferId, DeviceTensor)> + 'a {
        self.lent.extract_if(.., |(id, _)| segment.results.contains(id)).map(|(id, memory)| {
            let Layout { dtype, shape } = sizes.layouts[id.0 as usize].clone();
            (id, DeviceTensor::leased(memory, dtype, shape))
        })
    }

    /// Runs the steps of a segment. `fetched` is content for its tensors.
    ///
    /// Returns the downloads and results of the segment. A tensor can be among them twice, on the host and on the
    /// device. After an error the memory must be trimmed, since the content on the device is unknown.
    pub async fn run(
        &mut self,
        plan: &Plan,
        segment: &SiteRun,
        sizes: &Sizes,
        fetched: &[(BufferId, HostTensor)],
        wanted: &Wanted,
        recorder: &mut Recorder,
    ) -> Result<Vec<(BufferId, RunValue)>, GpuError> {
        let gpu = self.gpu().clone();
        let begun = recorder.now();
        let copies: Vec<BufferId> = read_back(segment, wanted).collect();
        let work = || {
            let timer = recorder.detail().and_then(|detail| Timer::new(&gpu, segment.steps.clone(), detail));
            let staged = self.stage(sizes, fetched)?;
            let pieces = Self::pieces(plan, segment, sizes, wanted);
            let (read, submission) = self.submit(plan, pieces, sizes, (&staged, &copies), timer.as_ref())?;
            let timer = timer.map(|timer| (timer.start(submission.clone()), timer));
            let readback = self.readback.as_ref().filter(|_| read > 0);
            Ok((readback.map(|buffer| Mapping::start(buffer, read, submission.clone())), timer, submission))
        };
        let (submitted_work, error) = gpu.watched(work);
        if let Some(error) = error.await {
            return Err(gpu.refused("running a plan", error));
        }
        let (mapping, timer, submission): (Option<Mapping>, _, _) = submitted_work?;
        recorder.host("submit", begun);
        let submitted = recorder.now();
        let mut values = match mapping {
            Some(mapping) => {
                self.under_way.clear();
                mapping.read(&gpu, |bytes| collect(&copies, bytes, sizes)).await??
            }
            None => {
                self.go_on(submission).await?;
                collect(&copies, &[], sizes)?
            }
        };
        values.extend(self.take_lent(segment, sizes).map(|(id, tensor)| (id, RunValue::Device(tensor))));
        if let Some((times, timer)) = timer {
            timer.read((&gpu, times), plan, submitted, recorder).await?;
        }
        recorder.host("wait", submitted);
        Ok(values)
    }

    /// Waits for all runs in flight.
    pub async fn wait(&mut self) -> Result<(), GpuError> {
        match self.under_way.pop_back() {
            Some(latest) => {
                self.under_way.clear();
                self.gpu().wait_for(latest).await
            }
            None => Ok(()),
        }
    }

    /// Returns without waiting for a run, or waits for an earlier one if too many are in flight.
    async fn go_on(&mut self, submission: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        self.under_way.push_back(submission);
        if self.under_way.len() > AHEAD
            && let Some(earliest) = self.under_way.pop_front()
        {
            self.gpu().wait_for(earliest).await?;
        }
        // Runs whose results are not read do not detect a loss by reading.
        self.gpu().alive()
    }
}

/// The tensors of a segment that the host reads: inputs of steps on the CPU, and results.
fn read_back(segment: &SiteRun, wanted: &Wanted) -> impl Iterator<Item = BufferId> {
    let results = segment.results.iter().filter(|id| !segment.downloads.contains(id) && wanted.on_host.contains(id));
    segment.downloads.iter().chain(results).copied()
}

fn readback_bytes(segment: &SiteRun, sizes: &Sizes, wanted: &Wanted) -> u64 {
    read_back(segment, wanted).map(|id| sizes.layouts[id.0 as usize].bytes()).sum()
}

/// The tensors stored one after another in `bytes`.
fn collect(copies: &[BufferId], bytes: &[u8], sizes: &Sizes) -> Result<Vec<(BufferId, RunValue)>, GpuError> {
    let mut rest = bytes;
    let mut values = Vec::with_capacity(copies.len());
    for &id in copies {
        let layout = &sizes.layouts[id.0 as usize];
        let (own, others) = rest.split_at_checked(layout.bytes() as usize).unwrap_or((rest, &[]));
        rest = others;
        values.push((id, RunValue::Host(layout.unpad(own).ok_or_else(short)?)));
    }
    Ok(values)
}

fn short() -> GpuError {
    GpuError::Readback { reason: "the buffer is smaller than its tensor".into() }
}
