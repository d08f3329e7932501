//! Adapters, devices and their capabilities.

mod adapters;
mod capacity;
#[cfg(feature = "emit")]
mod compiled;
#[cfg(feature = "emit")]
#[cfg_attr(
    not(all(feature = "spirv", any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))),
    path = "compiler_absent.rs"
)]
mod compiler;
#[cfg_attr(
    not(all(feature = "spirv", any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))),
    path = "elements_absent.rs"
)]
mod elements;
mod family;
#[cfg(test)]
mod faults;
mod gpu;
mod instance;
mod loss;
mod mapping;
mod matrices;
mod opened;
mod submit;
mod workers;

pub use adapters::{DeviceInfo, DeviceKind, DeviceLimits, devices, devices_async};
#[cfg(feature = "emit")]
pub use compiled::CompiledKernel;
#[cfg(feature = "emit")]
pub use compiler::KernelCompiler;
pub use gpu::Gpu;
pub(crate) use gpu::{Opening, SMALLEST};
pub(crate) use mapping::Mapping;
pub use matrices::{Matrices, MatrixReason, MatrixTier, ParseMatrixTierError};
#[cfg(feature = "emit")]
pub(crate) use matrices::{RareKernel, RightMatrices};
pub(crate) use workers::blocks;
#[cfg(target_arch = "wasm32")]
pub(crate) use workers::promise;
pub use workers::{Work, WorkDropped, Workers, block_on};
