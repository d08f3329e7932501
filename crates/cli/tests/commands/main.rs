//! The commands of the program, run as their users run them.
#![allow(clippy::panic, clippy::unwrap_used)]

mod bench;
#[cfg(target_os = "linux")]
mod caches;
mod compile;
mod devices;
#[cfg(feature = "parquet")]
mod evaluation;
#[cfg(target_os = "linux")]
mod files;
mod generate;
mod graph;
mod hostile;
#[cfg(feature = "parquet")]
mod import;
#[cfg(feature = "parquet")]
mod kept;
mod package;
mod paths;
mod precision;
#[cfg(feature = "parquet")]
mod predict;
#[cfg(all(feature = "parquet", target_os = "linux"))]
mod predict_resume;
#[cfg(feature = "parquet")]
mod predict_vectors;
mod program;
mod rank;
mod run;
#[cfg(all(feature = "parquet", feature = "serve"))]
mod serve;
mod spread;
#[cfg(target_os = "linux")]
mod streams;
#[cfg(feature = "parquet")]
mod tables;
mod train;
mod tune;
mod units;
mod unseen;
mod usage;
mod verify;
#[cfg(feature = "parquet")]
mod vocabulary;
