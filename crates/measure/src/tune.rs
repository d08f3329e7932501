use crate::{Bench, BenchError, Workload};
use rewire_runtime::Tuned;
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// The result of tuning a kernel of a workload. Times are in milliseconds, medians by the adapter's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedKernel {
    /// Name of the operator, module or model.
    pub op: String,
    /// Its sizes.
    pub shape: Map<String, Value>,
    /// Type of inputs, weights and results.
    pub dtype: String,
    /// The adapter.
    pub adapter: String,
    /// Position of the kernel in the plan.
    pub step: usize,
    /// Name of the kernel.
    pub name: String,
    /// Its module path.
    pub path: String,
    /// The sizes that the tuning is for, as powers of two: all up to them, and above half of them.
    pub sizes: String,
    /// Tunings that were tried.
    pub candidates: usize,
    /// The tuning before.
    pub before: String,
    /// The tuning for later sessions.
    pub after: String,
    /// Time with the tuning before.
    pub before_ms: f64,
    /// Time with the tuning after.
    pub after_ms: f64,
}

impl Bench {
    /// Measures tunings of every kernel of a workload, for about as long as workloads are repeated, and stores the fastest
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
