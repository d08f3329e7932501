use crate::args::{Common, Tune};
use crate::bench;
use crate::caches;
use crate::error::CliError;
use crate::output::Output;
use crate::table::table;
use rewire_measure::{Bench, BenchOptions, TunedKernel, in_words};

pub fn run(options: &Tune, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let jobs = bench::jobs(&options.ops, options.suite.as_deref(), &options.sizes)?;
    let tunings = caches::tunings().ok_or(CliError::NoCaches)?;
    let with = BenchOptions {
        kernel: common.kernel,
        kernel_rules: common.kernel_for.clone(),
        adapter: common.adapter.clone(),
        matrices: common.matrices,
        seconds: options.seconds,
        tunings: Some(tunings),
        pipelines: caches::pipelines(),
        ..BenchOptions::default()
    };
    let tuner = Bench::new(&with)?;
    tuner.check_tunes()?;
    bench::announce("tuning", jobs.len(), options.seconds, &tuner);
    for (name, shape) in &jobs {
        let tuned = tuner.tune(&bench::workload(name, shape, &options.weights, common.mapping)?)?;
        match common.json {
            true => tuned.iter().try_for_each(|kernel| output.json(kernel))?,
            false => print(&tuned, name, output)?,
        }
        output.flush()?;
    }
    Ok(())
}

/// Prints a table of a workload's kernels, and their sum.
fn print(tuned: &[TunedKernel], name: &str, output: &mut Output) -> Result<(), CliError> {
    let Some(first) = tuned.first() else { return Ok(output.line(format_args!("{name}: no kernel has tunings"))?) };
    output.line(format_args!("{name} {} ({}) on {}", first.dtype, in_words(&first.shape), first.adapter))?;
    let rows = tuned.iter().map(|kernel| {
        let change = match kernel.before == kernel.after {
            true => kernel.after.clone(),
            false => format!("{}, was {}", kernel.after, kernel.before),
        };
        let [before, after] = [kernel.before_ms, kernel.after_ms].map(|ms| format!("{ms:.4}"));
        let (step, tried) = (kernel.step.to_string(), kernel.candidates.to_string());
        vec![step, kernel.name.clone(), kernel.sizes.clone(), tried, before, after, change, kernel.path.clone()]
    });
    let sum = |time: fn(&TunedKernel) -> f64| format!("{:.4}", tuned.iter().map(time).sum::<f64>());
    let (before, after) = (sum(|kernel| kernel.before_ms), sum(|kernel| kernel.after_ms));
    let last = ["", "sum", "", "", &before, &after, "", ""].map(str::to_owned).to_vec();
    let header = ["step", "kernel", "sizes", "tried", "before ms", "after ms", "tuning", "path"];
    let rows = rows.chain([last]);
    Ok(output.line(table(&header, rows, &[1, 2, 6, 7]))?)
}
