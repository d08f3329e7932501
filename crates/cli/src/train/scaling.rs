//! `rewire bench --scaling`: the cost of several ranks.

use super::data::Users;
use super::ranks::{Group, here, of_mpi, started};
use super::{TrainFailed, running};
use crate::args::Common;
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use crate::table::table;
use rewire::train::distributed::{Collectives, Timed, in_process};
use rewire::train::{Event, Position, RankTask, TrainConfig, TrainError, fit};
use serde::Serialize;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Ranks within the process.
const RANKS: [usize; 3] = [1, 2, 4];
/// Steps before the measured ones.
const WARM_UP: u64 = 3;
/// Measured steps.
const STEPS: u64 = 20;
/// The time limit of an operation.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The mean cost of a step for the first rank.
#[derive(Serialize)]
struct Scaling {
    ranks: usize,
    users_per_second: f64,
    compute_ms: f64,
    exchange_ms: f64,
    waiting_ms: f64,
    /// To other ranks.
    sent_bytes: u64,
}

/// Trains the built-in model as 1, 2 and 4 ranks of this process, or as the ranks that MPI started.
pub fn run(common: &Common, output: &mut Output) -> Result<(), CliError> {
    if let Some(ranks) = started().filter(|ranks| *ranks > 1) {
        return of_mpi(ranks, TIMEOUT, |mpi| {
            let is_first = mpi.rank() == 0;
            let measured = measure(Timed::new(mpi), common)?;
            if is_first { print(&[measured], common, output) } else { Ok(()) }
        });
    }
    let mut measured = vec![];
    for ranks in RANKS {
        let ranks = in_process(ranks, TIMEOUT).into_iter().map(|rank| Timed::new(Arc::new(rank) as _)).collect();
        measured.push(here(ranks, (), |rank, _| measure(rank, common))?);
    }
    print(&measured, common, output)
}

/// Trains as one rank.
fn measure(rank: Timed<Arc<dyn Collectives>>, common: &Common) -> Result<Scaling, CliError> {
    let (rank, failed) = (Arc::new(rank), |source| TrainFailed::Config { file: String::new(), source });
    let config = TrainConfig::from_json(demo::TRAINING).map_err(failed)?;
    let group: Group = Some(rank.clone());
    let task = RankTask::new(demo::config()?, running(common, &group)).with_group(group);
    let mut trainer = task.trainer(&config, None).map_err(TrainFailed::from)?;
    let batch_size = config.batch_size.get();
    let mut users = Users {
        files: vec![],
        examples: task.examples(&trainer).map_err(TrainFailed::from)?,
        batch_size,
        shuffle_seed: config.shuffle_seed,
        count: Arc::new(AtomicU64::new(0)),
    };
    trainer.report_every(NonZeroU64::MIN);
    let mut begun = Instant::now();
    let event = |_: &_, event| {
        let step = if let Event::Step(report, _) = event { report.step } else { 0 };
        if step == WARM_UP {
            rank.take();
            begun = Instant::now();
        }
        Ok::<_, TrainError>(if step == WARM_UP + STEPS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    fit(&mut trainer, &mut users, Position::default(), event)?;
    let (time, spent) = (begun.elapsed(), rank.take());
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3 / STEPS as f64;
    Ok(Scaling {
        ranks: rank.ranks(),
        users_per_second: (STEPS as usize * batch_size * rank.ranks()) as f64 / time.as_secs_f64(),
        compute_ms: milliseconds(time.saturating_sub(spent.waiting + spent.exchange)),
        exchange_ms: milliseconds(spent.exchange),
        waiting_ms: milliseconds(spent.waiting),
        sent_bytes: spent.bytes / STEPS,
    })
}

fn print(all: &[Scaling], common: &Common, output: &mut Output) -> Result<(), CliError> {
    if common.json {
        return Ok(all.iter().try_for_each(|scaling| output.json(scaling))?);
    }
    let rows = all.iter().map(|scaling| {
        let times = [scaling.compute_ms, scaling.exchange_ms, scaling.waiting_ms];
        let [users, sent] = [scaling.users_per_second, scaling.sent_bytes as f64 / 1e3].map(|x| format!("{x:.0}"));
        let times = times.map(|time| format!("{time:.1}"));
        [vec![scaling.ranks.to_string(), users], times.to_vec(), vec![sent]].concat()
    });
    let header = ["ranks", "users per second", "compute ms", "exchange ms", "waiting ms", "sent kB"];
    Ok(output.line(table(&header, rows, &[]))?)
}
