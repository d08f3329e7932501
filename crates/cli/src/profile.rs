use crate::args::{Common, Placement, Profile as Options};
use crate::bench;
use crate::error::CliError;
use crate::output::Output;
use rewire_measure::{BenchOptions, chrome_trace};

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
        let records = bench::time(&bench, parts.into_iter().map(Ok), common, output)?;
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
