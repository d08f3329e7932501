use std::sync::Mutex;

/// Runs tasks on this thread and the current pool, started in order, with one `state` a thread.
pub(super) fn for_each<T: Send, S>(tasks: Vec<T>, state: impl Fn() -> S + Sync, run: impl Fn(&mut S, T) + Sync) {
    let workers = rayon::current_num_threads().min(tasks.len());
    let queue = Mutex::new(tasks.into_iter());
    let work = || {
        let mut own = None;
        while let Some(task) = queue.lock().ok().and_then(|mut queue| queue.next()) {
            run(own.get_or_insert_with(&state), task);
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|_| work());
        }
        work();
    });
}
