//! Fallible allocation of scratch memory during a run.

use super::error::CpuError;
use bytemuck::{Pod, Zeroable, cast_slice_mut};
use dyn_stack::{MemBuffer, StackReq};
use gemm_common::cache::CACHE_INFO;
use gemm_common::gemm::{CACHELINE_ALIGN, L2_SLAB};
use std::cell::Cell;

/// Bytes that a thread needs for small lists while it runs tasks.
const HEADROOM: usize = 256 << 10;

/// The first `len` elements of `scratch`, which grows if necessary. The content is unspecified.
pub(super) fn room<T: Copy + Default>(scratch: &mut Vec<T>, len: usize) -> Result<&mut [T], CpuError> {
    if scratch.len() < len {
        reserve(scratch, len - scratch.len())?;
        scratch.resize(len, T::default());
    }
    Ok(&mut scratch[..len])
}

/// A cache line of floats. Vectors that lie in two lines take twice as long to read and write.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([f32; Line::FLOATS]);

impl Line {
    /// Floats of a line.
    pub(super) const FLOATS: usize = 16;
}

/// [`room`] for floats that begin with a cache line.
pub(super) fn lines(scratch: &mut Vec<Line>, len: usize) -> Result<&mut [f32], CpuError> {
    let lines = room(scratch, len.div_ceil(Line::FLOATS))?;
    Ok(&mut cast_slice_mut(lines)[..len])
}

/// `len` zeros.
pub(super) fn zeros<T: Copy + Default>(len: usize) -> Result<Vec<T>, CpuError> {
    let mut zeros = vec![];
    room(&mut zeros, len)?;
    Ok(zeros)
}

/// Moves a value to a new allocation.
pub(super) fn boxed<T>(value: T) -> Result<Box<T>, CpuError> {
    let mut one = vec![];
    one.try_reserve_exact(1).map_err(|_| CpuError::Scratch { bytes: size_of::<T>() })?;
    one.push(value);
    // SAFETY: a list of one element has the layout of the element.
    Ok(unsafe { Box::from_raw(Box::into_raw(one.into_boxed_slice()).cast::<T>()) })
}

/// Checks that memory for small infallible allocations is available, since their failure would abort the process. In a browser it is a
/// trap, which callers receive as an error.
pub(super) fn headroom() -> Result<(), CpuError> {
    if cfg!(target_family = "wasm") {
        return Ok(());
    }
    let mut room: Vec<u8> = vec![];
    reserve(&mut room, HEADROOM)?;
    // The optimiser would remove an unused allocation.
    std::hint::black_box(&room);
    Ok(())
}

thread_local! {
    /// True once [`slab`] has allocated the thread's buffer.
    static HAS_SLAB: Cell<bool> = const { Cell::new(false) };
}

/// Allocates the matmul library's buffer of a thread, of the size of an L2 cache. The library itself would abort on
/// failure.
pub(super) fn slab() -> Result<(), CpuError> {
    if !HAS_SLAB.get() {
        let bytes = CACHE_INFO[1].cache_bytes;
        let request = StackReq::new_aligned::<u8>(bytes, CACHELINE_ALIGN);
        L2_SLAB.set(MemBuffer::try_new(request).map_err(|_| CpuError::Scratch { bytes })?);
        HAS_SLAB.set(true);
    }
    Ok(())
}

/// Number of floats that fit in a core's private cache.
pub(super) fn private_cache() -> usize {
    CACHE_INFO[1].cache_bytes / size_of::<f32>()
}

/// Reserves memory for `more` elements.
pub(super) fn reserve<T>(scratch: &mut Vec<T>, more: usize) -> Result<(), CpuError> {
    let bytes = (scratch.len() + more).saturating_mul(size_of::<T>());
    scratch.try_reserve(more).map_err(|_| CpuError::Scratch { bytes })
}
