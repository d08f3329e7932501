use rewire_graph::{DType, Mode, Scope, Tensor};

/// `x W^T + c` with the parameters `weight` `[out, in]` and `bias` of the module `name`.
pub fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    scope.module(name, |scope| {
        let weight = scope.weight("weight", &[out.into(), x.width().into()]);
        x.linear(&weight, Some(&scope.weight("bias", &[out.into()])))
    })
}

/// `x W^T` with the parameter `weight` `[out, in]` of the module `name`.
pub fn linear_map(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    x.linear(&scope.weight(&format!("{name}.weight"), &[out.into(), x.width().into()]), None)
}

/// Layer norm over the last axis with the parameters of the module `name`.
pub fn layer_norm(scope: &Scope, name: &str, x: &Tensor, eps: f64) -> Tensor {
    scope.module(name, |scope| {
        let [weight, bias] = affine(scope, x.width());
        x.layer_norm(&weight, &bias, eps)
    })
}

/// `x * sigmoid(layer_norm(x))` with the parameters of the module `name`.
pub(super) fn swish_layer_norm(scope: &Scope, name: &str, x: &Tensor, eps: f64) -> Tensor {
    scope.module(name, |scope| {
        let [weight, bias] = affine(scope, x.width());
        x.swish_layer_norm(&weight, &bias, eps)
    })
}

/// `linear_2(swish_layer_norm_1(linear_0(x)))`.
pub(super) fn swish_mlp(scope: &Scope, x: &Tensor, hidden: usize, out: usize) -> Tensor {
    let h = linear(scope, "0", x, hidden);
    linear(scope, "2", &swish_layer_norm(scope, "1", &h, super::NORM_EPS), out)
}

/// [`swish_mlp`], then layer norm.
pub(crate) fn normed_swish_mlp(scope: &Scope, x: &Tensor, hidden: usize, out: usize) -> Tensor {
    let h = swish_mlp(scope, x, hidden, out);
    layer_norm(scope, "3", &h, super::NORM_EPS)
}

/// Weight of the current batch in the update of running statistics.
const MOMENTUM: f64 = 0.1;

/// Mean and biased variance of the columns of `x` `[.., W]` for batch normalization: running statistics in inference, batch statistics
/// in training. Row `r` counts `counts[r]` times in the batch; every row counts once if `counts` is `None`.
///
/// Training updates the running statistics, with the unbiased variance, as states of the module.
pub(super) fn statistics(scope: &Scope, x: &Tensor, counts: Option<&Tensor>) -> [Tensor; 2] {
    let width = x.width();
    if scope.mode() == Mode::Eval {
        // Running statistics get no gradients.
        return ["running_mean", "running_var"].map(|name| scope.weight(name, [width]).detach());
    }
    let rows = x.flatten_rows();
    let (counts, total) = match counts {
        Some(counts) => (Some(counts.reshape([rows.dim(0), 1.into()])), counts.sum(0)),
        None => (None, scope.host_size(rows.dim(0)).cast(DType::F32).reshape([1])),
    };
    let mean = |x: &Tensor| {
        let sum = counts.as_ref().map_or_else(|| x.sum(0), |counts| (x * counts).sum(0));
        (sum / &total).reshape([width])
    };
    let average = mean(&rows);
    let variance = mean(&(&rows - &average).square());
    let unbiased = &variance * (&total / (&total - 1.0).maximum(1.0));
    for (name, statistic) in [("running_mean", &average), ("running_var", &unbiased)] {
        let before = scope.state(name, DType::F32, [width]);
        let after = before * (1.0 - MOMENTUM) + statistic * MOMENTUM;
        scope.set_state(name, &after.reshape([width]));
    }
    [average, variance]
}

fn affine(scope: &Scope, width: usize) -> [Tensor; 2] {
    ["weight", "bias"].map(|name| scope.weight(name, &[width.into()]))
}
