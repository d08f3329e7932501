//! Parameters and constants in buffers.

use super::dequantize::f16;
use super::{BINDING_LIMIT, GpuKernels, Reads, check_bytes, check_size, title};
use crate::memory::Layout;
use crate::model::parameters::HostParameters;
use crate::model::pool::Pool;
use crate::{Gpu, GpuError, RuntimeError};
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::plan::{BufferId, Plan};
use std::collections::{BTreeSet, HashMap};

/// Workaround for parameters that are too large.
const SMALLER_PARAMETERS: &str = "store it as f16, cut it into several parameters, or use kernel cpu";

/// Limit in bytes of parameters in staging memory.
const STAGED: usize = 32 << 20;

/// Parameters and constants of a model on its device.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuWeights {
    buffers: Vec<Option<wgpu::Buffer>>,
    /// Rows of 8 bits as f16, as they lie and transposed.
    dequantized: Vec<[Option<wgpu::Buffer>; 2]>,
    pub pool: Pool,
    pooled_buffers: HashMap<DType, wgpu::Buffer>,
}

impl GpuWeights {
    /// Uploads the parameters and constants that steps on a device read, one tensor at a time.
    pub async fn upload(kernels: &GpuKernels, plan: &Plan, resident: &HostParameters) -> Result<Self, RuntimeError> {
        let (gpu, homes) = (kernels.gpu(), &kernels.homes);
        let count = homes.resident.len();
        let mut weights =
            Self { buffers: vec![None; count], dequantized: vec![[None, None]; count], ..Self::default() };
        let (pool, reads) = (Pool::of(plan), kernels.reads(plan));
        let mut staged = 0;
        for (n, _) in homes.resident.iter().enumerate().filter(|(_, wanted)| **wanted) {
            let id = BufferId(n as u32);
            let Some(tensor) = resident.tensor(plan, id)? else { continue };
            let Reads { as_stored, as_f16 } = reads[n];
            weights.dequantize(gpu, plan, (n, as_f16), &tensor).await?;
            let is_read = as_stored || as_f16 == [false; 2];
            match pool.contains(&id) {
                true => weights.pool.push(id, &tensor),
                false if !is_read => {}
                false => weights.buffers[n] = Some(own_buffer(gpu, plan, n, &tensor).await?),
            }
            staged += tensor.bytes().len();
            if staged > STAGED {
                // Lets the device process the uploads and release their staging memory.
                gpu.checked("uploading parameters", || gpu.submit([])).await?;
                gpu.collect()?;
                staged = 0;
            }
        }
        for (dtype, content) in weights.pool.take() {
            let limit = gpu.target().binding_bytes;
            let what = || format!("the buffer of all small {dtype} parameters");
            check_bytes(what, content.len() as u64, (limit, BINDING_LIMIT), SMALLER_PARAMETERS)?;
            let label = format!("small {dtype} parameters");
            let filled = || gpu.filled(&label, &content);
            weights.pooled_buffers.insert(dtype, gpu.checked("uploading parameters", filled).await?);
        }
        // Starts the uploads, so that their staging memory is not held until the first run.
        gpu.checked("uploading parameters", || gpu.submit([])).await?;
        Ok(weights)
    }

    /// The weights with other parameters, of which `changed` lists those that differ, in separate buffers: runs in
    /// progress read the old ones.
    pub async fn with(
        &self,
        gpu: &Gpu,
        plan: &Plan,
        resident: &HostParameters,
        changed: &BTreeSet<BufferId>,
    ) -> Result<Self, RuntimeError> {
        let mut weights = self.clone();
        for &id in changed {
            let (n, is_pooled) = (id.0 as usize, weights.pool.base(id).is_some());
            let (is_own, as_f16) = (weights.buffer(n).is_some(), weights.as_f16(n));
            if !is_pooled && !is_own && as_f16 == [false; 2] {
                continue;
            }
            let Some(tensor) = resident.tensor(plan, id)? else { continue };
            weights.dequantize(gpu, plan, (n, as_f16), &tensor).await?;
            if is_pooled {
                weights.repack(gpu, id, &tensor).await?;
            } else if is_own {
                weights.buffers[n] = Some(own_buffer(gpu, plan, n, &tensor).await?);
            }
        }
        gpu.checked("uploading parameters", || gpu.submit([])).await?;
        Ok(weights)
    }

    /// Replaces a small parameter in a copy of its pool's buffer.
    async fn repack(&mut self, gpu: &Gpu, id: BufferId, tensor: &HostTensor) -> Result<(), GpuError> {
        let dtype = tensor.dtype();
        let (Some(base), Some(old)) = (self.pool.base(id), self.pooled_buffers.get(&dtype)) else { return Ok(()) };
        let offset = base as u64 * dtype.format().bytes(4);
        let content = Layout::new(dtype, tensor.shape().to_vec()).pad(tensor);
        let copy = || {
            let label = format!("small {dtype} parameters");
            let new = gpu.tensor_buffer(&label, old.size());
            let descriptor = wgpu::CommandEncoderDescriptor { label: Some("replacing parameters") };
            let mut encoder = gpu.device().create_command_encoder(&descriptor);
            encoder.copy_buffer_to_buffer(old, 0, &new, 0, old.size());
            gpu.submit([encoder.finish()]);
            gpu.queue().write_buffer(&new, offset, &content);
            new
        };
        let new = gpu.checked("uploading parameters", copy).await?;
        self.pooled_buffers.insert(dtype, new);
        Ok(())
    }

    /// Makes f16 of rows of 8 bits, in the ways that are read.
    async fn dequantize(
        &mut self,
        gpu: &Gpu,
        plan: &Plan,
        (n, as_f16): (usize, [bool; 2]),
        rows: &HostTensor,
    ) -> Result<(), RuntimeError> {
        for (way, _) in as_f16.into_iter().enumerate().filter(|(_, is_read)| *is_read) {
            let buffer = own_buffer(gpu, plan, n, &f16(rows, way == 1)?).await?;
            if let Some(place) = self.dequantized.get_mut(n).and_then(|ways| ways.get_mut(way)) {
                *place = Some(buffer);
            }
        }
        Ok(())
    }

    /// the forms in which a parameter exists as f16.
    fn as_f16(&self, n: usize) -> [bool; 2] {
        self.dequantized.get(n).map_or([false; 2], |ways| ways.each_ref().map(Option::is_some))
    }

    /// Rows of 8 bits as f16.
    pub fn dequantized(&self, id: BufferId, transposed: bool) -> Option<&wgpu::Buffer> {
        self.dequantized.get(id.0 as usize)?.get(usize::from(transposed))?.as_ref()
    }

    /// The buffer of an unpooled parameter or constant.
    pub fn buffer(&self, n: usize) -> Option<&wgpu::Buffer> {
        self.buffers.get(n)?.as_ref()
    }

    /// The buffer of all small parameters of a type.
    pub fn pooled_buffer(&self, dtype: DType) -> Option<&wgpu::Buffer> {
        self.pooled_buffers.get(&dtype)
    }

    /// Bytes of device memory.
    pub fn bytes(&self) -> u64 {
        let own = self.buffers.iter().chain(self.dequantized.iter().flatten()).flatten();
        own.chain(self.pooled_buffers.values()).map(wgpu::Buffer::size).sum()
    }
}

async fn own_buffer(gpu: &Gpu, plan: &Plan, n: usize, tensor: &HostTensor) -> Result<wgpu::Buffer, GpuError> {
    let layout = Layout::new(tensor.dtype(), tensor.shape().to_vec());
    check_size(gpu, &layout, || title(plan, n), SMALLER_PARAMETERS)?;
    let upload = || gpu.filled(&title(plan, n), &layout.pad(tensor));
    gpu.checked("uploading parameters", upload).await
}
