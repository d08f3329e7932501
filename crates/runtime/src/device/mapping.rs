use super::Gpu;
use crate::GpuError;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// How long a result may take after the work has ended: another thread that waits for the same device may be the one that
/// delivers it.
const DELIVERY: Duration = Duration::from_secs(10);

/// A buffer on its way to the host.
#[derive(Debug)]
pub(crate) struct Mapping {
    buffer: wgpu::Buffer,
    bytes: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    delivered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<(), wgpu::BufferAsyncError>>,
    waker: Option<Waker>,
}

impl Mapping {
    /// Asks for the first `bytes` of a buffer, a multiple of four and not 0. Follows the submission that fills it.
    pub fn start(buffer: &wgpu::Buffer, bytes: u64) -> Self {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            let mut state = lock(&own.state);
            state.result = Some(result);
            own.delivered.notify_all();
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        });
        Self { buffer: buffer.clone(), bytes, shared }
    }

    /// Waits for the bytes and hands them to `read`.
    pub async fn read<T>(self, gpu: &Gpu, read: impl FnOnce(&[u8]) -> T) -> Result<T, GpuError> {
        gpu.wait()?;
        if cfg!(not(target_arch = "wasm32")) && !self.shared.is_delivered() {
            return Err(GpuError::Readback { reason: "the work ended without a result".into() });
        }
        let mapped = poll_fn(|context| {
            let mut state = lock(&self.shared.state);
            match state.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        mapped.await.map_err(|error| GpuError::Readback { reason: error.to_string() })?;
        let view = self.buffer.slice(..self.bytes).get_mapped_range();
        let view = view.map_err(|error| GpuError::Readback { reason: error.to_string() })?;
        Ok(read(&view))
    }
}

impl Shared {
    /// True once there is a result; false if it does not come.
    fn is_delivered(&self) -> bool {
        let waiting = self.delivered.wait_timeout_while(lock(&self.state), DELIVERY, |state| state.result.is_none());
        waiting.unwrap_or_else(PoisonError::into_inner).0.result.is_some()
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
