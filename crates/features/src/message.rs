//! Configuration messages as JSON, with TorchEasyRec's defaults.

use crate::growing::{DynamicEmbedding, ZeroCollisionHash};
use crate::{Pooling, Problems};
use rewire_graph::keys_to;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Parses a message. Every key with an unknown name or a wrong type is added to `problems`.
///
/// `pointer` is the JSON pointer of `value` in the whole configuration.
pub fn read<T: DeserializeOwned>(value: &Value, pointer: &str, problems: &mut Problems) -> Option<T> {
    let mut rest = value.clone();
    loop {
        let text = rest.to_string();
        let error = match serde_json::from_str(&text) {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        let path = keys_to(&text, &error)
            .map_or_else(String::new, |keys| format!("/{}", keys.replace('[', "/").replace(']', "").replace('.', "/")));
        let reason = error.to_string();
        let reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
        problems.push(format!("{pointer}{path}"), reason);
        // Removes the key and parses again, so that all problems are reported.
        let parent = path.rsplit_once('/').and_then(|(parent, key)| Some((rest.pointer_mut(parent)?, key)));
        let removed = match parent {
            Some((Value::Object(object), key)) => object.remove(key).is_some(),
            _ => false,
        };
        if !removed {
            return None;
        }
    }
}

/// Feature keys that affect neither tables nor the values of encoded columns.
const WITHOUT_EFFECT: [&str; 33] = [
    "asset_dir",
    "combiner",
    "default_value",
    "document",
    "expression",
    "fg_value_type",
    "fill_missing",
    "is_op_thread_safe",
    "key",
    "kv_delimiter",
    "map",
    "method",
    "need_discrete",
    "need_key",
    "nested_map",
    "normalizer",
    "operator_lib_file",
    "operator_name",
    "operator_params",
    "pkey",
    "query",
    "separator",
    "sequence_fields",
    "sequence_length",
    "sequence_pk",
    "show_pkey",
    "show_skey",
    "skey",
    "stub_type",
    "title",
    "use_mask",
    "value_map",
    "value_separator",
];

/// A feature of any kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeatureMessage {
    pub feature_name: String,
    #[serde(default)]
    pub embedding_name: String,
    #[serde(default)]
    pub embedding_dim: usize,
    #[serde(default)]
    pub pooling: Pooling,
    #[serde(default)]
    pub data_type: TableType,
    #[serde(default = "yes")]
    pub trainable: bool,
    #[serde(default)]
    pub init_fn: String,
    #[serde(default)]
    pub embedding_constraints: Constraints,
    #[serde(default)]
    pub fg_encoded_default_value: String,
    #[serde(default = "semicolon")]
    pub sequence_delim: String,
    #[serde(default)]
    pub zch: Option<ZeroCollisionHash>,
    #[serde(default)]
    pub dynamicemb: Option<DynamicEmbedding>,
    #[serde(default)]
    pub hash_bucket_size: Option<usize>,
    #[serde(default)]
    pub num_buckets: Option<usize>,
    #[serde(default)]
    pub vocab_list: Vec<String>,
    #[serde(default)]
    pub vocab_dict: BTreeMap<String, usize>,
    #[serde(default)]
    pub vocab_file: String,
    #[serde(default)]
    pub default_bucketize_value: Option<usize>,
    #[serde(default)]
    pub boundaries: Vec<f32>,
    #[serde(default)]
    pub value_dim: Option<usize>,
    #[serde(default)]
    pub weighted: bool,
    #[serde(default)]
    pub autodis: Option<AutoDis>,
    #[serde(default)]
    pub mlp: Option<NoKeys>,
    /// Variables of expressions, which are evaluated before encoding.
    #[serde(default, rename = "variables")]
    pub _variables: Vec<String>,
}

/// Sharding constraints of a table. Keys that only matter for several devices are not parsed.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Constraints {
    #[serde(default)]
    pub sharding_types: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) enum TableType {
    #[default]
    #[serde(rename = "FP32")]
    F32,
    #[serde(rename = "FP16")]
    F16,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AutoDis {
    pub num_channels: usize,
    #[serde(default = "temperature")]
    pub temperature: f64,
    #[serde(default = "keep_prob")]
    pub keep_prob: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoKeys {}

fn yes() -> bool {
    true
}

fn semicolon() -> String {
    ";".to_owned()
}

fn temperature() -> f64 {
    0.1
}

fn keep_prob() -> f64 {
    0.8
}

/// The only key of a `oneof` message, with its JSON pointer.
pub(crate) fn one_of<'a>(value: &'a Value, pointer: &str, problems: &mut Problems) -> Option<(&'a str, &'a Value)> {
    let object = value.as_object();
    match object.map(|object| object.iter().collect::<Vec<_>>()).as_deref() {
        Some([(kind, inner)]) => Some((kind.as_str(), *inner)),
        _ => {
            problems.push(pointer, "must have one key, the kind");
            None
        }
    }
}

/// Parses a feature message of any kind.
pub(crate) fn read_feature(value: &Value, pointer: &str, problems: &mut Problems) -> Option<FeatureMessage> {
    let kept = |object: &Map<String, Value>| {
        let entries = object.iter().filter(|(key, _)| !WITHOUT_EFFECT.contains(&key.as_str()));
        Value::Object(entries.map(|(key, value)| (key.clone(), value.clone())).collect())
    };
    read(&value.as_object().map_or_else(|| value.clone(), kept), pointer, problems)
}

/// The kind of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum GroupType {
    /// Pooled embeddings, concatenated.
    #[default]
    #[serde(rename = "DEEP")]
    Deep,
    /// Like DEEP, with separate tables of width `wide_embedding_dim`.
    #[serde(rename = "WIDE")]
    Wide,
    /// A query and the steps of sequences.
    #[serde(rename = "SEQUENCE")]
    Sequence,
    /// Steps only; all features have the same number of steps.
    #[serde(rename = "JAGGED_SEQUENCE")]
    JaggedSequence,
}

/// `FeatureGroupConfig`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// The name.
    pub group_name: String,
    /// The features, in order.
    #[serde(default)]
    pub feature_names: Vec<String>,
    /// The kind of group.
    #[serde(default)]
    pub group_type: GroupType,
    /// Sequences that the encoders of a DEEP group read.
    #[serde(default)]
    pub sequence_groups: Vec<SequenceGroupConfig>,
    /// Encoders of a DEEP group as JSON. Their outputs follow the features.
    #[serde(default)]
    pub sequence_encoders: Vec<Value>,
    /// Suffix of the group's table names.
    #[serde(default)]
    pub embedding_name_suffix: Option<String>,
}

/// `SeqGroupConfig`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceGroupConfig {
    /// The name; defaults to the enclosing group's.
    #[serde(default)]
    pub group_name: Option<String>,
    /// The features, in order.
    #[serde(default)]
    pub feature_names: Vec<String>,
    /// Suffix of the group's table names.
    #[serde(default)]
    pub embedding_name_suffix: Option<String>,
}
