//! Stores past the caches.

/// Bytes of a result from which on it would not stay in a cache until it is read.
pub(super) const LARGE: usize = 1 << 24;

/// Copies floats. Where the processor can, lines are not read before they are written; [`fence`] must follow before
/// another thread reads them.
pub(super) fn copy(out: &mut [f32], values: &[f32]) {
    let head = out.as_ptr().align_offset(16).min(out.len()).min(values.len());
    let ((start, out), (first, values)) = (out.split_at_mut(head), values.split_at(head));
    start.copy_from_slice(first);
    let ((parts, rest), (from, last)) = (out.as_chunks_mut::<4>(), values.as_chunks::<4>());
    for (out, from) in parts.iter_mut().zip(from) {
        copy_part(out, from);
    }
    rest.iter_mut().zip(last).for_each(|(out, &value)| *out = value);
}

/// `out` is aligned to its size.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn copy_part(out: &mut [f32; 4], from: &[f32; 4]) {
    use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
    // SAFETY: both are arrays of four floats, `out` is aligned to 16 bytes by `copy`, and SSE is part of x86-64.
    unsafe { _mm_stream_ps(out.as_mut_ptr(), _mm_loadu_ps(from.as_ptr())) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn copy_part(out: &mut [f32; 4], from: &[f32; 4]) {
    *out = *from;
}

/// Lets other threads see what [`copy`] wrote.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
