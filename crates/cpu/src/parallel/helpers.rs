//! The helper threads of a pool in this process.

use super::place::HelperThread;
use super::pool::ThreadPoolOptions;
use super::scope::ParallelScope;
use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use web_time::{Duration, Instant};

/// How long an idle helper polls before it sleeps. The gaps between kernels of a run are shorter.
const AWAKE: Duration = Duration::from_micros(50);

/// How long a pool waits after the system refused a thread before it tries again.
const REFUSED: Duration = Duration::from_secs(1);

/// The helpers of a pool. Their number is the most that a caller has requested.
pub(super) struct Helpers {
    options: ThreadPoolOptions,
    waiting: Mutex<Waiting>,
    /// Number of requested helpers.
    places: AtomicUsize,
    /// Number of polling helpers.
    looking: AtomicUsize,
    invited: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Open scopes, each with its number of requested helpers; earliest first.
    scopes: Vec<(Arc<ParallelScope>, usize)>,
    /// Background work, run when no scope requests helpers.
    later: VecDeque<Box<dyn FnOnce() + Send>>,
    threads: usize,
    /// The threads started by this pool.
    started: Vec<JoinHandle<()>>,
    asleep: usize,
    /// When the system last refused a thread.
    refused: Option<Instant>,
    /// True after the pool was dropped; helpers then exit.
    is_closed: bool,
}

thread_local! {
    /// True if this thread is a helper.
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
}

/// The next action of a helper.
enum Next {
    ParallelScope(Arc<ParallelScope>),
    Later(Box<dyn FnOnce() + Send>),
    End,
}

impl Helpers {
    pub(super) fn new(options: &ThreadPoolOptions) -> Arc<Self> {
        Arc::new(Self {
            options: options.clone(),
            waiting: Mutex::default(),
            places: AtomicUsize::new(0),
            looking: AtomicUsize::new(0),
            invited: Condvar::new(),
        })
    }

    /// True if helpers may be moved between CPUs.
    pub(super) fn may_move(&self) -> bool {
        self.options.affinity
    }

    /// Requests up to `count` helpers for a scope.
    pub(super) fn invite(self: &Arc<Self>, scope: &Arc<ParallelScope>, count: usize) {
        let mut waiting = self.lock();
        self.start(&mut waiting, count);
        waiting.scopes.push((scope.clone(), count));
        self.wake(waiting);
    }

    /// Withdraws the request of a scope.
    pub(super) fn withdraw(&self, scope: &Arc<ParallelScope>) {
        let mut waiting = self.lock();
        waiting.scopes.retain(|(other, _)| !Arc::ptr_eq(other, scope));
        self.count(&waiting);
    }

    /// Runs background work on a helper; drops it if there is none.
    pub(super) fn later(self: &Arc<Self>, work: Box<dyn FnOnce() + Send>) {
        let mut waiting = self.lock();
        self.start(&mut waiting, 1);
        if waiting.threads > 0 {
            waiting.later.push_back(work);
            self.wake(waiting);
        }
    }

    /// Ends the helpers after all work is done, and waits for their threads. On a helper thread of any pool it does not
    /// wait, since another helper could wait for this one.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        self.count(&waiting);
        let started = std::mem::take(&mut waiting.started);
        drop(waiting);
        self.invited.notify_all();
        if !IS_HELPER.get() {
            for thread in started {
                // A helper catches the panics of its work.
                let _ = thread.join();
            }
        }
    }

    /// Number of helper threads.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn threads(&self) -> usize {
        self.lock().threads
    }

    /// Makes this thread a helper for its lifetime.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn help(&self) -> ! {
        self.lock().threads += 1;
        loop {
            self.serve();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        super::lock(&self.waiting)
    }

    /// Updates the number of requested helpers.
    fn count(&self, waiting: &Waiting) -> usize {
        let places: usize = waiting.scopes.iter().map(|(_, places)| places).sum();
        let places = places + waiting.later.len() + usize::from(waiting.is_closed);
        self.places.store(places, Ordering::Release);
        places
    }

    /// Starts helpers until there are `count`, or the system refuses one.
    fn start(self: &Arc<Self>, waiting: &mut Waiting, count: usize) {
        if waiting.threads >= count || waiting.refused.is_some_and(|since| since.elapsed() < REFUSED) {
            return;
        }
        let ThreadPoolOptions { name, stack_bytes, .. } = &self.options;
        while waiting.threads < count {
            let own = self.clone();
            let thread = Builder::new().name(name.clone()).stack_size(*stack_bytes);
            let error = match thread.spawn(move || own.serve()) {
                Ok(started) => {
                    waiting.started.push(started);
                    waiting.threads += 1;
                    continue;
                }
                Err(error) => error,
            };
            if waiting.refused.replace(Instant::now()).is_none() {
                let threads = waiting.threads + 1;
                tracing::warn!("{threads} of {} threads run, since the system refuses more: {error}", count + 1);
            }
            return;
        }
    }

    /// Wakes sleeping helpers for the requests that polling helpers do not cover.
    fn wake(&self, waiting: MutexGuard<'_, Waiting>) {
        let places = self.count(&waiting);
        let asleep = waiting.asleep;
        drop(waiting);
        for _ in 0..places.saturating_sub(self.looking.load(Ordering::Acquire)).min(asleep) {
            self.invited.notify_one();
        }
    }

    fn serve(&self) {
        IS_HELPER.set(true);
        let thread = Arc::new(HelperThread::here(self.may_move()));
        loop {
            match self.next() {
                Next::ParallelScope(scope) => scope.join(&thread),
                Next::Later(work) => drop(catch_unwind(AssertUnwindSafe(work))),
                Next::End => return,
            }
        }
    }

    /// Waits for work.
    fn next(&self) -> Next {
        self.looking.fetch_add(1, Ordering::AcqRel);
        let begun = Instant::now();
        while begun.elapsed() < AWAKE {
            if self.places.load(Ordering::Acquire) > 0
                && let Some(next) = self.take(&mut self.lock())
            {
                self.looking.fetch_sub(1, Ordering::AcqRel);
                return next;
            }
            spin_loop();
        }
        let mut waiting = self.lock();
        self.looking.fetch_sub(1, Ordering::AcqRel);
        loop {
            if let Some(next) = self.take(&mut waiting) {
                return next;
            }
            waiting.asleep += 1;
            waiting = self.invited.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.asleep -= 1;
        }
    }

    fn take(&self, waiting: &mut Waiting) -> Option<Next> {
        let next = if let Some((scope, places)) = waiting.scopes.first_mut() {
            let scope = scope.clone();
            *places -= 1;
            if *places == 0 {
                waiting.scopes.remove(0);
            }
            Next::ParallelScope(scope)
        } else if let Some(work) = waiting.later.pop_front() {
            Next::Later(work)
        } else if waiting.is_closed {
            waiting.threads -= 1;
            Next::End
        } else {
            return None;
        };
        self.count(waiting);
        Some(next)
    }
}
