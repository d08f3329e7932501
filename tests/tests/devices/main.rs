//! Areas in which drivers differ: attention, large kernels and golden cases on a device. They run on every driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attention;
mod headless;
mod limits;
mod matrices;
