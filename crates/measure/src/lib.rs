//! Times operators, modules and models on a GPU or the CPU, and compares them with a roofline that is measured in the same run.
//!
//! ```no_run
//! use rewire_measure::{Bench, BenchOptions, Shape, Workload};
//!
//! let bench = Bench::new(&BenchOptions::default())?;
//! let record = bench.run(&Workload::operator("attention", &Shape::named("training")?)?);
//! println!("{:?} ms, {:?} of the ceiling", record.wall_ms, record.share());
//! # Ok::<(), rewire_measure::BenchError>(())
//! ```
#![forbid(unsafe_code)]

mod backward;
mod bench;
mod ceilings;
mod compare;
mod compile;
mod decoder;
mod draft;
mod error;
mod host;
mod imported;
mod machines;
mod noise;
mod ops;
mod page;
mod parts;
mod pytorch;
mod record;
mod roofline;
mod shape;
mod suite;
mod sweep;
mod trace;
mod tune;
mod workload;

pub use bench::{Bench, BenchOptions, Profiled};
pub use compare::{Category, Comparison, Metric, Thresholds, compare};
pub use compile::{CompiledStep, DriverCompiler};
pub use error::BenchError;
pub use machines::Machines;
pub use noise::Noise;
pub use page::page;
pub use pytorch::PyTorch;
pub use record::{Bound, Record, in_words, rounded};
pub use roofline::roofline;
pub use shape::{Lengths, Shape};
pub use suite::{SUITES, suite};
pub use sweep::{Sweep, Swept, chart};
pub use trace::chrome_trace;
pub use tune::TunedKernel;
pub use workload::{Program, Workload, operators};

/// The maximum duration of a workload in seconds: a day.
pub const MOST_SECONDS: f64 = 86_400.0;
