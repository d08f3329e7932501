//! Regions: work that a caller shares with free helpers.

use super::ThreadPool;
use super::helpers::Helpers;
use super::place::{HelperThread, processor};
use std::any::Any;
use std::cell::Cell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use web_time::{Duration, Instant};

/// Work that helpers may join while it is open.
pub(super) struct ParallelScope {
    work: &'static (dyn Fn(&Member<'_>) + Sync),
    participants: Mutex<Participants>,
    /// Number of helpers at work.
    at_work: AtomicUsize,
    left: Condvar,
    /// True if helpers may be moved between CPUs.
    may_move: bool,
    /// The caller's CPU at the start of its latest task.
    processor: AtomicUsize,
}

struct Participants {
    is_open: bool,
    /// The helpers at work.
    threads: Vec<Arc<HelperThread>>,
    panic: Option<Box<dyn Any + Send>>,
}

/// A thread that participates in a scope.
pub(crate) struct Member<'r> {
    role: Role<'r>,
    /// For a caller, the start of its latest task; for a helper, the time when it was last moved.
    latest: Cell<Option<Instant>>,
    longest: Cell<Duration>,
}

enum Role<'r> {
    Alone,
    Caller(&'r ParallelScope),
    Helper(&'r ParallelScope, &'r HelperThread),
}

/// How long to poll for the last helpers before sleeping: about the latency of a wake-up.
const AWAKE: Duration = Duration::from_micros(50);
/// Minimum time that a caller waits before it moves a helper to its CPU. It waits at least twice its longest task.
const PATIENCE: Duration = Duration::from_micros(100);
/// Minimum time between two moves of a helper.
const STAY: Duration = Duration::from_millis(1);

impl<'r> Member<'r> {
    fn new(role: Role<'r>) -> Self {
        Self { role, latest: Cell::new(None), longest: Cell::new(Duration::ZERO) }
    }

    /// Must be called before each task. Moves a helper away from the caller's CPU.
    pub(crate) fn begin_task(&self) {
        match self.role {
            Role::Caller(scope) if scope.may_move => {
                scope.processor.store(processor(), Ordering::Relaxed);
                let now = Instant::now();
                if let Some(begun) = self.latest.replace(Some(now)) {
                    self.longest.set(self.longest.get().max(now - begun));
                }
            }
            Role::Helper(scope, thread) if scope.may_move => {
                let here = processor();
                if here == scope.processor.load(Ordering::Relaxed)
                    && self.latest.get().is_none_or(|moved| moved.elapsed() > STAY)
                {
                    thread.leave(here);
                    self.latest.set(Some(Instant::now()));
                }
            }
            _ => {}
        }
    }
}

impl ParallelScope {
    fn lock(&self) -> MutexGuard<'_, Participants> {
        self.participants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the work on a helper, if the scope is open.
    pub(super) fn join(&self, thread: &Arc<HelperThread>) {
        let mut participants = self.lock();
        if !participants.is_open {
            return;
        }
        participants.threads.push(thread.clone());
        self.at_work.store(participants.threads.len(), Ordering::Relaxed);
        drop(participants);
        let member = Member::new(Role::Helper(self, thread));
        let failed = catch_unwind(AssertUnwindSafe(|| (self.work)(&member))).err();
        let mut participants = self.lock();
        participants.threads.retain(|other| !Arc::ptr_eq(other, thread));
        if failed.is_some() {
            participants.panic = failed;
        }
        self.at_work.store(participants.threads.len(), Ordering::Release);
        if !participants.is_open {
            self.left.notify_all();
        }
    }

    /// Closes the scope and waits for helpers at work. If helpers may be moved, a helper that takes longer than `patience`
    /// is probably waiting for its CPU, and is moved to the caller's.
    fn close(self: &Arc<Self>, helpers: &Helpers, patience: Duration) -> Option<Box<dyn Any + Send>> {
        helpers.withdraw(self);
        self.lock().is_open = false;
        let begun = Instant::now();
        while self.at_work.load(Ordering::Acquire) > 0 && begun.elapsed() < AWAKE {
            spin_loop();
        }
        let mut participants = self.lock();
        while let Some(thread) = participants.threads.first().cloned() {
            if !self.may_move {
                participants = self.left.wait(participants).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if let Some(rest) = patience.checked_sub(begun.elapsed()) {
                participants = self.left.wait_timeout(participants, rest).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let _kept = thread.bring(processor());
            while participants.threads.iter().any(|other| Arc::ptr_eq(other, &thread)) {
                participants = self.left.wait(participants).unwrap_or_else(PoisonError::into_inner);
            }
        }
        participants.panic.take()
    }
}

/// Runs `work` on this thread and on up to `helpers` helpers that are free before this thread is done. Does not wait for
/// helpers that have not started.
pub(crate) fn with_helpers(helpers: usize, work: impl Fn(&Member<'_>) + Sync) {
    if helpers == 0 {
        return work(&Member::new(Role::Alone));
    }
    let pool = ThreadPool::current();
    // Helpers borrow the caller's pool during their work, so none of them is its last owner.
    let on_pool = |member: &Member<'_>| match member.role {
        Role::Helper(..) => pool.install(|| work(member)),
        Role::Alone | Role::Caller(_) => work(member),
    };
    let borrowed: &(dyn Fn(&Member<'_>) + Sync) = &on_pool;
    // SAFETY: only the lifetime changes. Helpers call the work only between entering and leaving the scope, none enters after it is
    // closed, and this function returns or unwinds only after it has closed the scope and all have left.
    let lasting = unsafe {
        std::mem::transmute::<&(dyn Fn(&Member<'_>) + Sync), &'static (dyn Fn(&Member<'_>) + Sync)>(borrowed)
    };
    let participants = Participants { is_open: true, threads: vec![], panic: None };
    let may_move = pool.helpers().may_move();
    let scope = Arc::new(ParallelScope {
        work: lasting,
        participants: Mutex::new(participants),
        at_work: AtomicUsize::new(0),
        left: Condvar::new(),
        may_move,
        processor: AtomicUsize::new(if may_move { processor() } else { 0 }),
    });
    pool.helpers().invite(&scope, helpers);
    let member = Member::new(Role::Caller(&scope));
    let own = catch_unwind(AssertUnwindSafe(|| work(&member)));
    let theirs = scope.close(pool.helpers(), PATIENCE.max(2 * member.longest.get()));
    if let Some(panic) = own.err().or(theirs) {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ThreadPoolOptions, threads};
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn pool(threads: usize) -> ThreadPool {
        ThreadPool::new(ThreadPoolOptions { threads: Some(threads), ..ThreadPoolOptions::default() }).unwrap()
    }

    #[test]
    fn all_work_is_done_when_it_returns() {
        for helpers in 0..4 {
            for _ in 0..200 {
                let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
                with_helpers(helpers, |_| {
                    while let number @ 0..100 = next.fetch_add(1, Ordering::Relaxed) {
                        sum.fetch_add(number, Ordering::Relaxed);
                    }
                });
                assert_eq!(sum.into_inner(), 99 * 50);
            }
        }
    }

    #[test]
    fn nobody_joins_once_it_returns() {
        let (returned, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        for round in 0..200 {
            with_helpers(3, |_| {
                late.fetch_add(usize::from(returned.load(Ordering::Acquire) != round), Ordering::Relaxed);
            });
            returned.fetch_add(1, Ordering::Release);
        }
        assert_eq!(late.into_inner(), 0);
    }

    #[test]
    fn helpers_work_with_as_many_threads_as_the_caller() {
        let pool = pool(5);
        let came = AtomicUsize::new(0);
        pool.install(|| {
            with_helpers(4, |_| {
                assert_eq!(threads(), 5);
                let began = Instant::now();
                came.fetch_add(1, Ordering::Relaxed);
                while came.load(Ordering::Relaxed) < 2 && began.elapsed() < Duration::from_secs(10) {
                    std::thread::yield_now();
                }
            });
        });
        assert!(came.into_inner() > 1);
    }

    #[test]
    fn a_helper_that_loses_its_processor_is_waited_for() {
        let options = ThreadPoolOptions { threads: Some(3), affinity: true, ..ThreadPoolOptions::default() };
        ThreadPool::new(options).unwrap().install(all_tasks_are_done);
        all_tasks_are_done();
    }

    fn all_tasks_are_done() {
        for _ in 0..3 {
            let (tasks, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
            with_helpers(2, |member| {
                loop {
                    member.begin_task();
                    if tasks.fetch_add(1, Ordering::Relaxed) >= 40 {
                        break;
                    }
                    // Longer than a caller waits before it moves a helper to its CPU.
                    std::thread::sleep(Duration::from_micros(if matches!(member.role, Role::Helper(..)) {
                        900
                    } else {
                        10
                    }));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(done.into_inner(), 40);
        }
    }

    #[test]
    fn a_panic_of_a_helper_is_the_callers() {
        let main = std::thread::current().id();
        let waits = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            with_helpers(1, |_| {
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
