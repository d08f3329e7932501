//! The CPU's part of a model: kernels and parameters, for all sessions.

use super::parameters::{Resident, out_of_memory};
use super::placement::Homes;
use crate::RuntimeError;
use crate::cpu::{Compiled, CpuError, Memory};
use rewire_graph_rewrite::plan::{BufferId, Plan, Step};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The CPU with the kernels and parameters of a model.
#[derive(Clone, Debug)]
pub(crate) struct CpuSite {
    pub kernels: Arc<CpuKernels>,
    /// By buffer, parameters and constants that steps on the CPU read.
    pub weights: Arc<Vec<Option<Memory>>>,
}

/// The steps of a model on the CPU.
#[derive(Debug, Default)]
pub(crate) struct CpuKernels {
    steps: Vec<Option<Compiled>>,
    pub homes: Homes,
}

impl CpuKernels {
    pub fn new(steps: usize) -> Self {
        Self { steps: (0..steps).map(|_| None).collect(), homes: Homes::default() }
    }

    /// Compiles a step.
    pub fn add(&mut self, position: usize, step: &Step) -> Result<(), CpuError> {
        self.steps[position] = Some(Compiled::new(&step.computation)?);
        Ok(())
    }

    pub fn step(&self, position: usize) -> Option<&Compiled> {
        self.steps.get(position)?.as_ref()
    }
}

impl CpuSite {
    /// Takes parameters and constants, the last part of loading.
    pub fn new(kernels: CpuKernels, plan: &Plan, homes: Homes, resident: &Resident) -> Result<Self, RuntimeError> {
        let weight = |(n, wanted): (usize, &bool)| match wanted {
            true => match resident.tensor(plan, BufferId(n as u32))? {
                Some(tensor) => Memory::from_host(&tensor).map(Some).map_err(out_of_memory),
                None => Ok(None),
            },
            false => Ok(None),
        };
        let weights: Result<_, _> = homes.resident.iter().enumerate().map(weight).collect();
        Ok(Self { kernels: Arc::new(CpuKernels { homes, ..kernels }), weights: Arc::new(weights?) })
    }

    /// The same steps with other parameters, of which those in `changed` differ.
    pub fn with_parameters(
        &self,
        plan: &Plan,
        resident: &Resident,
        changed: &BTreeSet<BufferId>,
    ) -> Result<Self, RuntimeError> {
        let mut weights = (*self.weights).clone();
        for id in changed {
            if let Some(weight) = weights.get_mut(id.0 as usize).and_then(Option::as_mut)
                && let Some(tensor) = resident.tensor(plan, *id)?
            {
                *weight = Memory::from_host(&tensor).map_err(out_of_memory)?;
            }
        }
        Ok(Self { kernels: self.kernels.clone(), weights: Arc::new(weights) })
    }

    /// Bytes of parameters and constants.
    pub fn bytes(&self) -> u64 {
        self.weights.iter().flatten().map(Memory::bytes).sum()
    }
}
