use crate::args::{Common, Tune};
use crate::bench;
use crate::caches;
use crate::error::CliError;
use crate::output::Output;
use rewire_measure::{Bench, BenchOptions, TunedKernel};

pub fn run(options: &Tune, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let jobs = bench::jobs(&options.ops, options.suite.as_deref(), &options.sizes)?;
    let tunings = caches::tunings().ok_or(CliError::NoCaches)?;
    let with = BenchOptions {
        kernel: common.kernel,
        adapter: common.adapter.clone(),
        seconds: options.seconds,
        tunings: Some(tunings),
        pipelines: caches::pipelines(),
        ..BenchOptions::default()
    };
    let tuner = Bench::new(&with)?;
    for (name, shape) in &jobs {
        let tuned = tuner.tune(&bench::workload(name, shape, &options.weights)?)?;
        match common.json {
            true => tuned.iter().try_for_each(|kernel| output.json(kernel))?,
            false => print(&tuned, name, output)?,
        }
        output.flush()?;
    }
    Ok(())
}

/// A table of the kernels of a workload, and their sum.
fn print(tuned: &[TunedKernel], name: &str, output: &mut Output) -> Result<(), CliError> {
    let Some(first) = tuned.first() else { return Ok(output.line(format_args!("{name}: no kernel has tunings"))?) };
    output.line(format_args!("{name} {} ({}) on {}", first.dtype, bench::sizes(&first.shape), first.adapter))?;
    let longest = |text: fn(&TunedKernel) -> &str| tuned.iter().map(|kernel| text(kernel).len()).max().unwrap_or(0);
    let (names, extents) = (longest(|kernel| &kernel.name).max(6), longest(|kernel| &kernel.sizes).max(5));
    let head = format!("  step  {:<names$}  {:<extents$}  tried", "kernel", "sizes");
    output.line(format_args!("{head}   before ms    after ms  tuning"))?;
    for kernel in tuned {
        let TunedKernel { step, name, sizes, candidates, before_ms, after_ms, .. } = kernel;
        let change = match kernel.before == kernel.after {
            true => kernel.after.clone(),
            false => format!("{}, was {}", kernel.after, kernel.before),
        };
        let row = format!("  {step:>4}  {name:<names$}  {sizes:<extents$}  {candidates:>5}");
        output.line(format_args!("{row}{before_ms:>12.4}{after_ms:>12.4}  {change}  {}", kernel.path))?;
    }
    let sum = |time: fn(&TunedKernel) -> f64| tuned.iter().map(time).sum::<f64>();
    let (before, after) = (sum(|kernel| kernel.before_ms), sum(|kernel| kernel.after_ms));
    let width = head.len();
    Ok(output.line(format_args!("{:<width$}{before:>12.4}{after:>12.4}", "        sum"))?)
}
