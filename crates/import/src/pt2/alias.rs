//! Operators that return views, and writes through views.

use crate::aten::{ViewRegion, permutation, region, replaced};
use crate::call::Call;
use crate::value::{Fault, Lowered};
use rewire_graph::Tensor;

/// Operators whose result has all elements of the tensor in the same order.
const WHOLE: [&str; 16] = [
    "aten.view",
    "aten.reshape",
    "aten._unsafe_view",
    "aten.view_as",
    "aten.reshape_as",
    "aten.flatten",
    "aten.ravel",
    "aten.unflatten",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.contiguous",
    "aten.alias",
    "aten.detach",
    "aten.lift_fresh",
    "aten.to",
    "aten.expand",
];

/// Operators that may return a copy instead of a view.
const MAYBE_COPIES: [&str; 7] =
    ["aten.reshape", "aten.reshape_as", "aten.flatten", "aten.ravel", "aten.contiguous", "aten.unflatten", "aten.to"];

/// Operators whose result has the tensor's axes in another order.
const PERMUTED: [&str; 10] = [
    "aten.permute",
    "aten.transpose",
    "aten.swapaxes",
    "aten.swapdims",
    "aten.t",
    "aten.numpy_T",
    "aten.mT",
    "aten.mH",
    "aten.movedim",
    "aten.moveaxis",
];

/// Operators whose results are regions along an axis.
const PARTS: [&str; 8] = [
    "aten.select",
    "aten.slice",
    "aten.narrow",
    "aten.split",
    "aten.split_with_sizes",
    "aten.chunk",
    "aten.tensor_split",
    "aten.unbind",
];

/// Other view operators. Writes through these views are not supported.
const OTHERS: [&str; 5] = ["aten.diagonal", "aten.unfold", "aten.expand_as", "aten.broadcast_to", "aten.as_strided"];

/// True for an operator whose results share memory with its first argument.
pub(super) fn is_view(base: &str) -> bool {
    [WHOLE.as_slice(), &PERMUTED, &PARTS, &OTHERS].iter().any(|names| names.contains(&base))
}

/// True for a view of all elements in the same order.
pub(super) fn is_whole(base: &str) -> bool {
    WHOLE.contains(&base)
}

/// True for an operator that copies if the memory layout is not the required one.
pub(super) fn may_copy(base: &str) -> bool {
    MAYBE_COPIES.contains(&base)
}

/// The base tensor of a view after `value` was written through result `output`.
pub(super) fn written(c: &Call<'_>, base: &Tensor, value: &Tensor, output: usize) -> Lowered<Tensor> {
    let cx = c.cx;
    let name = c.base;
    if WHOLE.contains(&name) {
        return cx.reshape(value, &cx.shape(base));
    }
    if PERMUTED.contains(&name) {
        let axes = permutation(c, base.rank())?;
        let mut back = vec![0; axes.len()];
        axes.iter().enumerate().for_each(|(to, &from)| back[from] = to);
        return Ok(value.permute(&back));
    }
    if PARTS.contains(&name) {
        let mut region: ViewRegion = region(c, base, output)?;
        if !region.is_removed {
            region.len = cx.extent(value, region.axis);
        }
        return replaced(c, base, &region, value);
    }
    Fault::unsupported(format!("a write through {name}"))
}
