//! Non-temporal stores.

use gemm_common::cache::CACHE_INFO;
use pulp::Simd;
use std::marker::PhantomData;

/// Minimum size in bytes of a result that is evicted from caches before it is read.
const LARGE: usize = 1 << 24;

/// Non-temporal stores to memory that is borrowed for `'a`. The processor does not order them with other accesses, so the
/// thread that stored must drop this before the memory is read.
#[derive(Debug)]
pub(super) struct Stream<'a>(PhantomData<&'a mut [f32]>);

impl Stream<'_> {
    /// `None` for results that the last cache holds.
    pub(super) fn of(bytes: usize) -> Option<Self> {
        (bytes > CACHE_INFO[2].cache_bytes.max(LARGE)).then_some(Self(PhantomData))
    }

    /// Copies floats. If the processor supports it, cache lines are not read before they are written.
    pub(super) fn copy(&self, out: &mut [f32], values: &[f32]) {
        let head = out.as_ptr().align_offset(16).min(out.len()).min(values.len());
        let ((start, out), (first, values)) = (out.split_at_mut(head), values.split_at(head));
        start.copy_from_slice(first);
        let ((parts, rest), (from, last)) = (out.as_chunks_mut::<4>(), values.as_chunks::<4>());
        for (out, from) in parts.iter_mut().zip(from) {
            copy_part(out, from);
        }
        rest.iter_mut().zip(last).for_each(|(out, &value)| *out = value);
    }
}

impl Stream<'_> {
    /// Stores of whole vectors, if `out` is aligned.
    #[inline(always)]
    pub(super) fn vectors<S: Simd>(&self, out: &[f32]) -> Option<Vectors<'_, S>> {
        let is_aligned = out.as_ptr().addr().is_multiple_of(size_of::<S::f32s>());
        is_aligned.then_some(Vectors(PhantomData))
    }
}

/// Non-temporal stores of whole vectors.
pub(super) struct Vectors<'a, S>(PhantomData<&'a S>);

impl<S> Clone for Vectors<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Vectors<'_, S> {}

impl<S: Simd> Vectors<'_, S> {
    #[inline(always)]
    pub(super) fn store(self, out: &mut S::f32s, value: S::f32s) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_stream_ps, _mm256_stream_ps, _mm512_stream_ps};
            let out: *mut f32 = bytemuck::cast_slice_mut(std::slice::from_mut(out)).as_mut_ptr();
            if out.addr().is_multiple_of(size_of::<S::f32s>()) {
                // SAFETY: `out` is a vector of the size that the instruction stores, aligned to its size, and
                // pulp creates an `S` with that many lanes only if the processor has the instruction. `copy_part` has
                // the fences.
                unsafe {
                    match S::F32_LANES {
                        16 => return _mm512_stream_ps(out, bytemuck::cast(value)),
                        8 => return _mm256_stream_ps(out, bytemuck::cast(value)),
                        4 => return _mm_stream_ps(out, bytemuck::cast(value)),
                        _ => {}
                    }
                }
            }
        }
        *out = value;
    }
}

/// Prefetches elements at this distance.
#[inline(always)]
pub(super) fn prefetch<T>(values: &[T], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks(64 / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect for any address, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().wrapping_add(ahead).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, ahead);
}

/// Prefetches a line to the first cache. Any address is allowed.
#[inline(always)]
pub(super) fn prefetch_near(place: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect for any address, and SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// `out` must be aligned to its size.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn copy_part(out: &mut [f32; 4], from: &[f32; 4]) {
    use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
    // SAFETY: both are arrays of four floats, `Stream::copy` aligns `out` to 16 bytes, and SSE is part of x86-64. These
    // stores need a fence on this thread before other accesses of the memory: dropping the `Stream` is one, and the memory
    // is borrowed until then. Kernels drop their streams in the task that stored, and other tasks' threads read results
    // after the tasks are joined.
    unsafe { _mm_stream_ps(out.as_mut_ptr(), _mm_loadu_ps(from.as_ptr())) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn copy_part(out: &mut [f32; 4], from: &[f32; 4]) {
    *out = *from;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_from_and_to_any_place() {
        let values: Vec<f32> = (0..64).map(|n| n as f32).collect();
        for (to, from, count) in (0..5).flat_map(|to| (0..5).flat_map(move |from| (0..40).map(move |n| (to, from, n))))
        {
            let mut out = vec![-1.0; 64];
            {
                let stream = Stream::of(usize::MAX).unwrap();
                stream.copy(&mut out[to..to + count], &values[from..from + count]);
            }
            assert_eq!(out[to..to + count], values[from..from + count]);
            assert!(out[..to].iter().chain(&out[to + count..]).all(|&x| x == -1.0));
        }
        assert!(Stream::of(LARGE).is_none());
    }
}
