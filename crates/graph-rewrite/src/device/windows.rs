use super::Target;
use crate::plan::{Computation, MemorySpace};
use rewire_graph::{DType, Dim};
use serde::{Deserialize, Serialize};

/// The number of bindings of each tensor of a kernel: more than one for tensors above the binding limit.
///
/// Chunk `n` of a tensor begins at byte `n * Target::window_bytes()`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BindingChunks {
    operands: Vec<u32>,
    writes: Vec<u32>,
}

impl BindingChunks {
    /// The chunks at these sizes. A tensor of unknown size has one.
    pub fn new(computation: &Computation, target: &Target, size: impl Fn(&Dim) -> Option<u64>) -> Self {
        let count = |dtype: DType, shape: &[Dim]| {
            let bytes = bytes(dtype, shape, &size).unwrap_or(0);
            u32::try_from(bytes.div_ceil(target.window_bytes()).max(1)).unwrap_or(u32::MAX)
        };
        let operands = computation.body().operands.iter().map(|operand| match operand.space {
            MemorySpace::Host | MemorySpace::Pooled => 1,
            MemorySpace::Device => count(operand.dtype, &operand.shape),
        });
        let mut writes = vec![];
        for output in computation.written() {
            let target = usize::from(output.target);
            writes.resize(writes.len().max(target + 1), 1);
            writes[target] = count(output.dtype, output.shape);
        }
        Self { operands: operands.collect(), writes }
    }

    /// The number of chunks of a tensor on a target; 1 if its size is symbolic.
    pub(crate) fn of_tensor(dtype: DType, shape: &[Dim], target: &Target) -> usize {
        let bytes = bytes(dtype, shape, |dim| dim.as_const().map(|n| n as u64)).unwrap_or(0);
        usize::try_from(bytes.div_ceil(target.window_bytes()).max(1)).unwrap_or(usize::MAX)
    }

    /// The chunks of tensors of constant size; a tensor of symbolic size has one.
    pub fn of_constants(computation: &Computation, target: &Target) -> Self {
        Self::new(computation, target, |dim| dim.as_const().map(|n| n as u64))
    }

    /// Bindings of an operand.
    pub fn of_operand(&self, position: u16) -> u32 {
        self.operands.get(usize::from(position)).copied().unwrap_or(1)
    }

    /// Bindings of an output.
    pub fn of_write(&self, position: u16) -> u32 {
        self.writes.get(usize::from(position)).copied().unwrap_or(1)
    }

    /// The largest number of bindings of a tensor.
    pub fn most(&self) -> u32 {
        self.operands.iter().chain(&self.writes).copied().max().unwrap_or(1)
    }
}

/// Bytes of a tensor in memory with padded rows; `None` if a size is unknown.
fn bytes(dtype: DType, shape: &[Dim], size: impl Fn(&Dim) -> Option<u64>) -> Option<u64> {
    let (width, outer) = match shape.split_last() {
        Some((width, outer)) => (size(width)?, outer),
        None => (1, &[][..]),
    };
    let pitch = dtype.format().pitch(width.try_into().ok()?)? as u64;
    let elements = outer.iter().try_fold(pitch, |product, dim| product.checked_mul(size(dim)?))?;
    Some(dtype.format().bytes(elements))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Body, Nest, Operand, Output};
    use rewire_graph::Symbol;

    #[test]
    fn a_tensor_takes_as_many_windows_as_it_fills() {
        let rows = Dim::symbol(Symbol(0));
        let shape = vec![rows.clone(), Dim::from(6)];
        let operand = Operand { dtype: DType::F32, shape: shape.clone(), space: MemorySpace::Device };
        let mut body = Body { operands: vec![operand], ..Body::default() };
        let index = vec![body.dag.coord(0, None), body.dag.coord(1, Some(6))];
        let value = body.dag.float(0.0);
        let output = Output { target: 1, dtype: DType::F16, shape: shape.clone(), index, value, columns: None };
        let kernel = Computation::of(Nest::map(body, shape, vec![output])).unwrap();
        let target = Target { binding_bytes: 1000, ..Target::BASELINE };
        assert_eq!(target.window_bytes(), 768);
        let windows = |rows: Option<u64>| {
            let windows = BindingChunks::new(&kernel, &target, |dim| dim.as_const().map(|n| n as u64).or(rows));
            (windows.of_operand(0), windows.of_write(0), windows.of_write(1))
        };
        assert_eq!(windows(None), (1, 1, 1));
        assert_eq!(windows(Some(0)), (1, 1, 1));
        assert_eq!(windows(Some(24)), (1, 1, 1));
        assert_eq!(windows(Some(25)), (2, 1, 1));
        assert_eq!(windows(Some(49)), (3, 1, 2));
    }
}
