use super::{ConfigError, Features, Hstu, HstuConfig};
use crate::ops::last_rows;
use rewire_graph::{Scope, Tensor};

/// A pipeline that gives a vector for every user, from history alone.
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

    /// A row for every user, `[B, E]`; zeros for a user without history. `query_time` `[B]` is the time of the
    /// request, the last time of the history where there is none.
    pub fn forward(&self, scope: &Scope, features: &Features, query_time: Option<&Tensor>) -> Tensor {
        let out = self.hstu.forward(scope, features, query_time);
        let all = self.hstu.postprocess(scope, &out.embeddings, &out.timestamps);
        last_rows(scope, &all, &out.rows)
    }
}
