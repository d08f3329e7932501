use super::GpuSide;
use super::staging::{Staged, unstage};
use super::timer::Timer;
use super::transfers::{Download, Piece};
use crate::GpuError;
use crate::device::Mapping;
use crate::memory::lock;
use crate::model::label;
use crate::session::sizes::Sizes;
use rewire_graph_rewrite::plan::{BufferId, Plan, Step};
use std::ops::Range;

/// Steps after which the recorded ones are submitted: the device computes them while the others are recorded.
const STEPS: usize = 64;

impl GpuSide {
    /// Submits copies from the staging buffer, the steps, and copies of tensors to the readback buffer. Returns the
    /// number of bytes there and the submission to wait for. Outputs for the host are on their way after each piece;
    /// with a timer, after all of them.
    pub(super) fn submit(
        &mut self,
        plan: &Plan,
        pieces: Vec<Piece>,
        sizes: &Sizes,
        (staged, copies): (&[Staged], &[BufferId]),
        timer: Option<&Timer>,
    ) -> Result<(u64, wgpu::SubmissionIndex), GpuError> {
        let gpu = self.gpu().clone();
        let encoder = || gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("rewire") });
        let mut current = encoder();
        if let Some(staging) = &self.staging {
            unstage(&mut current, staging, staged);
        }
        if let Some(timer) = timer {
            self.record(&mut current, plan, timer.passes(), Some(timer))?;
        }
        lock(&self.downloads).allow(pieces.iter().map(|piece| piece.bytes).sum());
        tracing::trace!(ends = ?pieces.iter().map(|piece| (piece.steps.end, piece.bytes)).collect::<Vec<_>>(), "a run");
        for piece in pieces {
            if timer.is_none() {
                let mut steps = piece.steps.clone();
                while steps.len() > STEPS {
                    let part = steps.start..steps.start + STEPS;
                    steps.start = part.end;
                    self.record(&mut current, plan, vec![part], None)?;
                    gpu.submit([std::mem::replace(&mut current, encoder()).finish()]);
                }
                self.record(&mut current, plan, vec![steps], None)?;
            }
            let mapped = self.record_download(&mut current, &piece, sizes)?.map(|memory| {
                let submission = gpu.submit([std::mem::replace(&mut current, encoder()).finish()]);
                (Mapping::start(memory.buffer(), piece.bytes, submission), memory)
            });
            self.sent.extend(Download::of(piece, mapped, sizes));
        }
        let bytes = self.record_readback(&mut current, sizes, copies)?;
        Ok((bytes, gpu.submit([current.finish()])))
    }

    /// Records steps, in one pass for each range.
    pub(super) fn record(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        plan: &Plan,
        passes: Vec<Range<usize>>,
        timer: Option<&Timer>,
    ) -> Result<(), GpuError> {
        for (number, steps) in passes.into_iter().enumerate() {
            let timestamp_writes = timer.map(|timer| timer.writes(number));
            let mut pass =
                encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some("rewire"), timestamp_writes });
            for position in steps {
                self.dispatch(&mut pass, position, &plan.steps[position])?;
                if let Some(timer) = timer {
                    timer.mark(&mut pass, number, position);
                }
            }
        }
        if let Some(timer) = timer {
            timer.resolve(encoder);
        }
        Ok(())
    }

    /// Records the copies to the readback buffer; returns the number of bytes there.
    fn record_readback(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        sizes: &Sizes,
        copies: &[BufferId],
    ) -> Result<u64, GpuError> {
        let mut offset = 0;
        for id in copies {
            let bytes = sizes.layouts[id.0 as usize].bytes();
            if bytes == 0 {
                continue;
            }
            let (Some(source), Some(readback)) = (self.buffer(*id), &self.readback) else {
                return Err(GpuError::Unbound { step: "reading a result".into(), what: format!("buffer {}", id.0) });
            };
            encoder.copy_buffer_to_buffer(source, 0, readback, offset, bytes);
            offset += bytes;
        }
        Ok(offset)
    }

    fn dispatch(&mut self, pass: &mut wgpu::ComputePass<'_>, position: usize, step: &Step) -> Result<(), GpuError> {
        let unbound = |what: &str| GpuError::Unbound { step: label(step), what: what.to_owned() };
        let own = self.chosen.get(position).cloned().flatten().ok_or_else(|| unbound("its kernel"))?;
        let block = self.kernels().block(position);
        let &(x, y) = block.and_then(|block| self.grids.get(block)).ok_or_else(|| unbound("its grid"))?;
        if x == 0 {
            return Ok(());
        }
        pass.set_pipeline(&own.pipeline.pipeline);
        let group = match self.known_group(position, &own, step) {
            Some(group) => group,
            None => self.new_group(position, &own, step)?,
        };
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(x, y, 1);
        Ok(())
    }
}
