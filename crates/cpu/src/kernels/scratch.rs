//! Fallible allocation of scratch memory during a run.

use super::error::CpuError;
use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use dyn_stack::{MemBuffer, StackReq};
use gemm_common::cache::CACHE_INFO;
use gemm_common::gemm::{CACHELINE_ALIGN, L2_SLAB};
use std::cell::{Cell, RefCell};

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

/// Scratch memory for floats that begins with a cache line. The thread that drops it keeps it for the next one.
#[derive(Clone, Debug)]
pub(super) struct Buffer(Vec<Line>);

thread_local! {
    /// Memory of dropped buffers.
    static SPARE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(vec![]) };
}
/// Maximum number of buffers that a thread keeps, and of bytes in all of them.
const MOST_SPARE: (usize, usize) = (16, 4 << 20);

impl Buffer {
    /// Zeros of exactly this many floats, for data that outlives a run.
    pub(super) fn lasting(len: usize) -> Result<Self, CpuError> {
        Ok(Self(zeros(len.div_ceil(Line::FLOATS))?))
    }

    /// The first `len` floats, after growth if necessary. The content is unspecified.
    pub(super) fn floats(&mut self, len: usize) -> Result<&mut [f32], CpuError> {
        let lines = room(&mut self.0, len.div_ceil(Line::FLOATS))?;
        Ok(&mut cast_slice_mut(lines)[..len])
    }

    /// All floats.
    pub(super) fn all(&self) -> &[f32] {
        cast_slice(&self.0)
    }

    /// All floats.
    pub(super) fn all_mut(&mut self) -> &mut [f32] {
        cast_slice_mut(&mut self.0)
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Line>()
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self(SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let own = std::mem::take(&mut self.0);
        // A thread that ends has no list any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if own.capacity() > 0 {
                spare.push(own);
            }
            let bytes =
                |spare: &[Vec<Line>]| spare.iter().map(|lines| lines.capacity() * size_of::<Line>()).sum::<usize>();
            // The oldest ones are freed.
            while spare.len() > MOST_SPARE.0 || bytes(&spare) > MOST_SPARE.1 {
                spare.remove(0);
            }
        });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_dropped_buffers_again_and_keeps_only_so_many() {
        std::thread::spawn(|| {
            let mut buffer = Buffer::default();
            let place = buffer.floats(1000).unwrap().as_ptr();
            assert!(place.cast::<Line>().is_aligned());
            drop(buffer);
            assert_eq!(Buffer::default().floats(10).unwrap().as_ptr(), place);
            let lasting = Buffer::lasting(100).unwrap();
            assert_eq!((lasting.all().len(), lasting.bytes()), (112, 448));
            let kept = || SPARE.with_borrow(|spare| spare.iter().map(Vec::len).sum::<usize>() * size_of::<Line>());
            for _ in 0..2 {
                let mut buffers: Vec<Buffer> = (0..20).map(|_| Buffer::default()).collect();
                buffers.iter_mut().for_each(|buffer| buffer.floats(100_000).unwrap().fill(f32::NAN));
                drop(buffers);
                assert!((1 << 20..=MOST_SPARE.1).contains(&kept()), "{}", kept());
            }
        })
        .join()
        .unwrap();
    }
}
