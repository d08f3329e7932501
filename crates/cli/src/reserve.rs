//! Memory that is kept back for small requests.
//!
//! Large requests of the libraries may fail, and are reported. A small one, of a few bytes for a list that grows, ends the process where it
//! fails. So once one does, what was kept back is given to such requests, and large ones fail from then on.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The allocator of the system, with a reserve.
pub struct Reserving {
    kept: AtomicPtr<u8>,
    is_short: AtomicBool,
}

/// Bytes that are kept back. They are not touched, so that they take addresses alone.
const RESERVE: Layout = Layout::new::<[u128; 1 << 19]>();
/// Bytes of the largest request that counts as small.
const SMALL: usize = 32 << 10;

impl Reserving {
    pub const fn new() -> Self {
        Self { kept: AtomicPtr::new(ptr::null_mut()), is_short: AtomicBool::new(false) }
    }

    /// Keeps memory back from now on, if there is any.
    pub fn keep(&self) {
        // SAFETY: the layout has a size.
        self.kept.store(unsafe { System.alloc(RESERVE) }, Ordering::Release);
    }

    /// The result of a request, made again with the reserve where it is small and failed.
    fn ask(&self, bytes: usize, request: impl Fn() -> *mut u8) -> *mut u8 {
        if bytes > SMALL && self.is_short.load(Ordering::Relaxed) {
            return ptr::null_mut();
        }
        let given = request();
        if !given.is_null() || bytes > SMALL {
            return given;
        }
        let kept = self.kept.swap(ptr::null_mut(), Ordering::AcqRel);
        if !kept.is_null() {
            self.is_short.store(true, Ordering::Relaxed);
            // SAFETY: it was given for this layout, and whoever swaps it out is alone in having it.
            unsafe { System.dealloc(kept, RESERVE) };
        }
        request()
    }
}

// SAFETY: all memory is that of the system's allocator, which is asked and given back with the caller's layouts.
unsafe impl GlobalAlloc for Reserving {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout has a size.
        self.ask(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the system's allocator gave the memory for this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        self.ask(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; where a request fails, the memory stays as it is.
        self.ask(size, || unsafe { System.realloc(memory, layout, size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_take_the_reserve_and_large_ones_fail_from_then_on() {
        let memory = Reserving::new();
        memory.keep();
        let given = ptr::dangling_mut::<u8>();
        // The system has memory for a small request once the reserve is given back.
        let scarce = || if memory.kept.load(Ordering::Acquire).is_null() { given } else { ptr::null_mut() };
        assert!(memory.ask(SMALL + 1, scarce).is_null());
        assert_eq!(memory.ask(8, || given), given);
        assert!(!memory.is_short.load(Ordering::Relaxed));
        assert_eq!(memory.ask(8, scarce), given);
        assert!(memory.ask(SMALL + 1, || given).is_null());
        assert_eq!(memory.ask(SMALL, || given), given);
    }
}
