//! Copies between the host and tensors of the device, through mapped buffers that are reused.

use super::memory::with_room;
use super::{GpuSide, short};
use crate::GpuError;
use crate::device::{Mapping, SMALLEST};
use crate::memory::{Layout, Lease, SpareBuffers, lock};
use crate::model::SiteRun;
use crate::session::io::{DeviceTensor, RunValue, Wanted};
use crate::session::sizes::Sizes;
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::{BufferId, Plan};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The minimum size of a download in bytes before the last one of a run: each one is a submission.
const DOWNLOAD: u64 = 1 << 21;

/// A part of a run, and the outputs that the host may read after it.
pub(super) struct Piece {
    pub steps: Range<usize>,
    outputs: Vec<(String, BufferId)>,
    pub bytes: u64,
}

/// Outputs on their way to the host.
#[derive(Debug)]
pub(super) struct Download {
    outputs: Vec<(String, Layout)>,
    content: Content,
}

/// The content of outputs.
#[derive(Debug)]
enum Content {
    Empty,
    /// With the mapped memory, which is free once the mapping has been dropped.
    Mapped(Mapping, Lease),
    Host(HostTensor),
}

impl Download {
    /// The outputs of a submitted piece; `None` if it has none.
    pub fn of(piece: Piece, mapped: Option<(Mapping, Lease)>, sizes: &Sizes) -> Option<Self> {
        let layout = |(name, id): (String, BufferId)| (name, sizes.layouts[id.0 as usize].clone());
        let outputs: Vec<_> = piece.outputs.into_iter().map(layout).collect();
        let content = mapped.map_or(Content::Empty, |(mapping, memory)| Content::Mapped(mapping, memory));
        (!outputs.is_empty()).then_some(Self { outputs, content })
    }
}

impl GpuSide {
    /// Divides a segment after the steps that complete outputs for the host.
    pub(super) fn pieces(plan: &Plan, segment: &SiteRun, sizes: &Sizes, wanted: &Wanted) -> Vec<Piece> {
        let end = |id: BufferId| {
            let steps = segment.steps.clone().zip(&plan.steps[segment.steps.clone()]);
            let last = steps.rev().find(|(_, step)| step.writes.contains(&id));
            last.map_or(segment.steps.end, |(position, _)| position + 1)
        };
        let sent = wanted.sent.iter().filter(|(_, id)| segment.results.contains(id));
        let mut ready: Vec<_> = sent.map(|(name, id)| (end(*id), (name.clone(), *id))).collect();
        ready.sort_by_key(|(end, _)| *end);
        let mut pieces: Vec<Piece> = vec![];
        for (end, output) in ready {
            let bytes = sizes.layouts[output.1.0 as usize].bytes();
            match pieces.last_mut() {
                Some(piece) if piece.bytes < DOWNLOAD || piece.steps.end == end => {
                    piece.steps.end = end;
                    piece.bytes += bytes;
                    piece.outputs.push(output);
                }
                last => {
                    let begin = last.map_or(segment.steps.start, |last| last.steps.end);
                    pieces.push(Piece { steps: begin..end, outputs: vec![output], bytes });
                }
            }
        }
        let begin = pieces.last().map_or(segment.steps.start, |last| last.steps.end);
        if begin < segment.steps.end || pieces.is_empty() {
            pieces.push(Piece { steps: begin..segment.steps.end, outputs: vec![], bytes: 0 });
        }
        pieces
    }

    /// Records copies of a piece's outputs to a buffer for the host.
    pub(super) fn record_download(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        piece: &Piece,
        sizes: &Sizes,
    ) -> Result<Option<Lease>, GpuError> {
        if piece.bytes == 0 {
            return Ok(None);
        }
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let memory = self.spare(&self.downloads, piece.bytes, |bytes| self.gpu().buffer("results", bytes, usage));
        let mut offset = 0;
        for (name, id) in &piece.outputs {
            let bytes = sizes.layouts[id.0 as usize].bytes();
            let Some(source) = self.buffer(*id) else {
                return Err(GpuError::Unbound { step: "sending a result".into(), what: name.clone() });
            };
            encoder.copy_buffer_to_buffer(source, 0, memory.buffer(), offset, bytes);
            offset += bytes;
        }
        Ok(Some(memory))
    }

    /// Sends outputs that no step on the device computes.
    pub async fn send_others(&mut self, wanted: &Wanted, values: &[(String, RunValue)]) -> Result<(), GpuError> {
        let is_sent = |name: &String| self.sent.iter().flat_map(|sent| &sent.outputs).any(|(known, _)| known == name);
        let others = values.iter().filter(|(name, _)| wanted.sent.iter().any(|(own, _)| own == name) && !is_sent(name));
        let mut sent = vec![];
        for (name, value) in others {
            let tensor = match value {
                RunValue::Host(tensor) => tensor.clone(),
                RunValue::Device(tensor) => self.read(tensor).await?,
            };
            let layout = Layout::new(tensor.dtype(), tensor.shape().to_vec());
            sent.push(Download { outputs: vec![(name.clone(), layout)], content: Content::Host(tensor) });
        }
        self.sent.extend(sent);
        Ok(())
    }

    /// Passes the elements of outputs that are on their way to `take`, as they arrive.
    pub async fn read_each(&mut self, mut take: impl FnMut(&str, &[u8])) -> Result<(), GpuError> {
        let gpu = self.gpu().clone();
        while let Some(Download { outputs, content }) = self.sent.pop_front() {
            let mut each = |mut rest: &[u8]| {
                for (name, layout) in &outputs {
                    let (own, others) = rest.split_at_checked(layout.bytes() as usize).ok_or_else(short)?;
                    match layout.is_dense() {
                        true => take(name, own),
                        false => take(name, layout.unpad(own).ok_or_else(short)?.bytes()),
                    }
                    rest = others;
                }
                Ok(())
            };
            match content {
                Content::Empty => each(&[])?,
                Content::Mapped(mapping, _memory) => mapping.read(&gpu, each).await??,
                Content::Host(tensor) => outputs.iter().for_each(|(name, _)| take(name, tensor.bytes())),
            }
        }
        Ok(())
    }

    /// Writes rows of a tensor after the work that is submitted: each part from an offset in bytes.
    pub async fn write_parts(&self, tensor: &DeviceTensor, parts: &[(u64, RunValue)]) -> Result<(), GpuError> {
        let layout = |part: &RunValue| Layout::new(part.dtype(), part.shape().to_vec());
        let host = parts.iter().filter(|(_, part)| matches!(part, RunValue::Host(_)));
        let bytes: u64 = host.map(|(_, part)| layout(part).bytes()).sum();
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        lock(&self.uploads).allow(written);
        let gpu = self.gpu();
        let work = || {
            let memory = self.spare(&self.uploads, bytes, |bytes| gpu.mapped("a tensor to write", bytes));
            let label = Some("writing a tensor");
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label });
            let mut offset = 0;
            for (to, part) in parts {
                let bytes = layout(part).bytes();
                let (from, start) = match part {
                    RunValue::Device(own) => (own.buffer(), 0),
                    RunValue::Host(own) => {
                        if let Err(error) = fill(memory.buffer(), offset, &layout(part).pad(own)) {
                            memory.discard();
                            return Err(gpu.unread(error));
                        }
                        offset += bytes;
                        (memory.buffer(), offset - bytes)
                    }
                };
                encoder.copy_buffer_to_buffer(from, start, tensor.buffer(), *to, bytes);
            }
            let buffer = memory.buffer().clone();
            buffer.unmap();
            gpu.submit([encoder.finish()]);
            // The memory is free once the device has copied it.
            buffer.slice(..).map_async(wgpu::MapMode::Write, move |result| match result {
                Ok(()) => drop(memory),
                Err(_) => memory.discard(),
            });
            Ok(())
        };
        gpu.checked("writing a tensor", work).await?
    }

    /// Spare memory, or a new buffer.
    fn spare(&self, spares: &SpareBuffers, bytes: u64, make: impl FnOnce(u64) -> wgpu::Buffer) -> Lease {
        let bytes = bytes.max(SMALLEST);
        let spare = lock(spares).take(bytes);
        let limit = self.gpu().limits().max_buffer_size & !3;
        Lease::of(spares, spare.unwrap_or_else(|| make(with_room(bytes, limit))))
    }
}

/// Writes bytes of a mapped buffer.
fn fill(buffer: &wgpu::Buffer, offset: u64, content: &[u8]) -> Result<(), wgpu::MapRangeError> {
    if !content.is_empty() {
        buffer.slice(offset..offset + content.len() as u64).get_mapped_range_mut()?.copy_from_slice(content);
    }
    Ok(())
}
