//! Runs of any model on named tensors.

use crate::args::{Common, Run as Options};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::with_common;
use rewire::import::tensors;
use rewire::program::{ModelFile, Program};
use rewire::rank::RankOptions;
use rewire::write_file;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What was run.
#[derive(Debug, Serialize)]
struct Line {
    file: String,
    outputs: Vec<String>,
    seconds: f64,
    kernel: &'static str,
    adapter: Option<String>,
}

/// Runs a model once.
pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let with =
        RankOptions { tuning: options.tuning, precision: options.stored.precision(), ..options.placement.of_model() };
    let failed = |source| CliError::Tensors { file: options.inputs.display().to_string(), source: Box::new(source) };
    let inputs = tensors::deserialize(&read(&options.inputs)?).map_err(failed)?;
    let file = ModelFile::open(&options.model, common.mapping)?;
    let mut program = Program::load(&file, &with_common(common, with))?;
    let begun = Instant::now();
    let results = program.run(inputs)?.tensors();
    let seconds = begun.elapsed().as_secs_f64();
    let file = options.out.display().to_string();
    let failed = |source| CliError::Tensors { file: file.clone(), source: Box::new(source) };
    let bytes = tensors::serialize(&results).map_err(failed)?;
    write_file(&options.out, &bytes).map_err(|source| CliError::Write { file: file.clone(), source })?;
    let report = program.report();
    let kernel = if report.adapter.is_some() { "wgpu" } else { "cpu" };
    let adapter = report.adapter.map(|adapter| adapter.to_string());
    let line = Line { file, outputs: results.into_keys().collect(), seconds, kernel, adapter };
    match common.json {
        true => output.json(&line)?,
        false => output.line(format_args!("{}: {}, {seconds:.4} s", line.file, line.outputs.join(", ")))?,
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|source| CliError::Read { file: path.display().to_string(), source })
}
