use rewire_cpu::parallel::Process;
use std::fmt;
use std::mem::ManuallyDrop;

/// The process that opened a device. Clones of a [`super::Gpu`] share it.
///
/// It keeps the device alive until the last clone is dropped. A forked child leaks the device: a driver that frees it
/// waits for its threads, which the child does not have.
pub(super) struct Opened {
    process: Process,
    device: ManuallyDrop<(wgpu::Device, wgpu::Queue)>,
}

impl Opened {
    pub(super) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        Self { process: Process::current(), device: ManuallyDrop::new((device.clone(), queue.clone())) }
    }

    pub(super) fn is_by_this_process(&self) -> bool {
        self.process == Process::current()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.is_by_this_process() {
            // SAFETY: nothing uses the field after this.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened").field(&self.process).finish()
    }
}
