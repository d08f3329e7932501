//! The encoder and decoder of T5, with relative position biases.

use crate::ConfigError;
use crate::activation::Activation;
use crate::blocks::{Cache, CachedRows, Heads, Padded, Pairs, linear, rms_norm};
use crate::keys::Keys;
use rewire_graph::{DType, HostTensor, Ragged, Scope, Tensor};
use serde_json::Value;

/// The sizes and options of an encoder-decoder model.
#[derive(Clone, Debug)]
pub struct T5Config {
    pub(crate) vocabulary: usize,
    width: usize,
    hidden: usize,
    /// Number of blocks of the encoder and of the decoder.
    blocks: [usize; 2],
    heads: Heads,
    buckets: Buckets,
    activation: Activation,
    is_gated: bool,
    eps: f64,
    pub(crate) is_tied: bool,
    is_scaled: bool,
    /// The first token of the decoder.
    pub(crate) start: u32,
    /// End-of-sequence tokens.
    pub(crate) stop: Vec<u32>,
}

/// The buckets of relative distances: their number, and the largest distance to distinguish.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    count: usize,
    most: usize,
}

impl T5Config {
    pub(crate) fn parse(keys: &Keys<'_>) -> Result<Self, ConfigError> {
        let projection = keys.text("feed_forward_proj")?.unwrap_or("relu");
        let (is_gated, name) = match projection.strip_prefix("gated-") {
            Some("gelu") => (true, "gelu_new"),
            Some(name) => (true, name),
            None => (false, projection),
        };
        let (layers, heads) = (keys.required_size("num_layers")?, keys.required_size("num_heads")?);
        let count = keys.size("relative_attention_num_buckets")?.unwrap_or(32);
        let most = keys.size("relative_attention_max_distance")?.unwrap_or(128);
        if count % 4 != 0 || most <= count / 2 {
            let expected = "a multiple of 4 and less than twice `relative_attention_max_distance`";
            return Err(ConfigError::value("relative_attention_num_buckets", expected, &Value::from(count)));
        }
        let is_tied = keys.flag("tie_word_embeddings")?.unwrap_or(true);
        let starts = ["decoder_start_token_id", "pad_token_id"].map(|key| keys.tokens(key));
        let start = starts.into_iter().collect::<Result<Vec<_>, _>>()?.concat().first().copied().unwrap_or(0);
        Ok(Self {
            vocabulary: keys.required_size("vocab_size")?,
            width: keys.required_size("d_model")?,
            hidden: keys.required_size("d_ff")?,
            blocks: [layers, keys.size("num_decoder_layers")?.unwrap_or(layers)],
            heads: Heads { queries: heads, keys: heads, width: keys.required_size("d_kv")? },
            buckets: Buckets { count, most },
            activation: Activation::named("feed_forward_proj", name)?,
            is_gated,
            eps: keys.float("layer_norm_epsilon")?.unwrap_or(1e-6),
            is_tied,
            is_scaled: keys.flag("scale_decoder_outputs")?.unwrap_or(is_tied),
            start,
            stop: keys.tokens("eos_token_id")?,
        })
    }

    /// The logits of the rows in the input `wanted`. The encoder writes keys and values of its tokens to the decoder's
    /// cross-attention caches.
    pub(crate) fn forward(&self, scope: &Scope) -> Tensor {
        let table = self.table(scope);
        let prompts = CachedRows::input(scope, "encoder.kept", &scope.size("prompts"));
        let tokens = scope.input("encoder.tokens", DType::U32, [prompts.rows.total.clone()]);
        let encoded = scope.module("encoder", |scope| {
            let pairs = Pairs { rows: prompts.rows.clone(), keys: prompts.rows.clone(), heads: self.heads };
            let [row, key] = pairs.positions(None);
            let bias = self.by_distance(scope, true).gather_scores(self.buckets.place(&(key - row)));
            self.encode(scope, &table.gather(&tokens), |_, parts| pairs.attention(parts, Some(&bias), None))
        });
        let hidden = scope.module("decoder", |scope| self.decode_cached(scope, &table, &encoded, &prompts));
        self.head(scope, &hidden, &table)
    }

    /// The logits of all rows of complete sequences, without caches.
    pub(crate) fn forward_whole(&self, scope: &Scope) -> Tensor {
        let (table, batch) = (self.table(scope), scope.size("sequences"));
        let [prompts, rows] = ["encoder.lengths", "lengths"].map(|name| scope.lengths(name, &batch));
        let tokens = |name, rows: &Ragged| table.gather(&scope.input(name, DType::U32, [rows.total.clone()]));
        let own = |scope: &Scope, rows: &Ragged, looks_ahead| {
            let own = Padded::new(scope, rows, self.heads, looks_ahead);
            let buckets = self.buckets.by_distance(scope, looks_ahead);
            let bias = Padded::by_pair(scope, &self.biases(scope), &buckets.gather(self.buckets.place(&own.distance)));
            move |_: &Scope, parts: [&Tensor; 3]| own.attention(parts, &bias)
        };
        let encoded = scope.module("encoder", |scope| {
            self.encode(scope, &tokens("encoder.tokens", &prompts), own(scope, &prompts, true))
        });
        let hidden = scope.module("decoder", |scope| {
            let across = Pairs { rows: rows.clone(), keys: prompts.clone(), heads: self.heads };
            let crossed = |scope: &Scope, q: &Tensor| {
                let [k, v] = ["k", "v"].map(|name| self.part(scope, name, &encoded));
                across.attention([q, &k, &v], None, None)
            };
            let x = self.decode(scope, &tokens("tokens", &rows), own(scope, &rows, false), crossed);
            rms_norm(scope, "final_layer_norm", &x, self.eps)
        });
        self.head(scope, &hidden, &table)
    }

    fn table(&self, scope: &Scope) -> Tensor {
        scope.weight("shared.weight", [self.vocabulary, self.width])
    }

    fn head(&self, scope: &Scope, hidden: &Tensor, table: &Tensor) -> Tensor {
        let hidden = if self.is_scaled { hidden * (self.width as f64).sqrt().recip() } else { hidden.clone() };
        match self.is_tied {
            true => hidden.linear(table, None),
            false => linear(scope, "lm_head", &hidden, self.vocabulary, false),
        }
    }

    /// The encoder, with the attention of queries, keys and values.
    fn encode(&self, scope: &Scope, x: &Tensor, attended: impl Fn(&Scope, [&Tensor; 3]) -> Tensor) -> Tensor {
        let x = (0..self.blocks[0]).fold(x.clone(), |x, block| {
            scope.module(&format!("block.{block}.layer"), |scope| {
                let attended = self.self_attention(scope, &x, &attended);
                self.feed_forward(scope, "1", &(x + attended))
            })
        });
        rms_norm(scope, "final_layer_norm", &x, self.eps)
    }

    /// The decoder up to its last norm, with the attention of queries, keys and values of its rows, and that of queries to the
    /// prompt.
    fn decode(
        &self,
        scope: &Scope,
        x: &Tensor,
        attended: impl Fn(&Scope, [&Tensor; 3]) -> Tensor,
        crossed: impl Fn(&Scope, &Tensor) -> Tensor,
    ) -> Tensor {
        (0..self.blocks[1]).fold(x.clone(), |x, block| {
            scope.module(&format!("block.{block}.layer"), |scope| {
                let attended = self.self_attention(scope, &x, &attended);
                let x = x + attended;
                let normed = rms_norm(scope, "1.layer_norm", &x, self.eps);
                let attended = scope.module("1.EncDecAttention", |scope| {
                    self.joined(scope, &crossed(scope, &self.part(scope, "q", &normed)))
                });
                self.feed_forward(scope, "2", &(x + attended))
            })
        })
    }

    /// The decoder with caches, for the rows in the input `wanted`.
    fn decode_cached(&self, scope: &Scope, table: &Tensor, encoded: &Tensor, prompts: &CachedRows) -> Tensor {
        let batch = scope.size("sequences");
        let rows = scope.lengths("lengths", &batch);
        let index = |name: &str| scope.input(name, DType::U32, [rows.total.clone()]);
        let (tokens, kept) = (index("tokens"), index("kept"));
        let [before, memory] = ["before", "memory"].map(|name| CachedRows::input(scope, name, &batch));
        let [own, across] = [before.rows.plus(&rows), memory.rows.clone()].map(|keys| Pairs {
            rows: rows.clone(),
            keys,
            heads: self.heads,
        });
        let [row, key] = own.positions(Some(&before.rows));
        let bias = self.by_distance(scope, false).gather_scores(self.buckets.place(&(&key - &row)));
        let keep = key.le(&row);
        let cache_rows = scope.size("cache rows");
        let cache = Cache { names: ["k_cache", "v_cache"], rows: &cache_rows };
        let inner = self.heads.queries * self.heads.width;
        let attended = |scope: &Scope, [q, k, v]: [&Tensor; 3]| {
            let old = cache.read(scope, &before.index, inner);
            cache.write(scope, &kept, [k, v]);
            let all = |old: &Tensor, new: &Tensor| old.jagged_concat(&before.rows, new, &rows).0;
            own.attention([q, &all(&old[0], k), &all(&old[1], v)], Some(&bias), Some(&keep))
        };
        let crossed = |scope: &Scope, q: &Tensor| {
            let [k, v] = cache.read(scope, &memory.index, inner);
            let new = ["k", "v"].map(|name| self.part(scope, name, encoded));
            cache.write(scope, &prompts.index, new.each_ref());
            across.attention([q, &k, &v], None, None)
        };
        let x = self.decode(scope, &table.gather(&tokens), attended, crossed);
        let wanted = scope.input("wanted", DType::U32, [scope.size("wanted rows")]);
        rms_norm(scope, "final_layer_norm", &x.gather(&wanted), self.eps)
    }

    fn self_attention(&self, scope: &Scope, x: &Tensor, attended: impl Fn(&Scope, [&Tensor; 3]) -> Tensor) -> Tensor {
        let normed = rms_norm(scope, "0.layer_norm", x, self.eps);
        scope.module("0.SelfAttention", |scope| {
            let parts = ["q", "k", "v"].map(|name| self.part(scope, name, &normed));
            self.joined(scope, &attended(scope, parts.each_ref()))
        })
    }

    fn part(&self, scope: &Scope, name: &str, x: &Tensor) -> Tensor {
        linear(scope, name, x, self.heads.queries * self.heads.width, false)
    }

    /// Projects the joined heads to the width of the model.
    fn joined(&self, scope: &Scope, x: &Tensor) -> Tensor {
        linear(scope, "o", x, self.width, false)
    }

    fn feed_forward(&self, scope: &Scope, name: &str, x: &Tensor) -> Tensor {
        scope.module(name, |scope| {
            let normed = rms_norm(scope, "layer_norm", x, self.eps);
            let out = scope.module("DenseReluDense", |scope| {
                let into = |name| linear(scope, name, &normed, self.hidden, false);
                let hidden = match self.is_gated {
                    true => self.activation.of(&into("wi_0")) * into("wi_1"),
                    false => self.activation.of(&into("wi")),
                };
                linear(scope, "wo", &hidden, self.width, false)
            });
            x + out
        })
    }

    /// The biases `[buckets, heads]` of an encoder or a decoder. All blocks use the table of the first block.
    fn biases(&self, scope: &Scope) -> Tensor {
        let name = "block.0.layer.0.SelfAttention.relative_attention_bias.weight";
        scope.weight(name, [self.buckets.count, self.heads.queries])
    }

    /// The biases `[distances, heads]` of the distances of [`Buckets::place`].
    fn by_distance(&self, scope: &Scope, looks_ahead: bool) -> Tensor {
        self.biases(scope).gather(self.buckets.by_distance(scope, looks_ahead))
    }
}

impl Buckets {
    /// The place of each distance from a query to a key in [`Buckets::by_distance`].
    fn place(self, distance: &Tensor) -> Tensor {
        let most = self.most as i64;
        distance.clamp(Some(-most), Some(most)) + most
    }

    /// The buckets of the distances `-most..=most` from a query to a key. With `looks_ahead`, half of the buckets are for
    /// later keys.
    fn by_distance(self, scope: &Scope, looks_ahead: bool) -> Tensor {
        let most = self.most as i64;
        let bucket = |distance: i64| {
            let count = if looks_ahead { self.count / 2 } else { self.count };
            let (first, distance) = match distance > 0 {
                true if looks_ahead => (count, distance),
                true => (0, 0),
                false => (0, -distance),
            };
            (first + self.bucket(distance as usize, count)) as u32
        };
        scope.constant(HostTensor::vector(&(-most..=most).map(bucket).collect::<Vec<u32>>()))
    }

    /// The bucket of a distance, with every step rounded to f32 as in the reference.
    fn bucket(self, distance: usize, count: usize) -> usize {
        let exact = count / 2;
        if distance < exact {
            return distance;
        }
        let ln = |ratio: f64| ratio.ln() as f32;
        let share = ln(distance as f64 / exact as f64) / ln(self.most as f64 / exact as f64);
        (exact + (share * (count - exact) as f32) as usize).min(count - 1)
    }
}
