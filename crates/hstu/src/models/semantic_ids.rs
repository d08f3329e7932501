//! Generative retrieval: predicts the next semantic id of a user's item sequence, code by code, with HSTU layers (Rajput et al., 2023).
//!
//! A semantic id has one code per level. Each code of each level is a separate token. A history is the concatenated tokens of its items.
//!
//! # Inputs
//!
//! A run computes the last tokens of `B` sequences. Keys and values of earlier tokens are in rows of a cache.
//!
//! | input | type | meaning |
//! |---|---|---|
//! | `lengths` | integers `[B]`, read on the host | number of new tokens of every sequence |
//! | `tokens` | U32 `[rows]` | the new tokens |
//! | `kept` | U32 `[rows]` | distinct cache rows that store the keys and values of the new tokens |
//! | `before.lengths` | integers `[B]`, read on the host | number of earlier tokens of every sequence |
//! | `before` | U32 `[rows before]` | cache rows of the earlier tokens, in order; sequences may share rows |
//!
//! # Output and states
//!
//! `logits` `[B, tokens]` of the token that follows each sequence; `k_cache` and `v_cache` of every layer.

use super::ModelError;
use crate::modules::{CachedRows, ConfigError, HistoryCache, NORM_EPS, StuConfig, StuLayer, StuStack, parts, rows};
use crate::ops::{Positions, SeqLen, add_positional_embeddings, last_rows};
use rewire_graph::{DType, Graph, Scope, Tensor};
use serde::Deserialize;

/// A model's `config.json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `semantic_ids`.
    pub model: String,
    /// Number of codes per level.
    pub codes: Vec<usize>,
    /// Options of every layer.
    pub stu: StuConfig,
    /// Number of layers.
    pub attn_num_layers: usize,
    /// Maximum number of tokens of a sequence, and the divisor of attention weights.
    pub max_seq_len: usize,
}

impl Config {
    /// Parses the text of a `config.json`. Unknown keys are errors.
    ///
    /// # Errors
    /// [`ModelError`] if the text is not JSON, or a key is unknown, missing or out of bounds.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let config: Self = serde_json::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.model != "semantic_ids" {
            return Err(ConfigError::new("model", "`semantic_ids`", format!("`{}`", self.model)));
        }
        parts("codes", self.codes.len())?;
        if self.codes.is_empty() {
            return Err(ConfigError::new("codes", "a number a level", "none"));
        }
        self.codes.iter().try_for_each(|&codes| rows("codes", codes))?;
        rows("codes", self.tokens())?;
        rows("max_seq_len", self.max_seq_len)?;
        parts("attn_num_layers", self.attn_num_layers)?;
        if self.max_seq_len <= self.codes.len() {
            return Err(ConfigError::new("max_seq_len", "more than the levels of `codes`", self.max_seq_len));
        }
        self.stu.check().map_err(|error| error.within("stu"))?;
        let semi_local = self.stu.sla_k1 > 0 || self.stu.sla_k2 > 0;
        if !(self.stu.causal || semi_local) || self.stu.context() > 0 {
            return Err(ConfigError::new("stu", "causal, without contextual rows", "rows that see later ones"));
        }
        Ok(())
    }

    /// Number of different tokens: the codes of all levels.
    pub fn tokens(&self) -> usize {
        self.codes.iter().fold(0, |all, &codes| all.saturating_add(codes))
    }

    /// The token of code 0 of a level. The tokens of the level's other codes follow it.
    pub fn first_token(&self, level: usize) -> usize {
        self.codes.iter().take(level).sum()
    }

    /// Traces the graph.
    ///
    /// # Errors
    /// [`ModelError`] names the invalid key of the configuration, or the failed operator.
    pub fn trace(&self) -> Result<Graph, ModelError> {
        self.check()?;
        let scope = Scope::new().without_places();
        let logits = self.forward(&scope);
        Ok(scope.finish(&[("logits", logits)])?)
    }

    fn forward(&self, scope: &Scope) -> Tensor {
        let (width, batch) = (self.stu.embedding_dim, scope.size("sequences"));
        let rows = scope.lengths("lengths", &batch);
        let index = |name: &str, total| scope.input(name, DType::U32, [total]);
        let kept = CachedRows { index: index("kept", rows.total.clone()), rows: rows.clone() };
        let before = scope.lengths("before.lengths", &batch);
        let before = CachedRows { index: index("before", before.total.clone()), rows: before };
        let tokens = index("tokens", rows.total.clone());
        let x = scope.weight("token_embeddings.weight", (self.tokens(), width)).gather(&tokens);
        let lengths = &before.rows.lengths + &rows.lengths;
        let positions = Positions {
            rows: &rows,
            seq_lengths: &lengths,
            num_targets: None,
            interleave_targets: false,
            first: Some(&before.rows.lengths),
        };
        let table = scope.weight("position_embeddings.weight", (self.max_seq_len, width));
        let x = add_positional_embeddings(&x, &table, (width as f64).sqrt(), &positions);
        let stack = StuStack {
            layers: vec![StuLayer { config: self.stu.clone() }; self.attn_num_layers],
            truncate_split_layer: 0,
            truncate_tail_len: 0,
        };
        let cache = HistoryCache { rows: scope.size("cache rows"), dtype: DType::F32 };
        let max_seq_len = SeqLen::Fixed(self.max_seq_len);
        let x = stack.history(scope, &x, &kept, Some(&before), &cache, &max_seq_len);
        let [weight, bias] = ["norm.weight", "norm.bias"].map(|name| scope.weight(name, [width]));
        let last = last_rows(scope, &x, &rows).layer_norm(&weight, &bias, NORM_EPS);
        scope.weight("head.bias", [self.tokens()]).addmm(&last, &scope.weight("head.weight", (width, self.tokens())))
    }
}
