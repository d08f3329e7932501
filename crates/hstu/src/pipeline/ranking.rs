//! `dlrm_hstu` and `ultra_hstu`: a vector of every candidate from each channel of histories, an MLP of items, tasks.

use super::inputs::Inputs;
use super::message::{Ranking, Widths};
use super::{Groups, Outputs, prediction};
use crate::models::ModelError;
use crate::modules::{
    Buffer, ConfigError, Features, FusionMtlTower, HstuTransducer, normed_swish_mlp, some_parts, width,
};
use rewire_graph::{Scope, Tensor};

impl Ranking {
    /// The module of a channel, and its key in the configuration.
    fn place(&self, channel: usize) -> (String, String) {
        match self.hstu.len() {
            1 => ("_hstu_transducer".to_owned(), "hstu".to_owned()),
            _ => (format!("_hstu_transducer._transducers.{channel}"), format!("hstu[{channel}]")),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        some_parts("hstu", self.hstu.len())?;
        width("item_embedding_hidden_dim", self.item_embedding_hidden_dim)?;
        self.fusion_mtl_tower.config().check().map_err(|error| error.within("fusion_mtl_tower"))
    }

    /// The predictions of the candidates of all rows, and their number a row.
    pub(super) fn forward(&self, scope: &Scope, groups: &Groups) -> Result<Outputs, ModelError> {
        self.check()?;
        let inputs = Inputs { groups, ascending: self.sequence_timestamp_is_ascending };
        let (contextual, tokens) = inputs.contextual(self.concat_contextual_features)?;
        let candidates = inputs.candidates()?;
        let mut users = vec![];
        for (channel, hstu) in self.hstu.iter().enumerate() {
            let (module, key) = self.place(channel);
            let uih = inputs.history(hstu, hstu.channel())?;
            let widths = Widths {
                uih: uih.embeddings.width(),
                candidate: candidates.embeddings.width(),
                contextual: tokens,
                max_seq_len: self.max_seq_len,
            };
            let transducer = hstu.config(widths).and_then(HstuTransducer::new).map_err(|error| error.within(&key))?;
            let features = Features { uih, candidates: Some(candidates.clone()), contextual: contextual.clone() };
            users.push(scope.module(&module, |scope| transducer.forward(scope, &features).candidates));
        }
        let user = scope.concat(&users.iter().collect::<Vec<_>>(), 1);
        let logits = self.logits(scope, &user, &candidates.embeddings);
        let logits = inputs.restored(&logits, &candidates.rows);
        Ok(Outputs { values: self.predictions(&logits)?, candidates: Some(candidates.rows.lengths) })
    }

    /// The logits of candidates, of the vectors of all channels and the candidates' features.
    fn logits(&self, scope: &Scope, user: &Tensor, candidates: &Tensor) -> Tensor {
        let hidden = self.item_embedding_hidden_dim;
        let item =
            scope.module("_item_embedding_mlp", |scope| normed_swish_mlp(scope, candidates, hidden, user.width()));
        let tower = FusionMtlTower { config: self.fusion_mtl_tower.config() };
        scope.module("_multitask_module", |scope| tower.forward(scope, user, &item))
    }

    fn predictions(&self, logits: &Tensor) -> Result<Vec<(String, Tensor)>, ConfigError> {
        let mut outputs = vec![];
        let mut first = 0;
        for (index, task) in self.fusion_mtl_tower.task_configs.iter().enumerate() {
            let own = logits.slice(1, first, task.num_class);
            first += task.num_class;
            let suffix = format!("_{}", task.task_name);
            let predicted = prediction(&own, &suffix, &task.losses);
            outputs.extend(predicted.map_err(|e| e.within(&format!("fusion_mtl_tower.task_configs[{index}]")))?);
        }
        Ok(outputs)
    }

    /// State-dict tensors that follow from the configuration.
    pub(super) fn buffers(&self) -> Result<Vec<Buffer>, ModelError> {
        let mut all = vec![];
        for (channel, hstu) in self.hstu.iter().enumerate() {
            let (module, _) = self.place(channel);
            all.extend(hstu.buffers()?.into_iter().map(|buffer| buffer.within(&module)));
        }
        Ok(all)
    }
}
