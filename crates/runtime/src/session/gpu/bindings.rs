use super::GpuSide;
use crate::GpuError;
use crate::model::{StepKernel, label};
use crate::session::control::block_bytes;
use rewire_graph_rewrite::device::BindingSource;
use rewire_graph_rewrite::plan::{Binding, BufferId, Step};
use std::sync::Arc;

/// Bind groups cached per step: results that alternate between two buffers, with two kernels.
const KEPT: usize = 4;

/// Bind groups of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct BindGroups(Vec<Bound>);

/// A bind group with its key, without the slots.
#[derive(Clone, Debug)]
struct Bound {
    kernel: Arc<StepKernel>,
    /// By operand and result.
    buffers: Vec<Option<wgpu::Buffer>>,
    group: wgpu::BindGroup,
}

impl BindGroups {
    /// Drops all buffers.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Drops some buffers.
    pub fn forget(&mut self, left: &[wgpu::Buffer]) {
        self.0.retain(|bound| !bound.buffers.iter().flatten().any(|buffer| left.contains(buffer)));
    }
}

impl GpuSide {
    /// The cached bind group of a step, if it exists.
    pub(super) fn known_group(
        &self,
        position: usize,
        kernel: &Arc<StepKernel>,
        step: &Step,
    ) -> Option<wgpu::BindGroup> {
        let fits = |bound: &&Bound| {
            Arc::ptr_eq(&bound.kernel, kernel) && bound.buffers.iter().map(Option::as_ref).eq(self.bound_to(step))
        };
        self.groups.get(position)?.0.iter().find(fits).map(|bound| bound.group.clone())
    }

    /// Creates and caches the bind group of a step.
    pub(super) fn new_group(
        &mut self,
        position: usize,
        kernel: &Arc<StepKernel>,
        step: &Step,
    ) -> Result<wgpu::BindGroup, GpuError> {
        let group = self.bind_group(position, kernel, step)?;
        let buffers = self.bound_to(step).map(|buffer| buffer.cloned()).collect();
        if let Some(BindGroups(groups)) = self.groups.get_mut(position) {
            groups.drain(..(groups.len() + 1).saturating_sub(KEPT));
            groups.push(Bound { kernel: kernel.clone(), buffers, group: group.clone() });
        }
        Ok(group)
    }

    /// The buffers outside the slots that a step binds in this run, by operand and result.
    fn bound_to<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = Option<&'a wgpu::Buffer>> {
        let reads = step.reads.iter().map(|binding| match binding {
            Binding::Buffer(id) => Some(*id),
            Binding::Host(_) => None,
        });
        let bound = |id: Option<BufferId>| self.bound.get(id?.0 as usize)?.as_ref();
        reads.chain(step.writes.iter().copied().map(Some)).map(bound)
    }

    fn bind_group(&self, position: usize, own: &StepKernel, step: &Step) -> Result<wgpu::BindGroup, GpuError> {
        let unbound = |what: String| GpuError::Unbound { step: label(step), what };
        let control = self.control.as_ref().ok_or_else(|| unbound("the block of sizes".to_owned()))?;
        let region = |offset, size| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: control,
                offset,
                size: std::num::NonZeroU64::new(size),
            })
        };
        let layout = &self.kernels().layout;
        let block = self.kernels().block(position).ok_or_else(|| unbound("its block of sizes".to_owned()))?;
        let block = region(layout.block(block), block_bytes(&own.kernel));
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: block }];
        let slots = &own.kernel.slots;
        for (n, slot) in slots.iter().enumerate() {
            let window = slots.iter().take(n).filter(|earlier| *earlier == slot).count() as u64;
            let resource = match slot {
                BindingSource::Sizes => region(layout.sizes(), 0),
                BindingSource::Operand(operand) => {
                    let bound = match step.reads.get(usize::from(*operand)) {
                        Some(Binding::Buffer(id)) => self.buffer(*id),
                        Some(Binding::Host(_)) | None => None,
                    };
                    self.window(bound.ok_or_else(|| unbound(format!("operand {operand}")))?, window)
                }
                BindingSource::Dequantized { operand, transposed } => {
                    let bound = match step.reads.get(usize::from(*operand)) {
                        Some(Binding::Buffer(id)) => self.site.weights.dequantized(*id, *transposed),
                        Some(Binding::Host(_)) | None => None,
                    };
                    bound.ok_or_else(|| unbound(format!("operand {operand} as f16")))?.as_entire_binding()
                }
                BindingSource::Pooled(dtype) => {
                    let pooled = self.site.weights.pooled_buffer(*dtype);
                    pooled
                        .ok_or_else(|| unbound(format!("the buffer of small {dtype} parameters")))?
                        .as_entire_binding()
                }
                BindingSource::Output(output) => {
                    let bound = step.writes.get(usize::from(*output)).and_then(|id| self.buffer(*id));
                    self.window(bound.ok_or_else(|| unbound(format!("result {output}")))?, window)
                }
            };
            entries.push(wgpu::BindGroupEntry { binding: n as u32 + 1, resource });
        }
        let label = label(step);
        let layout = &own.pipeline.layout;
        let descriptor = wgpu::BindGroupDescriptor { label: Some(&label), layout, entries: &entries };
        Ok(self.gpu().device().create_bind_group(&descriptor))
    }

    /// A range of a buffer that can be bound.
    fn window<'a>(&self, buffer: &'a wgpu::Buffer, window: u64) -> wgpu::BindingResource<'a> {
        let bytes = self.gpu().target().window_bytes();
        let offset = window * bytes;
        let size = std::num::NonZeroU64::new(buffer.size().saturating_sub(offset).min(bytes));
        wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size })
    }
}
