use crate::modules::layers::linear;
use crate::modules::{ConfigError, parts, width};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// Cross layers with a weight vector per layer (Wang et al., Deep & Cross Network, 2017): `x' = x_0 <w, x> + b + x`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossConfig {
    /// Number of layers.
    #[serde(default = "cross_num")]
    pub cross_num: usize,
}

/// Cross layers with a weight matrix per layer (Wang et al., DCN V2, 2021): `x' = x_0 * (W x + b) + x`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossV2Config {
    /// Number of layers.
    #[serde(default = "cross_num")]
    pub cross_num: usize,
    /// The rank of `W = V U`; `None` for a full matrix.
    #[serde(default)]
    pub low_rank: Option<usize>,
}

fn cross_num() -> usize {
    3
}

impl CrossConfig {
    /// Checks the number of layers.
    pub fn check(&self) -> Result<(), ConfigError> {
        parts("cross_num", self.cross_num)
    }

    /// Maps rows `[R, D]` to rows `[R, D]`, with the parameters `w.n.weight` `[1, D]` and `b.n` `[D]`.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Tensor {
        (0..self.cross_num).fold(x.clone(), |h, layer| {
            let weight = scope.weight(&format!("w.{layer}.weight"), &[1.into(), x.width().into()]);
            let bias = scope.weight(&format!("b.{layer}"), &[x.width().into()]);
            ((&h.linear(&weight, None) * x) + &bias) + &h
        })
    }
}

impl CrossV2Config {
    /// Checks the number of layers and the rank.
    pub fn check(&self) -> Result<(), ConfigError> {
        parts("cross_num", self.cross_num)?;
        self.low_rank.map_or(Ok(()), |rank| width("low_rank", rank))
    }

    /// Maps rows `[R, D]` to rows `[R, D]`, with the parameters of `u_kernels.n` (without a bias) and `v_kernels.n`, or of
    /// `kernels.n` for full matrices.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Tensor {
        (0..self.cross_num).fold(x.clone(), |h, layer| {
            let mapped = match self.low_rank {
                Some(rank) => {
                    let down = scope.weight(&format!("u_kernels.{layer}.weight"), &[rank.into(), x.width().into()]);
                    linear(scope, &format!("v_kernels.{layer}"), &h.linear(&down, None), x.width())
                }
                None => linear(scope, &format!("kernels.{layer}"), &h, x.width()),
            };
            (x * &mapped) + &h
        })
    }
}
