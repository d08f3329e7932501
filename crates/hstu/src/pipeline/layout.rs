//! What a table of a model's groups needs to know of a configuration. It is read without the options of the modules, so that programs that run
//! packages alone do not carry what reads them.

use super::message::{CANDIDATE, channel_of};
use serde_json::Value;

/// How the groups of a model are read, by the message that [`HstuModel::parse`](super::HstuModel::parse) takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The group of items, each of which has a row of the outputs.
    pub items: String,
    /// The channels of a ranking model; none of a matching model.
    pub channels: Vec<KeptChannel>,
    /// False where sequences begin with their latest event.
    pub is_ascending: bool,
    /// One token of all contextual features, not one a feature.
    concat_contextual_features: bool,
}

/// A channel of a ranking model, whose histories are kept in a cache of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChannel {
    /// The prefix of its groups and inputs.
    pub name: String,
    /// Rows of the cache that a step of the history takes.
    pub tokens_per_step: usize,
}

impl Layout {
    /// The layout of a kind's message; `None` if it is another family's.
    pub fn of(kind: &str, message: &Value) -> Option<Self> {
        let hstu = message.get("hstu");
        let (pipelines, items) = match kind {
            "dlrm_hstu" => (hstu.into_iter().collect(), None),
            "ultra_hstu" => (hstu.and_then(Value::as_array).into_iter().flatten().collect(), None),
            "hstu_match" => (vec![], message.pointer("/item_tower/input").and_then(Value::as_str)),
            _ => return None,
        };
        let flag = |key: &str, default| message.get(key).and_then(Value::as_bool).unwrap_or(default);
        Some(Self {
            items: items.unwrap_or(CANDIDATE).to_owned(),
            channels: pipelines.into_iter().map(KeptChannel::of).collect(),
            is_ascending: flag("sequence_timestamp_is_ascending", true),
            concat_contextual_features: flag("concat_contextual_features", false),
        })
    }

    /// The contextual tokens before each history, by the number of contextual features.
    pub fn contextual_tokens(&self, features: usize) -> usize {
        if self.concat_contextual_features { features.min(1) } else { features }
    }
}

impl KeptChannel {
    fn of(hstu: &Value) -> Self {
        let name = hstu.get("name").and_then(Value::as_str).unwrap_or_default();
        let interleaving = hstu.pointer("/input_preprocessor/contextual_interleave_preprocessor");
        let is_disabled = |options: &Value| options.get("enable_interleaving").and_then(Value::as_bool) == Some(false);
        let tokens_per_step = if interleaving.is_some_and(|options| !is_disabled(options)) { 2 } else { 1 };
        Self { name: channel_of(name).to_owned(), tokens_per_step }
    }
}
