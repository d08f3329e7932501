use crate::args::{Common, Placement, Profile as Options};
use crate::bench;
use crate::error::CliError;
use crate::output::Output;
use rewire::graph_rewrite::cost::Count;
use rewire::runtime::Profile;
use rewire_measure::{BenchOptions, Profiled, chrome_trace};
use std::path::Path;

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    options.out.iter().try_for_each(|path| bench::check_place(path))?;
    let workload = bench::workload(&options.op, &options.sizes.shape()?, &options.weights, common.mapping)?;
    let parts = if options.parts { Some(workload.parts()?) } else { None };
    let Placement { tables_on: tables, parameter_bytes, .. } = options.placement;
    let seconds = if options.parts { options.seconds } else { 0.0 };
    let with = BenchOptions { seconds, tables, parameter_bytes, ..BenchOptions::default() };
    let bench = bench::open_with(common, None, with)?;
    if let Some(parts) = parts {
        bench::announce("timing", parts.len(), bench.seconds_each(), &bench);
        let records = bench::time(&bench, parts.into_iter().map(Ok), None, common, output)?;
        return match records.iter().filter(|record| record.error.is_some()).count() {
            0 => Ok(()),
            failed => Err(CliError::NotMeasured { failed, all: records.len() }),
        };
    }
    bench::announce("profiling", 1, 0.0, &bench);
    let trace = chrome_trace(&format!("{} on {}", options.op, bench.adapter()), &bench.profile(&workload)?);
    match &options.out {
        Some(path) => bench::write(path, trace.to_string()),
        None => Ok(output.json(&trace)?),
    }
}

/// Writes the trace of a run, with the times that the device's roofline predicts.
pub fn write_trace(
    path: &Path,
    title: &str,
    (profile, counts): (Profile, Vec<Count>),
    common: &Common,
) -> Result<(), CliError> {
    let machine = bench::open(common, 0.0, None)?.machine()?;
    bench::write(path, chrome_trace(title, &Profiled { profile, counts, machine }).to_string())
}
