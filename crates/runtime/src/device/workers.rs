use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// Work that blocks the thread that it runs on.
pub type Work = Box<dyn FnOnce() + Send>;

/// Threads of the app's for work that blocks. Sessions spawn none of their own.
///
/// Without them a future that waits for a device asks it again whenever it is polled, and has itself polled again at once:
/// other futures of the executor go on, but the thread does not rest. With them one piece of work waits and the future sleeps.
///
/// ```no_run
/// use rewire_runtime::{Gpu, Workers};
/// let gpu = Gpu::open(None)?.with_workers(Workers::new(|work| drop(std::thread::spawn(work))));
/// # Ok::<(), rewire_runtime::GpuError>(())
/// ```
#[derive(Clone)]
pub struct Workers(Arc<dyn Fn(Work) + Send + Sync>);

impl Workers {
    /// `spawn` has work done on another thread, soon: an executor's function for blocking work, for instance.
    pub fn new(spawn: impl Fn(Work) + Send + Sync + 'static) -> Self {
        Self(Arc::new(spawn))
    }

    pub(super) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        (self.0)(Box::new(work));
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers")
    }
}

thread_local! {
    static BLOCKS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a future on this thread until it is done. While it waits for a device the thread sleeps, for that work alone.
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

/// True within [`block_on`]: nobody else has anything to do on this thread.
pub(super) fn blocks() -> bool {
    BLOCKS.get()
}
