use super::layers::linear;
use super::{ConfigError, Features, Hstu, HstuConfig, MlpConfig, Similarity, width};
use crate::ops::last_rows;
use rewire_graph::{Scope, Tensor};

/// A pipeline that computes a vector for every user from the history only.
#[derive(Clone, Debug)]
pub struct HstuMatchEncoder {
    /// The pipeline.
    pub hstu: Hstu,
}

impl HstuMatchEncoder {
    /// The encoder of a configuration.
    pub fn new(config: HstuConfig) -> Result<Self, ConfigError> {
        if config.input_preprocessor.reads_candidates() {
            let kind = config.input_preprocessor.kind();
            return Err(ConfigError::new("input_preprocessor", "`uih_preprocessor`", kind));
        }
        Ok(Self { hstu: Hstu::new(config)? })
    }

    /// One row per user, `[B, E]`; zeros for a user without history. `query_time` `[B]` is the time of the request; by
    /// default the last time of the history.
    pub fn forward(&self, scope: &Scope, features: &Features, query_time: Option<&Tensor>) -> Tensor {
        let out = self.hstu.forward(scope, features, query_time);
        let all = self.hstu.postprocess(scope, &out.embeddings, &out.timestamps);
        last_rows(scope, &all, &out.rows)
    }
}

/// The minimum length for normalization; shorter vectors are divided by it.
const SHORTEST: f64 = 1e-6;

/// Maps a user's or an item's row to the vector that is compared.
#[derive(Clone, Debug)]
pub struct MatchTower {
    /// The MLP, with the parameters of `mlp`.
    pub mlp: Option<MlpConfig>,
    /// Width of a final linear layer, `output`; 0 for none.
    pub output_dim: usize,
    /// The similarity of vectors; they have length 1 if it is the cosine.
    pub similarity: Similarity,
}

impl MatchTower {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.output_dim > 0 {
            width("output_dim", self.output_dim)?;
        }
        self.mlp.as_ref().map_or(Ok(()), |mlp| mlp.check().map_err(|error| error.within("mlp")))
    }

    /// Maps rows `[R, D]` to vectors `[R, E]`.
    pub fn forward(&self, scope: &Scope, rows: Tensor) -> Tensor {
        let rows = match &self.mlp {
            Some(mlp) => scope.module("mlp", |scope| mlp.forward(scope, &rows)),
            None => rows,
        };
        let rows = match self.output_dim {
            0 => rows,
            width => linear(scope, "output", &rows, width),
        };
        match self.similarity {
            Similarity::InnerProduct => rows,
            Similarity::Cosine => rows.unit_rows(SHORTEST),
        }
    }
}
