//! Losses of modules and models that do not compare predictions with labels, and state-dict tensors that the graph does not read.

use rewire_graph::{DType, HostTensor, Scope, Tensor, TensorSizeError};
use rewire_hstu::modules::Buffer;
use rewire_losses::mean;
use std::cell::RefCell;

/// Reduces a value per row `[B]`, or a complete loss, to the loss. The last argument is the sample weights `[B]`.
type Reduce = fn(&Scope, &Tensor, Option<&Tensor>) -> Tensor;

/// A loss of a module.
#[derive(Debug)]
pub(crate) struct ExtraLoss {
    pub name: String,
    pub value: Tensor,
    pub reduce: Reduce,
}

/// Losses and buffers that modules add during tracing. A later one replaces an earlier one of the same name.
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

    /// Adds the buffers `windows_len` and `cumsum_windows_len` of the module `path`.
    pub fn add_windows(&self, path: &str, lengths: &[i64]) -> Result<(), TensorSizeError> {
        let starts: Vec<i64> =
            lengths.iter().scan(0, |end, length| Some(std::mem::replace(end, *end + length))).collect();
        for (name, values) in [("windows_len", lengths), ("cumsum_windows_len", &starts)] {
            self.add_buffer(format!("{path}.{name}"), HostTensor::i64([values.len()], values)?);
        }
        Ok(())
    }

    /// Adds a tensor of TorchEasyRec's state dict.
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

/// No reduction: the value is the loss.
pub(crate) fn whole(_: &Scope, value: &Tensor, _: Option<&Tensor>) -> Tensor {
    value.clone()
}

/// The mean over rows `[B]`, weighted by sample weights divided by their mean.
pub(crate) fn mean_of_rows(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    mean(scope, rows, weights)
}

/// The mean over rows `[B]`, ignoring sample weights.
pub(crate) fn unweighted_mean(scope: &Scope, rows: &Tensor, _: Option<&Tensor>) -> Tensor {
    mean(scope, rows, None)
}

/// The sum over rows `[B]`, or their weighted mean if there are sample weights.
pub(crate) fn sum_or_mean(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    weights.map_or_else(|| rows.sum(0).reshape(()), |weights| mean(scope, rows, Some(weights)))
}

/// The square root of the sum over rows `[B]`, weighted by sample weights divided by their mean.
pub(crate) fn root_of_sum(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    let count = scope.host_size(rows.dim(0)).cast(DType::F32);
    (mean(scope, rows, weights) * count).sqrt()
}
