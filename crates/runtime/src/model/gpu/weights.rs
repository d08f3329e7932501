//! Parameters and constants in buffers.

use crate::memory::Layout;
use crate::model::packed::Packed;
use crate::model::parameters::Resident;
use crate::model::placement::Homes;
use crate::{Gpu, GpuError, RuntimeError};
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::plan::{BufferId, Plan};
use std::collections::HashMap;

use super::{BINDING_LIMIT, check_bytes, check_size, title};

/// What to do about parameters that are too large.
const SMALLER_PARAMETERS: &str = "store it as f16, cut it into several parameters, or use kernel cpu";

/// Parameters and constants of a model on its device, as runs read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuWeights {
    buffers: Vec<Option<wgpu::Buffer>>,
    pub packed: Packed,
    packed_buffers: HashMap<DType, wgpu::Buffer>,
}

impl GpuWeights {
    /// Uploads what the steps on a device read, a tensor after the other.
    pub async fn upload(gpu: &Gpu, plan: &Plan, homes: &Homes, resident: &Resident) -> Result<Self, RuntimeError> {
        let mut weights = Self { buffers: vec![None; homes.resident.len()], ..Self::default() };
        let packed = Packed::of(plan);
        for (n, _) in homes.resident.iter().enumerate().filter(|(_, wanted)| **wanted) {
            let id = BufferId(n as u32);
            let Some(tensor) = resident.tensor(plan, id)? else { continue };
            match packed.contains(&id) {
                true => weights.packed.push(id, &tensor),
                false => weights.buffers[n] = Some(own_buffer(gpu, plan, n, &tensor).await?),
            }
        }
        for (dtype, content) in weights.packed.take() {
            let limit = gpu.target().binding_bytes;
            let what = || format!("the buffer of all small {dtype} parameters");
            check_bytes(what, content.len() as u64, (limit, BINDING_LIMIT), SMALLER_PARAMETERS)?;
            let label = format!("small {dtype} parameters");
            let filled = || gpu.filled(&label, &content);
            weights.packed_buffers.insert(dtype, gpu.checked("uploading parameters", filled).await?);
        }
        // Starts the uploads, so that their staging memory is not held until the first run.
        gpu.checked("uploading parameters", || gpu.queue().submit([])).await?;
        Ok(weights)
    }

    /// The buffer of a parameter or constant of its own.
    pub fn buffer(&self, n: usize) -> Option<&wgpu::Buffer> {
        self.buffers.get(n)?.as_ref()
    }

    /// The buffer of all small parameters of a type.
    pub fn packed_buffer(&self, dtype: DType) -> Option<&wgpu::Buffer> {
        self.packed_buffers.get(&dtype)
    }

    /// Bytes of device memory.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().flatten().chain(self.packed_buffers.values()).map(wgpu::Buffer::size).sum()
    }
}

async fn own_buffer(gpu: &Gpu, plan: &Plan, n: usize, tensor: &HostTensor) -> Result<wgpu::Buffer, GpuError> {
    let layout = Layout::new(tensor.dtype(), tensor.shape().to_vec());
    check_size(gpu, &layout, || title(plan, n), SMALLER_PARAMETERS)?;
    let upload = || gpu.filled(&title(plan, n), &layout.pad(tensor));
    gpu.checked("uploading parameters", upload).await
}
