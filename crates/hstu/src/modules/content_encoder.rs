use super::mlp::MlpConfig;
use super::{ConfigError, width};
use crate::ops::concat_2d_jagged;
use rewire_graph::{Ragged, Scope, Tensor};
use serde::Deserialize;

/// The encoder that maps history and targets to the same width, as `{kind: options}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentEncoderConfig {
    /// Truncates target rows to the width of history rows.
    SliceContentEncoder(NoOptions),
    /// Pads history rows with learned columns to the width of target rows.
    PadContentEncoder(NoOptions),
    /// Applies an MLP to history rows and another one to target rows.
    MlpContentEncoder(MlpContentEncoderConfig),
}

/// A kind without options.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

/// Options of the MLP content encoder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpContentEncoderConfig {
    /// The MLP of history rows.
    pub uih_mlp: MlpConfig,
    /// The MLP of target rows.
    pub target_mlp: MlpConfig,
}

/// Maps history and target rows to the same width, and concatenates them into one jagged tensor.
#[derive(Clone, Debug)]
pub struct ContentEncoder {
    /// Kind and options.
    pub config: ContentEncoderConfig,
    /// Width of history rows.
    pub uih_embedding_dim: usize,
    /// Width of target rows.
    pub target_embedding_dim: usize,
}

impl ContentEncoder {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        width("uih_embedding_dim", self.uih_embedding_dim)?;
        width("target_embedding_dim", self.target_embedding_dim)?;
        let (uih, target) = (self.uih_embedding_dim, self.target_embedding_dim);
        match &self.config {
            ContentEncoderConfig::MlpContentEncoder(mlps) => {
                mlps.uih_mlp.check().map_err(|e| e.within("mlp_content_encoder.uih_mlp"))?;
                mlps.target_mlp.check().map_err(|e| e.within("mlp_content_encoder.target_mlp"))?;
                let (uih, target) = (mlps.uih_mlp.output_dim(uih), mlps.target_mlp.output_dim(target));
                if uih == target {
                    return Ok(());
                }
                let expected = format!("an MLP to the width of `uih_mlp`, {uih}");
                Err(ConfigError::new("mlp_content_encoder.target_mlp.hidden_units", expected, target))
            }
            _ if target >= uih => Ok(()),
            _ => Err(ConfigError::new("target_embedding_dim", format!("at least the width of history, {uih}"), target)),
        }
    }

    /// For every sample the rows of `uih` `[Lu, Du]`, followed by the rows of `targets` `[Lt, Dt]`.
    pub fn forward(&self, scope: &Scope, uih: (&Tensor, &Ragged), targets: (&Tensor, &Ragged)) -> (Tensor, Ragged) {
        concat_2d_jagged(&self.history(scope, uih.0), uih.1, &self.targets(scope, targets.0), targets.1)
    }

    /// Maps history rows `[Lu, Du]` to the common width.
    pub fn history(&self, scope: &Scope, uih: &Tensor) -> Tensor {
        match &self.config {
            ContentEncoderConfig::SliceContentEncoder(_) => uih.clone(),
            ContentEncoderConfig::PadContentEncoder(_) => self.pad(scope, uih),
            ContentEncoderConfig::MlpContentEncoder(mlps) => {
                scope.module("uih_mlp", |scope| mlps.uih_mlp.forward(scope, uih))
            }
        }
    }

    /// Maps target rows `[Lt, Dt]` to the common width.
    pub fn targets(&self, scope: &Scope, targets: &Tensor) -> Tensor {
        match &self.config {
            ContentEncoderConfig::SliceContentEncoder(_) => targets.slice(1, 0, self.uih_embedding_dim),
            ContentEncoderConfig::PadContentEncoder(_) => targets.clone(),
            ContentEncoderConfig::MlpContentEncoder(mlps) => {
                scope.module("target_mlp", |scope| mlps.target_mlp.forward(scope, targets))
            }
        }
    }

    fn pad(&self, scope: &Scope, history: &Tensor) -> Tensor {
        let missing = self.target_embedding_dim.saturating_sub(self.uih_embedding_dim);
        let learned = scope.weight("_target_enrich_dummy_embeddings", &[1.into(), missing.into()]);
        match missing {
            0 => history.clone(),
            _ => scope.concat(&[history, &learned.broadcast(&[history.dim(0), missing.into()])], 1),
        }
    }
}
