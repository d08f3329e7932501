//! `rewire bench --sweep`: compares kernels, types and modes by a size.

use crate::args::{Bench as Options, Common};
use crate::bench::{announce, check_place, jobs, open, time, workload, write};
use crate::error::CliError;
use crate::output::Output;
use rewire_measure::{BenchError, Shape, Sweep, Swept, chart};
use std::path::Path;

/// Measures every operator at every value of a size, with all requested kernels, types and modes.
pub fn run(sweep: &Sweep, options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    options.csv.iter().chain(&options.svg).try_for_each(|path| check_place(path))?;
    let base = options.sizes.shape()?;
    jobs(&options.ops, None, &options.sizes)?;
    let kernels = if options.kernels.is_empty() { vec![common.kernel] } else { options.kernels.clone() };
    let dtypes = if options.dtypes.is_empty() { vec![base.dtype] } else { options.dtypes.clone() };
    let modes = if options.modes.is_empty() { vec![base.backward] } else { options.modes.clone() };
    let mut work: Vec<(&str, usize, Shape)> = vec![];
    for op in &options.ops {
        for dtype in &dtypes {
            for backward in &modes {
                let shapes = sweep.shapes(&Shape { dtype: *dtype, backward: *backward, ..base.clone() });
                work.extend(shapes.into_iter().map(|(value, shape)| (op.as_str(), value, shape)));
            }
        }
    }
    let mut swept = vec![];
    for kernel in kernels {
        let common = Common { kernel, ..common.clone() };
        let bench = open(&common, options.seconds, options.tuning)?;
        announce("sweeping", work.len(), bench.seconds_each(), &bench);
        let workloads = work.iter().map(|(op, _, shape)| workload(op, shape, &options.weights, common.mapping));
        let records = time(&bench, workloads, None, &common, output)?;
        let points = work.iter().zip(records);
        swept.extend(points.map(|((_, value, shape), record)| Swept {
            value: *value,
            backward: shape.backward,
            record,
        }));
    }
    if let Some(path) = &options.csv {
        write(path, csv(path, sweep.axis(), &swept)?)?;
    }
    if let Some(path) = &options.svg {
        write(path, chart(sweep.axis(), &swept))?;
    }
    match swept.iter().filter(|point| point.record.error.is_some()).count() {
        0 => Ok(()),
        failed => Err(CliError::NotMeasured { failed, all: swept.len() }),
    }
}

/// One row per measurement; unknown values are empty.
fn csv(path: &Path, axis: &str, swept: &[Swept]) -> Result<String, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::File { path: path.to_owned(), reason: error.to_string() };
    let mut rows = csv::Writer::from_writer(vec![]);
    let times = ["wall_ms", "min_ms", "p95_ms", "gpu_ms", "tflops", "gbps"];
    let header = ["op", axis, "kernel", "adapter", "dtype", "mode"].into_iter().chain(times).chain(["error"]);
    rows.write_record(header).map_err(|error| failed(&error))?;
    for point in swept {
        let record = &point.record;
        let names =
            [&*record.op, &*point.value.to_string(), &*record.kernel, &*record.adapter, &*record.dtype, point.mode()]
                .map(str::to_owned);
        let numbers = [record.wall_ms, record.min_ms, record.p95_ms, record.gpu_ms, record.tflops, record.gbps];
        let numbers = numbers.map(|number| number.map_or_else(String::new, |number| number.to_string()));
        let fields = names.into_iter().chain(numbers).chain([record.error.clone().unwrap_or_default()]);
        rows.write_record(fields).map_err(|error| failed(&error))?;
    }
    let bytes = rows.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}
