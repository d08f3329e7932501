use super::{EmitError, Target, matmul};
use crate::plan::Kernel;
use rewire_graph::Dim;
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
    /// This tuning, and what suits sizes that are known: a product with too few tiles to occupy a GPU takes smaller
    /// ones. Sums run in the same order whatever the tile.
    #[must_use]
    pub fn suited(self, kernel: &Kernel, target: &Target, size: impl Fn(&Dim) -> Option<u64>) -> Self {
        match kernel {
            Kernel::Matmul(kernel) if self.rows.is_none() && self.columns.is_none() => {
                matmul::suited(self, kernel, target, size)
            }
            _ => self,
        }
    }

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
