use std::pin::Pin;

/// A boxed future, which may go from thread to thread: not where browsers share memory among threads, since what is of WebGPU stays on
/// its own there.
#[cfg(not(all(target_arch = "wasm32", target_feature = "atomics")))]
pub(crate) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed future.
#[cfg(all(target_arch = "wasm32", target_feature = "atomics"))]
pub(crate) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
