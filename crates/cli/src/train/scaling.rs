//! `rewire bench --scaling`: the cost of several ranks.

use super::data::Users;
use super::ranks::{Group, here, of_mpi, started};
use super::{TrainFailed, running};
use crate::args::Common;
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use crate::table::table;
use rewire::runtime::{DeviceInfo, DeviceKind, Kernel, RunValue, devices};
use rewire::train::distributed::{Collectives, Timed, in_process};
use rewire::train::{Data, Event, Position, RankTask, TrainConfig, TrainError, fit};
use serde::Serialize;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Ranks within the process.
const RANKS: [usize; 3] = [1, 2, 4];
/// Steps before the measured ones.
const WARM_UP: u64 = 10;
/// Measured steps.
const STEPS: u64 = 20;
/// The time limit of an operation.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Inputs of a batch with the events and the candidates of its users, which are the rows of the model.
const LENGTHS: [&str; 2] = ["uih.lengths", "candidate.lengths"];

/// The mean cost of a step for the first rank.
#[derive(Serialize)]
struct Scaling {
    ranks: usize,
    rows_per_second: f64,
    users_per_second: f64,
    compute_ms: f64,
    exchange_ms: f64,
    waiting_ms: f64,
    /// To other ranks.
    sent_bytes: u64,
}

/// Trains the built-in model as 1, 2 and 4 ranks of this process, or as the ranks that MPI started. Every rank within the process has its
/// own GPU, if there are GPUs.
pub fn run(common: &Common, output: &mut Output) -> Result<(), CliError> {
    if let Some(ranks) = started().filter(|ranks| *ranks > 1) {
        return of_mpi(ranks, TIMEOUT, |mpi| {
            let is_first = mpi.rank() == 0;
            let measured = measure(Timed::new(mpi), common)?;
            if is_first { print(&[measured], common, output) } else { Ok(()) }
        });
    }
    let gpus = gpus(common, &devices());
    let mut measured = vec![];
    for ranks in RANKS.into_iter().filter(|ranks| gpus.is_empty() || *ranks <= gpus.len()) {
        let ranks = in_process(ranks, TIMEOUT).into_iter().map(|rank| Timed::new(Arc::new(rank) as _)).collect();
        let run = |rank: Timed<Arc<dyn Collectives>>, _| {
            let adapter = gpus.get(rank.rank()).or(common.adapter.as_ref()).cloned();
            measure(rank, &Common { adapter, ..common.clone() })
        };
        measured.push(here(ranks, (), run)?);
    }
    print(&measured, common, output)
}

/// The adapters of the GPUs on which ranks train; none if they train on the CPU.
fn gpus(common: &Common, devices: &[DeviceInfo]) -> Vec<String> {
    if common.kernel == Kernel::Cpu {
        return vec![];
    }
    let found = |filter: &str| -> Vec<usize> {
        devices.iter().filter(|device| device.is_meant_by(filter)).filter_map(|device| device.index).collect()
    };
    let hardware = devices.iter().filter(|device| !matches!(device.kind, DeviceKind::Software | DeviceKind::Cpu));
    let named = match &common.adapter {
        Some(adapter) if adapter.contains("{rank}") => {
            let of_rank = (0..).map(|rank: usize| adapter.replace("{rank}", &rank.to_string()));
            return of_rank.take_while(|adapter| !found(adapter).is_empty()).take(devices.len()).collect();
        }
        Some(adapter) => found(adapter),
        None => hardware.filter_map(|device| device.index).collect::<Vec<_>>(),
    };
    named.into_iter().map(|index| format!("#{index}")).collect()
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
    let rows_of_user = rows_of_user(&mut users)?;
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
    let users_per_second = (STEPS as usize * batch_size * rank.ranks()) as f64 / time.as_secs_f64();
    Ok(Scaling {
        ranks: rank.ranks(),
        rows_per_second: users_per_second * rows_of_user,
        users_per_second,
        compute_ms: milliseconds(time.saturating_sub(spent.waiting + spent.exchange)),
        exchange_ms: milliseconds(spent.exchange),
        waiting_ms: milliseconds(spent.waiting),
        sent_bytes: spent.bytes / STEPS,
    })
}

/// The mean number of rows of a user.
fn rows_of_user(users: &mut Users) -> Result<f64, CliError> {
    let (mut rows, mut count) = (0, 0);
    for batch in users.epoch(0) {
        let batch = batch.map_err(|error| TrainFailed::from(TrainError::Data(error)))?;
        let lengths = LENGTHS.iter().filter_map(|name| match batch.get(name)? {
            RunValue::Host(tensor) => tensor.values::<i64>(),
            RunValue::Device(_) => None,
        });
        for lengths in lengths.collect::<Vec<_>>() {
            rows += lengths.iter().sum::<i64>();
            count += lengths.len();
        }
    }
    Ok(rows as f64 * LENGTHS.len() as f64 / count.max(1) as f64)
}

fn print(all: &[Scaling], common: &Common, output: &mut Output) -> Result<(), CliError> {
    if common.json {
        return Ok(all.iter().try_for_each(|scaling| output.json(scaling))?);
    }
    let rows = all.iter().map(|scaling| {
        let times = [scaling.compute_ms, scaling.exchange_ms, scaling.waiting_ms];
        let numbers = [scaling.rows_per_second, scaling.users_per_second, scaling.sent_bytes as f64 / 1e3];
        let [rows, users, sent] = numbers.map(|number| format!("{number:.0}"));
        let times = times.map(|time| format!("{time:.1}"));
        [vec![scaling.ranks.to_string(), rows, users], times.to_vec(), vec![sent]].concat()
    });
    let header = ["ranks", "rows per second", "users per second", "compute ms", "exchange ms", "waiting ms", "sent kB"];
    Ok(output.line(table(&header, rows, &[]))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        common: Common,
    }

    fn chosen(args: &[&str], kinds: &[DeviceKind]) -> Vec<String> {
        let of_kind = |(index, kind): (usize, &DeviceKind)| {
            let mut device = devices().pop().unwrap();
            (device.index, device.kind, device.name) = (Some(index), *kind, format!("adapter {kind:?}"));
            device
        };
        let devices: Vec<DeviceInfo> = kinds.iter().enumerate().map(of_kind).collect();
        gpus(&Program::parse_from([&["rewire"], args].concat()).common, &devices)
    }

    #[test]
    fn every_rank_has_its_own_gpu() {
        use DeviceKind::{Discrete, Software};
        let all = [Software, Discrete, Discrete];
        assert_eq!(chosen(&[], &all), ["#1", "#2"]);
        assert_eq!(chosen(&["--kernel", "cpu"], &all), [""; 0]);
        assert_eq!(chosen(&[], &[Software]), [""; 0]);
        assert_eq!(chosen(&["--adapter", "software"], &all), ["#0"]);
        assert_eq!(chosen(&["--adapter", "#{rank}"], &all), ["#0", "#1", "#2"]);
        assert_eq!(chosen(&["--adapter", "missing"], &all), [""; 0]);
    }
}
