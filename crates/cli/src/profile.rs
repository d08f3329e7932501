use crate::args::{Common, Profile as Options};
use crate::bench;
use crate::error::CliError;
use crate::output::Output;
use rewire_measure::chrome_trace;

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let workload = bench::workload(&options.op, &options.sizes.shape()?, &options.weights)?;
    let bench = bench::open(common, 0.0, None)?;
    let trace = chrome_trace(&format!("{} on {}", options.op, bench.adapter()), &bench.profile(&workload)?);
    match &options.output {
        Some(path) => bench::write(path, trace.to_string()),
        None => Ok(output.json(&trace)?),
    }
}
