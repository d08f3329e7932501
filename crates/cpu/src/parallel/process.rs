//! Per-process values. A forked child has the memory of its parent, but none of its other threads.

#[cfg(feature = "parallel")]
use std::marker::PhantomData;
#[cfg(feature = "parallel")]
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Identifies a process; its forked children differ.
///
/// ```
/// use rewire_cpu::parallel::Process;
/// let opened_by = Process::current();
/// assert_eq!(opened_by, Process::current(), "this process did not fork");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(usize);

impl Process {
    /// The current process. Forks are counted from the first call on.
    pub fn current() -> Self {
        count_forks();
        Self(FORKS.load(Ordering::Relaxed))
    }
}

#[cfg(unix)]
fn count_forks() {
    use std::sync::atomic::AtomicBool;
    static COUNTING: AtomicBool = AtomicBool::new(false);
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    if !COUNTING.load(Ordering::Relaxed) && !COUNTING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler only increments an atomic, which is allowed in a forked child. The system removes the handlers of a library
        // when it unloads the library.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        if refused != 0 {
            tracing::warn!("a forked child cannot run models: pthread_atfork failed with {refused}");
        }
    }
}

#[cfg(not(unix))]
fn count_forks() {}

/// A value that each process creates for itself. It uses no locks, since a forked child would inherit locked ones.
#[cfg(feature = "parallel")]
pub(super) struct PerProcess<T> {
    latest: AtomicPtr<Entry<T>>,
    values: PhantomData<T>,
}

#[cfg(feature = "parallel")]
struct Entry<T> {
    process: Process,
    value: T,
}

#[cfg(feature = "parallel")]
impl<T> PerProcess<T> {
    pub(super) const fn new() -> Self {
        Self { latest: AtomicPtr::new(std::ptr::null_mut()), values: PhantomData }
    }

    /// The value of this process, created by the first caller.
    pub(super) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        let found = self.latest.load(Ordering::Acquire);
        if let Some(value) = self.own(found) {
            return value;
        }
        let made = Box::into_raw(Box::new(Entry { process: Process::current(), value: make() }));
        // Leaks the parent's entry: its locks may be held by threads that do not exist in this process.
        match self.latest.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `made` is from a box, and only `drop` frees it, which borrows exclusively.
            Ok(_) => unsafe { &(*made).value },
            Err(other) => {
                // SAFETY: no other thread has seen `made`.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: a thread of this process stored `other`, like `made` above.
                unsafe { &(*other).value }
            }
        }
    }

    /// The value of this process, if it exists.
    pub(super) fn get(&self) -> Option<&T> {
        self.own(self.latest.load(Ordering::Acquire))
    }

    fn own(&self, entry: *mut Entry<T>) -> Option<&T> {
        // SAFETY: `latest` is null or from a box, which only `drop` frees, which borrows exclusively.
        let entry = unsafe { entry.as_ref() }?;
        (entry.process == Process::current()).then_some(&entry.value)
    }
}

#[cfg(feature = "parallel")]
impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: the entry belongs to this process, is from a box, and is borrowed exclusively.
            drop(unsafe { Box::from_raw(*self.latest.get_mut()) });
        }
    }
}
