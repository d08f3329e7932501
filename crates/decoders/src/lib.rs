//! Language models of Hugging Face checkpoints as graphs: `llama`, `mistral`, `qwen2`, `qwen3` and `t5`.
//!
//! Parameters have the names of the checkpoint.
//!
//! # Inputs
//!
//! A run computes the next tokens of `B` sequences. Keys and values of earlier tokens are in rows of a cache.
//!
//! | input | type | contents |
//! |---|---|---|
//! | `lengths` | integers `[B]`, read on the host | number of tokens of each sequence in this run |
//! | `tokens` | U32 `[rows]` | the tokens |
//! | `kept` | U32 `[rows]` | the distinct cache rows to which keys and values of the tokens are written |
//! | `before.lengths` | integers `[B]`, read on the host | number of earlier tokens of each sequence |
//! | `before` | U32 `[rows before]` | the cache rows of the earlier tokens, in order; sequences may share rows |
//! | `wanted` | U32 `[n]` | the rows of `tokens` to compute logits for |
//! | `asked.rows`, `asked.tokens` | U32 `[m]` | row of the logits and token of each requested probability |
//! | `cos`, `sin` | F32 `[rows, width of a head / 2]` | [`Rope::tables`] of the positions; only without an encoder |
//! | `encoder.kept.lengths` | integers `[P]`, read on the host | T5: number of tokens of each prompt |
//! | `encoder.tokens`, `encoder.kept` | U32 `[prompt rows]` | T5: the tokens, and the cross-attention cache rows to write |
//! | `memory.lengths`, `memory` | as `before` | T5: the cross-attention cache rows that each sequence reads |
//!
//! # Outputs and states
//!
//! The outputs are `logits` `[n, vocabulary]`, and `asked` `[m]`: log probabilities over the whole vocabulary. The states are `k_cache` and
//! `v_cache` of every cached attention layer.
#![forbid(unsafe_code)]

mod activation;
mod beams;
mod blocks;
mod causal;
mod error;
mod keys;
mod rope;
mod t5;

use causal::Family;

pub use beams::{BeamLimits, beam_step};
pub use causal::CausalConfig;
pub use error::ConfigError;
pub use rope::Rope;
pub use t5::T5Config;

use keys::Keys;
use rewire_graph::{DType, Graph, Scope, Tensor};
use serde_json::Value;

/// A model's `config.json`.
#[derive(Clone, Debug)]
pub enum Config {
    /// A decoder without an encoder.
    Causal(CausalConfig),
    /// T5.
    T5(T5Config),
}

impl Config {
    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    /// [`ConfigError`] names the key that is missing, unknown or has an unsupported value.
    ///
    /// ```
    /// use rewire_decoders::Config;
    /// let error = Config::from_json(r#"{"model_type": "mamba"}"#).unwrap_err().to_string();
    /// assert_eq!(error, "`model_type` must be llama, mistral, qwen2, qwen3 or t5, got \"mamba\"");
    /// ```
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_str(text)?;
        let keys = Keys::new("", &value)?;
        let kind = keys.required("model_type", keys.text("model_type")?)?;
        let config = match kind {
            "t5" => Self::T5(T5Config::parse(&keys)?),
            _ => match Family::named(kind) {
                Some(family) => Self::Causal(CausalConfig::parse(&keys, family)?),
                None => {
                    let expected = "llama, mistral, qwen2, qwen3 or t5";
                    return Err(ConfigError::value("model_type", expected, &Value::from(kind)));
                }
            },
        };
        keys.finish()?;
        Ok(config)
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        match self {
            Self::Causal(config) => config.vocabulary,
            Self::T5(config) => config.vocabulary,
        }
    }

    /// The `model_type` of the configuration.
    pub fn model_type(&self) -> &'static str {
        match self {
            Self::Causal(config) => config.family.model_type(),
            Self::T5(_) => "t5",
        }
    }

    /// The name of the token embedding table; `None` if it is tied to the output projection.
    pub fn table(&self) -> Option<&'static str> {
        match self {
            Self::Causal(config) => (!config.is_tied).then_some("model.embed_tokens.weight"),
            Self::T5(config) => (!config.is_tied).then_some("shared.weight"),
        }
    }

    /// End-of-sequence tokens.
    pub fn stop(&self) -> &[u32] {
        match self {
            Self::Causal(config) => &config.stop,
            Self::T5(config) => &config.stop,
        }
    }

    /// The rotary position embedding; `None` for models without one.
    pub fn rope(&self) -> Option<&Rope> {
        match self {
            Self::Causal(config) => Some(&config.rope),
            Self::T5(_) => None,
        }
    }

    /// The first token of an encoder-decoder model's output; `None` for decoders that continue the prompt.
    pub fn start(&self) -> Option<u32> {
        match self {
            Self::Causal(_) => None,
            Self::T5(config) => Some(config.start),
        }
    }

    /// The logits `[rows, vocabulary]` of all rows of complete sequences, without caches, from the inputs `lengths`, `tokens`, and `cos` and
    /// `sin` or `encoder.lengths`, integers per sequence, and `encoder.tokens`.
    pub fn logits(&self, scope: &Scope) -> Tensor {
        match self {
            Self::Causal(config) => config.forward_whole(scope),
            Self::T5(config) => config.forward_whole(scope),
        }
    }

    /// Traces the model's graph, with weights stored as `dtype`.
    ///
    /// # Errors
    /// [`ConfigError::Graph`] names the operator that rejected its operands.
    pub fn trace(&self, dtype: DType) -> Result<Graph, ConfigError> {
        let scope = Scope::new().without_places().with_weights(dtype);
        let logits = match self {
            Self::Causal(config) => config.forward(&scope),
            Self::T5(config) => config.forward(&scope),
        };
        let asked = asked(&scope, &logits);
        Ok(scope.finish(&[("logits", logits), ("asked", asked)])?)
    }
}

/// The log probabilities of the tokens in the inputs `asked.rows` and `asked.tokens`.
fn asked(scope: &Scope, logits: &Tensor) -> Tensor {
    let count = scope.size("asked");
    let [rows, tokens] = ["asked.rows", "asked.tokens"].map(|name| scope.input(name, DType::U32, [count.clone()]));
    let largest = logits.max(1);
    let total = (logits - &largest).exp().sum(1).log() + largest;
    let [count, vocabulary] = [logits.dim(0), logits.dim(1)];
    let place = &rows * logits.width() as i64 + tokens;
    let all = logits.reshape([count.product(&vocabulary).unwrap_or_default()]);
    all.gather(&place) - total.reshape([count]).gather(&rows)
}
