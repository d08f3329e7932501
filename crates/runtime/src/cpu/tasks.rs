use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs tasks `0..count` on the current pool, started in order, with one `state` a thread.
pub(super) fn for_each<S>(count: usize, state: impl Fn() -> S + Sync, run: impl Fn(&mut S, usize) + Sync) {
    let next = AtomicUsize::new(0);
    let workers = rayon::current_num_threads().min(count);
    (0..workers).into_par_iter().with_max_len(1).for_each(|_| {
        let mut own = None;
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= count {
                break;
            }
            run(own.get_or_insert_with(&state), task);
        }
    });
}
