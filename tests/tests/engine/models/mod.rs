//! Models on their way to a run: traced, stored, packed and loaded.

mod host_tables;
mod imported;
mod load;
mod packages;
mod split;
mod stored;
