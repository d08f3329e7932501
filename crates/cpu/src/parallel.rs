//! Work side by side: on the threads of the current rayon pool, kernels on as many threads of this crate's own, or without the feature
//! `parallel` one after the other. In browsers kernels run on the threads that call `help`, and the rest one after the other.
#![cfg_attr(any(not(feature = "kernels"), target_arch = "wasm32"), allow(dead_code, unused_imports))]

#[cfg(all(feature = "parallel", not(target_arch = "wasm32")))]
mod way {
    use rayon::prelude::*;

    /// Threads that may work at once for a caller that is no helper.
    pub(super) use rayon::current_num_threads as threads_of_caller;

    /// Both results.
    pub fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
        rayon::join(a, b)
    }

    /// The results of all items, in their order.
    pub fn map<T: Send, R: Send>(items: Vec<T>, each: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
        items.into_par_iter().map(each).collect()
    }

    /// Work that nobody waits for.
    pub fn later(work: impl FnOnce() + Send + 'static) {
        rayon::spawn(work);
    }

    /// The results of every thread.
    pub fn on_each_thread<R: Send>(work: impl Fn() -> R + Sync) -> Vec<R> {
        rayon::broadcast(|_| work())
    }
}

#[cfg(not(all(feature = "parallel", not(target_arch = "wasm32"))))]
mod way {
    #[cfg(feature = "parallel")]
    pub(super) use super::helpers::threads_of_caller;

    /// Both results.
    pub fn join<A, B>(a: impl FnOnce() -> A, b: impl FnOnce() -> B) -> (A, B) {
        (a(), b())
    }

    /// The results of all items, in their order.
    pub fn map<T, R>(items: Vec<T>, each: impl Fn(T) -> R) -> Vec<R> {
        items.into_iter().map(each).collect()
    }

    /// Work that nobody waits for.
    pub fn later(work: impl FnOnce()) {
        work();
    }

    /// The results of every thread.
    pub fn on_each_thread<R>(work: impl Fn() -> R) -> Vec<R> {
        vec![work()]
    }
}

#[cfg(not(feature = "parallel"))]
mod region {
    use std::marker::PhantomData;

    /// Threads that may work at once for the caller: this one.
    pub fn threads() -> usize {
        1
    }

    /// The one thread that there is.
    pub(crate) struct Member<'r>(PhantomData<&'r ()>);

    impl Member<'_> {
        pub(crate) fn begin_task(&self) {}
    }

    pub(crate) fn with_helpers(_: usize, work: impl Fn(&Member<'_>)) {
        work(&Member(PhantomData));
    }
}

#[cfg(feature = "parallel")]
mod helpers;
#[cfg(feature = "parallel")]
mod place;
#[cfg(feature = "parallel")]
mod region;

#[cfg(all(feature = "parallel", target_arch = "wasm32"))]
pub use helpers::help;
pub use region::threads;
pub(crate) use region::{Member, with_helpers};
pub use way::{join, later, map, on_each_thread};
