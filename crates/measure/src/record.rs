use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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

impl Record {
    /// Share of the ceiling that limits it: of bandwidth or of arithmetic, whichever is nearer.
    pub fn share(&self) -> Option<f64> {
        let share = |rate: Option<f64>, ceiling: Option<f64>| Some(rate? / ceiling.filter(|ceiling| *ceiling > 0.0)?);
        let shares = [share(self.tflops, self.ceiling_tflops), share(self.gbps, self.ceiling_gbps)];
        shares.into_iter().flatten().reduce(f64::max)
    }
}
