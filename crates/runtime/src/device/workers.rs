use rewire_cpu::parallel::Process;
use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::sync::mpsc::{self, SendError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{Builder, JoinHandle, current};
use thiserror::Error;

/// Work that blocks its thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// Threads of the app for blocking work.
///
/// With workers in [`ModelOptions::workers`](crate::ModelOptions::workers), a run is one piece of work, including
/// kernels on the CPU and the wait for a device; its future is pending meanwhile. Without them, kernels on the CPU
/// block the polling thread, and a thread of the device, started by the first future that waits, waits for it.
///
/// ```no_run
/// use rewire_runtime::{Gpu, Workers};
/// let gpu = Gpu::open(None)?.with_workers(Workers::new(|work| drop(std::thread::spawn(work))));
/// # Ok::<(), rewire_runtime::GpuError>(())
/// ```
#[derive(Clone)]
pub struct Workers(Arc<dyn Fn(Work) + Send + Sync>);

impl Workers {
    /// `spawn` runs work on another thread, soon: an executor's function for blocking work, for instance.
    pub fn new(spawn: impl Fn(Work) + Send + Sync + 'static) -> Self {
        Self(Arc::new(spawn))
    }

    /// Runs `work` on another thread; the future is pending until it is done. Within [`block_on`] it runs on this
    /// thread.
    ///
    /// ```
    /// use rewire_runtime::{Workers, block_on};
    /// let workers = Workers::new(|work| drop(std::thread::spawn(work)));
    /// assert_eq!(block_on(workers.run(|| 2 + 2))?, 4);
    /// # Ok::<(), rewire_runtime::WorkDropped>(())
    /// ```
    ///
    /// # Errors
    /// [`WorkDropped`] if the work did not complete.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkDropped> {
        if blocks() {
            return Ok(work());
        }
        let (promise, kept) = promise();
        self.spawn(move || promise.keep(work()));
        kept.await
    }

    /// A thread that executes work in order, until no more work can arrive.
    pub(super) fn one_thread() -> Self {
        let thread = OwnThread::start();
        Self::new(move |work| thread.work(work))
    }

    /// Runs `work` on another thread, and does not wait for it.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        (self.0)(Box::new(work));
    }
}

/// A thread that is joined on drop: threads that used a GPU driver must not end after it is unloaded.
struct OwnThread {
    /// `None` if the system refused to start it.
    thread: Option<(Sender<Work>, JoinHandle<()>)>,
    process: Process,
}

impl OwnThread {
    fn start() -> Self {
        let (sender, works) = mpsc::channel::<Work>();
        let thread = Builder::new().name("rewire waits".to_owned());
        let thread = thread.spawn(move || works.into_iter().for_each(|work| work()));
        if let Err(error) = &thread {
            tracing::warn!("no background thread waits for the device, the polling threads do: {error}");
        }
        Self { thread: thread.ok().map(|thread| (sender, thread)), process: Process::current() }
    }

    /// Runs work on the thread, or on the caller if there is no thread.
    fn work(&self, work: Work) {
        let unsent = match &self.thread {
            Some((works, _)) => works.send(work).err(),
            None => Some(SendError(work)),
        };
        if let Some(SendError(work)) = unsent {
            work();
        }
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        let Some((works, thread)) = self.thread.take() else { return };
        drop(works);
        // The thread itself may drop this, and a forked child has the handle without the thread.
        let is_other = thread.thread().id() != current().id() && self.process == Process::current();
        if is_other && thread.join().is_err() {
            tracing::warn!("the thread that waits for the device panicked");
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers")
    }
}

/// Work was dropped before it completed: it panicked, or its executor has shut down.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the work was dropped before it completed: it panicked, or its executor has shut down")]
pub struct WorkDropped;

/// The result of work, and the waker of its future.
struct Promised<T>(Arc<Mutex<Outcome<T>>>);

/// The result, once the work is done, and the waker.
type Outcome<T> = (Option<Result<T, WorkDropped>>, Option<Waker>);

impl<T> Promised<T> {
    fn lock(&self) -> MutexGuard<'_, Outcome<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, result: Result<T, WorkDropped>) {
        let mut state = self.lock();
        state.0 = Some(result);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Clone for Promised<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Promised<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new((None, None))))
    }
}

/// A promise of a result, and a future of it.
pub(crate) fn promise<T>() -> (Promise<T>, impl Future<Output = Result<T, WorkDropped>>) {
    let result = Promised::<T>::default();
    let promise = Promise(Some(result.clone()));
    let kept = poll_fn(move |context| {
        let mut state = result.lock();
        match state.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    });
    (promise, kept)
}

/// Delivers a result, or reports on drop that there is none.
pub(crate) struct Promise<T>(Option<Promised<T>>);

impl<T> Promise<T> {
    pub(crate) fn keep(mut self, value: T) {
        if let Some(promised) = self.0.take() {
            promised.deliver(Ok(value));
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(promised) = self.0.take() {
            promised.deliver(Err(WorkDropped));
        }
    }
}

thread_local! {
    static BLOCKS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a future on this thread until it is done. While it waits for a device, the thread sleeps until that work is
/// done.
///
/// ```
/// assert_eq!(rewire_runtime::block_on(async { 2 + 2 }), 4);
/// ```
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            BLOCKS.set(self.0);
        }
    }
    let _before = Before(BLOCKS.replace(true));
    pollster::block_on(future)
}

/// True within [`block_on`], where the thread may block.
pub(crate) fn blocks() -> bool {
    BLOCKS.get()
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn the_thread_that_waits_has_ended_when_its_owner_is_dropped() {
        /// Freed when the thread ends, like drivers' thread-local data.
        struct Kept;
        impl Drop for Kept {
            fn drop(&mut self) {
                std::thread::sleep(Duration::from_millis(20));
                FREED.fetch_add(1, Ordering::Relaxed);
            }
        }
        static FREED: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static KEPT: Kept = const { Kept });

        let workers = Workers::one_thread();
        workers.spawn(|| KEPT.with(|_| ()));
        drop(workers);
        assert_eq!(FREED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_thread_that_drops_its_owner_ends() {
        let workers = Workers::one_thread();
        let (last, (drops, dropped), (ends, ended)) = (workers.clone(), mpsc::channel::<()>(), mpsc::channel());
        workers.spawn(move || {
            let _ = dropped.recv();
            drop(last);
            ends.send(()).unwrap();
        });
        drop(workers);
        drop(drops);
        assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok());
    }
}
