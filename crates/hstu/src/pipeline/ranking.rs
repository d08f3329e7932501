//! `dlrm_hstu` and `ultra_hstu`: each channel computes a vector per candidate; an MLP of items and the task towers follow.

use super::inputs::Inputs;
use super::message::{Hstu, Ranking, Widths};
use super::{Groups, Outputs, prediction};
use crate::models::ModelError;
use crate::modules::{
    Buffer, ConfigError, Features, FusionMtlTower, HistoryCache, HstuTransducer, Sequence, normed_swish_mlp,
    some_parts, width,
};
use rewire_graph::{DType, Scope, Tensor};

/// A channel: a pipeline over histories, and its inputs.
struct Channel {
    name: String,
    module: String,
    transducer: HstuTransducer,
    uih: Sequence,
}

struct Histories {
    contextual: Option<Tensor>,
    channels: Vec<Channel>,
}

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

    /// Predictions of all candidates, and the number of candidates per row.
    pub(super) fn forward(&self, scope: &Scope, groups: &Groups) -> Result<Outputs, ModelError> {
        self.check()?;
        let inputs = self.inputs(groups);
        let candidates = inputs.candidates()?;
        let histories = self.histories(&inputs, &candidates)?;
        let users = histories.channels.into_iter().map(|channel| {
            let contextual = histories.contextual.clone();
            let features = Features { uih: channel.uih, candidates: Some(candidates.clone()), contextual };
            scope.module(&channel.module, |scope| channel.transducer.forward(scope, &features).candidates)
        });
        self.outputs(scope, &inputs, &users.collect::<Vec<_>>(), candidates)
    }

    /// [`Ranking::forward`] in two parts that share caches; every channel has separate caches.
    pub(super) fn cached(
        &self,
        scope: &Scope,
        histories: &Groups,
        requests: &Groups,
        dtype: DType,
    ) -> Result<Outputs, ModelError> {
        self.check()?;
        let (inputs, requests) = (self.inputs(histories), self.inputs(requests));
        let candidates = requests.candidates()?;
        let histories = self.histories(&inputs, &candidates)?;
        for (index, channel) in histories.channels.iter().enumerate() {
            if !channel.transducer.hstu.config.is_cacheable() {
                let (_, key) = self.place(index);
                let expected = "causal or semi-local, and aware of targets";
                return Err(ConfigError::new(format!("{key}.stu"), expected, "candidates that are not apart").into());
            }
        }
        let (context, _) = requests.contextual(self.concat_contextual_features)?;
        let of_requests = |transducer: &HstuTransducer| {
            context.as_ref().filter(|_| transducer.hstu.config.input_preprocessor.targets_read_context())
        };
        let users = histories.channels.into_iter().map(|channel| {
            let (name, transducer) = (&channel.name, &channel.transducer);
            let cache = HistoryCache { rows: scope.size(&format!("{name} cache rows")), dtype };
            let features = Features { uih: channel.uih, candidates: None, contextual: histories.contextual.clone() };
            scope.module(&channel.module, |scope| {
                transducer.keep(scope, &features, name, &cache, false);
                transducer.read(scope, (&candidates, of_requests(transducer)), &format!("{name}.cached"), &cache)
            })
        });
        self.outputs(scope, &requests, &users.collect::<Vec<_>>(), candidates)
    }

    fn inputs<'a>(&self, groups: &'a Groups) -> Inputs<'a> {
        Inputs { groups, ascending: self.sequence_timestamp_is_ascending }
    }

    fn histories(&self, inputs: &Inputs, candidates: &Sequence) -> Result<Histories, ConfigError> {
        let (contextual, tokens) = inputs.contextual(self.concat_contextual_features)?;
        let channel = |(index, hstu): (usize, &Hstu)| {
            let (module, key) = self.place(index);
            let uih = inputs.history(hstu)?;
            let widths = Widths {
                uih: uih.embeddings.width(),
                candidate: candidates.embeddings.width(),
                contextual: tokens,
                max_seq_len: self.max_seq_len,
            };
            let transducer = hstu.config(widths).and_then(HstuTransducer::new).map_err(|error| error.within(&key))?;
            Ok(Channel { name: hstu.channel().to_owned(), module, transducer, uih })
        };
        let channels = self.hstu.iter().enumerate().map(channel).collect::<Result<_, ConfigError>>()?;
        Ok(Histories { contextual, channels })
    }

    /// True if histories can be separated from candidates in all channels.
    pub(super) fn is_cacheable(&self) -> bool {
        let widths = Widths { max_seq_len: self.max_seq_len, ..Widths::default() };
        self.hstu.iter().all(|hstu| hstu.config(widths).is_ok_and(|config| config.is_cacheable()))
    }

    /// Predictions from the vectors that each channel computed per candidate.
    fn outputs(
        &self,
        scope: &Scope,
        inputs: &Inputs,
        users: &[Tensor],
        candidates: Sequence,
    ) -> Result<Outputs, ModelError> {
        let user = scope.concat(&users.iter().collect::<Vec<_>>(), 1);
        let logits = self.logits(scope, &user, &candidates.embeddings);
        let logits = inputs.restored(&logits, &candidates.rows);
        Ok(Outputs { values: self.predictions(&logits)?, candidates: Some(candidates.rows.lengths) })
    }

    /// Logits of candidates from the vectors of all channels and the candidates' features.
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
