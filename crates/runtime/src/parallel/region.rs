//! Work that the caller shares with threads that come in time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Work that helpers may join as long as it is open.
struct Region {
    work: &'static (dyn Fn() + Sync),
    /// Helpers that are at work, and [`CLOSED`] where no helper comes in any more.
    helpers: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    left: Condvar,
}

const CLOSED: usize = 1 << (usize::BITS - 1);
/// How long the last helpers are waited for without sleep: it takes about as long to wake up.
const AWAKE: Duration = Duration::from_micros(100);

impl Region {
    /// Does a helper's part, if the region is open.
    fn join(&self) {
        let enter = |helpers| (helpers & CLOSED == 0).then_some(helpers + 1);
        if self.helpers.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_err() {
            return;
        }
        let failed = catch_unwind(AssertUnwindSafe(self.work)).err();
        if failed.is_some() {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        }
        if self.helpers.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1 {
            drop(self.panic.lock());
            self.left.notify_all();
        }
    }

    /// Lets no more helpers in and waits for those that are at work.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        self.helpers.fetch_or(CLOSED, Ordering::AcqRel);
        let is_left = || self.helpers.load(Ordering::Acquire) == CLOSED;
        let begun = Instant::now();
        while !is_left() && begun.elapsed() < AWAKE {
            std::thread::yield_now();
        }
        let mut panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_left() {
            panic = self.left.wait(panic).unwrap_or_else(PoisonError::into_inner);
        }
        panic.take()
    }
}

/// Does `work` on this thread, and on up to `helpers` threads of the current pool that are free before this one is done:
/// nobody waits for a thread that has not begun.
pub(crate) fn with_helpers(helpers: usize, work: impl Fn() + Sync) {
    if helpers == 0 {
        return work();
    }
    let borrowed: &(dyn Fn() + Sync) = &work;
    // SAFETY: only the lifetime changes. Helpers call the work only between coming in and going out, none comes in once the
    // region is closed, and this function returns or unwinds only after it has closed the region and all have gone out.
    let work = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(borrowed) };
    let region = Arc::new(Region { work, helpers: AtomicUsize::new(0), panic: Mutex::default(), left: Condvar::new() });
    for _ in 0..helpers {
        let region = region.clone();
        rayon::spawn(move || region.join());
    }
    let own = catch_unwind(AssertUnwindSafe(work));
    let theirs = region.close();
    if let Some(panic) = own.err().or(theirs) {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_work_is_done_when_it_returns() {
        for helpers in 0..4 {
            for _ in 0..200 {
                let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
                with_helpers(helpers, || {
                    while let number @ 0..100 = next.fetch_add(1, Ordering::Relaxed) {
                        sum.fetch_add(number, Ordering::Relaxed);
                    }
                });
                assert_eq!(sum.into_inner(), 99 * 50);
            }
        }
    }

    #[test]
    fn it_does_not_wait_for_a_pool_that_is_busy() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let done = AtomicUsize::new(0);
        let count = || {
            done.fetch_add(1, Ordering::Relaxed);
        };
        pool.install(|| with_helpers(3, count));
        assert_eq!(done.into_inner(), 1);
    }

    #[test]
    fn a_panic_of_a_helper_is_the_callers() {
        let main = std::thread::current().id();
        let waits = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            with_helpers(1, || {
                if std::thread::current().id() != main {
                    waits.store(1, Ordering::Release);
                    panic!("a helper's");
                }
                while waits.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
            });
        }));
        assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"a helper's"));
    }
}
