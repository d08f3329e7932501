use crate::{Bench, BenchError, Workload};
use rewire_runtime::Tuned;
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// The result of tuning a kernel of a workload. Times are medians in milliseconds by GPU timestamps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedKernel {
    /// Name of the operator, module or model.
    pub op: String,
    /// The sizes of the workload.
    pub shape: Map<String, Value>,
    /// Type of inputs, weights and results.
    pub dtype: String,
    /// The adapter.
    pub adapter: String,
    /// Index of the kernel's step in the plan.
    pub step: usize,
    /// Name of the kernel.
    pub name: String,
    /// Module path of the kernel.
    pub path: String,
    /// Upper bounds of the sizes that the tuning applies to, as powers of two. Lower bounds are half of these, exclusive.
    pub sizes: String,
    /// Number of tunings that were measured.
    pub candidates: usize,
    /// The previous tuning.
    pub before: String,
    /// The fastest tuning, which later sessions use.
    pub after: String,
    /// Time with the previous tuning.
    pub before_ms: f64,
    /// Time with the fastest tuning.
    pub after_ms: f64,
}

impl Bench {
    /// Measures tunings of every kernel of a workload, for about as long as a benchmark of the workload, and stores the fastest ones
    /// in [`crate::BenchOptions::tunings`].
    ///
    /// # Errors
    /// [`BenchError`] if the workload cannot be compiled, loaded or run, or the device cannot time its kernels.
    pub fn tune(&self, workload: &Workload) -> Result<Vec<TunedKernel>, BenchError> {
        self.check_tunes()?;
        let mut case = self.load(workload)?;
        let tuned = case.session.tune(&case.inputs, Duration::from_secs_f64(self.seconds))?;
        Ok(tuned.into_iter().map(|tuned| self.record_tuned(workload, tuned)).collect())
    }

    fn record_tuned(&self, workload: &Workload, tuned: Tuned) -> TunedKernel {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        TunedKernel {
            op: workload.op.clone(),
            shape: workload.shape.clone(),
            dtype: workload.dtype.to_string(),
            adapter: self.adapter(),
            step: tuned.step,
            name: tuned.name,
            path: tuned.path,
            sizes: tuned.sizes,
            candidates: tuned.candidates,
            before: tuned.before.to_string(),
            after: tuned.after.to_string(),
            before_ms: milliseconds(tuned.before_time),
            after_ms: milliseconds(tuned.after_time),
        }
    }
}
