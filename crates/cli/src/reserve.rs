//! A memory reserve for small allocations.
//!
//! Large allocations of the libraries may fail, and are reported. A small one, of a few bytes for a growing list, would abort the process.
//! Once one fails, small allocations use the reserve, and large ones fail from then on.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The system allocator, with a reserve.
pub struct Reserving {
    /// Zeros; each byte is handed out once.
    kept: AtomicPtr<u8>,
    used: AtomicUsize,
    is_short: &'static AtomicBool,
}

/// Size of the reserve. It is not touched before it is used, so it only occupies address space.
const RESERVE: Layout = Layout::new::<[u128; 1 << 19]>();
/// Maximum size of a small allocation. Libraries use fallible allocation for larger ones.
const SMALL: usize = 128 << 10;

impl Reserving {
    /// Sets `is_short` at the first use of the reserve.
    pub const fn new(is_short: &'static AtomicBool) -> Self {
        Self { kept: AtomicPtr::new(ptr::null_mut()), used: AtomicUsize::new(0), is_short }
    }

    /// Allocates the reserve, if memory is available.
    pub fn keep(&self) {
        // SAFETY: the layout has a size.
        self.kept.store(unsafe { System.alloc_zeroed(RESERVE) }, Ordering::Release);
    }

    /// The result of an allocation, or zeros from the reserve if it is small and failed.
    fn ask(&self, layout: Layout, request: impl Fn() -> *mut u8) -> *mut u8 {
        let is_large = layout.size() > SMALL;
        if is_large && self.is_short.load(Ordering::Relaxed) {
            return ptr::null_mut();
        }
        let given = request();
        if given.is_null() && !is_large { self.take(layout) } else { given }
    }

    /// Zeros from the reserve, if enough are left.
    fn take(&self, layout: Layout) -> *mut u8 {
        let kept = self.kept.load(Ordering::Acquire);
        if kept.is_null() {
            return kept;
        }
        self.is_short.store(true, Ordering::Relaxed);
        let begin = |used: usize| (kept.addr() + used).next_multiple_of(layout.align()) - kept.addr();
        let end = |used: usize| Some(begin(used) + layout.size()).filter(|end| *end <= RESERVE.size());
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
            Ok(used) => kept.wrapping_add(begin(used)),
            Err(_) => ptr::null_mut(),
        }
    }

    fn has(&self, memory: *mut u8) -> bool {
        let kept = self.kept.load(Ordering::Relaxed).addr();
        kept != 0 && memory.addr().wrapping_sub(kept) < RESERVE.size()
    }
}

// SAFETY: memory comes from the system allocator, which gets the caller's layouts, or is an exclusive part of the reserve, which is never
// returned.
unsafe impl GlobalAlloc for Reserving {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout has a size.
        self.ask(layout, || unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !self.has(memory) {
            // SAFETY: the system allocator returned the memory for this layout.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        self.ask(layout, || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let is_system = !self.has(memory);
        if is_system && size <= layout.size() {
            // SAFETY: as for `dealloc`.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: the caller's size does not overflow with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let moved = self.ask(wanted, || match is_system {
            // SAFETY: as for `dealloc`; if the reallocation fails, the memory is unchanged.
            true => unsafe { System.realloc(memory, layout, size) },
            // SAFETY: the caller's size is not zero.
            false => unsafe { System.alloc(wanted) },
        });
        if !moved.is_null() && (!is_system || self.has(moved)) {
            // SAFETY: both have this many bytes, and they do not overlap.
            unsafe { ptr::copy_nonoverlapping(memory, moved, layout.size().min(size)) };
            // SAFETY: the caller's memory was allocated with this layout.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_take_the_reserve_and_large_ones_fail_from_then_on() {
        static IS_SHORT: AtomicBool = AtomicBool::new(false);
        let memory = Reserving::new(&IS_SHORT);
        let small = |size: usize| Layout::from_size_align(size, 64).unwrap();
        let (given, none) = (ptr::dangling_mut::<u8>(), ptr::null_mut::<u8>());
        assert!(memory.ask(small(8), || none).is_null());
        memory.keep();
        assert!(memory.ask(small(SMALL + 1), || none).is_null());
        assert_eq!(memory.ask(small(8), || given), given);
        assert!(!IS_SHORT.load(Ordering::Relaxed));
        let taken = [1, SMALL, 3].map(|size| memory.ask(small(size), || none));
        assert!(IS_SHORT.load(Ordering::Relaxed));
        assert!(taken.iter().all(|part| memory.has(*part) && part.addr().is_multiple_of(64)));
        assert!(taken.is_sorted() && taken[2].addr() - taken[1].addr() >= SMALL);
        assert!(memory.ask(small(SMALL + 1), || given).is_null());
        assert_eq!(memory.ask(small(SMALL), || given), given);
        let rest = (0..).take_while(|_| !memory.ask(small(SMALL), || none).is_null()).count();
        assert_eq!(rest, RESERVE.size() / SMALL - 2);
    }

    #[test]
    fn memory_moves_out_of_the_reserve_with_its_content() {
        static IS_SHORT: AtomicBool = AtomicBool::new(false);
        let memory = Reserving::new(&IS_SHORT);
        memory.keep();
        let layout = Layout::new::<[u8; 5]>();
        let taken = memory.take(layout);
        // SAFETY: the reserve returned five bytes, and the system as many as requested.
        let grown = unsafe {
            ptr::copy_nonoverlapping(b"bytes".as_ptr(), taken, 5);
            let grown = memory.realloc(taken, layout, 9);
            assert!(!memory.has(grown));
            let content = std::slice::from_raw_parts(grown, 5).to_vec();
            memory.dealloc(grown, Layout::new::<[u8; 9]>());
            content
        };
        assert_eq!(grown, b"bytes");
    }
}
