use super::GpuSide;
use super::memory::grow;
use crate::GpuError;
use crate::session::sizes::Sizes;
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::BufferId;
use std::borrow::Cow;

/// Contents of up to this many bytes are uploaded together, since each separate write takes a driver buffer.
const SMALL: usize = 1 << 14;

/// A part of the staging buffer and its target tensor.
#[derive(Debug)]
pub(super) struct Staged {
    offset: u64,
    bytes: u64,
    to: wgpu::Buffer,
}

impl GpuSide {
    /// Uploads contents of tensors, and the launch parameters if they changed. The next submission must begin with the
    /// returned copies.
    pub(super) fn stage(&mut self, sizes: &Sizes, fetched: &[(BufferId, HostTensor)]) -> Result<Vec<Staged>, GpuError> {
        let words = match std::mem::replace(&mut self.steered, true) {
            true => vec![],
            false => self.words.clone(),
        };
        let contents = self.contents(&words, sizes, fetched)?;
        let (small, large): (Vec<_>, Vec<_>) = contents.into_iter().partition(|(_, content)| content.len() <= SMALL);
        for (buffer, content) in &large {
            self.gpu().queue().write_buffer(buffer, 0, content);
        }
        let mut staged = Vec::with_capacity(small.len());
        let mut all = Vec::with_capacity(small.iter().map(|(_, content)| content.len()).sum());
        for (to, content) in small {
            staged.push(Staged { offset: all.len() as u64, bytes: content.len() as u64, to });
            all.extend_from_slice(&content);
        }
        if !all.is_empty() {
            let gpu = self.gpu().clone();
            let limit = gpu.limits().max_buffer_size & !3;
            let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            grow(&mut self.staging, all.len() as u64, limit, |bytes| gpu.buffer("staging", bytes, usage));
        }
        if let (Some(staging), false) = (&self.staging, all.is_empty()) {
            self.gpu().queue().write_buffer(staging, 0, &all);
        }
        Ok(staged)
    }

    /// Records everything a run needs in the app's encoder, with separate memory: other work may run before the encoder
    /// does.
    pub(super) fn stage_into(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        sizes: &Sizes,
        fetched: &[(BufferId, HostTensor)],
    ) -> Result<(), GpuError> {
        // The control buffer's content is unknown until the encoder has run.
        self.steered = false;
        let contents = self.contents(&self.words, sizes, fetched)?;
        let mut staged = Vec::with_capacity(contents.len());
        let mut all = Vec::with_capacity(contents.iter().map(|(_, content)| content.len()).sum());
        for (to, content) in contents {
            staged.push(Staged { offset: all.len() as u64, bytes: content.len() as u64, to });
            all.extend_from_slice(&content);
        }
        unstage(encoder, &self.gpu().filled("staging", &all), &staged);
        Ok(())
    }

    /// The contents of buffers.
    fn contents<'a>(
        &self,
        words: &'a [i32],
        sizes: &Sizes,
        fetched: &'a [(BufferId, HostTensor)],
    ) -> Result<Vec<Content<'a>>, GpuError> {
        let mut contents = Vec::with_capacity(fetched.len() + 1);
        contents.extend(self.control.clone().map(|buffer| (buffer, Cow::Borrowed(bytemuck::cast_slice(words)))));
        for (id, tensor) in fetched {
            let (Some(buffer), Some(layout)) = (self.buffer(*id), sizes.layouts.get(id.0 as usize)) else {
                return Err(GpuError::Unbound { step: "an upload".into(), what: format!("buffer {}", id.0) });
            };
            contents.push((buffer.clone(), layout.pad(tensor)));
        }
        contents.retain(|(_, content)| !content.is_empty());
        Ok(contents)
    }
}

/// Bytes with their target buffer.
type Content<'a> = (wgpu::Buffer, Cow<'a, [u8]>);

/// Records copies from the staging buffer.
pub(super) fn unstage(encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer, staged: &[Staged]) {
    for Staged { offset, bytes, to } in staged {
        encoder.copy_buffer_to_buffer(staging, *offset, to, 0, *bytes);
    }
}
