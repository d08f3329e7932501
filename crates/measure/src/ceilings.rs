//! The roofline of a device. It is measured on demand, and again when a workload exceeds it.

use crate::BenchError;
use rewire_graph_rewrite::cost::HardwareModel;
use rewire_runtime::{Gpu, measure_machine};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Relative tolerance within which two rates count as equal.
const NOISE: f64 = 0.05;

#[derive(Debug, Default)]
pub(crate) struct Ceilings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    machine: Option<HardwareModel>,
    /// True once a repeated measurement found no higher rate.
    is_settled: bool,
}

impl Ceilings {
    /// The roofline; measured by the first call.
    pub fn first(&self, gpu: Option<&Gpu>) -> Result<HardwareModel, BenchError> {
        let mut state = self.state();
        match state.machine {
            Some(machine) => Ok(machine),
            None => Ok(*state.machine.insert(measure_machine(gpu)?)),
        }
    }

    /// Measures again and returns the maximum of both rooflines. Once a measurement found no higher rate, nothing is measured.
    pub fn again(&self, gpu: Option<&Gpu>) -> Result<HardwareModel, BenchError> {
        let before = self.first(gpu)?;
        let mut state = self.state();
        if state.is_settled {
            return Ok(before);
        }
        let after = measure_machine(gpu)?;
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

    #[cfg(test)]
    pub fn set(&self, machine: HardwareModel) {
        self.state().machine = Some(machine);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
