use crate::args::{Common, Package as Options};
use crate::caches;
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use crate::requests::open;
use rewire::graph_rewrite::device::Target;
use rewire::package::Package;
use rewire::program::ModelFile;
use rewire::rank::{self, PackOptions, RankOptions, Ranker, pack, tables_of};
use rewire::weights::Weights;
use rewire::{DeviceTunings, Gpu, Kernel, write_file};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Users, events and candidates per batch for tuning.
const TOGETHER: usize = 1 << 12;

/// The summary of a package.
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
    /// Measured tunings of kernels for its devices.
    tunings: usize,
    seconds: f64,
}

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    match (&options.out, &*options.model) {
        (Some(out), _) => write(out, options, common, output),
        (None, Some(model)) => check(model, common, output),
        (None, None) => Ok(()),
    }
}

/// The summary of a check.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    bytes: usize,
    /// The file with the tables, if they are in a separate file.
    tables_file: Option<String>,
    seconds: f64,
}

/// Checks all bytes of a package and of its tables.
fn check(model: &Path, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let begun = Instant::now();
    let package = Package::read_mapping(model, common.mapping).map_err(rank::RankError::from)?;
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
    let open = |model: &Path| ModelFile::open(model, common.mapping);
    let source = options.model.as_deref().map(open).transpose()?;
    let (mut devices, mut gpus) = (vec![], vec![]);
    for device in &options.devices {
        match describe(device)? {
            Some(target) => devices.push((device.clone(), target)),
            None => gpus.push(open_adapter(device)?),
        }
    }
    let with = PackOptions {
        precision: options.stored.precision(),
        devices,
        gpus,
        tunings: caches::tunings(),
        tables_file: options.tables_file.as_ref().map(|name| out.with_file_name(name)),
        allow_unread: options.weights.allow_unread,
        cache: options.stored.cache(),
    };
    let mut package = packed(source.as_ref(), &with)?;
    if let Some(data) = &options.tune {
        tune(&package, &with, data, Duration::from_secs_f64(options.seconds))?;
        package = packed(source.as_ref(), &with)?;
    }
    let file = out.display().to_string();
    write_file(out, package.bytes()).map_err(|source| CliError::Write { file: file.clone(), source })?;
    let plan = package.plan().map_err(rank::RankError::from)?;
    let tables = match package.config().map(|config| tables_of(&file, config)).transpose()? {
        Some(names) => plan.parameters().filter(|parameter| names.contains(parameter.name)).count(),
        None => plan.tables().len(),
    };
    let elements = |shape: &[rewire::graph::Dim]| shape.iter().filter_map(|dim| dim.as_const()).product::<usize>();
    let packaged = Packaged {
        file,
        bytes: package.bytes().len(),
        kernels: plan.steps.len(),
        parameters: plan.parameters().map(|parameter| elements(parameter.shape)).sum(),
        tables,
        tunings: package.tunings().map_err(rank::RankError::from)?.iter().map(DeviceTunings::count).sum(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    match common.json {
        true => output.json(&packaged)?,
        false => output.line(packaged.text())?,
    }
    Ok(())
}

/// Packages a model file, or the built-in model.
fn packed(file: Option<&ModelFile>, with: &PackOptions) -> Result<Package, CliError> {
    Ok(match file {
        Some(file) => file.pack(with)?,
        None => pack("the built-in model", demo::CONFIG, &Weights::parse(demo::WEIGHTS)?, with)?,
    })
}

/// Parses a file that describes a device; `None` if the file does not exist.
fn describe(device: &str) -> Result<Option<Target>, CliError> {
    let Ok(text) = std::fs::read_to_string(device) else { return Ok(None) };
    let wrong = |source| CliError::Target { file: device.to_owned(), source };
    serde_json::from_str(&text).map(Some).map_err(wrong)
}

fn open_adapter(device: &str) -> Result<Gpu, CliError> {
    Gpu::for_kernel(Kernel::Wgpu, Some(device))?.ok_or_else(|| CliError::NoDevice(device.to_owned()))
}

/// Measures the tunings of a package's kernels on its adapters.
fn tune(package: &Package, with: &PackOptions, data: &Path, seconds: Duration) -> Result<(), CliError> {
    if with.tunings.is_none() {
        return Err(CliError::NoCaches);
    }
    if with.gpus.is_empty() {
        return Err(CliError::NoAdapter);
    }
    for gpu in &with.gpus {
        let options = RankOptions {
            kernel: Kernel::Wgpu,
            gpu: Some(gpu.clone()),
            tunings: with.tunings.clone(),
            pipelines: caches::pipelines(),
            ..RankOptions::default()
        };
        let ranker = Ranker::from_package(package, &options)?;
        let mut input = open(Some(data), ranker.schema())?;
        for entries in [1, TOGETHER] {
            let mut batch = ranker.batch();
            input.read(&mut batch, entries)?;
            ranker.tune(&batch, seconds)?;
        }
    }
    Ok(())
}

impl Packaged {
    fn text(&self) -> String {
        let Self { file, bytes, kernels, parameters, tables, tunings, seconds } = self;
        format!(
            "{file}: {bytes} bytes, {kernels} kernels, {parameters} parameters, {tables} tables, {tunings} tunings, {seconds:.2} s"
        )
    }
}
