//! Parameters and constants in buffers.

use super::dequantize::f16;
use super::{BINDING_LIMIT, GpuKernels, Reads, check_bytes, check_size, title};
use crate::memory::Layout;
use crate::model::parameters::HostParameters;
use crate::model::pool::Pool;
use crate::model::row_patch::RowChange;
use crate::model::update::Changed;
use crate::{Gpu, GpuError, RuntimeError};
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::plan::{BufferId, Plan};
use std::collections::{BTreeMap, HashMap};

/// Workaround for parameters that are too large.
const SMALLER_PARAMETERS: &str = "store it as f16, cut it into several parameters, or use kernel cpu";

/// Limit in bytes of parameters in staging memory.
const STAGED: usize = 32 << 20;

/// Parameters and constants of a model on its device.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuWeights {
    buffers: Vec<Option<wgpu::Buffer>>,
    /// 8-bit rows as f16, in the original layout and transposed.
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
        changed: &BTreeMap<BufferId, Changed>,
    ) -> Result<Self, RuntimeError> {
        let mut weights = self.clone();
        for (&id, changed) in changed {
            let (n, is_pooled) = (id.0 as usize, weights.pool.base(id).is_some());
            let (is_own, as_f16) = (weights.buffer(n).is_some(), weights.as_f16(n));
            if !is_pooled && !is_own && as_f16 == [false; 2] {
                continue;
            }
            if let Changed::Rows(change) = changed {
                weights.replace_rows(gpu, plan, id, change).await?;
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

    /// Replaces rows of a parameter in copies of all buffers that hold it.
    async fn replace_rows(
        &mut self,
        gpu: &Gpu,
        plan: &Plan,
        id: BufferId,
        change: &RowChange,
    ) -> Result<(), RuntimeError> {
        let n = id.0 as usize;
        if self.dequantized(id, true).is_some() {
            let reason = "the device holds it transposed".to_owned();
            let name = title(plan, n).trim_matches('`').to_owned();
            return Err(RuntimeError::ParameterRows { name, reason });
        }
        let (rows, dtype) = (&change.rows, change.values.dtype());
        if let Some(base) = self.pool.base(id) {
            let offset = base as u64 * dtype.format().bytes(4);
            if let Some(old) = self.pooled_buffers.get(&dtype) {
                let new = with_rows(gpu, (old, offset), rows, &change.values).await?;
                self.pooled_buffers.insert(dtype, new);
            }
        } else if let Some(old) = self.buffer(n) {
            self.buffers[n] = Some(with_rows(gpu, (old, 0), rows, &change.values).await?);
        }
        if let Some(old) = self.dequantized(id, false) {
            let new = with_rows(gpu, (old, 0), rows, &f16(&change.values, false)?).await?;
            self.dequantized[n][0] = Some(new);
        }
        Ok(())
    }

    /// Replaces a small parameter in a copy of its pool's buffer.
    async fn repack(&mut self, gpu: &Gpu, id: BufferId, tensor: &HostTensor) -> Result<(), GpuError> {
        let dtype = tensor.dtype();
        let (Some(base), Some(old)) = (self.pool.base(id), self.pooled_buffers.get(&dtype)) else { return Ok(()) };
        let offset = base as u64 * dtype.format().bytes(4);
        let content = Layout::new(dtype, tensor.shape().to_vec()).pad(tensor);
        let new = with_ranges(gpu, old, &content, [(0, offset, content.len() as u64)]).await?;
        self.pooled_buffers.insert(dtype, new);
        Ok(())
    }

    /// Converts 8-bit rows to f16, in the layouts that kernels read.
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

    /// The layouts in which a parameter exists as f16.
    fn as_f16(&self, n: usize) -> [bool; 2] {
        self.dequantized.get(n).map_or([false; 2], |ways| ways.each_ref().map(Option::is_some))
    }

    /// 8-bit rows as f16.
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

/// A copy of a buffer with other rows of a matrix that starts at an offset.
async fn with_rows(
    gpu: &Gpu,
    (old, offset): (&wgpu::Buffer, u64),
    rows: &[u32],
    values: &HostTensor,
) -> Result<wgpu::Buffer, GpuError> {
    let content = Layout::new(values.dtype(), values.shape().to_vec()).pad(values);
    let pitch = (content.len() / rows.len().max(1)) as u64;
    let neighbours = rows.chunk_by(|row, next| row.checked_add(1) == Some(*next));
    let ranges = neighbours.scan(0, |from, rows| {
        let (start, bytes) = (*from, rows.len() as u64 * pitch);
        *from += bytes;
        Some((start, offset + u64::from(*rows.first()?) * pitch, bytes))
    });
    with_ranges(gpu, old, &content, ranges.filter(|(_, _, bytes)| *bytes > 0)).await
}

/// A copy of a buffer with other bytes: ranges of `content`, given by their offsets in `content` and in the buffer, and
/// their lengths.
async fn with_ranges(
    gpu: &Gpu,
    old: &wgpu::Buffer,
    content: &[u8],
    ranges: impl IntoIterator<Item = (u64, u64, u64)>,
) -> Result<wgpu::Buffer, GpuError> {
    let copy = || {
        let (new, staged) = (gpu.tensor_buffer("parameters", old.size()), gpu.filled("new parameters", content));
        let descriptor = wgpu::CommandEncoderDescriptor { label: Some("replacing parameters") };
        let mut encoder = gpu.device().create_command_encoder(&descriptor);
        encoder.copy_buffer_to_buffer(old, 0, &new, 0, old.size());
        for (from, to, bytes) in ranges {
            encoder.copy_buffer_to_buffer(&staged, from, &new, to, bytes);
        }
        gpu.submit([encoder.finish()]);
        new
    };
    gpu.checked("uploading parameters", copy).await
}

async fn own_buffer(gpu: &Gpu, plan: &Plan, n: usize, tensor: &HostTensor) -> Result<wgpu::Buffer, GpuError> {
    let layout = Layout::new(tensor.dtype(), tensor.shape().to_vec());
    check_size(gpu, &layout, || title(plan, n), SMALLER_PARAMETERS)?;
    let upload = || gpu.filled(&title(plan, n), &layout.pad(tensor));
    gpu.checked("uploading parameters", upload).await
}
