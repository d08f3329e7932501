//! Ranks of a training: threads of this process, or processes that MPI started.

use super::TrainFailed;
use crate::error::CliError;
use rewire::ThreadPool;
use rewire::train::TrainError;
use rewire::train::distributed::{CollectiveError, Collectives};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The group of a rank; `None` for a training without ranks.
pub type Group = Option<Arc<dyn Collectives>>;

/// Variables in which launchers of MPI programs pass the number of processes.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Variables in which launchers pass the number of a process on its machine: Open MPI, torchrun, MPICH.
const NUMBERS: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "MPI_LOCALRANKID"];

/// The number of a rank on its machine.
pub fn on_machine(group: &Group) -> usize {
    let rank = group.as_ref().map_or(0, |group| group.rank());
    NUMBERS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).unwrap_or(rank)
}

/// The number of processes that MPI started as ranks; `None` if MPI did not start this process.
pub fn started() -> Option<usize> {
    SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Runs ranks as threads, and returns the result of the first one; only that one receives `first`.
pub fn here<C: Collectives, F: Send, T: Send>(
    ranks: Vec<C>,
    first: F,
    run: impl Fn(C, Option<F>) -> Result<T, CliError> + Sync,
) -> Result<T, CliError> {
    let pool = ThreadPool::current();
    let (run, pool) = (&run, &pool);
    let results = thread::scope(|scope| {
        let mut first = Some(first);
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|rank| {
                let first = first.take();
                scope.spawn(move || pool.install(|| run(rank, first)))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(cause) => std::panic::resume_unwind(cause),
        });
        joined.collect::<Vec<_>>()
    });
    let mut done = vec![];
    let mut failed: Option<CliError> = None;
    for result in results {
        match result {
            Ok(value) => done.push(value),
            // The error of a rank is the cause of the errors of the ranks that lost it.
            Err(error) if failed.as_ref().is_none_or(is_lost) => failed = Some(error),
            Err(_) => {}
        }
    }
    match (failed, done.into_iter().next()) {
        (None, Some(first)) => Ok(first),
        (Some(error), _) => Err(error),
        (None, None) => Err(TrainFailed::NoRanks.into()),
    }
}

/// True for the error of a rank that lost another one.
fn is_lost(error: &CliError) -> bool {
    let CliError::Train(failed) = error else { return false };
    matches!(**failed, TrainFailed::Train(TrainError::Ranks(CollectiveError::Lost { .. })))
}

/// Runs an MPI process as its rank. An error ends all processes.
#[cfg(feature = "mpi")]
pub fn of_mpi<T>(
    _: usize,
    timeout: Duration,
    run: impl FnOnce(Arc<dyn Collectives>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    use crate::log::say;
    use rewire_distributed::Mpi;
    let mpi = Arc::new(Mpi::new(timeout).map_err(TrainError::from)?);
    run(mpi.clone()).inspect_err(|error| {
        error.report();
        say(format_args!("rank {} ends the training", mpi.rank()));
        mpi.abort(1)
    })
}

/// Without the feature `mpi`.
#[cfg(not(feature = "mpi"))]
pub fn of_mpi<T>(
    ranks: usize,
    _: Duration,
    _: impl FnOnce(Arc<dyn Collectives>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    Err(TrainFailed::NoMpi { ranks }.into())
}
