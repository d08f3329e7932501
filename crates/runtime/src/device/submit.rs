use super::Gpu;
use std::fmt;
use std::sync::Arc;

/// Submits work to the queue of a device.
#[derive(Clone)]
pub(super) struct Submit(Arc<SubmitFn>);

type SubmitFn = dyn Fn(&wgpu::Queue, Vec<wgpu::CommandBuffer>) -> wgpu::SubmissionIndex + Send + Sync;

impl fmt::Debug for Submit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Submit")
    }
}

impl Gpu {
    /// Passes all command buffers to `submit`, which must submit them to the queue. An app that shares its queue can
    /// take turns there. Uploads enter the queue before, with the next submission.
    ///
    /// ```no_run
    /// # fn example(device: rewire_runtime::wgpu::Device, queue: rewire_runtime::wgpu::Queue) {
    /// use rewire_runtime::Gpu;
    /// use std::sync::{Arc, Mutex};
    /// let turn = Arc::new(Mutex::new(()));
    /// let gpu = Gpu::from_device(device, queue).with_submit(move |queue, commands| {
    ///     let _turn = turn.lock();
    ///     queue.submit(commands)
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn with_submit(
        mut self,
        submit: impl Fn(&wgpu::Queue, Vec<wgpu::CommandBuffer>) -> wgpu::SubmissionIndex + Send + Sync + 'static,
    ) -> Self {
        self.submit = Some(Submit(Arc::new(submit)));
        self
    }

    /// Submits work to the queue, through the app's function if set.
    pub(crate) fn submit(&self, commands: impl IntoIterator<Item = wgpu::CommandBuffer>) -> wgpu::SubmissionIndex {
        match &self.submit {
            Some(Submit(submit)) => submit(self.queue(), commands.into_iter().collect()),
            None => self.queue().submit(commands),
        }
    }
}
