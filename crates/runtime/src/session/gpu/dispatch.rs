use super::timer::Timer;
use super::{Copy, GpuSide, label};
use crate::GpuError;
use crate::session::placement::Segment;
use crate::session::sizes::Sizes;
use rewire_graph_rewrite::plan::{Plan, Step};

impl GpuSide {
    /// Submits the steps and copies; the number of bytes that go to the readback buffer.
    pub(super) fn submit(
        &mut self,
        plan: &Plan,
        segment: &Segment,
        sizes: &Sizes,
        copies: &[Copy],
        timer: Option<&Timer>,
    ) -> Result<u64, GpuError> {
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let passes = timer.map_or_else(|| vec![segment.steps.clone()], Timer::passes);
        for (number, steps) in passes.into_iter().enumerate() {
            let timestamp_writes = timer.map(|timer| timer.writes(number));
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
            for position in steps {
                self.dispatch(&mut pass, position, &plan.steps[position])?;
                if let Some(timer) = timer {
                    timer.mark(&mut pass, number, position);
                }
            }
        }
        if let Some(timer) = timer {
            timer.resolve(&mut encoder);
        }
        let mut offset = 0;
        for copy in copies {
            let bytes = sizes.layouts[copy.id.0 as usize].bytes();
            if bytes == 0 {
                continue;
            }
            match (&copy.kept, &self.readback) {
                (Some(kept), _) => encoder.copy_buffer_to_buffer(&copy.source, 0, kept, 0, bytes),
                (None, Some(readback)) => {
                    encoder.copy_buffer_to_buffer(&copy.source, 0, readback, offset, bytes);
                    offset += bytes;
                }
                (None, None) => {}
            }
        }
        self.gpu.queue().submit([encoder.finish()]);
        Ok(offset)
    }

    fn dispatch(&mut self, pass: &mut wgpu::ComputePass<'_>, position: usize, step: &Step) -> Result<(), GpuError> {
        let unbound = |what: &str| GpuError::Unbound { step: label(step), what: what.to_owned() };
        let own = self.steps.get(position).and_then(Option::as_ref).ok_or_else(|| unbound("its kernel"))?;
        let &(x, y) = self.grids.get(own.block).ok_or_else(|| unbound("its grid"))?;
        if x == 0 {
            return Ok(());
        }
        let group = match own.bindings(self.generation) {
            Some(group) => group.clone(),
            None => self.bind_group(own, step)?,
        };
        pass.set_pipeline(&own.pipeline().pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(x, y, 1);
        if let Some(own) = &mut self.steps[position] {
            own.bind(self.generation, group);
        }
        Ok(())
    }
}
