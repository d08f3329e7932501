use super::{EmitError, Target};
use serde::{Deserialize, Serialize};

/// Sizes of a kernel's tiles; what is `None` is derived from the kernel and the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tuning {
    /// Invocations of a workgroup of a map or a reduction: a power of two.
    pub threads: Option<u32>,
    /// Rows of a tile of a matmul: a multiple of four.
    pub rows: Option<u32>,
    /// Columns of a tile of a matmul: a multiple of four.
    pub columns: Option<u32>,
    /// Elements of `k` that a matmul stages at once: a multiple of four.
    pub depth: Option<u32>,
    /// Rows that a thread of a matmul or of attention computes.
    pub rows_per_thread: Option<u32>,
}

impl Tuning {
    /// Invocations of a map or a reduction.
    pub(super) fn threads(&self, target: &Target) -> Result<u32, EmitError> {
        let largest = 1 << target.invocations.max(1).ilog2();
        let threads = self.threads.unwrap_or(256.min(largest));
        if threads.is_power_of_two() && threads <= largest {
            return Ok(threads);
        }
        let expected = format!("a power of two up to {largest}");
        Err(EmitError::Tuning { parameter: "threads", expected, got: threads })
    }
}
