use crate::args::{Common, Package as Options};
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use rewire::graph_rewrite::emit::Target;
use rewire::package::Package;
use rewire::rank::{self, PackOptions, pack, parse_config};
use rewire::weights::Weights;
use rewire::{Gpu, Kernel, write_file};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What a package holds.
#[derive(Debug, Serialize)]
struct Packaged {
    file: String,
    bytes: usize,
    /// Dispatches of a run.
    kernels: usize,
    /// Elements of all parameters.
    parameters: usize,
    /// Embedding tables among the parameters.
    tables: usize,
    seconds: f64,
}

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    match (&options.out, &options.model) {
        (Some(out), _) => write(out, options, common, output),
        (None, Some(model)) => check(model, common, output),
        (None, None) => Ok(()),
    }
}

/// What was checked.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    bytes: usize,
    /// The file with the tables, if they are in one of their own.
    tables_file: Option<String>,
    seconds: f64,
}

/// Reads all of a package and of its tables.
fn check(model: &Path, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let begun = Instant::now();
    let package = Package::read(model).map_err(rank::RankError::from)?;
    package.check_tables().map_err(rank::RankError::from)?;
    let checked = Checked {
        file: model.display().to_string(),
        bytes: package.bytes().len(),
        tables_file: package.tables_file().map(str::to_owned),
        seconds: begun.elapsed().as_secs_f64(),
    };
    match (common.json, &checked.tables_file) {
        (true, _) => output.json(&checked)?,
        (false, None) => output.line(format_args!("{} is as it was written", checked.file))?,
        (false, Some(tables)) => output.line(format_args!("{} and {tables} are as they were written", checked.file))?,
    }
    Ok(())
}

fn write(out: &Path, options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let begun = Instant::now();
    let (name, config, weights) = match &options.model {
        Some(path) => (path.display().to_string(), rank::read_config_text(path)?, rank::read_weights(path)?),
        None => ("the model in the program".to_owned(), demo::CONFIG.to_owned(), Weights::parse(demo::WEIGHTS)?),
    };
    let devices = options.devices.iter().map(|device| describe(device)).collect::<Result<_, CliError>>()?;
    let with = PackOptions {
        precision: options.stored.precision(),
        devices,
        tables_file: options.tables_file.as_ref().map(|name| out.with_file_name(name)),
        allow_unread: options.weights.allow_unread,
        cache: options.stored.cache(),
    };
    let package = pack(&name, &config, &weights, &with)?;
    let file = out.display().to_string();
    write_file(out, package.bytes()).map_err(|source| CliError::Write { file: file.clone(), source })?;
    let plan = package.plan().map_err(rank::RankError::from)?;
    let tables: Vec<String> = parse_config(&name, &config)?.tables().collect();
    let elements = |shape: &[rewire::graph::Dim]| shape.iter().filter_map(|dim| dim.as_const()).product::<usize>();
    let packaged = Packaged {
        file,
        bytes: package.bytes().len(),
        kernels: plan.steps.len(),
        parameters: plan.parameters().map(|parameter| elements(parameter.shape)).sum(),
        tables: plan.parameters().filter(|parameter| tables.iter().any(|table| table == parameter.name)).count(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    match common.json {
        true => output.json(&packaged)?,
        false => output.line(packaged.text())?,
    }
    Ok(())
}

/// What a device offers: the adapter that is meant, or what a file says.
fn describe(device: &str) -> Result<(String, Target), CliError> {
    if let Ok(text) = std::fs::read_to_string(device) {
        let wrong = |source| CliError::Target { file: device.to_owned(), source };
        return Ok((device.to_owned(), serde_json::from_str(&text).map_err(wrong)?));
    }
    let gpu = Gpu::for_kernel(Kernel::Wgpu, Some(device))?.ok_or_else(|| CliError::NoDevice(device.to_owned()))?;
    Ok((gpu.name(), gpu.target().clone()))
}

impl Packaged {
    fn text(&self) -> String {
        let Self { file, bytes, kernels, parameters, tables, seconds } = self;
        format!("{file}: {bytes} bytes, {kernels} kernels, {parameters} parameters, {tables} tables, {seconds:.2} s")
    }
}
