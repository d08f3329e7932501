//! What kernels cost: bytes and operations, and the time that a machine takes for them.
//!
//! [`Count::of`] is the one count of a kernel. Benches compare it with measured times, drawings show it, and fusion
//! decides by it.

mod computation;
mod counter;
mod domain;
mod graph;
mod loops;
mod machine;
mod sizes;
mod tally;

pub use counter::Counter;
pub(crate) use domain::{Domain, bits};
pub(crate) use graph::bytes;
pub use graph::{kernels, operators, traffic};
pub use machine::Machine;
pub use sizes::{ASSUMED_ROWS, ASSUMED_SAMPLES, Sizes};
pub(crate) use tally::Tally;
pub use tally::operations;

use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::Add;

/// What a kernel moves and computes in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Bytes that come from memory: what is read of every operand, once.
    pub read: u64,
    /// Bytes that are written.
    pub written: u64,
    /// Bytes that are read again, by other tiles or for another pass over a row. Caches hold most of them.
    pub reread: u64,
    /// Operations of matrix products, two a multiply-add. Pairs that a mask hides do not count.
    pub products: u64,
    /// Those of them whose operands are stored in half precision: matrix units may take them.
    pub half_products: u64,
    /// Other operations, in additions of floats; what several tiles compute counts for each of them.
    pub scalar: u64,
}

impl Count {
    /// Bytes that have to move: read once and written.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }

    /// What the rate of computation is counted in: operations of products, or other operations where there are none.
    pub fn operations(&self) -> u64 {
        if self.products > 0 { self.products } else { self.scalar }
    }
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            reread: self.reread.saturating_add(other.reread),
            products: self.products.saturating_add(other.products),
            half_products: self.half_products.saturating_add(other.half_products),
            scalar: self.scalar.saturating_add(other.scalar),
        }
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}
