use super::cpu::CpuSide;
use super::sizes::Sizes;
use crate::cpu::{Memory, padded_bytes};
use crate::memory::{HostMemory, HostMemoryError};
use rewire_graph_rewrite::plan::Plan;

impl CpuSide {
    /// Checks that enough memory is available for the tensors of a run of these sizes, before any of it is allocated.
    pub fn check_room(&self, plan: &Plan, sizes: &Sizes) -> Result<(), HostMemoryError> {
        let mut slots: Vec<u64> = vec![0; self.homes().slots];
        for ((buffer, layout), slot) in plan.buffers.iter().zip(&sizes.layouts).zip(&self.homes().slot) {
            // Inputs without padding are read in place.
            let borrowed = buffer.source.run_name().is_some() && layout.dtype.format().is_dense(&layout.shape);
            if let Some(most) = slot.and_then(|slot| slots.get_mut(slot)).filter(|_| !borrowed) {
                *most = (*most).max(padded_bytes(layout.dtype, &layout.shape));
            }
        }
        let held = self.slots().iter().map(|slot| slot.as_ref().map_or(0, Memory::bytes));
        let more = slots.iter().zip(held).map(|(needed, held)| needed.saturating_sub(held));
        HostMemory::check("a run of these sizes", more.fold(0, u64::saturating_add))
    }
}
