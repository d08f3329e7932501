use crate::ConfigError;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Keys that a family may ignore: training, tokenizers, heads of other tasks, generation, and defaults of the host program.
const HARMLESS: [&str; 61] = [
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "decoder_start_token_id",
    "dense_act_fn",
    "diversity_penalty",
    "do_sample",
    "dropout_rate",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "gradient_checkpointing",
    "id2label",
    "initializer_factor",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_gated_act",
    "label2id",
    "length_penalty",
    "max_length",
    "max_position_embeddings",
    "max_window_layers",
    "min_length",
    "model_type",
    "n_positions",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_decoder_layers",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "prefix",
    "problem_type",
    "repetition_penalty",
    "return_dict",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "scale_decoder_outputs",
    "sliding_window",
    "task_specific_params",
    "temperature",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// An object of a configuration. Records the keys that are read.
pub(crate) struct Keys<'a> {
    /// The path of the object, with a dot at the end.
    path: String,
    object: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Keys<'a> {
    pub fn new(path: &str, value: &'a Value) -> Result<Self, ConfigError> {
        let object = value.as_object().ok_or_else(|| ConfigError::value(path, "an object", value))?;
        Ok(Self { path: path.to_owned(), object, read: RefCell::default() })
    }

    /// The value of a key; `None` if it is missing or null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        let (key, value) = self.object.get_key_value(key)?;
        self.read.borrow_mut().insert(key);
        (!value.is_null()).then_some(value)
    }

    fn name(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| ConfigError::value(&self.name(key), expected, value))
    }

    pub fn object(&self, key: &str) -> Result<Option<Self>, ConfigError> {
        self.get(key).map(|value| Self::new(&self.name(key), value)).transpose()
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn float(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.typed(key, "a finite number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// A size from 1 to [`MOST`].
    pub fn size(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        let size = |value: &Value| {
            value.as_u64().filter(|size| (1..=MOST).contains(size)).and_then(|size| usize::try_from(size).ok())
        };
        self.typed(key, "an integer from 1 to 16777216", size)
    }

    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, ConfigError> {
        value.ok_or_else(|| ConfigError::Missing { key: self.name(key) })
    }

    pub fn required_size(&self, key: &str) -> Result<usize, ConfigError> {
        self.required(key, self.size(key)?)
    }

    /// A token or a list of tokens; empty if the key is missing.
    pub fn tokens(&self, key: &str) -> Result<Vec<u32>, ConfigError> {
        let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
        let tokens = |value: &'a Value| match value.as_array() {
            Some(list) => list.iter().map(token).collect(),
            None => token(value).map(|token| vec![token]),
        };
        Ok(self.typed(key, "a token or a list of tokens", tokens)?.unwrap_or_default())
    }

    /// Checks that the value of a key, if present, is `allowed`.
    pub fn only(&self, key: &str, expected: &'static str, allowed: impl Fn(&Value) -> bool) -> Result<(), ConfigError> {
        self.typed(key, expected, |value| allowed(value).then_some(())).map(|_| ())
    }

    /// Checks that every key was read or does not affect results.
    pub fn finish(&self) -> Result<(), ConfigError> {
        let read = self.read.borrow();
        let is_off = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Object(object) => object.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        let unknown = self.object.iter().find(|(key, value)| {
            !(read.contains(key.as_str()) || key.starts_with('_') || HARMLESS.contains(&key.as_str()) || is_off(value))
        });
        match unknown {
            Some((key, value)) => Err(ConfigError::Unknown { key: self.name(key), value: value.to_string() }),
            None => Ok(()),
        }
    }
}

/// The maximum size, 2^24: indices and products of sizes stay within the limits of kernels.
const MOST: u64 = 1 << 24;
