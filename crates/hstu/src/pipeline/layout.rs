//! The keys of a configuration that determine the layout of a model's groups. They are parsed separately from the options of modules, so
//! that programs that only run packages do not link the parser of those options.

use super::message::{CANDIDATE, channel_of};
use serde_json::Value;

/// The layout of a model's groups, from the same message as [`HstuModel::parse`](super::HstuModel::parse).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The group of items. Outputs have one row per item.
    pub items: String,
    /// The channels of a ranking model; empty for a matching model.
    pub channels: Vec<KeptChannel>,
    /// False if sequences start with their latest event.
    pub is_ascending: bool,
    /// Whether all contextual features form one token, instead of one each.
    concat_contextual_features: bool,
}

/// A channel of a ranking model. Its histories have a separate cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChannel {
    /// Name prefix of its groups and inputs.
    pub name: String,
    /// Cache rows per step of the history.
    pub tokens_per_step: usize,
}

impl Layout {
    /// The layout of a model kind with its message; `None` if the kind belongs to another family.
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

    /// Number of contextual tokens before each history, for a number of contextual features.
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
