//! Work side by side: on the threads of the current rayon pool, or without the feature `parallel` one after the other.
#![cfg_attr(any(not(feature = "cpu"), target_arch = "wasm32"), allow(dead_code, unused_imports))]

#[cfg(feature = "parallel")]
mod way {
    use rayon::prelude::*;

    pub(crate) fn threads() -> usize {
        rayon::current_num_threads()
    }

    pub(crate) fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
        rayon::join(a, b)
    }

    pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, each: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
        items.into_par_iter().map(each).collect()
    }

    pub(crate) use super::region::with_helpers;

    pub(crate) fn later(work: impl FnOnce() + Send + 'static) {
        rayon::spawn(work);
    }

    pub(crate) fn on_each_thread<R: Send>(work: impl Fn() -> R + Sync) -> Vec<R> {
        rayon::broadcast(|_| work())
    }
}

#[cfg(not(feature = "parallel"))]
mod way {
    pub(crate) fn threads() -> usize {
        1
    }

    pub(crate) fn join<A, B>(a: impl FnOnce() -> A, b: impl FnOnce() -> B) -> (A, B) {
        (a(), b())
    }

    pub(crate) fn map<T, R>(items: Vec<T>, each: impl Fn(T) -> R) -> Vec<R> {
        items.into_iter().map(each).collect()
    }

    pub(crate) fn with_helpers(_: usize, work: impl Fn()) {
        work();
    }

    pub(crate) fn later(work: impl FnOnce()) {
        work();
    }

    pub(crate) fn on_each_thread<R>(work: impl Fn() -> R) -> Vec<R> {
        vec![work()]
    }
}

#[cfg(feature = "parallel")]
mod region;

pub(crate) use way::{join, later, map, on_each_thread, threads, with_helpers};
