//! Tensor memory, allocated in cache lines.

use bytemuck::{Pod, Zeroable};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

/// One cache line: alignment for all element types and vectors.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u64; 8]);

/// Cache lines of a page.
const PAGE: usize = 4096 / size_of::<Line>();

/// Cache lines, page-aligned if they exceed a page. Processors assume that a load depends on a recent store if both have
/// the same offset within their pages; page alignment avoids such false dependencies between the starts of rows.
#[derive(Default)]
pub(super) struct Lines {
    all: Vec<Line>,
    start: usize,
}

impl Lines {
    /// Zeroed lines; `None` if allocation fails.
    pub(super) fn zeros(lines: usize) -> Option<Self> {
        let spare = if lines > PAGE { PAGE - 1 } else { 0 };
        let mut all: Vec<Line> = Vec::new();
        all.try_reserve_exact(lines + spare).ok()?;
        large_pages(all.spare_capacity_mut());
        let start = (all.as_ptr().addr() / size_of::<Line>()).wrapping_neg() % PAGE;
        let start = start.min(spare);
        all.resize(start + lines, Line::zeroed());
        Some(Self { all, start })
    }
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        self.all.get(self.start..).unwrap_or(&[])
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        self.all.get_mut(self.start..).unwrap_or(&mut [])
    }
}

/// Requests huge pages, which reduce TLB misses.
#[cfg(target_os = "linux")]
fn large_pages(lines: &mut [MaybeUninit<Line>]) {
    const LARGE: usize = 2 << 20;
    let (start, size) = (lines.as_mut_ptr().cast::<u8>(), size_of_val(lines));
    let skip = start.align_offset(LARGE);
    if let Some(size) = size.checked_sub(skip).map(|size| size / LARGE * LARGE).filter(|&size| size > 0) {
        // SAFETY: the pages are part of memory that is borrowed exclusively, and the advice changes no content.
        unsafe { libc::madvise(start.wrapping_add(skip).cast(), size, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn large_pages(_: &mut [MaybeUninit<Line>]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_as_many_as_asked_for_and_begin_with_a_page_where_they_are_many() {
        for count in [0, 1, PAGE, PAGE + 1, 1000, 100_000] {
            let mut lines = Lines::zeros(count).unwrap();
            assert_eq!(lines.len(), count);
            assert!(lines.iter().all(|line| line.0 == [0; 8]));
            lines.iter_mut().for_each(|line| line.0 = [1; 8]);
            assert!(count <= PAGE || lines.as_ptr().addr().is_multiple_of(4096));
        }
    }
}
