//! Parallel execution on the caller's thread and the helper threads of its [`ThreadPool`]. Without the feature
//! `parallel`, all work runs on the caller's thread. In browsers, helpers are the workers that call `help`.
#![cfg_attr(any(not(feature = "kernels"), target_arch = "wasm32"), allow(dead_code))]

mod pool;
mod process;

#[cfg(feature = "parallel")]
mod helpers;
#[cfg(feature = "parallel")]
mod place;
#[cfg(feature = "parallel")]
mod scope;
#[cfg(all(test, feature = "parallel"))]
mod tests;

#[cfg(not(feature = "parallel"))]
mod scope {
    use std::marker::PhantomData;

    /// The only thread.
    pub(crate) struct Member<'r>(PhantomData<&'r ()>);

    impl Member<'_> {
        pub(crate) fn begin_task(&self) {}
    }

    pub(crate) fn with_helpers(_: usize, work: impl Fn(&Member<'_>)) {
        work(&Member(PhantomData));
    }
}

pub use pool::{MAX_THREADS, ThreadPool, ThreadPoolError, ThreadPoolOptions};
pub use process::Process;
#[cfg(feature = "kernels")]
pub(crate) use scope::Member;
pub(crate) use scope::with_helpers;

use rewire_graph::Arrange;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Makes this thread a helper of the default pool for its lifetime: in browsers, where programs cannot start threads.
#[cfg(all(feature = "parallel", target_arch = "wasm32"))]
pub fn help() -> ! {
    ThreadPool::current().helpers().help()
}

/// Number of threads that work for a caller with the current pool, including the caller's.
pub fn threads() -> usize {
    if cfg!(feature = "parallel") { ThreadPool::with_current(ThreadPool::threads) } else { 1 }
}

/// Applies `each` to all items; results are in order.
pub fn map<T: Send, R: Send>(items: Vec<T>, each: impl Fn(T) -> R + Sync) -> Vec<R> {
    let helpers = threads().min(items.len()).saturating_sub(1);
    let (queue, done) = (Mutex::new(items.into_iter().enumerate()), Mutex::new(vec![]));
    with_helpers(helpers, |member| {
        loop {
            member.begin_task();
            let Some((number, item)) = lock(&queue).next() else { break };
            let result = each(item);
            lock(&done).push((number, result));
        }
    });
    let mut done = into_inner(done);
    done.arrange_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs both functions, one of them on a helper if one is free in time.
pub fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let works = (Mutex::new(Some(a)), Mutex::new(Some(b)));
    let results = (Mutex::new(None), Mutex::new(None));
    with_helpers(threads().min(2) - 1, |_| {
        run(&works.0, &results.0);
        run(&works.1, &results.1);
    });
    // Each function ran once, and `with_helpers` has resumed any panic here.
    let result = (into_inner(results.0), into_inner(results.1));
    let (Some(a), Some(b)) = result else { unreachable!("the caller has run what no helper has") };
    (a, b)
}

/// Runs work unless another thread has started it.
fn run<R>(work: &Mutex<Option<impl FnOnce() -> R>>, result: &Mutex<Option<R>>) {
    let work = lock(work).take();
    if let Some(work) = work {
        let done = work();
        *lock(result) = Some(done);
    }
}

/// Runs work on a helper without waiting for it. If the pool has no helper, the work is dropped.
pub fn later(work: impl FnOnce() + Send + 'static) {
    ThreadPool::with_current(|pool| pool.later(Box::new(work)));
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(shared: Mutex<T>) -> T {
    shared.into_inner().unwrap_or_else(PoisonError::into_inner)
}
