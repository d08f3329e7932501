use super::Count;
use serde::{Deserialize, Serialize};

/// Rates of a device, measured or assumed, that predictions are made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Bytes a second that a copy of a large tensor reads and writes.
    pub bandwidth: f64,
    /// Operations a second of multiply-adds of single precision, two each.
    pub multiply_add: f64,
    /// Operations a second of matrix units with operands of half precision, where kernels use them.
    pub matrix: Option<f64>,
    /// Seconds from one kernel to the next that depends on it.
    pub launch: f64,
}

/// How much faster than memory caches give what is read again.
const CACHE: f64 = 4.0;

impl Machine {
    /// A GPU of the middle class, for predictions where nothing is measured.
    pub const TYPICAL: Self = Self { bandwidth: 250e9, multiply_add: 6e12, matrix: None, launch: 4e-6 };

    /// Seconds that a kernel takes at least: the longer of moving its bytes and computing, and its launch.
    ///
    /// ```
    /// use rewire_graph_rewrite::cost::{Count, Machine};
    /// let machine = Machine { bandwidth: 1e9, multiply_add: 1e12, matrix: None, launch: 1e-6 };
    /// let copy = Count { read: 500_000, written: 500_000, ..Count::default() };
    /// assert!((machine.seconds(&copy) - 1.001e-3).abs() < 1e-9);
    /// ```
    pub fn seconds(&self, count: &Count) -> f64 {
        self.launch + self.moving(count).max(self.rereading(count)).max(self.computing(count))
    }

    /// Seconds that a kernel takes if it moves, reads again and computes one after the other.
    ///
    /// Kernels are chosen by this: which of the three hides the others depends on the sizes of a run, and a choice holds for
    /// all of them.
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
        (count.products as f64 + 2.0 * count.scalar as f64) / self.multiply_add
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::TYPICAL
    }
}
