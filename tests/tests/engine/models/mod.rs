//! Models on their way to a run: traced, stored, packed and loaded.

mod device_rows;
mod host_tables;
mod imported;
mod load;
mod packages;
mod split;
mod stored;
