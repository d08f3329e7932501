use crate::record::{in_word, in_words};
use crate::{BenchError, Record, rounded};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Published measurements of other libraries.
#[derive(Debug, Deserialize)]
struct References {
    /// Description of the libraries and devices.
    about: String,
    figures: Vec<Reference>,
}

/// A measurement of another library for the same workload.
#[derive(Debug, Deserialize)]
struct Reference {
    /// The library.
    by: String,
    /// Part of the adapter's name.
    adapter: String,
    op: String,
    dtype: String,
    /// Sizes that must be equal. Gradients are only compared with gradients.
    shape: Map<String, Value>,
    #[serde(flatten)]
    figure: Figure,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Figure {
    /// Time of the kernels, or of a run on the CPU, in milliseconds.
    Ms(f64),
    /// Time of a run as seen by its caller, in milliseconds.
    WallMs(f64),
    Tflops(f64),
    Gbps(f64),
}

/// The size that is true for workloads with gradients, and missing otherwise.
const BACKWARD: &str = "backward";

const REFERENCES: &str = include_str!("../references.json");

impl Reference {
    /// True if the record is of the same workload on the same device.
    fn fits(&self, record: &Record) -> bool {
        let sizes = |(name, value): (&String, &Value)| record.shape.get(name) == Some(value);
        record.adapter.contains(&self.adapter)
            && (&record.op, &record.dtype) == (&self.op, &self.dtype)
            && record.shape.get(BACKWARD) == self.shape.get(BACKWARD)
            && self.shape.iter().all(sizes)
    }

    /// Speed of the record relative to this measurement.
    fn ratio(&self, record: &Record) -> Option<f64> {
        Some(match self.figure {
            Figure::Ms(ms) => ms / record.time_ms()?,
            Figure::WallMs(ms) => ms / record.wall_ms?,
            Figure::Tflops(tflops) => record.tflops? / tflops,
            Figure::Gbps(gbps) => record.gbps? / gbps,
        })
    }
}

fn references() -> Result<References, BenchError> {
    serde_json::from_str(REFERENCES)
        .map_err(|error| BenchError::File { path: "references.json".into(), reason: error.to_string() })
}

/// A Markdown page with one table per adapter: shape, roofline floor, measured time, share of the roofline, and speed relative to
/// other libraries on the same device. `picture` is an image file next to the page.
///
/// # Errors
/// [`BenchError::File`] if the measurements of other libraries are invalid.
pub fn page(records: &[Record], picture: Option<&str>) -> Result<String, BenchError> {
    let References { about, figures } = references()?;
    let mut page = format!(
        "# Performance\n\nWritten by `rewire bench --markdown FILE` from records of `rewire bench --suite NAME --json`.\n\n\
         - **floor**: the longer of bytes over the rate of memory and operations over the rate of multiply-adds or of cooperative \
         matrices, measured in the\n  same run. Memory on a GPU is copied; on the CPU it is copied, read and written, at several sizes in \
         caches, and the rate for the work's bytes applies.\n  Operations are those of matmuls, half the square of every sequence for causal \
         attention; bytes are every tensor once.\n\
         - **time**: on a GPU, the kernels, by the GPU's clock; on the CPU, a whole run. **run**: the time that the caller sees. Medians.\n\
         - **share**: the floor divided by the time.\n\
         - **x**: the speed relative to another library: {about}.\n",
    );
    if let Some(picture) = picture {
        let _ = writeln!(page, "\n![Rooflines of the devices below]({picture})");
    }
    for (device, own) in by_device(records) {
        let faster = |record: &Record| {
            let fitting = figures.iter().filter(|reference| reference.fits(record));
            let published = fitting.filter_map(|one| Some((&*one.by, one.ratio(record)?)));
            let measured = record.times_pytorch().map(|ratio| ("PyTorch", ratio));
            let faster = published.chain(measured).map(|(by, ratio)| format!("{by} {ratio:.2}"));
            faster.collect::<Vec<_>>().join(", ")
        };
        write_device(&mut page, &device, &own, faster);
    }
    Ok(page)
}

/// Groups records by device. Devices are in the order of their first records.
pub(crate) fn by_device(records: &[Record]) -> Vec<(String, Vec<&Record>)> {
    let mut devices: Vec<(String, Vec<&Record>)> = vec![];
    for record in records {
        let device = record.device();
        match devices.iter_mut().find(|(name, _)| *name == device) {
            Some((_, records)) => records.push(record),
            None => devices.push((device, vec![record])),
        }
    }
    devices
}

fn write_device(page: &mut String, device: &str, records: &[&Record], faster: impl Fn(&Record) -> String) {
    let gbps = Record::bandwidth(records).unwrap_or_default();
    // `ceiling_tflops` is the rate of the units that the record's kernels use.
    let rates = || records.iter().filter_map(|record| record.ceiling_tflops);
    let most = rates().fold(0.0, f64::max);
    let least = rates().fold(most, f64::min);
    let takes_matrices = |record: &&Record| record.dtype == "f16" && record.device() != record.adapter;
    let rates = match (most > 2.0 * least, records.iter().all(takes_matrices)) {
        (true, _) => format!("multiply-adds {least:.2} TFLOP/s, cooperative matrices {most:.0} TFLOP/s"),
        (false, true) => format!("cooperative matrices {most:.0} TFLOP/s"),
        (false, false) => format!("multiply-adds {least:.2} TFLOP/s"),
    };
    let host = records.iter().find_map(|record| record.host.as_ref().filter(|_| record.adapter == "cpu"));
    let host = host.map_or_else(String::new, |host| format!("{host}. "));
    let _ = write!(page, "\n## {device}\n\n{host}Memory {gbps:.0} GB/s, {rates}.\n");
    let mut ops: Vec<&str> = vec![];
    for record in records {
        if !ops.contains(&&*record.op) {
            ops.push(&record.op);
        }
    }
    for op in ops {
        let own: Vec<&Record> = records.iter().copied().filter(|record| record.op == op).collect();
        write_op(page, op, &own, &faster);
    }
}

/// Writes the records of an operator, with a column for each size that differs among them.
fn write_op(page: &mut String, op: &str, records: &[&Record], faster: impl Fn(&Record) -> String) {
    let sizes: Vec<Map<String, Value>> = records.iter().map(|record| record.sizes()).collect();
    let mut equal = sizes.first().cloned().unwrap_or_default();
    equal.retain(|name, size| sizes.iter().all(|sizes| sizes.get(name) == Some(size)));
    let mut names: Vec<&String> = vec![];
    for name in sizes.iter().flat_map(Map::keys) {
        if !equal.contains_key(name) && !names.contains(&name) {
            names.push(name);
        }
    }
    let _ = write!(page, "\n### {op}\n\n");
    if !equal.is_empty() {
        let _ = write!(page, "All: {}.\n\n", in_words(&equal));
    }
    let heads: String = names.iter().map(|name| format!("| {} ", name.replace('_', " "))).collect();
    let _ = write!(
        page,
        "{heads}| type | kernels | floor ms | time ms | share | run ms | TFLOP/s | GB/s | MiB | x |\n\
         {}|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        "|---:".repeat(names.len())
    );
    for (record, sizes) in records.iter().zip(&sizes) {
        let own = names.iter().map(|name| sizes.get(*name).map_or_else(String::new, in_word));
        let own: String = own.map(|size| format!("| {size} ")).collect();
        if let Some(error) = &record.error {
            let _ = writeln!(page, "{own}| {} | {} |||||||||", record.dtype, error.replace('|', "/"));
            continue;
        }
        let _ = writeln!(
            page,
            "{own}| {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {} |",
            record.dtype,
            record.kernels.unwrap_or_default(),
            number(record.floor().map(|(floor, _)| floor)),
            number(record.time_ms()),
            record.share_in_words(),
            number(record.wall_ms),
            number(record.tflops),
            number(record.gbps),
            record.peak_bytes.unwrap_or_default() as f64 / 1024.0 / 1024.0,
            faster(record),
        );
    }
}

fn number(value: Option<f64>) -> String {
    value.map(rounded).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_has_its_floor_and_references() {
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
        let other_tier = Record { matrices: Some("wgsl".into()), ..record.clone() };
        let failed = Record { error: Some("no room".into()), ..record.clone() };
        let page = page(&[record, plain, failed, other_tier], Some("roof.svg")).unwrap();
        assert!(page.contains("(roof.svg)\n\n## NVIDIA") && page.contains("another library: Triton"));
        assert!(page.contains("multiply-adds 50.00 TFLOP/s, cooperative matrices 500 TFLOP/s"));
        let line = page.lines().find(|line| line.contains("0.2000")).unwrap();
        assert!(line.contains("| 50 % |") && line.contains("cuBLAS 0.50"));
        assert!(page.contains("### addmm\n\nAll: m 4096, k 4096, n 4096.\n\n| type |"));
        assert!(page.contains("no room"));
        assert!(page.contains(
            "## NVIDIA H200 (vulkan), matrices of tier wgsl\n\nMemory 4000 GB/s, cooperative matrices 500 TFLOP/s.\n"
        ));
    }
    #[test]
    fn speeds_are_relative_to_pytorch_and_gradients_to_gradients() {
        let row = |op: &str, shape: Value, pytorch_ms: Option<f64>| {
            let Value::Object(shape) = shape else { panic!("{shape}") };
            let (op, dtype, adapter) = (op.to_owned(), "f16".to_owned(), "NVIDIA H200 (vulkan)".to_owned());
            let times = Record { gpu_ms: Some(0.5), wall_ms: Some(2.0), pytorch_ms, ..Record::default() };
            page(&[Record { op, shape, dtype, adapter, ..times }], None).unwrap()
        };
        let stu =
            json!({ "batch": 32, "heads": 4, "attn_dim": 128, "embedding_dim": 512, "layers": 3, "max_len": 2048 });
        let mut gradients = stu.clone();
        gradients["backward"] = true.into();
        assert!(row("stu", stu, None).contains("| Triton in a CUDA graph 7.48, Triton eager, whole run 2.23 |"));
        assert!(row("stu", gradients, Some(3.0)).contains("| PyTorch 1.50 |"));
        assert!(row("layer-norm", json!({}), Some(1.0)).contains("| PyTorch 0.50 |"));
        assert!(row("layer-norm", json!({}), None).ends_with("|  |\n"));
    }

    #[test]
    fn a_share_above_the_ceilings_is_no_figure() {
        let marked = Record {
            adapter: "cpu".into(),
            wall_ms: Some(1.0),
            bytes: Some(100_000_000),
            operations: Some(1),
            ceiling_gbps: Some(1.0),
            ceiling_tflops: Some(1.0),
            ceilings_exceeded: true,
            ..Record::default()
        };
        let page = page(&[marked], None).unwrap();
        assert!(page.contains("| over 100 % |") && !page.contains("10000 %"), "{page}");
    }
}
