//! Devices, models, sessions and CPU kernels.
//!
//! A [`Model`] is a [`Plan`](rewire_graph_rewrite::plan::Plan) loaded on a GPU, on the CPU, or on both, with its
//! parameters in memory. A [`Session`] runs it; any number of sessions run at the same time. [`Kernel`] chooses the
//! device; [`devices`] lists the available ones.
//!
//! ```
//! use rewire_graph_rewrite::plan::Plan;
//! use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};
//!
//! let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
//! let model = Model::load(Plan::default(), (), options)?;
//! let mut session = model.session();
//! let outputs = session.run(&Inputs::new())?;
//! assert_eq!(outputs.iter().count(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Without emission, cooperative matrices are not tested.
#![cfg_attr(not(feature = "emit"), allow(dead_code))]

mod boxed;
#[cfg(feature = "files")]
mod content;
mod device;
mod error;
#[cfg_attr(not(feature = "files"), path = "file_floats_absent.rs")]
mod file_floats;
mod hash;
mod kernel;
mod kernel_rule;
mod machine;
mod memory;
mod model;
mod session;
#[cfg(feature = "files")]
mod store;
mod timing;
mod tuning;

use rewire_cpu::parallel;

#[cfg(feature = "files")]
pub use content::{FileContent, MAPPED_BYTES, Mapping, ParseMappingError, read_file};
#[cfg(feature = "emit")]
pub use device::{CompiledKernel, KernelCompiler};
pub use device::{
    DeviceInfo, DeviceKind, DeviceLimits, Gpu, Matrices, MatrixReason, MatrixTier, ParseMatrixTierError, Work,
    WorkDropped, Workers, block_on, devices, devices_async,
};
pub use error::{GpuError, RunError, RuntimeError};
pub use file_floats::FileFloats;
pub use hash::hash;
pub use kernel::{Kernel, ParseKernelError};
pub use kernel_rule::{KernelRule, ParseKernelRuleError, Transfer};
#[cfg(feature = "cpu")]
pub use machine::measure_memory;
pub use machine::{MemoryAccess, measure_machine, measure_machine_async};
pub use memory::{HostMemory, HostMemoryError};
pub use model::{
    Attachment, Backing, DeviceRowUse, ExpectedPlan, ExpectedRun, GivenKernels, Model, ModelOptions, ParameterUpdate,
    Parameters, ParseRefiningError, ParseTablesError, PipelineStore, Refining, Report, Tables, transfers,
};
#[doc(inline)]
pub use rewire_cpu as cpu;
pub use rewire_cpu::parallel::{MAX_THREADS, ThreadPool, ThreadPoolError, ThreadPoolOptions};
pub use session::{
    Detail, DeviceTensor, Inputs, Lane, Outputs, Profile, Refinement, RunValue, Session, Span, SpilledRows, Tuned,
};
#[cfg(feature = "files")]
pub use store::{create_file_with, replace_file, replace_file_with, update_file};
pub use tuning::{DeviceTunings, TuningStore};
pub use wgpu;
