//! Losses of modules and models, in addition to those that compare predictions with labels, and state-dict tensors that no
//! graph uses.

use rewire_graph::{DType, HostTensor, Scope, Tensor, TensorSizeError};
use rewire_hstu::modules::Buffer;
use rewire_losses::mean;
use std::cell::RefCell;

/// Maps one value per row, or the loss itself, and the sample weights `[B]` to the loss.
type Reduce = fn(&Scope, &Tensor, Option<&Tensor>) -> Tensor;

/// A loss of a module.
#[derive(Debug)]
pub(crate) struct ExtraLoss {
    pub name: String,
    pub value: Tensor,
    pub reduce: Reduce,
}

/// Losses and buffers that modules add during tracing; modules with the same name add one.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    losses: RefCell<Vec<ExtraLoss>>,
    buffers: RefCell<Vec<Buffer>>,
}

impl Extras {
    pub fn add(&self, name: String, value: Tensor, reduce: Reduce) {
        let mut losses = self.losses.borrow_mut();
        losses.retain(|known| known.name != name);
        losses.push(ExtraLoss { name, value, reduce });
    }

    /// Adds the buffers of windows of these lengths in the module `path`.
    pub fn add_windows(&self, path: &str, lengths: &[i64]) -> Result<(), TensorSizeError> {
        let starts: Vec<i64> =
            lengths.iter().scan(0, |end, length| Some(std::mem::replace(end, *end + length))).collect();
        for (name, values) in [("windows_len", lengths), ("cumsum_windows_len", &starts)] {
            self.add_buffer(format!("{path}.{name}"), HostTensor::i64([values.len()], values)?);
        }
        Ok(())
    }

    /// Adds a tensor of the reference's state dict.
    pub fn add_buffer(&self, name: String, value: HostTensor) {
        let mut buffers = self.buffers.borrow_mut();
        buffers.retain(|known| known.name != name);
        buffers.push(Buffer { name, value });
    }

    pub fn take_losses(&self) -> Vec<ExtraLoss> {
        self.losses.take()
    }

    pub fn take_buffers(&self) -> Vec<Buffer> {
        self.buffers.take()
    }
}

/// The loss itself.
pub(crate) fn whole(_: &Scope, value: &Tensor, _: Option<&Tensor>) -> Tensor {
    value.clone()
}

/// The mean of rows `[B]`, weighted by sample weights over their mean.
pub(crate) fn mean_of_rows(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    mean(scope, rows, weights)
}

/// The mean of rows `[B]`, ignoring sample weights.
pub(crate) fn unweighted_mean(scope: &Scope, rows: &Tensor, _: Option<&Tensor>) -> Tensor {
    mean(scope, rows, None)
}

/// The sum of rows `[B]`; their weighted mean if there are sample weights.
pub(crate) fn sum_or_mean(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    weights.map_or_else(|| rows.sum(0).reshape(()), |weights| mean(scope, rows, Some(weights)))
}

/// The square root of the sum of rows `[B]`, weighted by sample weights over their mean.
pub(crate) fn root_of_sum(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    let count = scope.host_size(rows.dim(0)).cast(DType::F32);
    (mean(scope, rows, weights) * count).sqrt()
}
