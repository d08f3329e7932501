//! Measuring the rates of a device that benches and predictions refer to.

#[cfg(feature = "cpu")]
mod cpu;
mod gpu;

use crate::{Gpu, GpuError, block_on};
use rewire_graph_rewrite::cost::Machine;
use std::time::Duration;

/// Time that is measured at once.
const WINDOW: Duration = Duration::from_millis(40);
/// Measurements, of which the best counts.
const REPEATS: usize = 4;

/// Measures copy bandwidth, multiply-add rate and the cost of a kernel: of a device by kernels of its own, or of all
/// threads of the current [`ThreadPool`](crate::ThreadPool). Takes about a second of the thread that polls.
///
/// ```no_run
/// let machine = rewire_runtime::measure_machine(None)?;
/// println!("{:.0} GB/s, {:.2} TFLOP/s", machine.bandwidth / 1e9, machine.multiply_add / 1e12);
/// # Ok::<(), rewire_runtime::GpuError>(())
/// ```
///
/// # Errors
/// What the device reported, and [`GpuError::HostMemory`] where there is no room for what is copied.
pub async fn measure_machine_async(gpu: Option<&Gpu>) -> Result<Machine, GpuError> {
    match gpu {
        Some(gpu) => gpu::measure(gpu).await,
        #[cfg(feature = "cpu")]
        None => cpu::measure().map_err(GpuError::HostMemory),
        #[cfg(not(feature = "cpu"))]
        None => Err(GpuError::NoAdapter { filter: None, missing: "and the feature `cpu` is not built in".to_owned() }),
    }
}

/// [`measure_machine_async`], blocking.
///
/// # Errors
/// As [`measure_machine_async`].
pub fn measure_machine(gpu: Option<&Gpu>) -> Result<Machine, GpuError> {
    block_on(measure_machine_async(gpu))
}

/// The shortest time of one of `count` pieces of work, `count` doubled until they fill the window. `run` does as many as it
/// is told and returns the time of all.
fn shortest(mut run: impl FnMut(u32) -> Result<Duration, GpuError>) -> Result<f64, GpuError> {
    let mut count = 1;
    while run(count)? < WINDOW && count < 1 << 20 {
        count *= 2;
    }
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        best = best.min(run(count)?.as_secs_f64() / f64::from(count));
    }
    Ok(best.max(1e-12))
}
