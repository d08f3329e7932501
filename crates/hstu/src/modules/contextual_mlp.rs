use super::layers::{linear, normed_swish_mlp, swish_mlp};
use super::{ConfigError, NORM_EPS, ratio, width};
use crate::ops::jagged_dense_bmm_broadcast_add;
use rewire_graph::{Ragged, Scope, Tensor};
use serde::Deserialize;

/// An MLP over rows that may depend on the sample's context, as `{kind: options}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextualMlpConfig {
    /// The same MLP for all rows.
    SimpleMlp(SimpleMlpConfig),
    /// A linear layer whose weights are computed from the sample's context.
    ParameterizedMlp(ParameterizedMlpConfig),
}

/// Options of the simple MLP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimpleMlpConfig {
    /// Width of the hidden layer.
    pub hidden_dim: usize,
}

/// Options of the parameterized MLP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterizedMlpConfig {
    /// Width of the compressed context.
    pub hidden_dim: usize,
    /// Dropout of the context in training.
    #[serde(default = "contextual_dropout_ratio")]
    pub contextual_dropout_ratio: f32,
}

fn contextual_dropout_ratio() -> f32 {
    0.3
}

impl ContextualMlpConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::SimpleMlp(config) => width("simple_mlp.hidden_dim", config.hidden_dim),
            Self::ParameterizedMlp(config) => {
                ratio("parameterized_mlp.contextual_dropout_ratio", config.contextual_dropout_ratio)?;
                width("parameterized_mlp.hidden_dim", config.hidden_dim)
            }
        }
    }
}

/// An MLP over rows that may depend on the sample's context.
#[derive(Clone, Debug)]
pub struct ContextualMlp {
    /// Kind and options.
    pub config: ContextualMlpConfig,
    /// Width of the result.
    pub sequential_output_dim: usize,
}

impl ContextualMlp {
    /// Maps rows `[L, Din]` to rows `[L, Dout]`; the parameterized kind uses `context` `[B, G]`.
    pub fn forward(&self, scope: &Scope, x: &Tensor, rows: &Ragged, context: Option<&Tensor>) -> Tensor {
        let out = self.sequential_output_dim;
        match &self.config {
            ContextualMlpConfig::SimpleMlp(config) => {
                scope.module("_mlp", |scope| normed_swish_mlp(scope, x, config.hidden_dim, out))
            }
            ContextualMlpConfig::ParameterizedMlp(config) => match context {
                Some(context) => {
                    let context = scope.dropout(context, config.contextual_dropout_ratio);
                    parameterized(scope, x, rows, &context, config.hidden_dim, out)
                }
                None => {
                    let error = rewire_graph::TypeError::new("context", "contextual features", "none");
                    scope.fail("parameterized_mlp", error)
                }
            },
        }
    }
}

fn parameterized(scope: &Scope, x: &Tensor, rows: &Ragged, context: &Tensor, hidden: usize, out: usize) -> Tensor {
    let compressed = linear(scope, "_dense_features_compress", context, hidden);
    let input = x.width();
    let raw = linear(scope, "_attn_raw_weights.0", &compressed, input * out);
    let normed = scope.module("_attn_weights_norm", |scope| {
        let [weight, bias] = ["weight", "bias"]
            .map(|name| scope.weight(name, &[input.into(), out.into()]).reshape(&[(input * out).into()]));
        raw.layer_norm(&weight, &bias, NORM_EPS)
    });
    let dense = normed.reshape(&[rows.batch.clone(), input.into(), out.into()]);
    let bias = scope.module("_res_weights", |scope| swish_mlp(scope, &compressed, hidden, out));
    jagged_dense_bmm_broadcast_add(x, rows, &dense, &bias)
}
