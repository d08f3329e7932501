use crate::ScalarType;
use rewire_graph::Tensor;

/// A tensor with its element type in PyTorch.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub tensor: Tensor,
    pub ty: ScalarType,
}

impl Array {
    pub fn rank(&self) -> usize {
        self.tensor.rank()
    }
}
