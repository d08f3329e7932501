//! The parts of a configuration that the layout of a model's groups depends on. They are parsed without the options of the modules, so that
//! programs that only run packages do not link that parser.

use super::message::{CANDIDATE, channel_of};
use serde_json::Value;

/// The layout of a model's groups, from the message that [`HstuModel::parse`](super::HstuModel::parse) parses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The group of items, each of which has a row in the outputs.
    pub items: String,
    /// The channels of a ranking model; empty for a matching model.
    pub channels: Vec<KeptChannel>,
    /// False if sequences begin with their latest event.
    pub is_ascending: bool,
    /// One token for all contextual features, not one per feature.
    concat_contextual_features: bool,
}

/// A channel of a ranking model, whose histories have a separate cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChannel {
    /// The prefix of its groups and inputs.
    pub name: String,
    /// Cache rows per step of the history.
    pub tokens_per_step: usize,
}

impl Layout {
    /// The layout for a kind's message; `None` if it belongs to another family.
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
