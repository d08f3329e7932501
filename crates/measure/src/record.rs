use rewire_graph_rewrite::cost::{Count, Machine};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// What a bench found. Times are in milliseconds, medians where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the operator, module or model.
    pub op: String,
    /// Its sizes.
    pub shape: Map<String, Value>,
    /// Type of inputs, weights and results.
    pub dtype: String,
    /// `wgpu` or `cpu`.
    pub kernel: String,
    /// The adapter, or `cpu`.
    pub adapter: String,
    /// The processor of the computer and its threads; `None` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The tier of matrix hardware that kernels run on; `None` on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrices: Option<String>,
    /// A run as its caller sees it: inputs are where the kernels are, results stay there, and the caller waits for them.
    pub wall_ms: Option<f64>,
    /// Time of the kernels by the adapter's clock; `None` on the CPU and where the adapter has no timestamps.
    pub gpu_ms: Option<f64>,
    /// The shortest run.
    pub min_ms: Option<f64>,
    /// 95 of 100 runs are not longer.
    pub p95_ms: Option<f64>,
    /// 10^12 operations a second: those of products, or others where there are none. By `gpu_ms`, or `wall_ms` without it.
    pub tflops: Option<f64>,
    /// 10^9 bytes a second that have to move. By `gpu_ms`, or `wall_ms` without it.
    pub gbps: Option<f64>,
    /// The rate of multiply-adds of single precision, or of matrix units where the type allows them, measured in the same run.
    pub ceiling_tflops: Option<f64>,
    /// The bandwidth of a copy, measured in the same run.
    pub ceiling_gbps: Option<f64>,
    /// True where the work was faster than these ceilings, which were measured again: its tensors lie in caches, or other programs took
    /// the device meanwhile. Its share then has no meaning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ceilings_exceeded: bool,
    /// Bytes of memory for parameters, inputs, results and all between.
    pub peak_bytes: Option<u64>,
    /// Time in kernels, on the adapter or on the CPU.
    pub kernel_ms: Option<f64>,
    /// Least time by the measured ceilings.
    pub predicted_ms: Option<f64>,
    /// Operations that `tflops` counts.
    pub operations: Option<u64>,
    /// Bytes that `gbps` counts.
    pub bytes: Option<u64>,
    /// Dispatches of a run.
    pub kernels: Option<usize>,
    /// Kernels with tunings that were measured.
    #[serde(default)]
    pub tuned: usize,
    /// Rewriting, lowering, compiling shaders and uploading parameters.
    pub load_ms: Option<f64>,
    /// Runs that `wall_ms` is the median of.
    pub runs: usize,
    /// Why there are no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a floor is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Moving bytes.
    Bandwidth,
    /// Operations.
    Arithmetic,
}

impl Record {
    /// What figures are of: the adapter, and the tier of its matrix hardware where there is one.
    pub fn device(&self) -> String {
        match self.matrices.as_deref() {
            None | Some("none") => self.adapter.clone(),
            Some(tier) => format!("{}, matrices of tier {tier}", self.adapter),
        }
    }

    /// The time that rates are computed by: that of the kernels on a GPU, that of a run on the CPU.
    pub fn time_ms(&self) -> Option<f64> {
        self.gpu_ms.or(self.wall_ms)
    }

    /// The least time by the ceilings, and what it goes to: bytes over bandwidth or operations over the rate of arithmetic,
    /// whichever is longer.
    pub fn floor(&self) -> Option<(f64, Bound)> {
        let moving = self.bytes? as f64 / self.ceiling_gbps? / 1e6;
        let computing = self.operations? as f64 / self.ceiling_tflops? / 1e9;
        Some(if moving < computing { (computing, Bound::Arithmetic) } else { (moving, Bound::Bandwidth) })
    }

    /// Share of the floor in the time.
    pub fn share(&self) -> Option<f64> {
        Some(self.floor()?.0 / self.time_ms().filter(|time| *time > 0.0)?)
    }

    /// The share in percent; empty where it is not known.
    pub fn share_in_words(&self) -> String {
        match self.share() {
            Some(_) if self.ceilings_exceeded => "over 100 %".to_owned(),
            share => share.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default(),
        }
    }

    /// True where the time is below the floor.
    pub(crate) fn exceeds_ceilings(&self) -> bool {
        self.share().is_some_and(|share| share > 1.0)
    }

    /// The ceilings, and the least time of kernels that move and compute this.
    pub(crate) fn set_ceilings(&mut self, machine: &Machine, counts: &[Count]) {
        let total: Count = counts.iter().copied().sum();
        self.ceiling_gbps = Some(machine.bandwidth / 1e9);
        self.ceiling_tflops = Some(machine.peak(&total) / 1e12);
        self.predicted_ms = Some(counts.iter().map(|count| machine.seconds(count)).sum::<f64>() * 1e3);
    }

    /// The work in words, without sizes that say no more than a reader expects.
    pub fn title(&self) -> String {
        let is_told = |(name, value): &(&String, &Value)| {
            *name != "seed" && *name != "dtype" && value.as_u64() != Some(0) && value.as_bool() != Some(false)
        };
        let sizes: Map<String, Value> =
            self.shape.iter().filter(is_told).map(|(k, v)| (k.clone(), v.clone())).collect();
        format!("{} ({})", self.op, in_words(&sizes))
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

/// Sizes as text.
///
/// ```
/// let shape = serde_json::json!({ "max_len": 64, "len_dist": "full" });
/// assert_eq!(rewire_measure::in_words(shape.as_object().unwrap()), "max len 64, len dist full");
/// ```
pub fn in_words(shape: &Map<String, Value>) -> String {
    let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let sizes = shape.iter().map(|(name, size)| format!("{} {}", name.replace('_', " "), value(size)));
    sizes.collect::<Vec<_>>().join(", ")
}

/// A figure with as many digits as say something.
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
