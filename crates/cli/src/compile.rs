use crate::args::{Common, Compile};
use crate::bench;
use crate::error::CliError;
use crate::output::Output;
use crate::table::table;
use rewire::graph_rewrite::lower::lower;
use rewire::graph_rewrite::optimize;
use rewire::graph_rewrite::plan::Plan;
use rewire::program::ModelFile;
use rewire::runtime::KernelCompiler;
use rewire_measure::{CompiledStep, DriverCompiler, Shape};
use rewire_verify::GoldenCase;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Totals over all kernels.
#[derive(Debug, Default, Serialize)]
struct Summary {
    kernels: usize,
    spilling: usize,
    failed: usize,
}

pub fn run(options: &Compile, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let demo = ["demo".to_owned()];
    let works = if options.works.is_empty() && options.suite.is_none() { &demo[..] } else { &options.works };
    let (cases, works): (Vec<_>, Vec<_>) = works.iter().cloned().partition(|work| is_case(work));
    let jobs = bench::jobs(&works, options.suite.as_deref(), &options.sizes)?;
    let compiler = KernelCompiler::open(common.adapter.as_deref(), common.matrices)?;
    tracing::info!("compiling kernels for {}", compiler.name());
    let mut driver = DriverCompiler::new(&compiler, options.tuning, options.isa.is_some());
    let mut summary = Summary::default();
    let mut take = |name: &str, plan: Plan| -> Result<(), CliError> {
        let steps = driver.compile(name, plan)?;
        summary.kernels += steps.len();
        summary.spilling += steps.iter().filter(|step| step.spills()).count();
        summary.failed += steps.iter().filter(|step| step.error.is_some()).count();
        options.isa.iter().try_for_each(|folder| write_programs(folder, &steps))?;
        match common.json {
            true => steps.iter().try_for_each(|step| output.json(step))?,
            false => print(name, &steps, output)?,
        }
        Ok(output.flush()?)
    };
    for case in &cases {
        let golden = GoldenCase::read(Path::new(case))?;
        let graph = golden.trace()?.graph;
        let is_backward = options.sizes.backward && golden.has_gradients();
        let graph = if is_backward { golden.differentiate(&graph)? } else { graph };
        take(case, lower(&optimize(graph)?.0)?)?;
    }
    for (name, shape) in &jobs {
        take(name, plan(name, shape, options, common)?)?;
    }
    if common.json {
        output.json(&serde_json::json!({ "summary": summary }))?;
    } else {
        let Summary { kernels, spilling, failed } = summary;
        output.line(format_args!("{kernels} kernels, {spilling} spill registers, {failed} did not compile"))?;
    }
    match summary {
        Summary { failed: 0, spilling: 0, .. } => Ok(()),
        Summary { failed: 0, .. } if !options.deny_spills => Ok(()),
        Summary { failed: 0, spilling, kernels } => Err(CliError::Spills { spilling, all: kernels }),
        Summary { failed, kernels, .. } => Err(CliError::NotCompiled { failed, all: kernels }),
    }
}

fn plan(name: &str, shape: &Shape, options: &Compile, common: &Common) -> Result<Plan, CliError> {
    Ok(bench::workload(name, shape, &options.weights, common.mapping)?.plan()?)
}

/// True for a golden case, which is a file of tensors.
fn is_case(work: &str) -> bool {
    let path = Path::new(work);
    path.extension().is_some_and(|ending| ending == "safetensors") && !ModelFile::is_at(path)
}

/// Writes the program of each kernel to a separate file.
fn write_programs(folder: &Path, steps: &[CompiledStep]) -> Result<(), CliError> {
    let failed = |source| CliError::Write { file: folder.display().to_string(), source };
    fs::create_dir_all(folder).map_err(failed)?;
    for (number, step) in steps.iter().enumerate() {
        let Some(code) = &step.compiled.code else { continue };
        let plain = |text: &str| text.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let path = folder.join(format!("{}-{number}-{}.txt", plain(&step.work), plain(&step.kernel)));
        fs::write(&path, code).map_err(|source| CliError::Write { file: path.display().to_string(), source })?;
    }
    Ok(())
}

/// Prints a table of a workload's kernels, and the compile errors.
fn print(name: &str, steps: &[CompiledStep], output: &mut Output) -> Result<(), CliError> {
    let header = [
        "kernel",
        "schedule",
        "subgroup",
        "registers",
        "spills",
        "scratch",
        "occupancy",
        "memory",
        "instructions",
        "matrix",
        "path",
    ];
    let show = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
    let row = |step: &CompiledStep| {
        let told = &step.compiled;
        let figures = [told.subgroup.map(u64::from), told.registers, told.spills, told.scratch, told.occupancy];
        let more = [step.workgroup_bytes, told.instructions];
        let names = [step.kernel.clone(), step.schedule.unwrap_or("custom").to_owned()];
        let matrix = if step.matrix { "yes" } else { "no" };
        let figures = figures.into_iter().chain(more).map(show);
        names.into_iter().chain(figures).chain([matrix.to_owned(), step.path.clone()]).collect()
    };
    output.line(name)?;
    output.line(table(&header, steps.iter().map(row), &[0, 1, 9, 10]))?;
    steps.iter().try_for_each(|step| match &step.error {
        Some(error) => Ok(output.line(format_args!("  {} {}: {error}", step.kernel, step.path))?),
        None => Ok(()),
    })
}
