//! Measures the rates of a device, for benchmarks and predictions.

#[cfg(feature = "cpu")]
mod cpu;
mod gpu;

use crate::{Gpu, GpuError, block_on};
use rewire_graph_rewrite::cost::HardwareModel;
use std::time::Duration;

/// Number of repetitions of a measurement, of which the best counts.
const REPEATS: usize = 4;

/// Measures copy bandwidth, multiply-add rate and launch cost: of a device with dedicated kernels, or of all threads of
/// the current [`ThreadPool`](crate::ThreadPool). `window` is the shortest duration of a repetition of a
/// measurement. With 40 ms, the polling thread is occupied for about a second.
///
/// ```no_run
/// let machine = rewire_runtime::measure_machine(None, std::time::Duration::from_millis(40))?;
/// println!("{:.0} GB/s, {:.2} TFLOP/s", machine.bandwidth / 1e9, machine.multiply_add / 1e12);
/// # Ok::<(), rewire_runtime::GpuError>(())
/// ```
///
/// # Errors
/// Errors of the device, and [`GpuError::HostMemory`] if memory for the copies cannot be allocated.
pub async fn measure_machine_async(gpu: Option<&Gpu>, window: Duration) -> Result<HardwareModel, GpuError> {
    match gpu {
        Some(gpu) => gpu::measure(gpu, window).await,
        #[cfg(feature = "cpu")]
        None => cpu::measure(window).map_err(GpuError::HostMemory),
        #[cfg(not(feature = "cpu"))]
        None => Err(GpuError::NoAdapter { filter: None, missing: "and the feature `cpu` is not built in".to_owned() }),
    }
}

/// [`measure_machine_async`], blocking.
///
/// # Errors
/// As [`measure_machine_async`].
pub fn measure_machine(gpu: Option<&Gpu>, window: Duration) -> Result<HardwareModel, GpuError> {
    block_on(measure_machine_async(gpu, window))
}

/// An access to memory whose rate can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryAccess {
    /// A copy. Bytes read and bytes written count.
    Copy {
        /// Bytes of source and destination together, at most 256 MiB.
        bytes: u64,
    },
    /// Repeated reads of the same memory.
    Read {
        /// Bytes of the memory, at most 128 MiB.
        bytes: u64,
    },
    /// Repeated writes of the same memory.
    Write {
        /// Bytes of the memory, at most 128 MiB.
        bytes: u64,
    },
}

/// Measures the rate of an access to memory by all threads of the current [`ThreadPool`](crate::ThreadPool), in bytes
/// per second. `window` is that of [`measure_machine`].
///
/// # Errors
/// [`GpuError::HostMemory`] if memory for the measurement cannot be allocated.
#[cfg(feature = "cpu")]
pub fn measure_memory(access: MemoryAccess, window: Duration) -> Result<f64, GpuError> {
    cpu::measure_memory(access, window).map_err(GpuError::HostMemory)
}

/// The shortest time per iteration of `count` iterations; `count` is doubled until they fill the window. `run` runs the
/// given number of iterations and returns their total time.
fn shortest(window: Duration, mut run: impl FnMut(u32) -> Result<Duration, GpuError>) -> Result<f64, GpuError> {
    let mut count = 1;
    while run(count)? < window && count < 1 << 20 {
        count *= 2;
    }
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        best = best.min(run(count)?.as_secs_f64() / f64::from(count));
    }
    Ok(best.max(1e-12))
}
