use rewire_graph::{Scope, Tensor};

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

/// Batch norm in the form used after learning, without an affine map: `(x - running_mean) / sqrt(running_var + eps)`.
pub(super) fn normalized(scope: &Scope, x: &Tensor, eps: f64) -> Tensor {
    // Statistics are no parameters that gradients move.
    let [mean, variance] = ["running_mean", "running_var"].map(|name| scope.weight(name, &[x.width().into()]).detach());
    (x - mean) * (variance + eps).rsqrt()
}

fn affine(scope: &Scope, width: usize) -> [Tensor; 2] {
    ["weight", "bias"].map(|name| scope.weight(name, &[width.into()]))
}
