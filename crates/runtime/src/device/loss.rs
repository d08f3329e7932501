use std::fmt;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Whether a device is lost, and the listeners to notify. Clones of a [`super::Gpu`] share it.
#[derive(Default)]
pub(super) struct Loss {
    reason: Mutex<Option<String>>,
    listeners: Mutex<Vec<Listener>>,
}

/// Called with the reason when a device is lost.
pub(super) type Listener = Box<dyn FnOnce(&str) + Send>;

impl Loss {
    /// Records a loss. The first reason is kept.
    pub fn note(&self, reason: impl Into<String>) {
        lock(&self.reason).get_or_insert(reason.into());
        self.tell();
    }

    /// Calls a listener on a loss, at once if the device is lost already.
    pub fn listen(&self, listener: Listener) {
        lock(&self.listeners).push(listener);
        self.tell();
    }

    /// The reason, if the device is known to be lost.
    pub fn reason(&self) -> Option<String> {
        lock(&self.reason).clone()
    }

    /// [`Loss::reason`], after probing the device.
    pub fn look(&self, device: &wgpu::Device) -> Option<String> {
        if cfg!(not(target_arch = "wasm32")) && self.reason().is_none() && is_silent(device) {
            self.note("it takes no more requests");
        }
        self.reason()
    }

    fn tell(&self) {
        let Some(reason) = self.reason() else { return };
        let listeners = std::mem::take(&mut *lock(&self.listeners));
        listeners.into_iter().for_each(|listener| listener(&reason));
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loss").field(&self.reason()).finish()
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if a device silently fails to create a small buffer.
///
/// No call reports that a device is lost, and the only callback for it is the app's. But a lost device creates no
/// buffers, which their mapping shows, and reports no error. A device that reports an error, such as out of memory, is
/// not lost. In a browser mappings show nothing, so the result is false.
fn is_silent(device: &wgpu::Device) -> bool {
    let scope = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    // A buffer with another usage would be written by a copy that waits for the next submission.
    let usage = wgpu::BufferUsages::MAP_WRITE;
    let buffer =
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: true });
    let is_made = buffer.slice(..).get_mapped_range().is_ok();
    let error = pin!(scope.pop()).poll(&mut Context::from_waker(Waker::noop()));
    !is_made && matches!(error, Poll::Ready(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gpu;

    #[test]
    fn looking_for_a_loss_provokes_no_error() {
        let Ok(gpu) = Gpu::open(None) else { return };
        let device = gpu.device();
        let errors = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal];
        let scopes = errors.map(|filter| device.push_error_scope(filter));
        assert!(!is_silent(device));
        for scope in scopes.into_iter().rev() {
            assert_eq!(pollster::block_on(scope.pop()).map(|error| error.to_string()), None);
        }
        device.destroy();
        assert!(is_silent(device));
    }
}
