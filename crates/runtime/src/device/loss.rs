use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Whether a device is lost. Clones of a [`super::Gpu`] share it.
#[derive(Debug, Default)]
pub(super) struct Loss(Mutex<Option<String>>);

impl Loss {
    /// Takes note of a loss. The first reason counts.
    pub fn note(&self, reason: impl Into<String>) {
        self.lock().get_or_insert(reason.into());
    }

    /// Why the device is lost, if it is known to be.
    pub fn reason(&self) -> Option<String> {
        self.lock().clone()
    }

    /// [`Loss::reason`] after a look at the device.
    pub fn look(&self, device: &wgpu::Device) -> Option<String> {
        if cfg!(not(target_arch = "wasm32")) && self.reason().is_none() && is_silent(device) {
            self.note("it takes no more requests");
        }
        self.reason()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if a device has nothing to say of a buffer that cannot be.
///
/// No request tells that a device is lost, and the one callback for it is the app's. But a lost device does not look at what is
/// asked of it, and so does not complain either. In a browser, where complaints come later, nothing is known.
fn is_silent(device: &wgpu::Device) -> bool {
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let usage = wgpu::BufferUsages::empty();
    drop(device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false }));
    matches!(pin!(scope.pop()).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(None))
}
