//! CPU affinity of helper threads.
//!
//! If another process uses part of a CPU, Linux often schedules two cooperating threads on the same other CPU for a tenth
//! of a second. A thread may also be preempted during its task while others wait for it. Pools avoid both by moving
//! helpers within their allowed CPUs, if [`ThreadPoolOptions::affinity`](super::ThreadPoolOptions) is set.

#[cfg(target_os = "linux")]
mod way {
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
    use std::sync::{Mutex, MutexGuard};

    /// The CPU that this thread runs on.
    pub(in crate::parallel) fn processor() -> usize {
        sched_getcpu()
    }

    /// A helper thread.
    pub(in crate::parallel) struct HelperThread {
        /// The thread id; `None` if the thread may not be moved.
        thread: Option<Pid>,
        /// Locked while the thread's CPUs are restricted, so that no other thread saves the restricted set as the
        /// original.
        moving: Mutex<()>,
    }

    impl HelperThread {
        /// The calling thread as a helper.
        pub(in crate::parallel) fn here(may_move: bool) -> Self {
            Self { thread: may_move.then(gettid), moving: Mutex::new(()) }
        }

        /// Restricts the thread to its allowed CPUs for which `wanted` is true, for the lifetime of the result. `None` if
        /// there are none, the thread may not be moved, or another thread is moving it.
        fn kept(&self, wanted: impl Fn(usize) -> bool) -> Option<Kept<'_>> {
            let thread = self.thread?;
            let moving = self.moving.try_lock().ok()?;
            let all = sched_getaffinity(Some(thread)).ok()?;
            let mut some = CpuSet::new();
            let wanted = (0..CpuSet::MAX_CPU).filter(|&processor| all.is_set(processor) && wanted(processor));
            wanted.for_each(|processor| some.set(processor));
            if some.count() == 0 || sched_setaffinity(Some(thread), &some).is_err() {
                return None;
            }
            Some(Kept { thread, all, _moving: moving })
        }

        /// Moves the thread away from a CPU.
        pub(in crate::parallel) fn leave(&self, processor: usize) {
            drop(self.kept(|other| other != processor));
        }

        /// Moves the thread to a CPU, for the lifetime of the result.
        pub(in crate::parallel) fn bring(&self, processor: usize) -> Option<Kept<'_>> {
            self.kept(|other| other == processor)
        }
    }

    /// Restricts a thread to some CPUs until it is dropped.
    pub(in crate::parallel) struct Kept<'a> {
        thread: Pid,
        all: CpuSet,
        _moving: MutexGuard<'a, ()>,
    }

    impl Drop for Kept<'_> {
        fn drop(&mut self) {
            if let Err(error) = sched_setaffinity(Some(self.thread), &self.all) {
                tracing::debug!("a helper stays on fewer processors: {error}");
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod way {
    pub(in crate::parallel) fn processor() -> usize {
        0
    }

    pub(in crate::parallel) struct HelperThread;

    impl HelperThread {
        pub(in crate::parallel) fn here(_: bool) -> Self {
            Self
        }

        pub(in crate::parallel) fn leave(&self, _: usize) {}

        pub(in crate::parallel) fn bring(&self, _: usize) -> Option<()> {
            None
        }
    }
}

pub(super) use way::{HelperThread, processor};

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    #[test]
    fn a_thread_is_moved_and_may_run_everywhere_again() {
        let all = sched_getaffinity(None).unwrap();
        let thread = HelperThread::here(true);
        if all.count() > 1 {
            let before = processor();
            thread.leave(before);
            assert_eq!(sched_getaffinity(None).unwrap(), all);
            let kept = thread.bring(before).unwrap();
            assert_eq!((processor(), sched_getaffinity(None).unwrap().count()), (before, 1));
            assert!(thread.bring(before).is_none());
            drop(kept);
        }
        assert!(thread.bring(usize::MAX).is_none());
        assert_eq!(sched_getaffinity(None).unwrap(), all);
    }
    #[test]
    fn a_thread_that_may_not_be_moved_is_not() {
        let all = sched_getaffinity(None).unwrap();
        let thread = HelperThread::here(false);
        assert!(thread.bring(processor()).is_none());
        thread.leave(processor());
        assert_eq!(sched_getaffinity(None).unwrap(), all);
    }
}
