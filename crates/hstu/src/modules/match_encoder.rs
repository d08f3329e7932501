use super::layers::linear;
use super::{ConfigError, Features, Hstu, HstuConfig, MlpConfig, Similarity, width};
use crate::ops::last_rows;
use rewire_graph::{Scope, Tensor};

/// An HSTU pipeline that computes a vector per user from the history only.
#[derive(Clone, Debug)]
pub struct HstuMatchEncoder {
    /// The pipeline.
    pub hstu: Hstu,
}

impl HstuMatchEncoder {
    /// Creates the encoder of a configuration.
    pub fn new(config: HstuConfig) -> Result<Self, ConfigError> {
        if config.input_preprocessor.reads_candidates() {
            let kind = config.input_preprocessor.kind();
            return Err(ConfigError::new("input_preprocessor", "`uih_preprocessor`", kind));
        }
        Ok(Self { hstu: Hstu::new(config)? })
    }

    /// One row per user, `[B, E]`; zeros for a user without history. `query_time` `[B]` is the time of the request and defaults to the
    /// last timestamp of the history.
    pub fn forward(&self, scope: &Scope, features: &Features, query_time: Option<&Tensor>) -> Tensor {
        let out = self.hstu.forward(scope, features, query_time);
        let all = self.hstu.postprocess(scope, &out.embeddings, &out.timestamps);
        last_rows(scope, &all, &out.rows)
    }
}

/// Lower bound of the length that vectors are divided by.
const SHORTEST: f64 = 1e-6;

/// Maps rows of users or items to the vectors that are compared.
#[derive(Clone, Debug)]
pub struct MatchTower {
    /// The MLP, with the parameters of the module `mlp`; `None` for the identity.
    pub mlp: Option<MlpConfig>,
    /// Width of a final linear layer `output`; 0 for none.
    pub output_dim: usize,
    /// The similarity. For the cosine, vectors are normalized to length 1.
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
