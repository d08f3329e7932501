//! Decoders without encoders: `llama`, and `qwen3`, which norms the queries and keys of every head.

use crate::ConfigError;
use crate::activation::Activation;
use crate::blocks::{Cache, CachedRows, Heads, Pairs, linear, rms_norm};
use crate::keys::Keys;
use crate::rope::Rope;
use rewire_graph::{DType, Dim, Scope, Tensor};
use serde_json::Value;

/// The sizes and options of a decoder.
#[derive(Clone, Debug)]
pub struct CausalConfig {
    pub(crate) vocabulary: usize,
    width: usize,
    hidden: usize,
    layers: usize,
    heads: Heads,
    activation: Activation,
    eps: f64,
    has_head_norms: bool,
    has_attention_bias: bool,
    has_mlp_bias: bool,
    is_tied: bool,
    /// The angles of positions.
    pub(crate) rope: Rope,
}

impl CausalConfig {
    pub(crate) fn parse(keys: &Keys<'_>, has_head_norms: bool) -> Result<Self, ConfigError> {
        let off = |value: &Value| value == &Value::Bool(false);
        keys.only("use_sliding_window", "false", off)?;
        keys.only("pretraining_tp", "1", |value| value.as_u64() == Some(1))?;
        let is_full = |value: &Value| value.as_str() == Some("full_attention");
        let all_full = |value: &Value| value.as_array().is_some_and(|kinds| kinds.iter().all(is_full));
        keys.only("layer_types", "a list of `full_attention`", all_full)?;
        let (width, queries) = (keys.required_size("hidden_size")?, keys.required_size("num_attention_heads")?);
        let groups = keys.size("num_key_value_heads")?.unwrap_or(queries);
        let head = match keys.size("head_dim")? {
            Some(head) => head,
            None if has_head_norms => 128,
            None => width / queries,
        };
        if queries % groups != 0 {
            let expected = format!("a divisor of the {queries} heads");
            return Err(ConfigError::value("num_key_value_heads", expected, &Value::from(groups)));
        }
        if head % 2 != 0 || head == 0 {
            return Err(ConfigError::value("head_dim", "even", &Value::from(head)));
        }
        Ok(Self {
            vocabulary: keys.required_size("vocab_size")?,
            width,
            hidden: keys.required_size("intermediate_size")?,
            layers: keys.required_size("num_hidden_layers")?,
            heads: Heads { queries, keys: groups, width: head },
            activation: Activation::named("hidden_act", keys.text("hidden_act")?.unwrap_or("silu"))?,
            eps: keys.float("rms_norm_eps")?.unwrap_or(1e-6),
            has_head_norms,
            has_attention_bias: keys.flag("attention_bias")?.unwrap_or(false),
            has_mlp_bias: keys.flag("mlp_bias")?.unwrap_or(false),
            is_tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
            rope: Rope::parse(keys, head)?,
        })
    }

    /// The logits of the rows that a run asks for.
    pub(crate) fn forward(&self, scope: &Scope) -> Tensor {
        let batch = scope.size("sequences");
        let rows = scope.lengths("lengths", &batch);
        let index = |name: &str| scope.input(name, DType::U32, [rows.total.clone()]);
        let (tokens, kept) = (index("tokens"), CachedRows { index: index("kept"), rows: rows.clone() });
        let before = CachedRows::input(scope, "before", &batch);
        let angle = |name| scope.input(name, DType::F32, (rows.total.clone(), self.heads.width / 2));
        let angles = [angle("cos"), angle("sin")];
        let pairs = Pairs { keys: before.rows.plus(&rows), rows, heads: self.heads };
        let cached = Cached { kept, before, pairs, angles };
        let (hidden, table) = scope.module("model", |scope| {
            let table = scope.weight("embed_tokens.weight", [self.vocabulary, self.width]);
            let layers = 0..self.layers;
            let x = layers.fold(table.gather(&tokens), |x, layer| {
                scope.module(&format!("layers.{layer}"), |scope| self.layer(scope, &x, &cached))
            });
            let wanted = scope.input("wanted", DType::U32, [scope.size("wanted rows")]);
            (rms_norm(scope, "norm", &x.gather(&wanted), self.eps), table)
        });
        match self.is_tied {
            true => hidden.linear(&table, None),
            false => linear(scope, "lm_head", &hidden, self.vocabulary, false),
        }
    }

    fn layer(&self, scope: &Scope, x: &Tensor, cached: &Cached) -> Tensor {
        let normed = rms_norm(scope, "input_layernorm", x, self.eps);
        let x = x + scope.module("self_attn", |scope| self.attention(scope, &normed, cached));
        let normed = rms_norm(scope, "post_attention_layernorm", &x, self.eps);
        let mlp = scope.module("mlp", |scope| {
            let part = |name, x: &Tensor, out| linear(scope, name, x, out, self.has_mlp_bias);
            let gate = self.activation.of(&part("gate_proj", &normed, self.hidden));
            part("down_proj", &(gate * part("up_proj", &normed, self.hidden)), self.width)
        });
        x + mlp
    }

    fn attention(&self, scope: &Scope, x: &Tensor, cached: &Cached) -> Tensor {
        let Cached { kept, before, pairs, angles } = cached;
        let Heads { queries, keys, width } = self.heads;
        let part = |name: &str, x: &Tensor, out| linear(scope, name, x, out, self.has_attention_bias);
        let rotated = |name: &str, norm: &str, heads: usize| {
            let x = self.heads.split(&part(name, x, heads * width), heads);
            let x = if self.has_head_norms { rms_norm(scope, norm, &x, self.eps) } else { x };
            rotate(scope, &x, angles).reshape([x.dim(0), (heads * width).into()])
        };
        let q = rotated("q_proj", "q_norm", queries) * (width as f64).sqrt().recip();
        let (k, v) = (rotated("k_proj", "k_norm", keys), part("v_proj", x, keys * width));
        let rows: Dim = scope.size("cache rows");
        let cache = Cache { names: ["k_cache", "v_cache"], rows: &rows };
        let [k_before, v_before] = cache.read(scope, &before.index, keys * width);
        cache.write(scope, &kept.index, [&k, &v]);
        let all = |before_rows: &Tensor, new: &Tensor| before_rows.jagged_concat(&before.rows, new, &kept.rows).0;
        let (k, v) = (all(&k_before, &k), all(&v_before, &v));
        let [row, key] = pairs.positions(Some(&before.rows));
        let mixed = pairs.attention([&q, &k, &v], None, Some(&key.le(&row)));
        part("o_proj", &mixed, self.width)
    }
}

/// The rows of a run and those of the cache that they follow.
struct Cached {
    kept: CachedRows,
    before: CachedRows,
    pairs: Pairs,
    /// Cosines and sines, `[rows, A / 2]`.
    angles: [Tensor; 2],
}

/// Turns column `c` of every head with column `c + A / 2`.
fn rotate(scope: &Scope, x: &Tensor, angles: &[Tensor; 2]) -> Tensor {
    let half = x.width() / 2;
    let [cos, sin] = angles.each_ref().map(|angle| angle.reshape([angle.dim(0), 1.into(), half.into()]));
    let (first, second) = (x.slice(2, 0, half), x.slice(2, half, half));
    let turned = [&first * &cos - &second * &sin, &second * &cos + &first * &sin];
    scope.concat(&turned.each_ref(), 2)
}
