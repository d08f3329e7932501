use super::step::GpuStep;
use super::{GpuSide, label};
use crate::GpuError;
use crate::session::control::block_bytes;
use rewire_graph_rewrite::emit::Slot;
use rewire_graph_rewrite::plan::{Binding, Step};

impl GpuSide {
    /// The bind group of a step.
    pub(super) fn bind_group(&self, own: &GpuStep, step: &Step) -> Result<wgpu::BindGroup, GpuError> {
        let unbound = |what: String| GpuError::Unbound { step: label(step), what };
        let control = self.control.as_ref().ok_or_else(|| unbound("the block of sizes".to_owned()))?;
        let region = |offset, size| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: control,
                offset,
                size: std::num::NonZeroU64::new(size),
            })
        };
        let block = region(self.layout.block(own.block), block_bytes(own.kernel()));
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: block }];
        let slots = &own.kernel().slots;
        for (n, slot) in slots.iter().enumerate() {
            let window = slots.iter().take(n).filter(|earlier| *earlier == slot).count() as u64;
            let resource = match slot {
                Slot::Sizes => region(self.layout.sizes(), 0),
                Slot::Operand(operand) => {
                    let bound = match step.reads.get(usize::from(*operand)) {
                        Some(Binding::Buffer(id)) => self.buffer(*id),
                        Some(Binding::Host(_)) | None => None,
                    };
                    self.window(bound.ok_or_else(|| unbound(format!("operand {operand}")))?, window)
                }
                Slot::Packed(dtype) => {
                    let packed = self.packed_buffers.get(dtype);
                    packed
                        .ok_or_else(|| unbound(format!("the buffer of small {dtype} parameters")))?
                        .as_entire_binding()
                }
                Slot::Output(output) => {
                    let bound = step.writes.get(usize::from(*output)).and_then(|id| self.buffer(*id));
                    self.window(bound.ok_or_else(|| unbound(format!("result {output}")))?, window)
                }
            };
            entries.push(wgpu::BindGroupEntry { binding: n as u32 + 1, resource });
        }
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &own.pipeline().layout, entries: &entries };
        Ok(self.gpu.device().create_bind_group(&descriptor))
    }

    /// A part of a buffer that can be bound.
    fn window<'a>(&self, buffer: &'a wgpu::Buffer, window: u64) -> wgpu::BindingResource<'a> {
        let bytes = self.gpu.target().window_bytes();
        let offset = window * bytes;
        let size = std::num::NonZeroU64::new(buffer.size().saturating_sub(offset).min(bytes));
        wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size })
    }
}
