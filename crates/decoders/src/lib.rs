//! Language models of Hugging Face checkpoints as graphs: `llama`, `qwen3` and `t5`.
//!
//! Parameters have the names of the checkpoints.
//!
//! # Inputs
//!
//! A run has the tokens of `B` sequences from some place on; keys and values of those before are in rows of a cache.
//!
//! | input | type | contents |
//! |---|---|---|
//! | `lengths` | integers `[B]`, read on the host | tokens of every sequence |
//! | `tokens` | U32 `[rows]` | the tokens |
//! | `kept` | U32 `[rows]` | the cache rows that take their keys and values; no two are the same |
//! | `before.lengths` | integers `[B]`, read on the host | cache rows that a sequence continues |
//! | `before` | U32 `[rows before]` | these rows, in order; sequences may share them |
//! | `wanted` | U32 `[n]` | the rows of `tokens` to compute logits for |
//! | `cos`, `sin` | F32 `[rows, width of a head / 2]` | [`Rope::tables`] of the positions, for decoders without an encoder |
//! | `encoder.kept.lengths` | integers `[P]`, read on the host | tokens of every prompt, for T5, as all that follow |
//! | `encoder.tokens`, `encoder.kept` | U32 `[prompt rows]` | the tokens, and the rows of the cross-attention caches for them |
//! | `memory.lengths`, `memory` | as `before` | the rows of the cross-attention caches that a sequence reads |
//!
//! # Output and states
//!
//! `logits` `[n, vocabulary]`; `k_cache` and `v_cache` of every attention layer that has one.
//!
//! # Limits
//!
//! On an NVIDIA GPU by Vulkan the self-attention of T5's encoder gives NaN, for a reason that is not found: T5 runs on the CPU there
//! (`--kernel cpu`).
#![forbid(unsafe_code)]

mod activation;
mod blocks;
mod causal;
mod error;
mod keys;
mod rope;
mod t5;

pub use causal::CausalConfig;
pub use error::ConfigError;
pub use rope::Rope;
pub use t5::T5Config;

use keys::Keys;
use rewire_graph::{DType, Graph, Scope};
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
    /// From the text of a `config.json`.
    ///
    /// # Errors
    /// [`ConfigError`] names the key that is missing, unknown or has a value that is not supported.
    ///
    /// ```
    /// use rewire_decoders::Config;
    /// let error = Config::from_json(r#"{"model_type": "mamba"}"#).unwrap_err().to_string();
    /// assert_eq!(error, "`model_type` must be llama, qwen3 or t5, got \"mamba\"");
    /// ```
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_str(text)?;
        let keys = Keys::new("", &value)?;
        let kind = keys.required("model_type", keys.text("model_type")?)?;
        let config = match kind {
            "llama" => Self::Causal(CausalConfig::parse(&keys, false)?),
            "qwen3" => Self::Causal(CausalConfig::parse(&keys, true)?),
            "t5" => Self::T5(T5Config::parse(&keys)?),
            _ => return Err(ConfigError::value("model_type", "llama, qwen3 or t5", &Value::from(kind))),
        };
        keys.finish()?;
        Ok(config)
    }

    /// Number of tokens of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        match self {
            Self::Causal(config) => config.vocabulary,
            Self::T5(config) => config.vocabulary,
        }
    }

    /// The name of the table of token embeddings.
    pub fn embeddings(&self) -> &'static str {
        match self {
            Self::Causal(_) => "model.embed_tokens.weight",
            Self::T5(_) => "shared.weight",
        }
    }

    /// The angles of positions; `None` for models that have none.
    pub fn rope(&self) -> Option<&Rope> {
        match self {
            Self::Causal(config) => Some(&config.rope),
            Self::T5(_) => None,
        }
    }

    /// The token that the decoder of an encoder begins with; `None` for decoders that continue the prompt.
    pub fn start(&self) -> Option<u32> {
        match self {
            Self::Causal(_) => None,
            Self::T5(config) => Some(config.start),
        }
    }

    /// The graph, with weights stored as `dtype`.
    ///
    /// # Errors
    /// [`ConfigError::Graph`] names the operator that does not take its operands.
    pub fn trace(&self, dtype: DType) -> Result<Graph, ConfigError> {
        let scope = Scope::new().with_weights(dtype);
        let logits = match self {
            Self::Causal(config) => config.forward(&scope),
            Self::T5(config) => config.forward(&scope),
        };
        Ok(scope.finish(&[("logits", logits)])?)
    }
}
