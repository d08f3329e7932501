//! Rows of states.

use super::states::Held;
use super::{RunValue, Session};
use crate::device::Mapping;
use crate::memory::Layout;
use crate::{RunError, block_on};
use rewire_graph::HostTensor;

impl Session {
    /// Reads rows of a state `[rows, width]`, and nothing else of it.
    ///
    /// # Errors
    /// As [`Session::state_async`], and [`RunError::State`] for rows that do not exist.
    pub async fn state_rows_async(&self, name: &str, rows: &[u32]) -> Result<HostTensor, RunError> {
        let refused = |reason: String| RunError::State { name: name.to_owned(), reason };
        let (buffer, shapes) = (self.declared(name)?, self.states.shapes(self.plan()));
        let Some(&[height, width]) = shapes.get(name).map(Vec::as_slice) else {
            return Err(refused("it is not a matrix".to_owned()));
        };
        if let Some(row) = rows.iter().find(|row| **row as usize >= height) {
            return Err(refused(format!("row {row} is not one of its {height} rows")));
        }
        let layout = Layout::new(buffer.dtype, vec![rows.len(), width]);
        let pitch = Layout::new(buffer.dtype, vec![1, width]).bytes();
        let missing = || refused("its rows cannot be read".to_owned());
        match (self.states.held(name), &self.gpu) {
            (Some(Held::Value(RunValue::Device(tensor))), Some(side)) if layout.bytes() > 0 => {
                let gpu = side.gpu();
                let copy = || {
                    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                    let target = gpu.buffer("rows of a state", layout.bytes(), usage);
                    let label = Some("reading rows of a state");
                    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label });
                    let mut place = 0;
                    for rows in rows.chunk_by(|row, next| row.checked_add(1) == Some(*next)) {
                        let (start, bytes) =
                            (rows.first().copied().map_or(0, u64::from) * pitch, rows.len() as u64 * pitch);
                        encoder.copy_buffer_to_buffer(tensor.buffer(), start, &target, place, bytes);
                        place += bytes;
                    }
                    let submission = gpu.submit([encoder.finish()]);
                    Mapping::start(&target, layout.bytes(), submission)
                };
                let mapping = gpu.checked("reading rows of a state", copy).await?;
                mapping.read(gpu, |bytes| layout.unpad(bytes)).await?.ok_or_else(missing)
            }
            (Some(Held::Memory(memory)), _) => {
                let row = |row: &u32| memory.bytes_at(*row as usize * pitch as usize, pitch as usize);
                layout.unpad(&rows.iter().flat_map(row).copied().collect::<Vec<_>>()).ok_or_else(missing)
            }
            (Some(Held::Value(RunValue::Host(tensor))), _) => {
                let row_bytes = tensor.bytes().len() / height.max(1);
                let row = |row: &u32| &tensor.bytes()[*row as usize * row_bytes..][..row_bytes];
                let bytes = rows.iter().flat_map(row).copied().collect();
                HostTensor::from_bytes(buffer.dtype, layout.shape, bytes).map_err(|error| refused(error.to_string()))
            }
            (Some(Held::Lost), _) => Err(RunError::StateLost { name: name.to_owned() }),
            (Some(Held::Value(RunValue::Device(_))) | None, _) => {
                HostTensor::zeros(buffer.dtype, layout.shape).map_err(|error| refused(error.to_string()))
            }
        }
    }

    /// [`Session::state_rows_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::state_rows_async`].
    pub fn state_rows(&self, name: &str, rows: &[u32]) -> Result<HostTensor, RunError> {
        block_on(self.state_rows_async(name, rows))
    }
}
