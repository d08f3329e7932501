//! Losses of modules and models, beside those that compare predictions with labels.

use rewire_graph::{DType, Scope, Tensor};
use rewire_losses::mean;
use std::cell::RefCell;

/// From a value a row, or the loss itself, and the sample weights `[B]` to the loss.
type Reduce = fn(&Scope, &Tensor, Option<&Tensor>) -> Tensor;

/// A loss that follows from a module.
#[derive(Debug)]
pub(crate) struct ExtraLoss {
    pub name: String,
    pub value: Tensor,
    pub reduce: Reduce,
}

/// Losses that modules add while a model is traced; modules of one name add one.
#[derive(Debug, Default)]
pub(crate) struct ExtraLosses(RefCell<Vec<ExtraLoss>>);

impl ExtraLosses {
    pub fn add(&self, name: String, value: Tensor, reduce: Reduce) {
        let mut losses = self.0.borrow_mut();
        losses.retain(|known| known.name != name);
        losses.push(ExtraLoss { name, value, reduce });
    }

    pub fn take(&self) -> Vec<ExtraLoss> {
        self.0.take()
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

/// The mean of rows `[B]`, whatever their sample weights.
pub(crate) fn unweighted_mean(scope: &Scope, rows: &Tensor, _: Option<&Tensor>) -> Tensor {
    mean(scope, rows, None)
}

/// The sum of rows `[B]`; their weighted mean where there are sample weights.
pub(crate) fn sum_or_mean(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    weights.map_or_else(|| rows.sum(0).reshape(()), |weights| mean(scope, rows, Some(weights)))
}

/// The square root of the sum of rows `[B]`, weighted by sample weights over their mean.
pub(crate) fn root_of_sum(scope: &Scope, rows: &Tensor, weights: Option<&Tensor>) -> Tensor {
    let count = scope.host_size(rows.dim(0)).cast(DType::F32);
    (mean(scope, rows, weights) * count).sqrt()
}
