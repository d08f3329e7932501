//! The CPU part of a model: kernels and parameters, shared by all sessions.

use super::host_table::HostTable;
use super::parameters::{HostParameters, out_of_memory};
use super::placement::BufferAssignment;
use super::update::Changed;
use crate::RuntimeError;
use crate::cpu::{Compiled, CpuError, KeptBytes, Memory};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::{BufferId, Lookup, Plan, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The CPU with the kernels and parameters of a model.
#[derive(Clone, Debug)]
pub(crate) struct CpuSite {
    pub kernels: Arc<CpuKernels>,
    pub weights: Arc<CpuWeights>,
}

/// Parameters and constants that steps on the CPU read.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuWeights {
    /// By buffer.
    pub memories: Vec<Option<Memory>>,
    /// Tables for lookups on the host.
    pub tables: BTreeMap<BufferId, HostTable>,
}

/// A step on the CPU.
#[derive(Debug)]
pub(crate) enum CpuStep {
    Kernel(Box<Compiled>),
    Lookup(Lookup),
    /// A lookup whose rows the device gathers.
    OnDevice,
}

/// The steps of a model on the CPU.
#[derive(Debug, Default)]
pub(crate) struct CpuKernels {
    steps: Vec<Option<CpuStep>>,
    pub homes: BufferAssignment,
}

impl CpuKernels {
    pub fn new(steps: usize) -> Self {
        Self { steps: (0..steps).map(|_| None).collect(), homes: BufferAssignment::default() }
    }

    /// Compiles a step.
    pub fn add(&mut self, position: usize, step: &Step) -> Result<(), CpuError> {
        self.steps[position] = Some(CpuStep::Kernel(Box::new(Compiled::new(&step.computation)?)));
        Ok(())
    }

    /// Adds a step that copies rows of a table.
    pub fn look_up(&mut self, position: usize, lookup: Lookup) {
        self.steps[position] = Some(CpuStep::Lookup(lookup));
    }

    /// Leaves a lookup to the device.
    pub fn leave(&mut self, position: usize) {
        self.steps[position] = Some(CpuStep::OnDevice);
    }

    fn compiled(&self) -> impl Iterator<Item = &Compiled> {
        self.steps.iter().flatten().filter_map(|step| match step {
            CpuStep::Kernel(compiled) => Some(&**compiled),
            CpuStep::Lookup(_) | CpuStep::OnDevice => None,
        })
    }

    /// Host memory that kernels keep between runs.
    pub fn kept(&self) -> KeptBytes {
        self.compiled().map(Compiled::kept).fold(KeptBytes::default(), |all, own| KeptBytes {
            packed: all.packed + own.packed,
            scratch: all.scratch + own.scratch,
        })
    }

    /// Frees memory that kernels keep and no run uses.
    pub fn trim(&self) {
        self.compiled().for_each(Compiled::trim);
    }

    pub fn step(&self, position: usize) -> Option<&CpuStep> {
        self.steps.get(position)?.as_ref()
    }
}

fn resident_memory(tensor: &HostTensor) -> Result<Memory, RuntimeError> {
    Memory::from_host(tensor).map(Memory::with_known_content).map_err(out_of_memory)
}

impl CpuSite {
    /// Adds parameters and constants, the last part of loading.
    pub fn new(
        kernels: CpuKernels,
        plan: &Plan,
        homes: BufferAssignment,
        resident: &HostParameters,
    ) -> Result<Self, RuntimeError> {
        let tables = resident.tables();
        let weight = |(id, wanted): (BufferId, &bool)| match *wanted && !tables.contains_key(&id) {
            true => match resident.tensor(plan, id)? {
                Some(tensor) => resident_memory(&tensor).map(Some),
                None => Ok(None),
            },
            false => Ok(None),
        };
        let memories: Result<_, _> = (0..).map(BufferId).zip(&homes.resident).map(weight).collect();
        let weights = CpuWeights { memories: memories?, tables };
        Ok(Self { kernels: Arc::new(CpuKernels { homes, ..kernels }), weights: Arc::new(weights) })
    }

    /// The same steps with other parameters; `changed` lists those that differ.
    pub fn with_parameters(
        &self,
        plan: &Plan,
        resident: &HostParameters,
        changed: &BTreeMap<BufferId, Changed>,
    ) -> Result<Self, RuntimeError> {
        let mut weights = (*self.weights).clone();
        for (id, changed) in changed {
            let Some(weight) = weights.memories.get_mut(id.0 as usize).and_then(Option::as_mut) else { continue };
            match changed {
                Changed::Rows(change) => {
                    weight.write_rows(&change.rows, change.values.bytes()).map_err(out_of_memory)?;
                    weight.know_content();
                }
                Changed::Whole => {
                    let Some(tensor) = resident.tensor(plan, *id)? else { continue };
                    *weight = resident_memory(&tensor)?;
                }
            }
        }
        weights.tables = resident.tables();
        Ok(Self { kernels: self.kernels.clone(), weights: Arc::new(weights) })
    }

    /// Bytes of parameters and constants, excluding tables for lookups on the host except for copies of their rows.
    pub fn bytes(&self) -> u64 {
        let rows = self.weights.tables.values().map(HostTable::bytes);
        self.weights.memories.iter().flatten().map(Memory::bytes).chain(rows).sum()
    }
}
