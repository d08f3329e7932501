//! The roofline of a device. It is measured on demand, and again when a workload exceeds it.

use crate::BenchError;
use rewire_graph_rewrite::cost::HardwareModel;
use rewire_runtime::{Gpu, MemoryAccess, measure_machine, measure_memory};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Relative tolerance within which two rates count as equal.
const NOISE: f64 = 0.05;

/// Sizes of accesses in bytes that caches may hold.
const CACHED: [u64; 5] = [1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 27];

/// Bounds of the duration of a repetition of a measurement.
const WINDOW: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(40));

#[derive(Debug)]
pub(crate) struct Ceilings {
    window: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    machine: Option<HardwareModel>,
    /// Rates of the processor's memory.
    memory: HashMap<MemoryAccess, f64>,
    /// True once a repeated measurement found no higher rate.
    is_settled: bool,
}

impl Ceilings {
    /// Measures for about as long as a workload, if that takes so many seconds.
    pub fn new(seconds: f64) -> Self {
        let window = Duration::from_secs_f64(seconds).clamp(WINDOW.0, WINDOW.1);
        Self { window, state: Mutex::default() }
    }

    /// The roofline; measured by the first call.
    pub fn first(&self, gpu: Option<&Gpu>) -> Result<HardwareModel, BenchError> {
        let mut state = self.state();
        match state.machine {
            Some(machine) => Ok(machine),
            None => Ok(*state.machine.insert(measure_machine(gpu, self.window)?)),
        }
    }

    /// Measures again and returns the maximum of both rooflines. Once a measurement found no higher rate, nothing is measured.
    pub fn again(&self, gpu: Option<&Gpu>) -> Result<HardwareModel, BenchError> {
        let before = self.first(gpu)?;
        let mut state = self.state();
        if state.is_settled {
            return Ok(before);
        }
        let after = measure_machine(gpu, self.window)?;
        for (&access, rate) in &mut state.memory {
            *rate = rate.max(measure_memory(access, self.window)?);
        }
        let rates =
            |machine: HardwareModel| [machine.bandwidth, machine.multiply_add, machine.matrix.unwrap_or_default()];
        let mut pairs = rates(before).into_iter().zip(rates(after));
        state.is_settled = pairs.all(|(before, after)| after <= before * (1.0 + NOISE));
        Ok(*state.machine.insert(HardwareModel {
            bandwidth: before.bandwidth.max(after.bandwidth),
            multiply_add: before.multiply_add.max(after.multiply_add),
            matrix: before.matrix.into_iter().chain(after.matrix).reduce(f64::max),
            launch: before.launch.min(after.launch),
        }))
    }

    /// The shortest time in seconds to read and write this many bytes, each once. On a GPU at the rate of copies. On the CPU, as many
    /// bytes as possible are copied, and the others read or written, at the rates of accesses to as much memory.
    pub fn moving(&self, gpu: Option<&Gpu>, read: u64, written: u64) -> Result<f64, BenchError> {
        let largest = self.first(gpu)?.bandwidth;
        let all = read.saturating_add(written);
        if gpu.is_some() {
            return Ok(all as f64 / largest);
        }
        let cached = CACHED.iter().copied().find(|bytes| all <= *bytes);
        let copies = cached.map_or(Ok(largest), |bytes| self.rate(MemoryAccess::Copy { bytes }))?;
        let copied = 2.0 * read.min(written) as f64 / copies;
        let (bytes, rest) = (cached.unwrap_or(u64::MAX), read.abs_diff(written));
        if rest == 0 {
            return Ok(copied);
        }
        let other = if read > written { MemoryAccess::Read { bytes } } else { MemoryAccess::Write { bytes } };
        Ok(copied + rest as f64 / self.rate(other)?)
    }

    /// The rate of an access to the processor's memory; measured when it is first needed.
    fn rate(&self, access: MemoryAccess) -> Result<f64, BenchError> {
        let mut state = self.state();
        match state.memory.get(&access) {
            Some(rate) => Ok(*rate),
            None => Ok(*state.memory.entry(access).or_insert(measure_memory(access, self.window)?)),
        }
    }

    #[cfg(test)]
    pub fn set(&self, machine: HardwareModel) {
        self.state().machine = Some(machine);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_at_the_rates_of_accesses_of_their_size() {
        let ceilings = Ceilings::new(1.0);
        ceilings.set(HardwareModel { bandwidth: 10.0, ..HardwareModel::TYPICAL });
        let (small, largest) = (1 << 18, u64::MAX);
        ceilings.state().memory.extend([
            (MemoryAccess::Copy { bytes: small }, 100.0),
            (MemoryAccess::Read { bytes: small }, 50.0),
            (MemoryAccess::Write { bytes: small }, 25.0),
            (MemoryAccess::Read { bytes: largest }, 4.0),
        ]);
        let moving = |read, written| ceilings.moving(None, read, written).unwrap();
        assert_eq!(moving(60, 60), 1.2);
        assert_eq!(moving(160, 60), 1.2 + 2.0);
        assert_eq!(moving(60, 160), 1.2 + 4.0);
        let half = 1 << 26;
        assert_eq!(moving(half + 40, half), half as f64 / 5.0 + 10.0);
    }
}
