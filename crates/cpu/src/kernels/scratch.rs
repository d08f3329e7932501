//! Memory that kernels take while they run.

use super::error::CpuError;

/// Bytes for the registers and small lists of a thread that runs tasks.
const HEADROOM: usize = 256 << 10;

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

/// Makes sure that a thread has memory for what it takes without asking, where a refusal would end the process.
pub(super) fn headroom() -> Result<(), CpuError> {
    let mut room: Vec<u8> = vec![];
    reserve(&mut room, HEADROOM)?;
    // Memory that nobody uses is not taken at all.
    std::hint::black_box(&room);
    Ok(())
}

/// Makes sure of memory for `more` elements.
pub(super) fn reserve<T>(scratch: &mut Vec<T>, more: usize) -> Result<(), CpuError> {
    let bytes = (scratch.len() + more).saturating_mul(size_of::<T>());
    scratch.try_reserve(more).map_err(|_| CpuError::Scratch { bytes })
}
