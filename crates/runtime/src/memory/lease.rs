use super::Spares;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Spare buffers of a session, which its leases share.
pub(crate) type SpareBuffers = Arc<Mutex<Spares<wgpu::Buffer>>>;

/// A buffer in use. On drop, a session's buffer returns to its spares.
#[derive(Debug)]
pub(crate) struct Lease {
    buffer: wgpu::Buffer,
    home: Weak<Mutex<Spares<wgpu::Buffer>>>,
}

impl Lease {
    /// A buffer that returns to `home`.
    pub fn of(home: &SpareBuffers, buffer: wgpu::Buffer) -> Self {
        Self { buffer, home: Arc::downgrade(home) }
    }

    /// A buffer that belongs to the app.
    pub fn foreign(buffer: wgpu::Buffer) -> Self {
        Self { buffer, home: Weak::new() }
    }

    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Drops the buffer instead of returning it.
    pub fn discard(mut self) {
        self.home = Weak::new();
    }

    /// True if the buffer returns to `home`.
    pub fn is_of(&self, home: &SpareBuffers) -> bool {
        std::ptr::eq(self.home.as_ptr(), Arc::as_ptr(home))
    }
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        self.buffer == other.buffer
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            lock(&home).give(self.buffer.size(), self.buffer.clone());
        }
    }
}

pub(crate) fn lock(spares: &SpareBuffers) -> MutexGuard<'_, Spares<wgpu::Buffer>> {
    spares.lock().unwrap_or_else(PoisonError::into_inner)
}
