//! Sums and folds of every kind.

mod bags;
mod folds;
mod matrices;
mod pairs;
mod partial_sums;
mod parts;
mod products;
mod sums;
