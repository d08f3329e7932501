use super::error::CpuError;
use std::sync::{Mutex, OnceLock};

/// Runs tasks on this thread and the current pool, started in order, with one `state` a thread. After an error no more are
/// started.
pub(super) fn for_each<T: Send, S>(
    tasks: Vec<T>,
    state: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, T) -> Result<(), CpuError> + Sync,
) -> Result<(), CpuError> {
    let workers = rayon::current_num_threads().min(tasks.len());
    let (queue, failure) = (Mutex::new(tasks.into_iter()), OnceLock::new());
    let work = || {
        let mut own = None;
        while failure.get().is_none()
            && let Some(task) = queue.lock().ok().and_then(|mut queue| queue.next())
        {
            if let Err(error) = run(own.get_or_insert_with(&state), task) {
                // One of several errors is enough.
                drop(failure.set(error));
            }
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|_| work());
        }
        work();
    });
    failure.into_inner().map_or(Ok(()), Err)
}
