//! Thread pools: the app's, or the default pool of the process.

#[cfg(feature = "parallel")]
use super::helpers::Helpers;
#[cfg(feature = "parallel")]
use super::process::PerProcess;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use thiserror::Error;

/// Maximum number of threads in a pool.
pub const MAX_THREADS: usize = 1024;

/// The environment variable with the number of threads of the default pool.
const VARIABLE: &str = "REWIRE_THREADS";

/// Minimum stack size of a helper in bytes.
const LEAST_STACK: usize = 1 << 20;

/// Options of a [`ThreadPool`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPoolOptions {
    /// Number of threads that work for one caller, including its own, from 1 to [`MAX_THREADS`]. If `None`, the number of
    /// CPUs available to the process.
    pub threads: Option<usize>,
    /// Name of the helper threads. Linux shows the first 15 bytes.
    pub name: String,
    /// Stack size of a helper thread in bytes, at least 1 MiB. Physical memory is allocated on use. Builds without
    /// optimisation need the default size.
    pub stack_bytes: usize,
    /// Moves helper threads between their allowed CPUs, through CPU affinity, when another process uses part of a CPU.
    /// Linux only.
    pub affinity: bool,
}

impl Default for ThreadPoolOptions {
    fn default() -> Self {
        Self { threads: None, name: "rewire".to_owned(), stack_bytes: 16 << 20, affinity: false }
    }
}

impl ThreadPoolOptions {
    /// The default options, with the number of threads from the environment variable `REWIRE_THREADS`.
    ///
    /// # Errors
    /// [`ThreadPoolError::Variable`] if its value is not a number of threads.
    pub fn from_env() -> Result<Self, ThreadPoolError> {
        let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(Self::default());
        };
        let threads = value.to_str().and_then(|value| value.trim().parse().ok());
        match threads.filter(|threads| (1..=MAX_THREADS).contains(threads)) {
            Some(threads) => Ok(Self { threads: Some(threads), ..Self::default() }),
            None => Err(ThreadPoolError::Variable { value: value.to_string_lossy().into_owned() }),
        }
    }

    fn check(&self) -> Result<(), ThreadPoolError> {
        match self.threads {
            Some(threads) if !(1..=MAX_THREADS).contains(&threads) => return Err(ThreadPoolError::Threads { threads }),
            _ => {}
        }
        if self.name.contains('\0') {
            return Err(ThreadPoolError::Name { name: self.name.clone() });
        }
        if self.stack_bytes < LEAST_STACK {
            return Err(ThreadPoolError::Stack { bytes: self.stack_bytes });
        }
        Ok(())
    }
}

/// An option of a [`ThreadPool`] is out of range.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ThreadPoolError {
    /// The number of threads.
    #[error("`threads`: expected 1 to {MAX_THREADS}, got {threads}")]
    Threads {
        /// The number.
        threads: usize,
    },
    /// The name of the threads.
    #[error("`name`: expected a string without null bytes, got {name:?}")]
    Name {
        /// The name.
        name: String,
    },
    /// The size of a stack.
    #[error("`stack_bytes`: expected at least {LEAST_STACK}, got {bytes}")]
    Stack {
        /// The size.
        bytes: usize,
    },
    /// The environment variable.
    #[error("`{VARIABLE}`: expected a number of threads from 1 to {MAX_THREADS}, got {value:?}")]
    Variable {
        /// Its value.
        value: String,
    },
}

/// A pool of threads that run CPU kernels and compile kernels for devices. Clones share the threads.
///
/// Work runs on the caller's thread and on helper threads. Helpers start on first use and sleep when idle. If the
/// system refuses a thread, the pool works with the existing ones. A forked child starts its own helpers.
///
/// Dropping the last clone of a pool waits until its helper threads have finished their work and ended, since threads
/// that used a GPU driver must not outlive it. A clone dropped on a helper thread does not wait.
///
/// A model uses the pool in its options, if set; else the pool installed on the caller's thread
/// ([`ThreadPool::install`]); else the default pool of the process. Models may share a pool. The default pool has one
/// thread per CPU of the process, or the number in the environment variable `REWIRE_THREADS`.
///
/// ```
/// use rewire_cpu::parallel::{ThreadPool, ThreadPoolOptions};
/// let pool = ThreadPool::new(ThreadPoolOptions { threads: Some(2), name: "ranking".to_owned(), ..Default::default() })?;
/// assert_eq!(pool.threads(), if cfg!(feature = "parallel") { 2 } else { 1 });
/// # Ok::<(), rewire_cpu::parallel::ThreadPoolError>(())
/// ```
#[derive(Clone)]
pub struct ThreadPool(Arc<Shared>);

struct Shared {
    options: ThreadPoolOptions,
    threads: usize,
    #[cfg(feature = "parallel")]
    helpers: PerProcess<Arc<Helpers>>,
}

thread_local! {
    /// The pool installed on this thread.
    static INSTALLED: RefCell<Option<ThreadPool>> = const { RefCell::new(None) };
}

impl ThreadPool {
    /// Creates a pool. Threads start on first use.
    ///
    /// # Errors
    /// [`ThreadPoolError`] names the option that is out of range.
    pub fn new(options: ThreadPoolOptions) -> Result<Self, ThreadPoolError> {
        options.check()?;
        Ok(Self::of(options))
    }

    /// Creates a pool from validated options.
    fn of(options: ThreadPoolOptions) -> Self {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let threads = if cfg!(feature = "parallel") { options.threads.unwrap_or_else(cpus) } else { 1 };
        Self(Arc::new(Shared {
            options,
            threads,
            #[cfg(feature = "parallel")]
            helpers: PerProcess::new(),
        }))
    }

    /// The pool installed on this thread, else the default pool of the process.
    pub fn current() -> Self {
        Self::with_current(Self::clone)
    }

    pub(super) fn with_current<T>(work: impl FnOnce(&Self) -> T) -> T {
        INSTALLED.with_borrow(|installed| match installed {
            Some(pool) => work(pool),
            None => Self::with_default(work),
        })
    }

    #[cfg(feature = "parallel")]
    fn with_default<T>(work: impl FnOnce(&Self) -> T) -> T {
        static DEFAULT: PerProcess<ThreadPool> = PerProcess::new();
        work(DEFAULT.get_or_make(|| {
            Self::of(ThreadPoolOptions::from_env().unwrap_or_else(|error| {
                tracing::warn!("{error}; using one thread per CPU");
                ThreadPoolOptions::default()
            }))
        }))
    }

    #[cfg(not(feature = "parallel"))]
    fn with_default<T>(work: impl FnOnce(&Self) -> T) -> T {
        work(&Self::of(ThreadPoolOptions::default()))
    }

    /// The options of the pool.
    pub fn options(&self) -> &ThreadPoolOptions {
        &self.0.options
    }

    /// Number of threads that work for one caller, including its own.
    pub fn threads(&self) -> usize {
        #[cfg(all(feature = "parallel", target_arch = "wasm32"))]
        return self.helpers().threads() + 1;
        #[cfg(not(all(feature = "parallel", target_arch = "wasm32")))]
        return self.0.threads;
    }

    /// Runs `work` on this thread with this pool instead of the default one.
    ///
    /// ```
    /// use rewire_cpu::parallel::{ThreadPool, ThreadPoolOptions};
    /// let pool = ThreadPool::new(ThreadPoolOptions { threads: Some(1), ..Default::default() })?;
    /// assert_eq!(pool.install(|| ThreadPool::current().threads()), 1);
    /// # Ok::<(), rewire_cpu::parallel::ThreadPoolError>(())
    /// ```
    pub fn install<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Before(Option<ThreadPool>);
        impl Drop for Before {
            fn drop(&mut self) {
                INSTALLED.set(self.0.take());
            }
        }
        let _before = Before(INSTALLED.replace(Some(self.clone())));
        work()
    }

    /// [`ThreadPool::install`] for every poll of a future.
    pub async fn within<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| self.install(|| future.as_mut().poll(context))).await
    }

    #[cfg(feature = "parallel")]
    pub(super) fn helpers(&self) -> &Arc<Helpers> {
        self.0.helpers.get_or_make(|| Helpers::new(&self.0.options))
    }

    /// Runs background work on a helper; drops the work if there is none.
    pub(super) fn later(&self, work: Box<dyn FnOnce() + Send>) {
        #[cfg(feature = "parallel")]
        if self.threads() > 1 {
            self.helpers().later(work);
        }
        #[cfg(not(feature = "parallel"))]
        drop(work);
    }
}

#[cfg(feature = "parallel")]
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(helpers) = self.helpers.get() {
            helpers.close();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).field("options", &self.0.options).finish()
    }
}
