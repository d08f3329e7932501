//! Times of the parts of a start: log events at level `debug`.

use std::fmt::Display;
use web_time::Instant;

/// Runs `work` and logs its duration.
pub(crate) fn timed<T>(what: impl Display, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    log(what, begun);
    done
}

/// [`timed`] for asynchronous work.
pub(crate) async fn timed_async<T>(what: impl Display, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    log(what, begun);
    done
}

fn log(what: impl Display, begun: Instant) {
    tracing::debug!("{what}: {:.2} ms", begun.elapsed().as_secs_f64() * 1e3);
}
