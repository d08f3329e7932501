//! Counts of memory traffic and operations, with which schedules describe their cost.

mod domain;
mod sizes;
mod tally;

pub(crate) use domain::{Domain, bits};
pub use sizes::{ASSUMED_ROWS, ASSUMED_SAMPLES, Sizes};
pub(crate) use tally::Tally;
pub use tally::operations;

use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::Add;

/// Memory traffic and operations of a kernel in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Bytes read from memory, counting every operand once.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes reread, by other tiles or in another pass over a row. Mostly served by caches.
    pub reread: u64,
    /// Operations of matmuls; a multiply-add counts as two. Masked pairs do not count.
    pub products: u64,
    /// Operations in `products` with operands stored in f16, which matrix units may compute.
    pub half_products: u64,
    /// Other operations, in units of float additions; operations that several tiles repeat count for each of them.
    pub scalar: u64,
}

impl Count {
    /// Necessary memory traffic: bytes read once, and bytes written.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }

    /// The operations from which a rate is computed: operations of products, or other operations if there are no
    /// products.
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
