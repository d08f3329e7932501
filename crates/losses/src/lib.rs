//! Losses as arithmetic on symbolic tensors: one value per example, and their [`mean`].
//!
//! ```
//! use rewire_graph::{DType, HostTensor, Scope, interpret};
//! use rewire_losses as loss;
//! use std::collections::HashMap;
//!
//! let scope = Scope::new();
//! let candidates = scope.size("candidates");
//! let [logits, labels] = ["logits", "labels"].map(|name| scope.input(name, DType::F32, (&candidates, 2)));
//! // One of each of two tasks.
//! let losses = loss::mean(&scope, &loss::binary_cross_entropy(&logits, &labels), None);
//! let graph = scope.finish(&[("losses", losses)])?;
//!
//! let logits = HostTensor::f32([2, 2], &[0.0, 0.0, 0.0, 100.0])?;
//! let labels = HostTensor::f32([2, 2], &[1.0, 0.0, 0.0, 1.0])?;
//! let inputs = HashMap::from([("logits".to_owned(), logits), ("labels".to_owned(), labels)]);
//! let losses = interpret(&graph, &inputs, &HashMap::new())?["losses"].to_f64();
//! assert!((losses[0] - 2f64.ln()).abs() < 1e-6 && (losses[1] - 2f64.ln() / 2.0).abs() < 1e-6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod binary;
mod classes;
mod matching;

pub use binary::{binary_cross_entropy, binary_focal, smooth_labels, squared_error};
pub use classes::{cross_entropy, joint_ranking_calibration};
pub use matching::{HardNegatives, MatchLogits, split_rows, unit_rows};

use rewire_graph::{DType, Dim, Scope, Tensor};

/// The mean of losses `[N, ..]` over the first axis, `[..]`; 0 if it is empty.
///
/// With `weights` `[N]` it is the mean of loss times weight divided by the mean of weights, or 0 if that is 0.
#[track_caller]
pub fn mean(scope: &Scope, losses: impl AsRef<Tensor>, weights: Option<&Tensor>) -> Tensor {
    let losses = losses.as_ref();
    let Some((count, rest)) = losses.shape().split_first() else { return losses.clone() };
    let Some(weights) = weights else {
        let count = scope.host_size(count).maximum(1).cast(DType::F32);
        return losses.sum(0).reshape(rest) / count;
    };
    weights.require_shape("mean", "weights", std::slice::from_ref(count));
    let ones = std::iter::repeat_n(Dim::from(1), rest.len());
    let column = weights.reshape(std::iter::once(count.clone()).chain(ones).collect::<Vec<_>>());
    let (zero, one) = (scope.scalar(DType::F32, 0.0), scope.scalar(DType::F32, 1.0));
    let total = column.sum(0);
    let is_zero = total.equal(0.0);
    let mean = (losses * column).sum(0) / is_zero.select(&one, &total);
    is_zero.select(&zero, &mean).reshape(rest)
}
