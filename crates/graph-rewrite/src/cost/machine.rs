use crate::count::Count;
use serde::{Deserialize, Serialize};

/// Measured or assumed rates of a device, for predictions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardwareModel {
    /// Bytes per second read and written by a copy of a large tensor.
    pub bandwidth: f64,
    /// f32 operations per second; a multiply-add counts as two.
    pub multiply_add: f64,
    /// Operations per second of matrix units with f16 operands, if kernels use them.
    pub matrix: Option<f64>,
    /// Seconds from one kernel to a dependent one.
    pub launch: f64,
}

/// Speed of caches relative to memory, for data that is reread.
const CACHE: f64 = 4.0;

impl HardwareModel {
    /// A mid-range GPU, for predictions without measurements.
    pub const TYPICAL: Self = Self { bandwidth: 250e9, multiply_add: 6e12, matrix: None, launch: 4e-6 };

    /// Lower bound of a kernel's time in seconds: the longer of memory traffic and computation, plus its launch.
    ///
    /// ```
    /// use rewire_graph_rewrite::cost::{Count, HardwareModel};
    /// let machine = HardwareModel { bandwidth: 1e9, multiply_add: 1e12, matrix: None, launch: 1e-6 };
    /// let copy = Count { read: 500_000, written: 500_000, ..Count::default() };
    /// assert!((machine.seconds(&copy) - 1.001e-3).abs() < 1e-9);
    /// ```
    pub fn seconds(&self, count: &Count) -> f64 {
        self.launch + self.moving(count).max(self.rereading(count)).max(self.computing(count))
    }

    /// Time of a kernel in seconds if memory traffic, rereads and computation do not overlap.
    ///
    /// Passes choose kernels by this time: a choice applies to all sizes, and which of the three dominates depends on
    /// the sizes of a run.
    pub fn serial_seconds(&self, count: &Count) -> f64 {
        self.launch + self.moving(count) + self.rereading(count) + self.computing(count)
    }

    fn moving(&self, count: &Count) -> f64 {
        count.bytes() as f64 / self.bandwidth
    }

    fn rereading(&self, count: &Count) -> f64 {
        count.reread as f64 / (CACHE * self.bandwidth)
    }

    fn computing(&self, count: &Count) -> f64 {
        let half = count.half_products.min(count.products);
        let single = (count.products - half) as f64 + 2.0 * count.scalar as f64;
        single / self.multiply_add + half as f64 / self.matrix.unwrap_or(self.multiply_add)
    }

    /// Peak rate for the matmul operations of a count, in operations per second: the rate of matrix units if they
    /// compute all of them.
    pub fn peak(&self, count: &Count) -> f64 {
        let takes_all = count.products > 0 && count.half_products == count.products;
        self.matrix.filter(|_| takes_all).unwrap_or(self.multiply_add)
    }

    /// Number of operations per element that cost as much as storing the element, if each of the `tiles` tiles that
    /// read it repeats the operations.
    pub fn operations_for_element(&self, tiles: f64) -> f64 {
        let element = size_of::<f32>() as f64;
        (element / self.bandwidth * self.multiply_add / 2.0 / tiles).max(1.0)
    }
}

impl Default for HardwareModel {
    fn default() -> Self {
        Self::TYPICAL
    }
}
