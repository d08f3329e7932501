use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether a device is lost. Clones of a [`super::Gpu`] share it.
#[derive(Debug)]
pub(super) struct Loss {
    reason: Mutex<Option<String>>,
    /// What a mapping is asked of to see whether the device still takes requests.
    probe: Mutex<wgpu::Buffer>,
}

impl Loss {
    pub fn of(device: &wgpu::Device) -> Arc<Self> {
        let descriptor = wgpu::BufferDescriptor {
            label: None,
            size: 4,
            usage: wgpu::BufferUsages::MAP_WRITE,
            mapped_at_creation: false,
        };
        Arc::new(Self { reason: Mutex::default(), probe: Mutex::new(device.create_buffer(&descriptor)) })
    }

    /// Takes note of a loss. The first reason counts.
    pub fn note(&self, reason: impl Into<String>) {
        lock(&self.reason).get_or_insert(reason.into());
    }

    /// Why the device is lost, if it is known to be.
    pub fn reason(&self) -> Option<String> {
        lock(&self.reason).clone()
    }

    /// [`Loss::reason`] after a look at the device.
    ///
    /// Neither a submission nor a new buffer says that a device is lost, and the one callback for it is the app's. The request
    /// for a mapping does, at once, except in a browser.
    pub fn look(&self, device: &wgpu::Device) -> Option<String> {
        if cfg!(not(target_arch = "wasm32")) && self.reason().is_none() && self.refuses(device) {
            self.note("it takes no more requests");
        }
        self.reason()
    }

    fn refuses(&self, device: &wgpu::Device) -> bool {
        let probe = lock(&self.probe);
        // The buffer of a device that was lost before is not valid, which is not the app's business.
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let refused = Arc::new(AtomicBool::new(false));
        let seen = refused.clone();
        probe.slice(..).map_async(wgpu::MapMode::Write, move |result| seen.store(result.is_err(), Ordering::Relaxed));
        let refused = refused.load(Ordering::Relaxed);
        // Gives up the request, with an error of its own.
        probe.unmap();
        drop(scope.pop());
        refused
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
