use super::Gpu;
use super::workers::blocks;
use crate::GpuError;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use web_time::Instant;

/// How long a result may take after the work has ended; another thread that waits for the same device may have to
/// deliver it.
const DELIVERY: Duration = Duration::from_secs(10);

/// How long a browser is prompted to check whether work has ended.
const HURRIED: Duration = Duration::from_millis(8);

/// A buffer on its way to the host.
#[derive(Debug)]
pub(crate) struct Mapping {
    buffer: wgpu::Buffer,
    bytes: u64,
    /// The submission that fills it.
    submission: wgpu::SubmissionIndex,
    shared: Arc<Shared>,
    /// True if a worker waits for it.
    awaited: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    delivered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<(), GpuError>>,
    waker: Option<Waker>,
}

impl Mapping {
    /// Maps the first `bytes` of a buffer, a nonzero multiple of four, that a submission fills.
    pub fn start(buffer: &wgpu::Buffer, bytes: u64, submission: wgpu::SubmissionIndex) -> Self {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            own.deliver(result.map_err(|error| GpuError::Readback { reason: error.to_string() }));
        });
        Self { buffer: buffer.clone(), bytes, submission, shared, awaited: false }
    }

    /// Waits for the bytes and passes them to `read`.
    pub async fn read<T>(mut self, gpu: &Gpu, read: impl FnOnce(&[u8]) -> T) -> Result<T, GpuError> {
        if cfg!(target_arch = "wasm32") {
            self.hurry(gpu).await;
        }
        // A failed mapping may be due to a lost device.
        poll_fn(|context| self.poll(gpu, context)).await.map_err(|error| match error {
            GpuError::Readback { reason } => gpu.unread(reason),
            error => error,
        })?;
        let view = self.buffer.slice(..self.bytes).get_mapped_range().map_err(|error| gpu.unread(error))?;
        Ok(read(&view))
    }

    /// Submits empty work repeatedly: Chromium checks for completed work on each submission, and otherwise every 2 ms.
    async fn hurry(&self, gpu: &Gpu) {
        let begun = Instant::now();
        // A software adapter needs the processor for its work.
        while !gpu.target().software && begun.elapsed() < HURRIED && lock(&self.shared.state).result.is_none() {
            let submit = || gpu.submit([]);
            let (_, looked) = gpu.watched(submit);
            // An error of the device is returned as the error of the result.
            let _ = looked.await;
        }
    }

    /// Ready when the bytes have arrived. A browser delivers them without polling.
    fn poll(&mut self, gpu: &Gpu, context: &Context<'_>) -> Poll<Result<(), GpuError>> {
        if let Some(result) = self.shared.take_or_wake(context) {
            return Poll::Ready(result);
        }
        if cfg!(target_arch = "wasm32") {
            return Poll::Pending;
        }
        if blocks() {
            return Poll::Ready(self.shared.wait(gpu, self.submission.clone()));
        }
        if !std::mem::replace(&mut self.awaited, true) {
            let (shared, waiting, submission) = (self.shared.clone(), gpu.clone(), self.submission.clone());
            gpu.workers().spawn(move || {
                let result = shared.wait(&waiting, submission);
                // The caller is the last owner of the device and ends this thread.
                drop(waiting);
                shared.deliver(result);
            });
        }
        Poll::Pending
    }
}

impl Shared {
    fn deliver(&self, result: Result<(), GpuError>) {
        let mut state = lock(&self.state);
        state.result.get_or_insert(result);
        let waker = state.waker.take();
        drop(state);
        self.delivered.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }

    /// The result, or registers the waker for it.
    fn take_or_wake(&self, context: &Context<'_>) -> Option<Result<(), GpuError>> {
        let mut state = lock(&self.state);
        if state.result.is_none() {
            state.waker = Some(context.waker().clone());
        }
        state.result.clone()
    }

    /// Blocks until the result has arrived, or fails.
    fn wait(&self, gpu: &Gpu, submission: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        if !gpu.watch(|_| lock(&self.state).result.is_some())? {
            gpu.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })?;
        }
        let waiting = self.delivered.wait_timeout_while(lock(&self.state), DELIVERY, |state| state.result.is_none());
        let state = waiting.unwrap_or_else(PoisonError::into_inner).0;
        state
            .result
            .clone()
            .unwrap_or_else(|| Err(GpuError::Readback { reason: "the work ended without a result".into() }))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.buffer.unmap();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
