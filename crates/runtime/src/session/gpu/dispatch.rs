use super::GpuSide;
use super::staging::{Staged, unstage};
use super::timer::Timer;
use crate::GpuError;
use crate::model::{SiteRun, label};
use crate::session::sizes::Sizes;
use rewire_graph_rewrite::plan::{BufferId, Plan, Step};

impl GpuSide {
    /// Submits copies from the staging buffer, the steps, and copies of tensors to the readback buffer. Returns the
    /// number of bytes there and the submission to wait for.
    pub(super) fn submit(
        &mut self,
        plan: &Plan,
        segment: &SiteRun,
        sizes: &Sizes,
        (staged, copies): (&[Staged], &[BufferId]),
        timer: Option<&Timer>,
    ) -> Result<(u64, wgpu::SubmissionIndex), GpuError> {
        let mut encoder =
            self.gpu().device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("rewire") });
        if let Some(staging) = &self.staging {
            unstage(&mut encoder, staging, staged);
        }
        self.record(&mut encoder, plan, segment, timer)?;
        let bytes = self.record_readback(&mut encoder, sizes, copies)?;
        Ok((bytes, self.gpu().submit([encoder.finish()])))
    }

    /// Records the steps of a segment.
    pub(super) fn record(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        plan: &Plan,
        segment: &SiteRun,
        timer: Option<&Timer>,
    ) -> Result<(), GpuError> {
        let passes = timer.map_or_else(|| vec![segment.steps.clone()], Timer::passes);
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
