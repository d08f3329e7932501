use crate::{BenchError, Record};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Write;

/// A figure of another library for the same work.
#[derive(Debug, Deserialize)]
struct Reference {
    /// The library.
    by: String,
    /// A part of the adapter's name.
    adapter: String,
    op: String,
    dtype: String,
    /// Sizes that have to be the same.
    shape: Map<String, Value>,
    #[serde(flatten)]
    figure: Figure,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Figure {
    Ms(f64),
    Tflops(f64),
    Gbps(f64),
}

const REFERENCES: &str = include_str!("../references.json");

impl Reference {
    fn fits(&self, record: &Record) -> bool {
        let sizes = |(name, value): (&String, &Value)| record.shape.get(name) == Some(value);
        record.adapter.contains(&self.adapter)
            && (&record.op, &record.dtype) == (&self.op, &self.dtype)
            && self.shape.iter().all(sizes)
    }

    /// How many times as fast the record is.
    fn ratio(&self, record: &Record) -> Option<f64> {
        Some(match self.figure {
            Figure::Ms(ms) => ms / time(record)?,
            Figure::Tflops(tflops) => record.tflops? / tflops,
            Figure::Gbps(gbps) => record.gbps? / gbps,
        })
    }
}

fn references() -> Result<Vec<Reference>, BenchError> {
    serde_json::from_str(REFERENCES)
        .map_err(|error| BenchError::File { path: "references.json".into(), reason: error.to_string() })
}

/// The time that rates are computed by.
fn time(record: &Record) -> Option<f64> {
    record.gpu_ms.or(record.wall_ms)
}

/// The least time by the ceilings: bytes over bandwidth or operations over the rate of arithmetic, whichever is longer.
fn floor(record: &Record) -> Option<f64> {
    let moving = record.bytes? as f64 / record.ceiling_gbps? / 1e6;
    let computing = record.operations? as f64 / record.ceiling_tflops? / 1e9;
    Some(moving.max(computing))
}

/// A page of Markdown with a table an adapter: shape, floor, figure, share of the ceiling, and how many times as fast as
/// other libraries on the same device.
///
/// # Errors
/// [`BenchError::File`] if the figures of other libraries are not good.
pub fn page(records: &[Record]) -> Result<String, BenchError> {
    let references = references()?;
    let mut page = String::from(
        "# Performance\n\nWritten by `rewire bench --suite NAME --markdown FILE`.\n\n\
         The floor is the longer of bytes over copy bandwidth and operations over the rate of multiply-adds or of cooperative \
         matrices,\nmeasured in the same run; the share is the floor over the time. On a GPU the time is that of the kernels by its own clock, on \
         the CPU that of\na whole run. Times are medians. Operations are those of products, half the square of every sequence \
         for causal attention;\nbytes are every tensor once. \"x\" is how many times as fast as another library: Triton and \
         cuBLAS on an NVIDIA H200\n(driver 580, PyTorch 2.11, Triton 3.6), PyTorch 2.14 and the `gemm` crate with two threads \
         of an AMD EPYC (Zen 5).\n",
    );
    let mut adapters: Vec<&str> = vec![];
    for record in records {
        if !adapters.contains(&record.adapter.as_str()) {
            adapters.push(&record.adapter);
        }
    }
    for adapter in adapters {
        let of_adapter: Vec<&Record> = records.iter().filter(|record| record.adapter == adapter).collect();
        write_adapter(&mut page, adapter, &of_adapter, &references);
    }
    Ok(page)
}

fn write_adapter(page: &mut String, adapter: &str, records: &[&Record], references: &[Reference]) {
    let gbps = records.iter().find_map(|record| record.ceiling_gbps).unwrap_or_default();
    let rates = || records.iter().filter_map(|record| record.ceiling_tflops);
    let matrices = rates().fold(0.0, f64::max);
    let multiply_adds = rates().fold(matrices, f64::min);
    // Records of one run have the rate of what their kernels use.
    let matrices = match matrices > 2.0 * multiply_adds {
        true => format!(", cooperative matrices {matrices:.0} TFLOP/s"),
        false => String::new(),
    };
    let _ = write!(
        page,
        "\n## {adapter}\n\nCopy {gbps:.0} GB/s, multiply-adds {multiply_adds:.2} TFLOP/s{matrices}.\n\n\
         | work | type | kernels | floor ms | time ms | share | run ms | TFLOP/s | GB/s | MiB | x |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n"
    );
    for record in records {
        let sizes = record.shape.iter().filter(|(name, value)| is_told(name, value));
        let sizes: Vec<String> =
            sizes.map(|(name, value)| format!("{} {}", name.replace('_', " "), bare(value))).collect();
        let work = format!("{} ({})", record.op, sizes.join(", "));
        if let Some(error) = &record.error {
            let _ = writeln!(page, "| {work} | {} | {} |||||||||", record.dtype, error.replace('|', "/"));
            continue;
        }
        let share = floor(record).zip(time(record)).map(|(floor, time)| format!("{:.0} %", 100.0 * floor / time));
        let faster = references.iter().filter(|reference| reference.fits(record));
        let faster = faster.filter_map(|reference| Some(format!("{} {:.2}", reference.by, reference.ratio(record)?)));
        let _ = writeln!(
            page,
            "| {work} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {} |",
            record.dtype,
            record.kernels.unwrap_or_default(),
            number(floor(record)),
            number(time(record)),
            share.unwrap_or_default(),
            number(record.wall_ms),
            number(record.tflops),
            number(record.gbps),
            record.peak_bytes.unwrap_or_default() as f64 / 1024.0 / 1024.0,
            faster.collect::<Vec<_>>().join(", "),
        );
    }
}

/// True for sizes that say more than a reader expects.
fn is_told(name: &str, value: &Value) -> bool {
    name != "seed" && name != "dtype" && value.as_u64() != Some(0) && value.as_bool() != Some(false)
}

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn number(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_is_told_with_its_floor_and_references() {
        let Value::Object(shape) = json!({ "m": 4096, "k": 4096, "n": 4096, "epilogue": false, "seed": 1 }) else {
            panic!()
        };
        let record = Record {
            op: "addmm".into(),
            shape,
            dtype: "f16".into(),
            adapter: "NVIDIA H200 (vulkan)".into(),
            gpu_ms: Some(0.4),
            wall_ms: Some(0.5),
            tflops: Some(360.5),
            ceiling_tflops: Some(500.0),
            ceiling_gbps: Some(4000.0),
            operations: Some(100_000_000_000),
            bytes: Some(100_000_000),
            ..Record::default()
        };
        let plain = Record { ceiling_tflops: Some(50.0), ..record.clone() };
        let page = page(&[record.clone(), plain, Record { error: Some("no room".into()), ..record }]).unwrap();
        assert!(page.contains("multiply-adds 50.00 TFLOP/s, cooperative matrices 500 TFLOP/s"));
        let line = page.lines().find(|line| line.contains("0.2000")).unwrap();
        assert!(line.contains("| 50 % |") && line.contains("cuBLAS 0.50") && line.contains("(m 4096, k 4096, n 4096)"));
        assert!(page.contains("no room"));
    }
}
