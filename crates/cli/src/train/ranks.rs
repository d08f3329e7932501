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

/// Trains with `train` as all ranks of this process: as one alone, as the rank that MPI made of it, or as those of --ranks. Only the
/// first rank prints and writes.
pub fn run(
    options: &Train,
    output: &mut Output,
    train: impl Fn(Group, &mut Output) -> Result<(), CliError> + Sync,
) -> Result<(), CliError> {
    let timeout = Duration::from_secs_f64(options.rank_timeout);
    let started = SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse::<usize>().ok());
    match (started, options.ranks) {
        (Some(_), Some(_)) => Err(TrainFailed::RanksTwice.into()),
        (Some(ranks), None) => of_mpi(ranks, timeout, output, train),
        (None, Some(ranks)) => here(in_process(ranks.get(), timeout), output, train),
        (None, None) => train(None, output),
    }
}

/// Trains as threads.
fn here(
    ranks: Vec<impl Collectives + 'static>,
    output: &mut Output,
    train: impl Fn(Group, &mut Output) -> Result<(), CliError> + Sync,
) -> Result<(), CliError> {
    let pool = ThreadPool::current();
    let (train, pool) = (&train, &pool);
    let results = thread::scope(|scope| {
        let mut groups = ranks.into_iter().map(|rank| Arc::new(rank) as Arc<dyn Collectives>);
        let first = groups.next();
        let others: Vec<_> = groups
            .map(|group| scope.spawn(move || pool.install(|| train(Some(group), &mut Output::discarded()))))
            .collect();
        let mut results = vec![train(first, output)];
        results.extend(others.into_iter().map(|other| match other.join() {
            Ok(result) => result,
            Err(cause) => std::panic::resume_unwind(cause),
        }));
        results
    });
    // The error of a rank is the cause of those that lost it.
    let mut errors: Vec<CliError> = results.into_iter().filter_map(Result::err).collect();
    let cause = errors.iter().position(|error| !is_lost(error)).unwrap_or(0);
    if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(cause)) }
}

/// True for the error of a rank that another one left.
fn is_lost(error: &CliError) -> bool {
    let CliError::Train(failed) = error else { return false };
    matches!(**failed, TrainFailed::Train(TrainError::Ranks(CollectiveError::Lost { .. })))
}

/// Trains as a process of MPI. An error ends all of them.
#[cfg(feature = "mpi")]
fn of_mpi(
    _: usize,
    timeout: Duration,
    output: &mut Output,
    train: impl Fn(Group, &mut Output) -> Result<(), CliError>,
) -> Result<(), CliError> {
    use crate::log::say;
    let mpi = Arc::new(rewire_distributed::Mpi::new(timeout).map_err(TrainError::from)?);
    let mut discarded = Output::discarded();
    let output = if mpi.rank() == 0 { output } else { &mut discarded };
    train(Some(mpi.clone()), output).inspect_err(|error| {
        error.report();
        say(format_args!("rank {} ends the training", mpi.rank()));
        mpi.abort(1)
    })
}

/// Without the feature `mpi`.
#[cfg(not(feature = "mpi"))]
fn of_mpi(
    ranks: usize,
    _: Duration,
    output: &mut Output,
    train: impl Fn(Group, &mut Output) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if ranks == 1 { train(None, output) } else { Err(TrainFailed::NoMpi { ranks }.into()) }
}
