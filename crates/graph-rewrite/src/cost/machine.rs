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
        let half = count.half_products.min(count.products);
        let single = (count.products - half) as f64 + 2.0 * count.scalar as f64;
        single / self.multiply_add + half as f64 / self.matrix.unwrap_or(self.multiply_add)
    }

    /// Operations a second that the products of a count can reach: those of matrix units, where they take all of them.
    pub fn peak(&self, count: &Count) -> f64 {
        let takes_all = count.products > 0 && count.half_products == count.products;
        self.matrix.filter(|_| takes_all).unwrap_or(self.multiply_add)
    }

    /// Operations that may be done again for an element instead of writing it and reading it back, if every one of some
    /// tiles that read it would do them.
    pub fn operations_for_element(&self, tiles: f64) -> f64 {
        let element = size_of::<f32>() as f64;
        (element / self.bandwidth * self.multiply_add / 2.0 / tiles).max(1.0)
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::TYPICAL
    }
}
