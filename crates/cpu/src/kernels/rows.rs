//! Lookups in host tables of any storage type.

use super::error::CpuError;
use super::memory::Memory;
use super::tasks;
use crate::RowOverlay;
use rewire_graph::{DType, HostTensor, StoredTypeError};

/// Bytes per task.
const TASK: usize = 1 << 16;

impl Memory {
    /// Copies the rows `ids` of a table `[rows, width]`; ids are clamped. Reads only these rows, from `overlay` if it has
    /// them. If the table has another type, only these rows are converted.
    ///
    /// # Errors
    /// [`CpuError::Content`] if this is not a tensor with one row per id, [`CpuError::Memory`] if allocation fails.
    pub fn copy_rows(&mut self, table: &HostTensor, overlay: &dyn RowOverlay, ids: &Self) -> Result<(), CpuError> {
        let (dtype, shape) = (self.dtype(), self.shape().to_vec());
        let wrong = || CpuError::Content { dtype, shape: shape.clone() };
        let (&[rows, width], count) = (table.shape(), ids.shape().iter().product::<usize>()) else {
            return Err(wrong());
        };
        let expected = [ids.shape(), &[width]].concat();
        let is_convertible = table.dtype() == dtype || table.dtype().is_float() && dtype.is_float();
        if shape != expected || rows == 0 || !is_convertible {
            return Err(wrong());
        }
        let pitch = self.row_pitch().ok_or_else(wrong)?;
        copy((table, overlay), &named(ids, count), (dtype, pitch), self.bytes_mut()?)
    }

    /// Replaces rows of a matrix by rows in host layout. Rows out of range are ignored.
    ///
    /// # Errors
    /// As [`Memory::write`].
    pub fn write_rows(&mut self, rows: &[u32], host: &[u8]) -> Result<(), CpuError> {
        let (format, width) = (self.dtype().format(), self.shape().last().map_or(1, |&width| width));
        let (Some(pitch), Some(row_bytes)) = (self.row_pitch(), format.row_bytes(width)) else { return Ok(()) };
        if pitch == 0 || row_bytes == 0 {
            return Ok(());
        }
        let memory = self.bytes_mut()?;
        for (row, content) in rows.iter().zip(host.chunks_exact(row_bytes)) {
            let place = *row as usize * pitch;
            memory.get_mut(place..place + pitch).into_iter().for_each(|to| format.to_kernels(&[width], content, to));
        }
        Ok(())
    }

    /// Row stride in bytes.
    fn row_pitch(&self) -> Option<usize> {
        let (format, width) = (self.dtype().format(), self.shape().last().map_or(1, |&width| width));
        format.pitch(width).map(|pitch| pitch * format.bits / 8)
    }
}

/// The unpadded ids.
fn named(ids: &Memory, count: usize) -> Vec<i64> {
    let (mut named, width) = (vec![0; count], ids.shape().last().map_or(1, |&width| width));
    let pitch = ids.dtype().format().pitch(width).unwrap_or(width);
    named.chunks_mut(width.max(1)).enumerate().for_each(|(row, out)| ids.elements().longs(row * pitch, out));
    named
}

/// Copies rows to kernel memory, converted to a type. The row stride is `pitch` bytes.
fn copy(
    (table, overlay): (&HostTensor, &dyn RowOverlay),
    named: &[i64],
    (dtype, pitch): (DType, usize),
    out: &mut [u8],
) -> Result<(), CpuError> {
    let &[rows, width] = table.shape() else { return Ok(()) };
    let (Some(row_bytes), Some(last)) = (table.dtype().format().row_bytes(width), rows.checked_sub(1)) else {
        return Ok(());
    };
    if pitch == 0 {
        return Ok(());
    }
    let (bytes, each, format) = (table.bytes(), (TASK / pitch).max(1), dtype.format());
    let tasks = out.chunks_mut(each * pitch).zip(named.chunks(each)).collect();
    tasks::for_each(
        tasks,
        || Ok(()),
        |(), (out, named): (&mut [u8], &[i64])| {
            let (mut missing, mut places) = (vec![], vec![]);
            for (out, id) in out.chunks_exact_mut(pitch).zip(named) {
                let row = (*id).clamp(0, last as i64) as usize;
                if !overlay.read(row, &mut |content| format.to_kernels(&[width], content, out)) {
                    missing.push(row);
                    places.push(out);
                }
            }
            overlay.will_read(&missing);
            for (row, out) in missing.into_iter().zip(places) {
                let given = bytes.get(row * row_bytes..(row + 1) * row_bytes).unwrap_or(&[]);
                let converted = match table.dtype() == dtype {
                    true => None,
                    false => Some(converted(table, given, dtype)?),
                };
                let content = converted.as_ref().map_or(given, HostTensor::bytes);
                format.to_kernels(&[width], content, out);
                overlay.was_read(row, content);
            }
            Ok(())
        },
    )
}

/// A row of a table, converted to another type.
fn converted(table: &HostTensor, row: &[u8], dtype: DType) -> Result<HostTensor, CpuError> {
    let shape: Vec<usize> = table.shape().iter().skip(1).copied().collect();
    let own = HostTensor::copied(table.dtype(), shape.clone(), row).map_err(StoredTypeError::from);
    own.and_then(|own| own.stored_as(dtype)).map_err(|error| match error {
        StoredTypeError::Type { .. } => CpuError::Content { dtype, shape },
        StoredTypeError::Size(_) => CpuError::Memory { dtype, shape },
    })
}
