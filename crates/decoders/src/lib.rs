//! Language models of Hugging Face checkpoints as graphs: `llama`, `mistral`, `qwen2`, `qwen3` and `t5`.
//!
//! Parameters have the names of the checkpoints.
//!
//! # Inputs
//!
//! A run has the tokens of `B` sequences from some position on; keys and values of earlier tokens are in rows of a
//! cache.
//!
//! | input | type | contents |
//! |---|---|---|
//! | `lengths` | integers `[B]`, read on the host | tokens of every sequence |
//! | `tokens` | U32 `[rows]` | the tokens |
//! | `kept` | U32 `[rows]` | the cache rows that take their keys and values; no two are the same |
//! | `before.lengths` | integers `[B]`, read on the host | cache rows that a sequence continues |
//! | `before` | U32 `[rows before]` | these rows, in order; sequences may share them |
//! | `wanted` | U32 `[n]` | the rows of `tokens` to compute logits for |
//! | `asked.rows`, `asked.tokens` | U32 `[m]` | rows of the logits, and tokens whose probabilities are computed |
//! | `cos`, `sin` | F32 `[rows, width of a head / 2]` | [`Rope::tables`] of the positions, for decoders without an encoder |
//! | `encoder.kept.lengths` | integers `[P]`, read on the host | tokens of every prompt, for T5, as all that follow |
//! | `encoder.tokens`, `encoder.kept` | U32 `[prompt rows]` | the tokens, and the rows of the cross-attention caches for them |
//! | `memory.lengths`, `memory` | as `before` | the rows of the cross-attention caches that a sequence reads |
//!
//! # Outputs and states
//!
//! `logits` `[n, vocabulary]`; `asked` `[m]`, the logarithms of probabilities among the whole vocabulary; `k_cache` and `v_cache` of every attention layer that has one.
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
    /// From the text of a `config.json`.
    ///
    /// # Errors
    /// [`ConfigError`] names the key that is missing, unknown or has a value that is not supported.
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

    /// Number of tokens of the vocabulary.
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

    /// The name of the table of token embeddings, if it is not also a factor of the logits.
    pub fn table(&self) -> Option<&'static str> {
        match self {
            Self::Causal(config) => (!config.is_tied).then_some("model.embed_tokens.weight"),
            Self::T5(config) => (!config.is_tied).then_some("shared.weight"),
        }
    }

    /// Tokens that end a text.
    pub fn stop(&self) -> &[u32] {
        match self {
            Self::Causal(config) => &config.stop,
            Self::T5(config) => &config.stop,
        }
    }

    /// The angles of positions; `None` for models without rotary positions.
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

    /// The logits `[rows, vocabulary]` of all rows of whole sequences, which read no caches: of the inputs `lengths`, `tokens`, `cos` and `sin`. `None`
    /// for models with an encoder.
    pub fn logits(&self, scope: &Scope) -> Option<Tensor> {
        match self {
            Self::Causal(config) => Some(config.forward_whole(scope)),
            Self::T5(_) => None,
        }
    }

    /// The graph, with weights stored as `dtype`.
    ///
    /// # Errors
    /// [`ConfigError::Graph`] names the operator that does not take its operands.
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

/// The logarithms of the probabilities of some tokens.
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
