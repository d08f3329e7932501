use super::mlp;
use rewire_graph::{Scope, Tensor};
use rewire_hstu::modules::{MlpConfig, NORM_EPS, layer_norm, linear};
use serde::Deserialize;

/// A layer that concatenates a factorization machine block and a linear compression block of the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WukongLayerConfig {
    lcb_feature_num: usize,
    fmb_feature_num: usize,
    #[serde(default = "compressed")]
    compressed_feature_num: usize,
    feature_num_mlp: MlpConfig,
}

fn compressed() -> usize {
    16
}

impl WukongLayerConfig {
    /// Maps fields `[B, N, D]` to `[B, fmb_feature_num + lcb_feature_num, D]`.
    pub fn forward(&self, scope: &Scope, fields: &Tensor) -> Tensor {
        let count = fields.ty().extent(1).unwrap_or(0);
        let out = self.fmb_feature_num + self.lcb_feature_num;
        let combined = |name: &str, out: usize| scope.weight(name, [count, out]).transpose(0, 1).matmul(fields);
        let linear = combined("lcb.weight", self.lcb_feature_num);
        let machines = scope.module("fmb", |scope| self.machines(scope, fields, count));
        let rest = if count == out { fields.clone() } else { combined("residual_projection.weight", out) };
        layer_norm(scope, "norm", &(scope.concat(&[&machines, &linear], 1) + &rest), NORM_EPS)
    }

    fn machines(&self, scope: &Scope, fields: &Tensor, count: usize) -> Tensor {
        let (batch, width, k) = (fields.dim(0), fields.width(), self.compressed_feature_num);
        let compressed = fields.transpose(1, 2).matmul(&scope.weight("weight", [count, k]));
        let products = fields.matmul(&compressed).reshape([batch.clone(), (count * k).into()]);
        let hidden = mlp(scope, "mlp", &self.feature_num_mlp, &layer_norm(scope, "norm", &products, NORM_EPS));
        let out = linear(scope, "feature_out_liner", &hidden, self.fmb_feature_num * width);
        out.reshape([batch, self.fmb_feature_num.into(), width.into()])
    }
}
