use rewire_graph_rewrite::cost::{Count, HardwareModel};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The result of a benchmark. Times are in milliseconds, medians unless noted otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the operator, module or model.
    pub op: String,
    /// The sizes of the workload.
    pub shape: Map<String, Value>,
    /// Type of inputs, weights and results.
    pub dtype: String,
    /// `wgpu` or `cpu`.
    pub kernel: String,
    /// The adapter, or `cpu`.
    pub adapter: String,
    /// Name of the processor and number of its threads; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The matmul tier of the kernels; `None` on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrices: Option<String>,
    /// Time of a run as seen by its caller, who waits for it. Inputs are on the device and results stay there.
    pub wall_ms: Option<f64>,
    /// Time of the kernels by GPU timestamps; `None` on the CPU and on adapters without timestamps.
    pub gpu_ms: Option<f64>,
    /// The shortest run.
    pub min_ms: Option<f64>,
    /// 95th percentile of the runs.
    pub p95_ms: Option<f64>,
    /// 10^12 operations per second. Counts the operations of matmuls, or all operations if there are no matmuls, in the time `gpu_ms`, or
    /// `wall_ms` if there is none.
    pub tflops: Option<f64>,
    /// 10^9 bytes per second that must be moved, in the time `gpu_ms`, or `wall_ms` if there is none.
    pub gbps: Option<f64>,
    /// Measured rate of f32 multiply-adds, or of matrix units if the element type allows them.
    pub ceiling_tflops: Option<f64>,
    /// The largest bandwidth for as many bytes read and written: that of copies, which on the CPU depends on the size, or of reads or
    /// writes.
    pub ceiling_gbps: Option<f64>,
    /// True if the workload was faster than this roofline even after measuring it again, because its tensors fit into caches, or because
    /// other programs used the device meanwhile. The share of the roofline is then meaningless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ceilings_exceeded: bool,
    /// Memory for parameters, inputs, results and intermediates in bytes.
    pub peak_bytes: Option<u64>,
    /// Time in kernels per run, on the adapter or on the CPU.
    pub kernel_ms: Option<f64>,
    /// The roofline floor.
    pub predicted_ms: Option<f64>,
    /// Number of operations behind `tflops`.
    pub operations: Option<u64>,
    /// Number of bytes behind `gbps`.
    pub bytes: Option<u64>,
    /// Number of dispatches per run.
    pub kernels: Option<usize>,
    /// Number of kernels with a stored tuning.
    #[serde(default)]
    pub tuned: usize,
    /// Time of rewriting, lowering, compiling shaders and uploading parameters.
    pub load_ms: Option<f64>,
    /// Number of runs behind the median `wall_ms`.
    pub runs: usize,
    /// Time of a run in PyTorch on the same device, measured right after `wall_ms` and in the same way; `None` if it was not requested
    /// or PyTorch has no counterpart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch_ms: Option<f64>,
    /// Why there are no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The bottleneck of a roofline floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Memory bandwidth.
    Bandwidth,
    /// Arithmetic.
    Arithmetic,
}

impl Record {
    /// The device of the record: the adapter, and its matmul tier if it has one.
    pub fn device(&self) -> String {
        match self.matrices.as_deref() {
            None | Some("none") => self.adapter.clone(),
            Some(tier) => format!("{}, matrices of tier {tier}", self.adapter),
        }
    }

    /// The time that rates refer to: of the kernels on a GPU, of a run on the CPU.
    pub fn time_ms(&self) -> Option<f64> {
        self.gpu_ms.or(self.wall_ms)
    }

    /// The roofline floor and its bottleneck: bytes divided by bandwidth, or operations divided by the arithmetic rate, whichever
    /// takes longer.
    pub fn floor(&self) -> Option<(f64, Bound)> {
        let moving = self.bytes? as f64 / self.ceiling_gbps? / 1e6;
        let computing = self.operations? as f64 / self.ceiling_tflops? / 1e9;
        Some(if moving < computing { (computing, Bound::Arithmetic) } else { (moving, Bound::Bandwidth) })
    }

    /// The share of the roofline: floor divided by time.
    pub fn share(&self) -> Option<f64> {
        Some(self.floor()?.0 / self.time_ms().filter(|time| *time > 0.0)?)
    }

    /// The speed of a run relative to PyTorch.
    pub fn times_pytorch(&self) -> Option<f64> {
        Some(self.pytorch_ms? / self.wall_ms?)
    }

    /// Bandwidth of memory, by the record that moves the most bytes.
    pub(crate) fn bandwidth(records: &[&Self]) -> Option<f64> {
        records.iter().filter(|record| record.ceiling_gbps.is_some()).max_by_key(|record| record.bytes)?.ceiling_gbps
    }

    /// The share of the roofline in percent; empty if unknown.
    pub fn share_in_words(&self) -> String {
        match self.share() {
            Some(_) if self.ceilings_exceeded => "over 100 %".to_owned(),
            share => share.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default(),
        }
    }

    /// True if the time is below the floor.
    pub(crate) fn exceeds_ceilings(&self) -> bool {
        self.share().is_some_and(|share| share > 1.0)
    }

    /// Sets the roofline, and the predicted time of kernels with these bytes and operations.
    pub(crate) fn set_ceilings(&mut self, machine: &HardwareModel, bandwidth: f64, counts: &[Count]) {
        let total: Count = counts.iter().copied().sum();
        self.ceiling_gbps = Some(bandwidth / 1e9);
        self.ceiling_tflops = Some(machine.peak(&total) / 1e12);
        self.predicted_ms = Some(counts.iter().map(|count| machine.seconds(count)).sum::<f64>() * 1e3);
    }

    /// The sizes of the workload except default ones.
    pub(crate) fn sizes(&self) -> Map<String, Value> {
        let is_shown = |(name, value): &(&String, &Value)| {
            *name != "seed" && *name != "dtype" && value.as_u64() != Some(0) && value.as_bool() != Some(false)
        };
        self.shape.iter().filter(is_shown).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// A readable title of the workload, without default sizes.
    pub fn title(&self) -> String {
        format!("{} ({})", self.op, in_words(&self.sizes()))
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bandwidth => "bandwidth",
            Self::Arithmetic => "arithmetic",
        })
    }
}

/// Sizes as readable text.
///
/// ```
/// let shape = serde_json::json!({ "max_len": 64, "len_dist": "full" });
/// assert_eq!(rewire_measure::in_words(shape.as_object().unwrap()), "max len 64, len dist full");
/// ```
pub fn in_words(shape: &Map<String, Value>) -> String {
    let sizes = shape.iter().map(|(name, size)| format!("{} {}", name.replace('_', " "), in_word(size)));
    sizes.collect::<Vec<_>>().join(", ")
}

/// A size as readable text.
pub(crate) fn in_word(size: &Value) -> String {
    size.as_str().map_or_else(|| size.to_string(), str::to_owned)
}

/// A number with three significant digits.
///
/// ```
/// assert_eq!([0.02347, 1.2345, 123.4].map(rewire_measure::rounded), ["0.0235", "1.23", "123"]);
/// ```
pub fn rounded(value: f64) -> String {
    let digits = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}
