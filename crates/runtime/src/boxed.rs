use std::pin::Pin;

/// A boxed future. It is `Send`, except in browsers that share memory among threads, where WebGPU objects stay on their
/// thread.
#[cfg(not(all(target_arch = "wasm32", target_feature = "atomics")))]
pub(crate) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed future.
#[cfg(all(target_arch = "wasm32", target_feature = "atomics"))]
pub(crate) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
