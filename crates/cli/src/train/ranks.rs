//! Ranks of one training: threads of this process, or processes that MPI started.

use super::TrainFailed;
use crate::args::Train;
use crate::error::CliError;
use crate::output::Output;
use rewire::ThreadPool;
use rewire::train::TrainError;
use rewire::train::distributed::{CollectiveError, Collectives, in_process};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The ranks that a rank works with; `None` for a training alone.
pub type Group = Option<Arc<dyn Collectives>>;

/// Variables in which launchers of MPI programs pass the number of processes.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// The number of processes that MPI started as ranks; `None` if it did not start this one.
pub fn started() -> Option<usize> {
    SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Trains with `train` as all ranks of this process: as one alone, as the rank that MPI made of it, or as those of --ranks. Only the
/// first rank prints and writes.
pub fn run(
    options: &Train,
    output: &mut Output,
    train: impl Fn(Group, &mut Output) -> Result<(), CliError> + Sync,
) -> Result<(), CliError> {
    let timeout = Duration::from_secs_f64(options.rank_timeout);
    match (started(), options.ranks) {
        (Some(_), Some(_)) => Err(TrainFailed::RanksTwice.into()),
        (Some(1), None) | (None, None) => train(None, output),
        (Some(ranks), None) => of_mpi(ranks, timeout, output, |group, output| train(Some(group), output)),
        (None, Some(ranks)) => {
            here(in_process(ranks.get(), timeout), output, |rank, output| train(Some(Arc::new(rank)), output))
        }
    }
}

/// Runs ranks as threads, and returns the result of the first one.
pub fn here<C: Collectives, T: Send>(
    ranks: Vec<C>,
    output: &mut Output,
    run: impl Fn(C, &mut Output) -> Result<T, CliError> + Sync,
) -> Result<T, CliError> {
    let pool = ThreadPool::current();
    let (run, pool) = (&run, &pool);
    let results = thread::scope(|scope| {
        let mut outputs = Some(output).into_iter();
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|rank| {
                let output = outputs.next();
                scope.spawn(move || {
                    pool.install(|| match output {
                        Some(output) => run(rank, output),
                        None => run(rank, &mut Output::discarded()),
                    })
                })
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
            // The error of a rank is the cause of those that lost it.
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

/// True for the error of a rank that another one left.
fn is_lost(error: &CliError) -> bool {
    let CliError::Train(failed) = error else { return false };
    matches!(**failed, TrainFailed::Train(TrainError::Ranks(CollectiveError::Lost { .. })))
}

/// Runs a process of MPI as its rank. An error ends all of them.
#[cfg(feature = "mpi")]
pub fn of_mpi<T>(
    _: usize,
    timeout: Duration,
    output: &mut Output,
    run: impl FnOnce(Arc<dyn Collectives>, &mut Output) -> Result<T, CliError>,
) -> Result<T, CliError> {
    use crate::log::say;
    use rewire_distributed::Mpi;
    let mpi = Arc::new(Mpi::new(timeout).map_err(TrainError::from)?);
    let mut discarded = Output::discarded();
    let output = if mpi.rank() == 0 { output } else { &mut discarded };
    run(mpi.clone(), output).inspect_err(|error| {
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
    _: &mut Output,
    _: impl FnOnce(Arc<dyn Collectives>, &mut Output) -> Result<T, CliError>,
) -> Result<T, CliError> {
    Err(TrainFailed::NoMpi { ranks }.into())
}
