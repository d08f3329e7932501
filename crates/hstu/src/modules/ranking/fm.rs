use crate::modules::layers::linear;
use crate::modules::{ConfigError, MlpConfig};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// The sum of the products of all pairs of fields (Rendle, Factorization Machines, 2010).
///
/// Maps fields `x` `[R, N, D]` to `sum_{i < j} x_i * x_j = ((sum_i x_i)^2 - sum_i x_i^2) / 2`, `[R, D]`.
pub fn factorization_machine(x: &Tensor) -> Tensor {
    let products = (&x.sum(1).square() - x.square().sum(1)) * 0.5;
    products.reshape(&[x.dim(0), x.dim(2)])
}

/// A factorization machine combined with an MLP over the same fields (Guo et al., DeepFM, 2017).
///
/// `logit = sum_i w_i + sum_{i < j} <x_i, x_j> + W mlp([x_1, .., x_N]) + c`, with one weight `w_i` per field.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeepFmConfig {
    /// The MLP.
    pub deep: MlpConfig,
}

impl DeepFmConfig {
    /// Checks every width.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.deep.check().map_err(|error| error.within("deep"))
    }

    /// Maps first-order weights `[R, N]` and fields `[R, N, D]` to logits `[R, 1]`, with the parameters of `deep` and
    /// `linear`.
    pub fn forward(&self, scope: &Scope, wide: &Tensor, fields: &Tensor) -> Tensor {
        let count = fields.ty().extent(1).unwrap_or(0);
        let flat = fields.reshape(&[fields.dim(0), (count * fields.width()).into()]);
        let h = scope.module("deep", |scope| self.deep.forward(scope, &flat));
        let pairs = factorization_machine(fields).sum(1);
        (&wide.sum(1) + &pairs) + linear(scope, "linear", &h, 1)
    }
}
