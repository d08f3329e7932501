//! `hstu_match`: a vector per user from the history, and a vector per item.

use super::inputs::Inputs;
use super::message::{Match, Widths};
use super::{Groups, Outputs};
use crate::models::ModelError;
use crate::modules::{Buffer, ConfigError, Features, HstuMatchEncoder, MatchTower, MlpConfig};
use rewire_graph::{Scope, Tensor};

const ENCODER: &str = "_hstu_encoder";

impl Match {
    fn check(&self) -> Result<(), ConfigError> {
        if self.in_batch_negative {
            return Err(ConfigError::new("in_batch_negative", "false: `hstu_match` reads sampled negatives", true));
        }
        self.tower(None).check()?;
        self.tower(self.item_tower.mlp.clone()).check().map_err(|error| error.within("item_tower"))
    }

    fn tower(&self, mlp: Option<MlpConfig>) -> MatchTower {
        MatchTower { mlp, output_dim: self.output_dim, similarity: self.similarity }
    }

    /// The outputs `user_tower_emb`, one row per user, and `item_tower_emb`, one row per item.
    pub(super) fn forward(&self, scope: &Scope, groups: &Groups) -> Result<Outputs, ModelError> {
        self.check()?;
        let inputs = Inputs { groups, ascending: self.sequence_timestamp_is_ascending };
        let users = self.users(scope, &inputs)?;
        let (items, rows) = inputs.rows(&self.item_tower.input)?;
        let tower = self.tower(self.item_tower.mlp.clone());
        let items = scope.module("item_tower", |scope| tower.forward(scope, items));
        let values = vec![("user_tower_emb".to_owned(), users), ("item_tower_emb".to_owned(), items)];
        Ok(Outputs { values, candidates: Some(rows.lengths) })
    }

    fn users(&self, scope: &Scope, inputs: &Inputs) -> Result<Tensor, ConfigError> {
        let tower = &self.user_tower;
        let (contextual, tokens) = inputs.contextual(tower.concat_contextual_features)?;
        let uih = inputs.history(&tower.hstu)?;
        let widths =
            Widths { uih: uih.embeddings.width(), candidate: 0, contextual: tokens, max_seq_len: tower.max_seq_len };
        let encoder = tower.hstu.config(widths).and_then(HstuMatchEncoder::new);
        let encoder = encoder.map_err(|error| error.within("user_tower.hstu"))?;
        let features = Features { uih, candidates: None, contextual };
        let query_time = inputs.query_time();
        Ok(scope.module("user_tower", |scope| {
            let users = scope.module(ENCODER, |scope| encoder.forward(scope, &features, query_time.as_ref()));
            self.tower(None).forward(scope, users)
        }))
    }

    /// State-dict tensors that follow from the configuration.
    pub(super) fn buffers(&self) -> Result<Vec<Buffer>, ModelError> {
        let buffers = self.user_tower.hstu.buffers()?;
        Ok(buffers.into_iter().map(|buffer| buffer.within(&format!("user_tower.{ENCODER}"))).collect())
    }
}
