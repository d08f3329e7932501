use crate::args::{Bench as Options, Common, Sizes, Weights as WeightsOptions};
use crate::caches;
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use crate::quality;
use crate::sweep;
use crate::table::table;
use indicatif::{HumanDuration, ProgressBar};
use rewire::generate::decoder;
use rewire::graph_rewrite::cost::HardwareModel;
use rewire::graph_rewrite::device::Tuning;
use rewire::package::Package;
use rewire::program::ModelFile;
use rewire::weights::Weights;
use rewire::{Mapping, predict, rank, write_file};
use rewire_measure::{
    Bench, BenchError, BenchOptions, Category, Comparison, Lengths, Machines, PyTorch, Record, Shape, Thresholds,
    Workload, compare, in_words, page, roofline, rounded, suite,
};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Maximum size of a file of records in bytes.
const LARGEST: u64 = 1 << 28;

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    if options.scaling {
        return crate::train::scaling(common, output);
    }
    if options.quality.quality {
        return quality::run(options, common, output);
    }
    if let Some(sweep) = &options.sweep {
        return sweep::run(sweep, options, common, output);
    }
    let jobs = jobs(&options.ops, options.suite.as_deref(), &options.sizes)?;
    options.svg.iter().chain(&options.markdown).try_for_each(|path| check_place(path))?;
    let earlier = options.compare.as_deref().map(read).transpose()?;
    let mut told = options.records.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let records = if jobs.is_empty() { vec![] } else { measure(&jobs, options, common, output)? };
    told.extend_from_slice(&records);
    if let Some(path) = &options.svg {
        write(path, roofline(&told))?;
    }
    if let Some(path) = &options.markdown {
        let picture = options.svg.as_ref().and_then(|svg| svg.file_name()).map(|name| name.to_string_lossy());
        write(path, page(&told, picture.as_deref())?)?;
    }
    if let Some(earlier) = earlier {
        report(&earlier, &records, options, common, output)?;
    }
    match records.iter().filter(|record| record.error.is_some()).count() {
        0 => Ok(()),
        failed => Err(CliError::NotMeasured { failed, all: records.len() }),
    }
}

/// Times workloads and prints the results: with `--json` one line when each is done, otherwise a table of all.
fn measure(
    jobs: &[(String, Shape)],
    options: &Options,
    common: &Common,
    output: &mut Output,
) -> Result<Vec<Record>, CliError> {
    let bench = open(common, options.seconds, options.tuning)?;
    let variants: &[bool] = if options.without.is_empty() { &[false] } else { &[false, true] };
    let works: Vec<_> = jobs.iter().flat_map(|job| variants.iter().map(move |&is_reduced| (job, is_reduced))).collect();
    announce("timing", works.len(), bench.seconds_each(), &bench);
    let workloads = works.into_iter().map(|((name, shape), is_reduced)| {
        let whole = workload(name, shape, &options.weights, common.mapping)?;
        if is_reduced { Ok(whole.without(&options.without)?) } else { Ok(whole) }
    });
    let mut pytorch = options.python.as_deref().map(PyTorch::start).transpose()?;
    time(&bench, workloads, pytorch.as_mut(), common, output)
}

/// Times workloads on a device, like [`measure`], and in PyTorch if given.
pub fn time(
    bench: &Bench,
    workloads: impl ExactSizeIterator<Item = Result<Workload, CliError>>,
    mut pytorch: Option<&mut PyTorch>,
    common: &Common,
    output: &mut Output,
) -> Result<Vec<Record>, CliError> {
    let mut records = Vec::with_capacity(workloads.len());
    // Nothing if stderr is not a terminal.
    let progress = ProgressBar::new(workloads.len() as u64);
    for workload in workloads {
        let workload = workload?;
        let mut record = bench.run(&workload);
        if let (Some(pytorch), None) = (&mut pytorch, &record.error) {
            record.pytorch_ms = bench.run_pytorch(&workload, pytorch).unwrap_or_else(|error| {
                tracing::warn!("{error}");
                None
            });
        }
        if common.json {
            output.json(&record)?;
            output.flush()?;
        }
        progress.inc(1);
        records.push(record);
    }
    progress.finish_and_clear();
    keep_ceilings(bench)?;
    if !common.json {
        print(&records, &bench.machine()?, output)?;
    }
    Ok(records)
}

/// Reports on stderr how long each workload is measured: for some seconds, or a few runs.
pub fn announce(doing: &str, count: usize, seconds: f64, bench: &Bench) {
    let workloads = if count == 1 { "workload" } else { "workloads" };
    let time = match (seconds * count as f64).ceil() as u64 {
        0 => "a few runs of each".to_owned(),
        seconds => format!("about {}", HumanDuration(Duration::from_secs(seconds))),
    };
    tracing::info!("{doing} {count} {workloads} on {}: {time}, and the time to load each", bench.adapter());
}

/// Stores the roofline for predictions.
fn keep_ceilings(bench: &Bench) -> Result<(), BenchError> {
    let machine = bench.machine()?;
    let keep = |path: &Path| Machines::read(path)?.insert(&bench.adapter(), machine);
    if let Some(Err(error)) = Machines::usual_path().map(|path| keep(&path)) {
        tracing::warn!("the ceilings are not kept: {error}");
    }
    Ok(())
}

/// Fails if a file cannot be written because its folder is missing.
pub fn check_place(path: &Path) -> Result<(), BenchError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.map(std::fs::metadata) {
        Some(Err(error)) => Err(BenchError::File { path: path.to_owned(), reason: error.to_string() }),
        _ => Ok(()),
    }
}

/// Opens the device, measures its roofline and stores it for predictions. Kernels use the given tuning, or measured ones.
pub fn open(common: &Common, seconds: f64, tuning: Option<Tuning>) -> Result<Bench, CliError> {
    open_with(common, tuning, BenchOptions { seconds, ..BenchOptions::default() })
}

/// [`open`] with the duration and files of `options`.
pub fn open_with(common: &Common, tuning: Option<Tuning>, options: BenchOptions) -> Result<Bench, CliError> {
    let with = BenchOptions {
        kernel: common.kernel,
        kernel_rules: common.kernel_for.clone(),
        adapter: common.adapter.clone(),
        matrices: common.matrices,
        tunings: if tuning.is_none() { caches::tunings() } else { None },
        tuning: tuning.unwrap_or_default(),
        pipelines: caches::pipelines(),
        ..options
    };
    let bench = Bench::new(&with)?;
    keep_ceilings(&bench)?;
    Ok(bench)
}

/// Operators and models at the given sizes, and the workloads of a suite; unknown names are an error.
pub fn jobs(ops: &[String], set: Option<&str>, sizes: &Sizes) -> Result<Vec<(String, Shape)>, CliError> {
    let shape = sizes.shape()?;
    let mut jobs: Vec<(String, Shape)> = ops.iter().map(|op| (op.clone(), shape.clone())).collect();
    let is_model = |name: &str| name == "demo" || ModelFile::is_at(Path::new(name));
    jobs.iter().filter(|(name, _)| !is_model(name)).try_for_each(|(name, shape)| Workload::check(name, shape))?;
    if let Some(name) = set {
        jobs.extend(suite(name)?.into_iter().map(|(op, shape)| (op.to_owned(), shape)));
        jobs.push(("demo".to_owned(), Shape { batch: 32, targets: Lengths::Uniform(20, 20), ..Shape::default() }));
    }
    Ok(jobs)
}

/// The workload of a name: the built-in model, a model folder, a package, or an operator.
pub fn workload(name: &str, shape: &Shape, options: &WeightsOptions, mapping: Mapping) -> Result<Workload, CliError> {
    if name == "demo" {
        return Ok(Workload::model(name, &demo::config()?, Some(&Weights::parse(demo::WEIGHTS)?), shape)?);
    }
    let model = Path::new(name);
    if !ModelFile::is_at(model) {
        return Ok(Workload::operator(name, shape)?);
    }
    let file = ModelFile::open(model, mapping)?;
    if let ModelFile::Exported(exported) = &file {
        return Ok(Workload::exported(name, exported, shape)?);
    }
    if predict::is_imported(model) {
        return Ok(Workload::imported(name, &predict::read(model, mapping)?, &file.weights()?, shape)?);
    }
    if let ModelFile::Package(package) = &file
        && !is_ranking(package)
    {
        return Ok(Workload::package(name, package, shape)?);
    }
    if let Some((named, text)) = file.config()
        && let Ok(config) = decoder::Config::from_json(text)
    {
        let graph = rank::trace_text(&named, text)?;
        return Ok(Workload::decoder(name, (&config, graph), &file.weights()?, shape)?);
    }
    let (config, weights) = (rank::read_config(model, mapping)?, file.weights()?);
    if !options.allow_unread {
        rank::check_unread(&config, &weights)?;
    }
    Ok(Workload::model(name, &config, Some(&weights), shape)?)
}

/// True for a package of a ranking model; random users are drawn for its features.
fn is_ranking(package: &Package) -> bool {
    package.config().is_some_and(|config| rank::parse_config("the package", config).is_ok())
}

/// Reads records printed with `--json`.
fn read(path: &Path) -> Result<Vec<Record>, CliError> {
    let failed = |reason: String| BenchError::File { path: path.to_owned(), reason };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(LARGEST).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 == LARGEST {
        return Err(failed(format!("the file has {LARGEST} bytes or more")).into());
    }
    let record = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| failed(format!("line {}: {error}", number + 1)).into())
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.contains("\"category\""));
    lines.map(record).collect()
}

/// Writes a file atomically.
pub fn write(path: &Path, content: String) -> Result<(), CliError> {
    write_file(path, content.as_bytes())
        .map_err(|error| BenchError::File { path: path.to_owned(), reason: error.to_string() }.into())
}

fn report(
    earlier: &[Record],
    records: &[Record],
    options: &Options,
    common: &Common,
    output: &mut Output,
) -> Result<(), CliError> {
    let thresholds = options.threshold.iter();
    let thresholds = thresholds.fold(Thresholds::default(), |all, &(metric, threshold)| all.with(metric, threshold));
    let comparisons = compare(earlier, records, &thresholds);
    for comparison in &comparisons {
        if common.json { output.json(comparison)? } else { output.line(change(comparison))? }
    }
    let bad = [Category::Worse, Category::Mixed, Category::Error];
    match comparisons.iter().filter(|comparison| bad.contains(&comparison.category)).count() {
        0 => Ok(()),
        worse => Err(CliError::Worse { worse, all: comparisons.len() }),
    }
}

fn change(comparison: &Comparison) -> String {
    let Comparison { op, dtype, category, changes, error, .. } = comparison;
    let changes: Vec<String> =
        changes.iter().map(|(name, change)| format!("{name} {:+.1} %", 100.0 * change)).collect();
    let error = error.as_ref().map_or_else(String::new, |error| format!("  {error}"));
    format!("{category:<9} {op} {dtype} ({})  {}{error}", in_words(&comparison.shape), changes.join(", "))
}

/// Prints a table of the results below the device's roofline, and the reasons for missing ones.
fn print(records: &[Record], machine: &HardwareModel, output: &mut Output) -> Result<(), CliError> {
    let Some(first) = records.first() else { return Ok(()) };
    let [copies, adds] = [machine.bandwidth / 1e9, machine.multiply_add / 1e12].map(rounded);
    let matrices = machine.matrix.map(|rate| format!(", matrices {} TFLOP/s", rounded(rate / 1e12)));
    let matrices = matrices.unwrap_or_default();
    output.line(format_args!("{}: copies {copies} GB/s, multiply-adds {adds} TFLOP/s{matrices}", first.adapter))?;
    let header = [
        "work",
        "type",
        "run ms",
        "spread",
        "GPU ms",
        "floor ms",
        "share",
        "bound by",
        "TFLOP/s",
        "GB/s",
        "kernels",
        "MiB",
        "PyTorch ms",
        "x",
    ];
    let measured = records.iter().filter(|record| record.error.is_none());
    let columns =
        if records.iter().any(|record| record.pytorch_ms.is_some()) { header.len() } else { header.len() - 2 };
    let rows = measured.map(|record| row(record).into_iter().take(columns).collect());
    output.line(table(&header[..columns], rows, &[0, 1, 7]))?;
    records.iter().try_for_each(|record| match &record.error {
        Some(error) => Ok(output.line(format_args!("  {} {}: {error}", record.title(), record.dtype))?),
        None => Ok(()),
    })
}

fn row(record: &Record) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), rounded);
    let spread =
        record.min_ms.zip(record.p95_ms).map(|(least, most)| format!("{} to {}", rounded(least), rounded(most)));
    let (floor, bound) = record.floor().unzip();
    vec![
        record.title(),
        record.dtype.clone(),
        number(record.wall_ms),
        spread.unwrap_or_default(),
        number(record.gpu_ms),
        number(floor),
        record.share_in_words(),
        bound.map(|bound| bound.to_string()).unwrap_or_default(),
        number(record.tflops),
        number(record.gbps),
        record.kernels.unwrap_or_default().to_string(),
        format!("{:.1}", record.peak_bytes.unwrap_or_default() as f64 / 1024.0 / 1024.0),
        number(record.pytorch_ms),
        number(record.times_pytorch()),
    ]
}
