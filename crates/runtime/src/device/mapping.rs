use super::Gpu;
use crate::GpuError;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A buffer on its way to the host.
#[derive(Debug)]
pub(crate) struct Mapping {
    buffer: wgpu::Buffer,
    bytes: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<(), wgpu::BufferAsyncError>>,
    waker: Option<Waker>,
}

impl Mapping {
    /// Asks for the first `bytes` of a buffer, a multiple of four and not 0. Follows the submission that fills it.
    pub fn start(buffer: &wgpu::Buffer, bytes: u64) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            let mut state = lock(&shared);
            state.result = Some(result);
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        });
        Self { buffer: buffer.clone(), bytes, state }
    }

    /// Waits for the bytes and hands them to `read`.
    pub async fn read<T>(self, gpu: &Gpu, read: impl FnOnce(&[u8]) -> T) -> Result<T, GpuError> {
        gpu.wait()?;
        if cfg!(not(target_arch = "wasm32")) && lock(&self.state).result.is_none() {
            return Err(GpuError::Readback { reason: "the work ended without a result".into() });
        }
        let mapped = poll_fn(|context| {
            let mut state = lock(&self.state);
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

impl Drop for Mapping {
    fn drop(&mut self) {
        self.buffer.unmap();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
