use super::adapters::{self, hardware};
use super::elements;
use super::family;
use super::loss::Loss;
use super::matrices::{MatrixReason, TestedMatrices};
use super::opened::Opened;
use super::submit::Submit;
use super::workers::{Workers, blocks, promise};
use crate::boxed::BoxedFuture;
use crate::timing::timed_async;
use crate::{GpuError, Kernel, block_on};
use rewire_graph_rewrite::device::Target;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use web_time::Instant;

/// Bytes of the smallest buffer. Shaders bind whole vectors even of empty tensors.
pub(crate) const SMALLEST: u64 = 64;

/// How long a waiting thread polls before it sleeps.
const WATCHED: Duration = Duration::from_micros(250);

/// A device that is being opened; `None` for the CPU.
pub(crate) type Opening = BoxedFuture<'static, Result<Option<Gpu>, GpuError>>;

/// An open device. Clones share it.
///
/// Drop all clones before the process exits, also those in statics: NVIDIA's driver for Linux unloads itself in an exit
/// handler, and its threads of open devices then crash.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub(super) device: wgpu::Device,
    queue: wgpu::Queue,
    info: Arc<wgpu::AdapterInfo>,
    pub(super) target: Target,
    limits: Arc<wgpu::Limits>,
    loss: Arc<Loss>,
    opened: Arc<Opened>,
    workers: Arc<OnceLock<Workers>>,
    pub(super) submit: Option<Submit>,
    /// Results of the self-tests of its cooperative matrices.
    pub(super) right: Arc<TestedMatrices>,
    /// Why its matrix tier is not higher.
    pub(super) reason: MatrixReason,
    #[cfg(test)]
    pub(crate) faults: Arc<super::faults::Faults>,
}

impl Gpu {
    /// Opens the best adapter, hardware first. `filter` is a substring of its name, driver, backend or PCI address, or
    /// `#` and its index in the list of [`crate::devices`].
    ///
    /// # Errors
    /// [`GpuError::NoAdapter`] if no adapter matches, [`GpuError::Open`] if the driver refuses.
    pub async fn open_async(filter: Option<&str>) -> Result<Self, GpuError> {
        Self::open_adapter(&adapters::select(filter, |_| true).await?).await
    }

    /// [`Gpu::open_async`], blocking.
    ///
    /// # Errors
    /// As [`Gpu::open_async`].
    pub fn open(filter: Option<&str>) -> Result<Self, GpuError> {
        block_on(Self::open_async(filter))
    }

    /// The device for a kernel choice: the best adapter for [`Kernel::Wgpu`] and [`Kernel::Auto`], `None` for the CPU.
    /// [`Kernel::Auto`] chooses a software adapter only if `filter` matches one.
    ///
    /// # Errors
    /// As [`Gpu::open_async`] if the kernel or a `filter` requires an adapter. [`Kernel::Cpu`] never matches a filter.
    pub async fn for_kernel_async(kernel: Kernel, filter: Option<&str>) -> Result<Option<Self>, GpuError> {
        Self::opening(kernel, filter).await?.await
    }

    /// [`Gpu::for_kernel_async`] up to the choice of the adapter. The returned future opens it.
    pub(crate) async fn opening(kernel: Kernel, filter: Option<&str>) -> Result<Opening, GpuError> {
        // A named adapter is chosen regardless of its kind.
        let is_optional = kernel == Kernel::Auto && filter.is_none();
        let adapter = match (kernel, filter) {
            (Kernel::Cpu, None) => None,
            (Kernel::Cpu, Some(filter)) => {
                let missing = "kernel cpu runs on none: leave the adapter out, or take kernel wgpu".to_owned();
                return Err(GpuError::NoAdapter { filter: Some(filter.to_owned()), missing });
            }
            _ if !is_optional => Some(adapters::select(filter, |_| true).await?),
            _ => match adapters::select(None, hardware).await {
                Ok(adapter) => Some(adapter),
                Err(GpuError::NoAdapter { .. }) => None,
                Err(error) => return Err(error),
            },
        };
        Ok(Box::pin(async move {
            let Some(adapter) = adapter else { return Ok(None) };
            match Self::open_adapter(&adapter).await {
                Ok(gpu) => Ok(Some(gpu)),
                Err(error) if is_optional => {
                    tracing::warn!("{error}");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        }))
    }

    /// [`Gpu::for_kernel_async`], blocking.
    ///
    /// # Errors
    /// As [`Gpu::for_kernel_async`].
    pub fn for_kernel(kernel: Kernel, filter: Option<&str>) -> Result<Option<Self>, GpuError> {
        block_on(Self::for_kernel_async(kernel, filter))
    }

    /// Wraps the app's own device. Its error and loss handlers remain the app's.
    ///
    /// Natively, rewire detects a loss when it submits work or reads results; in a browser only when it reads results.
    /// An app that learns of a loss earlier can report it by [`Gpu::report_loss`]. Shaders use only features and limits
    /// with which the device was opened.
    pub fn from_device(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let (features, limits) = (device.features(), device.limits());
        Self {
            info: Arc::new(device.adapter_info()),
            target: target(features, &limits, &device.adapter_info()),
            loss: Arc::default(),
            opened: Arc::new(Opened::new(&device, &queue)),
            workers: Arc::default(),
            submit: None,
            device,
            queue,
            limits: Arc::new(limits),
            right: Arc::default(),
            reason: MatrixReason::NotOpened,
            #[cfg(test)]
            faults: Arc::default(),
        }
    }

    /// The same device, limited to the features and limits of `target`.
    ///
    /// Helps to find out whether a driver feature is at fault, and how a model runs on a smaller device.
    ///
    /// ```no_run
    /// use rewire_graph_rewrite::device::Target;
    /// use rewire_runtime::Gpu;
    /// let gpu = Gpu::open(None)?;
    /// let plain = gpu.restricted(&Target::BASELINE);
    /// assert!(!plain.target().f16);
    /// # Ok::<(), rewire_runtime::GpuError>(())
    /// ```
    #[must_use]
    pub fn restricted(&self, target: &Target) -> Self {
        let target = self.target.within(target);
        let of = |target: &Target| (target.matrices(), target.matrices_of_subgroups());
        // Disabled features are not tested.
        let (right, reason) = match of(&target) == of(&self.target) {
            true => (self.right.clone(), self.reason),
            false => (Arc::default(), MatrixReason::Limited),
        };
        Self { target, right, reason, ..self.clone() }
    }

    async fn open_adapter(adapter: &wgpu::Adapter) -> Result<Self, GpuError> {
        let request = descriptor(adapter);
        let (device, queue) = timed_async("opening the device", elements::request_device(adapter, request))
            .await
            .map_err(|error| GpuError::Open { adapter: adapter.get_info().name, reason: error.to_string() })?;
        let gpu = Self::from_device(device, queue).with_matrices_of(adapter);
        gpu.device.on_uncaptured_error(Arc::new(|error| tracing::error!("device error: {error}")));
        let loss = gpu.loss.clone();
        gpu.device.set_device_lost_callback(move |reason, message| loss.note(format!("{reason:?} {message}")));
        Ok(gpu)
    }

    /// Runs waits for the device on a thread of the app, except within [`block_on`]. By default the first wait starts a
    /// thread for this.
    #[must_use]
    pub fn with_workers(self, workers: Workers) -> Self {
        Self { workers: Arc::new(OnceLock::from(workers)), ..self }
    }

    /// Calls `listener` with the reason once a loss of the device is detected: by the driver's callback for a device
    /// that was opened here, by a run for the app's own. Calls it at once if the device is lost already.
    ///
    /// ```no_run
    /// let gpu = rewire_runtime::Gpu::open(None)?;
    /// gpu.on_loss(|reason| eprintln!("the device is lost: {reason}"));
    /// # Ok::<(), rewire_runtime::GpuError>(())
    /// ```
    pub fn on_loss(&self, listener: impl FnOnce(&str) + Send + 'static) {
        self.loss.listen(Box::new(listener));
    }

    /// Marks the device as lost. Runs on it and on its clones then fail with [`GpuError::Lost`], or with
    /// [`Kernel::Auto`] continue elsewhere. For the loss handler of an app's own device.
    ///
    /// ```no_run
    /// # fn example(device: rewire_runtime::wgpu::Device, queue: rewire_runtime::wgpu::Queue) {
    /// use rewire_runtime::Gpu;
    /// let gpu = Gpu::from_device(device.clone(), queue);
    /// let lost = gpu.clone();
    /// device.set_device_lost_callback(move |reason, message| lost.report_loss(&format!("{reason:?}: {message}")));
    /// # }
    /// ```
    pub fn report_loss(&self, reason: &str) {
        self.loss.note(reason);
    }

    /// The wgpu device.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// The wgpu queue.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// The device's capabilities for kernels.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Name of the adapter and its driver.
    pub fn name(&self) -> String {
        adapters::title(&self.info)
    }

    /// The adapter's description of itself.
    pub(crate) fn info(&self) -> &wgpu::AdapterInfo {
        &self.info
    }

    pub(crate) fn limits(&self) -> &wgpu::Limits {
        &self.limits
    }

    /// Runs `work`, then waits for errors that the device reports.
    pub(crate) async fn checked<T>(&self, what: &str, work: impl FnOnce() -> T) -> Result<T, GpuError> {
        self.check_process()?;
        self.outcome(what, self.watched(work)).await
    }

    /// Runs `work` on this thread. Returns its value and a future of the errors that the device reports.
    pub(crate) fn watched<T, W: FnOnce() -> T>(
        &self,
        work: W,
    ) -> (T, impl Future<Output = Option<wgpu::Error>> + use<T, W>) {
        let [internal, memory, validation] =
            [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation]
                .map(|filter| self.device.push_error_scope(filter));
        self.stage();
        let value = work();
        self.stage();
        let errors = [validation.pop(), memory.pop(), internal.pop()];
        let first = async move {
            for error in errors {
                if let Some(error) = error.await {
                    return Some(error);
                }
            }
            None
        };
        (value, first)
    }

    /// Before and after all work on the device.
    fn stage(&self) {
        #[cfg(test)]
        if self.faults.stages.ends() {
            self.device.destroy();
        }
    }

    /// A buffer. Its content is zeros.
    pub(crate) fn buffer(&self, label: &str, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.new_buffer(label, size, usage, false)
    }

    /// A mapped buffer whose content the device copies.
    pub(crate) fn mapped(&self, label: &str, size: u64) -> wgpu::Buffer {
        self.new_buffer(label, size, wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC, true)
    }

    fn new_buffer(&self, label: &str, size: u64, usage: wgpu::BufferUsages, mapped_at_creation: bool) -> wgpu::Buffer {
        // No device supports buffers of this size.
        #[cfg(test)]
        let size = if self.faults.buffers.ends() { u64::MAX - 3 } else { size };
        self.device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation })
    }

    /// A buffer that kernels read and write.
    pub(crate) fn tensor_buffer(&self, label: &str, size: u64) -> wgpu::Buffer {
        let copies = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        self.buffer(label, size.max(SMALLEST), wgpu::BufferUsages::STORAGE | copies)
    }

    /// A buffer for kernels that starts with `content`.
    pub(crate) fn filled(&self, label: &str, content: &[u8]) -> wgpu::Buffer {
        let buffer = self.tensor_buffer(label, content.len() as u64);
        if !content.is_empty() {
            self.queue.write_buffer(&buffer, 0, content);
        }
        buffer
    }

    /// The value of [`Gpu::watched`], or the error that the device reported.
    pub(crate) async fn outcome<T>(
        &self,
        what: &str,
        (value, error): (T, impl Future<Output = Option<wgpu::Error>>),
    ) -> Result<T, GpuError> {
        let error = error.await;
        match error {
            Some(error) => Err(self.refused(what, error)),
            None => self.alive().map(|()| value),
        }
    }

    /// Why work was refused: a loss, or the device's error.
    pub(crate) fn refused(&self, what: &str, error: wgpu::Error) -> GpuError {
        self.alive().err().unwrap_or_else(|| describe(error, what))
    }

    /// Fails in a forked child of the process that opened the device: drivers do not survive a fork, and calls to them
    /// may never return.
    pub(crate) fn check_process(&self) -> Result<(), GpuError> {
        if self.opened.is_by_this_process() { Ok(()) } else { Err(GpuError::Forked { adapter: self.name() }) }
    }

    /// Fails if the device is lost or belongs to another process.
    pub(crate) fn alive(&self) -> Result<(), GpuError> {
        self.check_process()?;
        self.loss.look(&self.device).map_or(Ok(()), |reason| Err(self.lost(reason)))
    }

    fn lost(&self, reason: String) -> GpuError {
        GpuError::Lost { adapter: self.name(), reason }
    }

    /// Why results are missing: a loss, or `reason`.
    pub(crate) fn unread(&self, reason: impl ToString) -> GpuError {
        self.alive().err().unwrap_or_else(|| GpuError::Readback { reason: reason.to_string() })
    }

    /// The workers that wait for the device instead of this thread.
    pub(super) fn workers(&self) -> &Workers {
        self.workers.get_or_init(Workers::one_thread)
    }

    /// Blocks until all submitted work is done, the app's own included. Returns at once in a browser.
    ///
    /// # Errors
    /// [`GpuError::Lost`], or another error that the driver reports.
    pub fn wait(&self) -> Result<(), GpuError> {
        if !self.watch(|status| status.is_queue_empty())? {
            self.poll(wgpu::PollType::wait_indefinitely())?;
        }
        self.alive()
    }

    /// Frees resources of completed work.
    pub(crate) fn collect(&self) -> Result<(), GpuError> {
        self.poll(wgpu::PollType::Poll).map(drop)
    }

    /// [`Gpu::wait`] without blocking a thread.
    ///
    /// # Errors
    /// As [`Gpu::wait`], and [`GpuError::Dropped`] if a worker dropped its work.
    pub async fn wait_async(&self) -> Result<(), GpuError> {
        if cfg!(target_arch = "wasm32") {
            let (promise, done) = promise();
            self.queue.on_submitted_work_done(move || promise.keep(()));
            done.await.map_err(GpuError::Dropped)?;
            return self.alive();
        }
        let gpu = self.clone();
        self.workers().run(move || gpu.wait()).await.map_err(GpuError::Dropped)?
    }

    /// Waits for submitted work; if the caller does not block, also for everything submitted since.
    pub(crate) async fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        if !blocks() || cfg!(target_arch = "wasm32") {
            return self.wait_async().await;
        }
        if !self.watch(|status| status.is_queue_empty())? {
            self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })?;
        }
        self.alive()
    }

    /// Polls for a short time whether work is done, since drivers wake a sleeping thread 20 us late. True once
    /// `is_done` returns true; it may check state that the delivery of a result has changed.
    pub(super) fn watch(&self, is_done: impl Fn(wgpu::PollStatus) -> bool) -> Result<bool, GpuError> {
        // A software adapter needs the processor for its work.
        if self.target.software || cfg!(target_arch = "wasm32") {
            return Ok(false);
        }
        let begun = Instant::now();
        while begun.elapsed() < WATCHED {
            if is_done(self.poll(wgpu::PollType::Poll)?) {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Waits for work or polls it, and delivers the results of completed work.
    pub(super) fn poll(&self, how: wgpu::PollType) -> Result<wgpu::PollStatus, GpuError> {
        self.check_process()?;
        // `poll` panics if the driver reports a loss.
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(how))) {
            Ok(Ok(status)) => self.loss.reason().map_or(Ok(status), |reason| Err(self.lost(reason))),
            Ok(Err(error)) => Err(self.unread(error)),
            Err(_) => {
                self.loss.note("the driver failed while waiting");
                self.alive().map(|()| wgpu::PollStatus::Poll)
            }
        }
    }
}

fn describe(error: wgpu::Error, what: &str) -> GpuError {
    match error {
        wgpu::Error::OutOfMemory { .. } => GpuError::OutOfMemory { during: what.to_owned() },
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            GpuError::Rejected { what: what.to_owned(), reason: description }
        }
    }
}

/// The features and limits that kernels request from an adapter.
pub(super) fn descriptor(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    let optional = wgpu::Features::SHADER_F16
        | wgpu::Features::SHADER_INT64
        | wgpu::Features::SUBGROUP
        | wgpu::Features::SUBGROUP_BARRIER
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
        | wgpu::Features::PIPELINE_CACHE;
    wgpu::DeviceDescriptor {
        label: Some("rewire"),
        required_features: adapter.features() & optional,
        required_limits: adapter.limits(),
        // SAFETY: the only experimental feature is cooperative matrices. Emitted shaders load and store whole matrices
        // within their workgroup memory, and a self-test precedes their first use.
        experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
        // Memory blocks grow on demand: a first block of 128 MiB takes a driver 15 ms.
        memory_hints: wgpu::MemoryHints::Manual { suballocated_device_memory_block_size: 8 << 20..256 << 20 },
        ..Default::default()
    }
}

pub(super) fn target(features: wgpu::Features, limits: &wgpu::Limits, info: &wgpu::AdapterInfo) -> Target {
    Target {
        f16: features.contains(wgpu::Features::SHADER_F16),
        int64: features.contains(wgpu::Features::SHADER_INT64),
        subgroups: features.contains(wgpu::Features::SUBGROUP | wgpu::Features::SUBGROUP_BARRIER),
        subgroup_size: family::subgroup_sizes(info),
        matrix: 0,
        half_sums: false,
        matrix_elements: false,
        workgroup_matrices: 0,
        integers: false,
        multiprocessors: 0,
        registers: family::registers(info),
        software: !hardware(info),
        storage_buffers: limits.max_storage_buffers_per_shader_stage,
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        invocations: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
        binding_bytes: limits.max_storage_buffer_binding_size,
    }
}
