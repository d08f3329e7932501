use crate::memory::Layout;
use rewire_graph::{DType, HostTensor, Ordered};
use rewire_graph_rewrite::plan::{Binding, BufferId, MemorySpace, Plan};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Small parameters, concatenated by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    bases: HashMap<BufferId, i32>,
    content: BTreeMap<DType, Vec<u8>>,
}

impl Pool {
    /// The tensors of a plan that kernels expect in a pool.
    pub fn of(plan: &Plan) -> BTreeSet<BufferId> {
        let operands = plan.steps.iter().flat_map(|step| step.reads.iter().zip(&step.computation.body().operands));
        operands
            .filter_map(|(binding, operand)| match binding {
                Binding::Buffer(id) if operand.space == MemorySpace::Pooled => Some(*id),
                _ => None,
            })
            .ordered_set()
    }

    /// Appends a tensor.
    pub fn push(&mut self, id: BufferId, tensor: &HostTensor) {
        let content = self.content.entry(tensor.dtype()).or_default();
        let group = tensor.dtype().format().bytes(4) as usize;
        self.bases.insert(id, i32::try_from(content.len() / group).unwrap_or(i32::MAX));
        content.extend_from_slice(&Layout::new(tensor.dtype(), tensor.shape().to_vec()).pad(tensor));
    }

    /// The start of a tensor, in groups of four elements.
    pub fn base(&self, id: BufferId) -> Option<i32> {
        self.bases.get(&id).copied()
    }

    /// Removes and returns the bytes of each type.
    pub fn take(&mut self) -> BTreeMap<DType, Vec<u8>> {
        std::mem::take(&mut self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_begin_at_whole_groups() {
        let mut pool = Pool::default();
        let tensor = |n: usize| HostTensor::f32(vec![n], &vec![1.5; n]).unwrap();
        pool.push(BufferId(3), &tensor(5));
        pool.push(BufferId(1), &tensor(4));
        pool.push(BufferId(2), &HostTensor::from_f64(DType::F16, vec![2], &[0.5, 0.25]).unwrap());
        pool.push(BufferId(7), &tensor(1));
        let bases = [3, 1, 2, 7, 8].map(|id| pool.base(BufferId(id)));
        assert_eq!(bases, [Some(0), Some(2), Some(0), Some(3), None]);
        assert_eq!(pool.take().values().map(Vec::len).collect::<Vec<_>>(), [64, 8]);
    }
}
