use crate::args::{Bench as Options, Common};
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use rewire::bench::{Bench, BenchOptions, Record, Shape, Workload};
use rewire::rank;
use rewire::weights::Weights;
use std::path::Path;

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let shape = options.sizes.shape()?;
    let workloads = options.ops.iter().map(|op| workload(op, &shape)).collect::<Result<Vec<_>, _>>()?;
    let with = BenchOptions { kernel: common.kernel, adapter: common.adapter.clone(), seconds: options.seconds };
    let bench = Bench::new(&with)?;
    let mut failed = 0;
    for workload in &workloads {
        let record = bench.run(workload);
        failed += usize::from(record.error.is_some());
        if common.json {
            output.json(&record)?
        } else {
            output.line(line(&record))?
        }
        output.flush()?;
    }
    if failed > 0 {
        return Err(CliError::NotMeasured { failed, all: workloads.len() });
    }
    Ok(())
}

/// What a name stands for: the model in the program, a model folder, or an operator.
fn workload(name: &str, shape: &Shape) -> Result<Workload, CliError> {
    if name == "demo" {
        return Ok(Workload::model(name, &demo::config()?, Some(&Weights::parse(demo::WEIGHTS)?), shape)?);
    }
    let folder = Path::new(name);
    if !folder.is_dir() {
        return Ok(Workload::operator(name, shape)?);
    }
    let weights = Weights::read(&folder.join("model.safetensors"))?;
    Ok(Workload::model(name, &rank::read_config(folder)?, Some(&weights), shape)?)
}

fn line(record: &Record) -> String {
    let shape: Vec<String> = record.shape.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let title = format!("{} {} ({}) on {}", record.op, record.dtype, shape.join(", ").replace('"', ""), record.adapter);
    if let Some(error) = &record.error {
        return format!("{title}\n  error: {error}");
    }
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
    format!(
        "{title}\n  {} ms, GPU {} ms, least {}, p95 {}, predicted {}\n  {} of {} TFLOP/s, {} of {} GB/s, {} kernels, {:.1} MiB",
        number(record.wall_ms),
        number(record.gpu_ms),
        number(record.min_ms),
        number(record.p95_ms),
        number(record.predicted_ms),
        number(record.tflops),
        number(record.ceiling_tflops),
        number(record.gbps),
        number(record.ceiling_gbps),
        record.kernels.unwrap_or_default(),
        record.peak_bytes.unwrap_or_default() as f64 / 1024.0 / 1024.0,
    )
}
