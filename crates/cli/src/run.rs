//! Runs of any model on named tensors.

use crate::args::{Common, Run as Options};
use crate::bench;
use crate::error::CliError;
use crate::output::Output;
use crate::profile::write_trace;
use crate::rank::with_common;
use rewire::graph_rewrite::cost::Count;
use rewire::import::{TypedTensor, tensors};
use rewire::program::{ModelFile, Program};
use rewire::rank::RankOptions;
use rewire::runtime::Profile;
use rewire::write_file;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of runs of which the fastest is profiled.
const PROFILED: usize = 20;

type Inputs = BTreeMap<String, TypedTensor>;

/// What was run.
#[derive(Debug, Serialize)]
struct Line {
    file: String,
    outputs: Vec<String>,
    /// The median of all runs but the first, if there is more than one.
    seconds: f64,
    least: f64,
    runs: usize,
    kernels: usize,
    kernel: &'static str,
    adapter: Option<String>,
}

/// Runs a model, once or for some seconds.
pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    options.profile.iter().try_for_each(|path| bench::check_place(path))?;
    let with =
        RankOptions { tuning: options.tuning, precision: options.stored.precision(), ..options.placement.of_model() };
    let failed = |source| CliError::Tensors { file: options.inputs.display().to_string(), source: Box::new(source) };
    let inputs = tensors::deserialize(&read(&options.inputs)?).map_err(failed)?;
    let file = ModelFile::open(&options.model, common.mapping)?;
    let mut program = Program::load(&file, &with_common(common, with))?;
    let begun = Instant::now();
    let results = program.run(inputs.clone())?.tensors();
    let mut times = vec![begun.elapsed().as_secs_f64()];
    if let Some(seconds) = options.seconds {
        times = repeated(&mut program, &inputs, seconds)?;
        times.sort_by(f64::total_cmp);
    }
    if let Some(path) = &options.profile {
        profile(&mut program, &inputs, path, options, common)?;
    }
    let (seconds, least, runs) = (times[times.len() / 2], times[0], times.len());
    let file = options.out.display().to_string();
    let failed = |source| CliError::Tensors { file: file.clone(), source: Box::new(source) };
    let bytes = tensors::serialize(&results).map_err(failed)?;
    write_file(&options.out, &bytes).map_err(|source| CliError::Write { file: file.clone(), source })?;
    let report = program.report();
    let kernel = if report.adapter.is_some() { "wgpu" } else { "cpu" };
    let adapter = report.adapter.map(|adapter| adapter.to_string());
    let kernels = report.gpu_steps + report.cpu_steps;
    let line = Line { file, outputs: results.into_keys().collect(), seconds, least, runs, kernels, kernel, adapter };
    match common.json {
        true => output.json(&line)?,
        false => output.line(format_args!("{}: {}, {seconds:.4} s", line.file, line.outputs.join(", ")))?,
    }
    Ok(())
}

/// The times of further runs, at least one.
fn repeated(program: &mut Program, inputs: &Inputs, seconds: f64) -> Result<Vec<f64>, CliError> {
    let (begun, mut times) = (Instant::now(), vec![]);
    loop {
        let (inputs, start) = (inputs.clone(), Instant::now());
        drop(program.run(inputs)?.tensors());
        times.push(start.elapsed().as_secs_f64());
        if begun.elapsed().as_secs_f64() >= seconds {
            return Ok(times);
        }
    }
}

/// Writes a trace of the fastest of several runs.
fn profile(
    program: &mut Program,
    inputs: &Inputs,
    path: &Path,
    options: &Options,
    common: &Common,
) -> Result<(), CliError> {
    let mut fastest: Option<(Duration, Profile, Vec<Count>)> = None;
    for _ in 0..PROFILED {
        let (profile, counts) = program.profile(inputs.clone())?;
        let time = profile.spans.iter().filter(|span| span.step.is_some()).map(|span| span.duration).sum();
        if fastest.as_ref().is_none_or(|(least, ..)| time < *least) {
            fastest = Some((time, profile, counts));
        }
    }
    let Some((_, profile, counts)) = fastest else { return Ok(()) };
    write_trace(path, &options.model.display().to_string(), (profile, counts), common)
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|source| CliError::Read { file: path.display().to_string(), source })
}
