//! Sums and segmented of every kind.

mod bags;
mod matrices;
mod pairs;
mod partial_sums;
mod parts;
mod products;
mod segmented;
mod sums;
