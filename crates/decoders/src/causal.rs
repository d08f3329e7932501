//! Decoders without encoders: `llama`, `mistral`, `qwen2` with biases of queries, keys and values, and `qwen3` with normalized queries and keys.

use crate::ConfigError;
use crate::activation::Activation;
use crate::blocks::{Cache, CachedRows, Heads, Pairs, linear, rms_norm};
use crate::keys::Keys;
use crate::rope::Rope;
use rewire_graph::{DType, Dim, Ragged, Scope, Tensor};
use serde_json::Value;

/// The family of a decoder, for the differences that other keys do not specify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
}

impl Family {
    const ALL: [Self; 4] = [Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3];

    pub fn named(model_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.model_type() == model_type)
    }

    pub fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// The sizes and options of a decoder.
#[derive(Clone, Debug)]
pub struct CausalConfig {
    pub(crate) family: Family,
    pub(crate) vocabulary: usize,
    width: usize,
    hidden: usize,
    layers: usize,
    heads: Heads,
    activation: Activation,
    eps: f64,
    /// For the projections of queries, keys and values, and for the output projection.
    has_attention_bias: [bool; 2],
    has_mlp_bias: bool,
    pub(crate) is_tied: bool,
    /// End-of-sequence tokens.
    pub(crate) stop: Vec<u32>,
    /// The rotary position embedding.
    pub(crate) rope: Rope,
}

impl CausalConfig {
    pub(crate) fn parse(keys: &Keys<'_>, family: Family) -> Result<Self, ConfigError> {
        let off = |value: &Value| value == &Value::Bool(false);
        keys.only("use_sliding_window", "false", off)?;
        if family == Family::Mistral {
            keys.only("sliding_window", "null", Value::is_null)?;
        }
        keys.only("pretraining_tp", "1", |value| value.as_u64() == Some(1))?;
        let is_full = |value: &Value| value.as_str() == Some("full_attention");
        let all_full = |value: &Value| value.as_array().is_some_and(|kinds| kinds.iter().all(is_full));
        keys.only("layer_types", "a list of `full_attention`", all_full)?;
        let (width, queries) = (keys.required_size("hidden_size")?, keys.required_size("num_attention_heads")?);
        let groups = keys.size("num_key_value_heads")?.unwrap_or(queries);
        let head = match keys.size("head_dim")? {
            Some(head) => head,
            None if family == Family::Qwen3 => 128,
            None => width / queries,
        };
        if queries % groups != 0 {
            let expected = format!("a divisor of the {queries} heads");
            return Err(ConfigError::value("num_key_value_heads", expected, &Value::from(groups)));
        }
        if head % 2 != 0 || head == 0 {
            return Err(ConfigError::value("head_dim", "even", &Value::from(head)));
        }
        let bias = keys.flag("attention_bias")?.unwrap_or(false);
        Ok(Self {
            family,
            vocabulary: keys.required_size("vocab_size")?,
            width,
            hidden: keys.required_size("intermediate_size")?,
            layers: keys.required_size("num_hidden_layers")?,
            heads: Heads { queries, keys: groups, width: head },
            activation: Activation::named("hidden_act", keys.text("hidden_act")?.unwrap_or("silu"))?,
            eps: keys.float("rms_norm_eps")?.unwrap_or(1e-6),
            has_attention_bias: [bias || family == Family::Qwen2, bias],
            has_mlp_bias: keys.flag("mlp_bias")?.unwrap_or(false),
            is_tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
            stop: keys.tokens("eos_token_id")?,
            rope: Rope::parse(keys, head)?,
        })
    }

    /// The logits of the rows in the input `wanted`.
    pub(crate) fn forward(&self, scope: &Scope) -> Tensor {
        let batch = scope.size("sequences");
        let rows = scope.lengths("lengths", &batch);
        let kept = scope.input("kept", DType::U32, [rows.total.clone()]);
        let before = CachedRows::input(scope, "before", &batch);
        let context = self.context(scope, &rows, before.rows.plus(&rows), Some(Caches { kept, before }));
        let wanted = scope.input("wanted", DType::U32, [scope.size("wanted rows")]);
        self.logits(scope, &context, |x| x.gather(&wanted))
    }

    /// The logits of all rows of complete sequences, without caches.
    pub(crate) fn forward_whole(&self, scope: &Scope) -> Tensor {
        let rows = scope.lengths("lengths", scope.size("sequences"));
        let context = self.context(scope, &rows, rows.clone(), None);
        self.logits(scope, &context, Tensor::clone)
    }

    fn context(&self, scope: &Scope, rows: &Ragged, keys: Ragged, caches: Option<Caches>) -> Context {
        let angle = |name| scope.input(name, DType::F32, (rows.total.clone(), self.heads.width / 2));
        let angles = [angle("cos"), angle("sin")];
        Context { caches, pairs: Pairs { keys, rows: rows.clone(), heads: self.heads }, angles }
    }

    fn logits(&self, scope: &Scope, context: &Context, wanted: impl Fn(&Tensor) -> Tensor) -> Tensor {
        let tokens = scope.input("tokens", DType::U32, [context.pairs.rows.total.clone()]);
        let (hidden, table) = scope.module("model", |scope| {
            let table = scope.weight("embed_tokens.weight", [self.vocabulary, self.width]);
            let layers = 0..self.layers;
            let x = layers.fold(table.gather(&tokens), |x, layer| {
                scope.module(&format!("layers.{layer}"), |scope| self.layer(scope, &x, context))
            });
            (rms_norm(scope, "norm", &wanted(&x), self.eps), table)
        });
        match self.is_tied {
            true => hidden.linear(&table, None),
            false => linear(scope, "lm_head", &hidden, self.vocabulary, false),
        }
    }

    fn layer(&self, scope: &Scope, x: &Tensor, context: &Context) -> Tensor {
        let normed = rms_norm(scope, "input_layernorm", x, self.eps);
        let x = x + scope.module("self_attn", |scope| self.attention(scope, &normed, context));
        let normed = rms_norm(scope, "post_attention_layernorm", &x, self.eps);
        let mlp = scope.module("mlp", |scope| {
            let part = |name, x: &Tensor, out| linear(scope, name, x, out, self.has_mlp_bias);
            let gate = self.activation.of(&part("gate_proj", &normed, self.hidden));
            part("down_proj", &(gate * part("up_proj", &normed, self.hidden)), self.width)
        });
        x + mlp
    }

    fn attention(&self, scope: &Scope, x: &Tensor, context: &Context) -> Tensor {
        let Context { caches, pairs, angles } = context;
        let Heads { queries, keys, width } = self.heads;
        let [is_biased, is_joined_biased] = self.has_attention_bias;
        let part = |name: &str, x: &Tensor, out| linear(scope, name, x, out, is_biased);
        let rotated = |name: &str, norm: &str, heads: usize| {
            let x = self.heads.split(&part(name, x, heads * width), heads);
            let x = if self.family == Family::Qwen3 { rms_norm(scope, norm, &x, self.eps) } else { x };
            rotate(scope, &x, angles).reshape([x.dim(0), (heads * width).into()])
        };
        let q = rotated("q_proj", "q_norm", queries) * (width as f64).sqrt().recip();
        let (k, v) = (rotated("k_proj", "k_norm", keys), part("v_proj", x, keys * width));
        let (k, v) = match caches {
            Some(caches) => caches.exchange(scope, &pairs.rows, [&k, &v]),
            None => (k, v),
        };
        let [row, key] = pairs.positions(caches.as_ref().map(|caches| &caches.before.rows));
        let mixed = pairs.attention([&q, &k, &v], None, Some(&key.le(&row)));
        linear(scope, "o_proj", &mixed, self.width, is_joined_biased)
    }
}

/// The values shared by all layers.
struct Context {
    caches: Option<Caches>,
    pairs: Pairs,
    /// Cosines and sines, `[rows, A / 2]`.
    angles: [Tensor; 2],
}

/// The cache rows for the new keys and values of a run (`kept`), and for the earlier ones of each sequence (`before`).
struct Caches {
    kept: Tensor,
    before: CachedRows,
}

impl Caches {
    /// Writes new keys and values to the cache; returns those of the whole sequences.
    fn exchange(&self, scope: &Scope, rows: &Ragged, new: [&Tensor; 2]) -> (Tensor, Tensor) {
        let cache_rows: Dim = scope.size("cache rows");
        let cache = Cache { names: ["k_cache", "v_cache"], rows: &cache_rows };
        let [k, v] = cache.read(scope, &self.before.index, new[0].width());
        cache.write(scope, &self.kept, new);
        let all = |before: &Tensor, new: &Tensor| before.jagged_concat(&self.before.rows, new, rows).0;
        (all(&k, new[0]), all(&v, new[1]))
    }
}

/// Applies rotary positions: rotates columns `c` and `c + A / 2` of every head.
fn rotate(scope: &Scope, x: &Tensor, angles: &[Tensor; 2]) -> Tensor {
    let half = x.width() / 2;
    let [cos, sin] = angles.each_ref().map(|angle| angle.reshape([angle.dim(0), 1.into(), half.into()]));
    let (first, second) = (x.slice(2, 0, half), x.slice(2, half, half));
    let turned = [&first * &cos - &second * &sin, &second * &cos + &first * &sin];
    scope.concat(&turned.each_ref(), 2)
}
