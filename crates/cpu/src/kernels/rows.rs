//! Rows of a table in its storage type.

use super::error::CpuError;
use super::memory::Memory;
use super::tasks;
use rewire_graph::{HostTensor, StoredTypeError};

/// Bytes of a task.
const TASK: usize = 1 << 16;

impl Memory {
    /// Copies the rows of a table `[rows, width]` at the given ids, clamped. Nothing else of the table is read. If the
    /// table has another type, only these rows are converted.
    ///
    /// # Errors
    /// [`CpuError::Content`] if this is no tensor of a row an id, [`CpuError::Memory`] if there is no room.
    pub fn copy_rows(&mut self, table: &HostTensor, ids: &Self) -> Result<(), CpuError> {
        let (dtype, shape) = (self.dtype(), self.shape().to_vec());
        let wrong = || CpuError::Content { dtype, shape: shape.clone() };
        let (&[rows, width], count) = (table.shape(), ids.shape().iter().product::<usize>()) else {
            return Err(wrong());
        };
        let expected = [ids.shape(), &[width]].concat();
        if shape != expected || rows == 0 {
            return Err(wrong());
        }
        if table.dtype() == dtype {
            let pitch = dtype.format().pitch(width).map(|pitch| pitch * dtype.format().bits / 8);
            return copy(table, &named(ids, count), pitch.ok_or_else(wrong)?, self.bytes_mut()?);
        }
        let mut stored = Self::new(table.dtype(), &shape)?;
        stored.copy_rows(table, ids)?;
        let converted = stored.to_host()?.stored_as(dtype).map_err(|error| match error {
            StoredTypeError::Type { .. } => wrong(),
            StoredTypeError::Size(_) => self.no_room(),
        })?;
        self.write(converted.bytes())
    }
}

/// The ids without row padding.
fn named(ids: &Memory, count: usize) -> Vec<i64> {
    let (mut named, width) = (vec![0; count], ids.shape().last().map_or(1, |&width| width));
    let pitch = ids.dtype().format().pitch(width).unwrap_or(width);
    named.chunks_mut(width.max(1)).enumerate().for_each(|(row, out)| ids.elements().longs(row * pitch, out));
    named
}

/// Copies rows to kernel memory, with one row every `pitch` bytes.
fn copy(table: &HostTensor, named: &[i64], pitch: usize, out: &mut [u8]) -> Result<(), CpuError> {
    let (format, shape) = (table.dtype().format(), table.shape());
    let (Some(row), Some(last)) = (shape.last().and_then(|&width| format.row_bytes(width)), shape[0].checked_sub(1))
    else {
        return Ok(());
    };
    if pitch == 0 {
        return Ok(());
    }
    let (bytes, each) = (table.bytes(), (TASK / pitch).max(1));
    let tasks = out.chunks_mut(each * pitch).zip(named.chunks(each)).collect();
    tasks::for_each(
        tasks,
        || Ok(()),
        |(), (out, named): (&mut [u8], &[i64])| {
            for (out, id) in out.chunks_exact_mut(pitch).zip(named) {
                let start = (*id).clamp(0, last as i64) as usize * row;
                format.to_kernels(&shape[1..], bytes.get(start..start + row).unwrap_or(&[]), out);
            }
            Ok(())
        },
    )
}
