//! Memory that kernels take while they run.

use super::error::CpuError;

/// The first `len` elements of memory that grows where it is smaller; what they hold is unspecified.
pub(super) fn room<T: Copy + Default>(scratch: &mut Vec<T>, len: usize) -> Result<&mut [T], CpuError> {
    if scratch.len() < len {
        reserve(scratch, len - scratch.len())?;
        scratch.resize(len, T::default());
    }
    Ok(&mut scratch[..len])
}

/// `len` zeros.
pub(super) fn zeros<T: Copy + Default>(len: usize) -> Result<Vec<T>, CpuError> {
    let mut zeros = vec![];
    room(&mut zeros, len)?;
    Ok(zeros)
}

/// Makes sure of memory for `more` elements.
pub(super) fn reserve<T>(scratch: &mut Vec<T>, more: usize) -> Result<(), CpuError> {
    let bytes = (scratch.len() + more).saturating_mul(size_of::<T>());
    scratch.try_reserve(more).map_err(|_| CpuError::Scratch { bytes })
}
