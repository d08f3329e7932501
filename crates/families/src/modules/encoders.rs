//! Sequence encoders: map a query and the steps of a sequence to one row.

use super::beside;
use rewire_features::{Problem, Problems, SequenceSteps, read};
use rewire_graph::{DType, Mode, Ragged, Scope, Tensor};
use rewire_hstu::modules::{MlpConfig, Padding, linear};
use serde::Deserialize;
use serde_json::{Map, Value};

/// An encoder of a DEEP group: the common keys, and the keys of its kind.
struct SequenceEncoder {
    input: String,
    max_seq_length: i64,
    module: SequenceModule,
}

/// Keys of all kinds of encoders.
#[derive(Deserialize)]
struct CommonKeys {
    #[serde(default, rename = "name")]
    _name: String,
    #[serde(default)]
    input: String,
    #[serde(default)]
    max_seq_length: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SequenceModule {
    DinEncoder(Attention),
    SimpleAttention(Plain),
    PoolingEncoder(Pooled),
    SelfAttentionEncoder(SelfAttention),
    MultiWindowDinEncoder(MultiWindowEncoder),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attention {
    attn_mlp: MlpConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pooled {
    #[serde(default)]
    pooling_type: Pooling,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Pooling {
    #[default]
    Mean,
    Sum,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SelfAttention {
    #[serde(default = "attn_dim")]
    multihead_attn_dim: usize,
    #[serde(default = "heads")]
    num_heads: usize,
    #[serde(default)]
    dropout: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MultiWindowEncoder {
    attn_mlp: MlpConfig,
    windows_len: Vec<usize>,
}

fn attn_dim() -> usize {
    512
}

fn heads() -> usize {
    8
}

/// The output `[B, W]` of an encoder over the sequences of its group. The encoder is JSON with its pointer.
pub(crate) fn encode(
    scope: &Scope,
    pointer: &str,
    encoder: &Value,
    sequences: &[(String, SequenceSteps)],
) -> Result<Tensor, Problems> {
    let encoder = SequenceEncoder::read(encoder, pointer)?;
    let found = match sequences {
        [(_, only)] if encoder.input.is_empty() => Some(only),
        _ => sequences.iter().find(|(name, _)| *name == encoder.input).map(|(_, steps)| steps),
    };
    let missing = || Problem::new(pointer, format!("there is no sequence group `{}` in the group", encoder.input));
    let sequence = found.ok_or_else(|| Problems(vec![missing()]))?;
    encoder.forward(scope, sequence).map_err(|reason| Problems(vec![Problem::new(pointer, reason)]))
}

impl SequenceEncoder {
    fn read(encoder: &Value, pointer: &str) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let (mut own, mut common) = (encoder.clone(), Map::new());
        let kinds = own.as_object_mut().into_iter().flatten();
        let kind = kinds.map(|(kind, keys)| (kind.clone(), keys)).next();
        let pointer_of_keys = kind.as_ref().map_or(pointer.to_owned(), |(kind, _)| format!("{pointer}/{kind}"));
        if let Some((_, Value::Object(keys))) = kind {
            for key in ["name", "input", "max_seq_length"] {
                common.extend(keys.remove_entry(key));
            }
        }
        let common = read::<CommonKeys>(&Value::Object(common), &pointer_of_keys, &mut problems);
        let module = read::<SequenceModule>(&own, pointer, &mut problems);
        match (common, module) {
            (Some(CommonKeys { input, max_seq_length, .. }), Some(module)) => {
                problems.none_or(Self { input, max_seq_length, module })
            }
            _ => Err(problems),
        }
    }

    fn forward(&self, scope: &Scope, sequence: &SequenceSteps) -> Result<Tensor, String> {
        let (steps, rows) = cut(&sequence.steps, &sequence.rows, self.max_seq_length);
        match &self.module {
            SequenceModule::DinEncoder(encoder) => {
                Ok(attention(scope, &encoder.attn_mlp, &padded_query(scope, sequence)?, &steps, &rows))
            }
            SequenceModule::SimpleAttention(_) => {
                let query = sequence.query(scope).filter(|query| query.width() == steps.width());
                let expected = || format!("needs a query of the width of its sequence, {}", steps.width());
                let scores = (&query.ok_or_else(expected)?.jagged_broadcast(&rows) * &steps).sum(1);
                Ok((scores.jagged_softmax(&rows) * &steps).jagged_sum(&rows))
            }
            SequenceModule::PoolingEncoder(encoder) => Ok(match encoder.pooling_type {
                Pooling::Mean => steps.jagged_mean(&rows),
                Pooling::Sum => steps.jagged_sum(&rows),
            }),
            SequenceModule::SelfAttentionEncoder(encoder) => encoder.forward(scope, &steps, &rows, &sequence.rows),
            SequenceModule::MultiWindowDinEncoder(encoder) => {
                let window = MultiWindow { windows_len: &encoder.windows_len, attn_mlp: &encoder.attn_mlp };
                window.forward(scope, &padded_query(scope, sequence)?, &steps, &rows)
            }
        }
    }
}

/// The first `most` steps of every row; all steps if `most` is 0 or negative.
fn cut(steps: &Tensor, rows: &Ragged, most: i64) -> (Tensor, Ragged) {
    if most <= 0 {
        return (steps.clone(), rows.clone());
    }
    let kept = Ragged::from_lengths(&rows.lengths.minimum(most));
    (steps.jagged_head(rows, &kept), kept)
}

/// Zeros `[B, width]`.
pub(crate) fn zeros(scope: &Scope, rows: &Ragged, width: usize) -> Tensor {
    scope.scalar(DType::F32, 0.0).broadcast([rows.batch.clone(), width.into()])
}

/// The rows by which the reference pads every sequence to the batch's longest one. `columns` has one row per sequence.
pub(crate) fn padding(scope: &Scope, rows: &Ragged, columns: &[&Tensor]) -> Padding {
    let missing = scope.host_fill(rows.batch.clone(), &rows.max()) - &rows.lengths;
    Padding { rows: scope.concat(columns, 1), counts: missing.cast(DType::F32) }
}

/// The query, zero-padded to the width of the steps.
fn padded_query(scope: &Scope, sequence: &SequenceSteps) -> Result<Tensor, String> {
    let width = sequence.steps.width();
    let zeros = |missing: usize| zeros(scope, &sequence.rows, missing);
    match sequence.query(scope) {
        None => Ok(zeros(width)),
        Some(query) if query.width() == width => Ok(query),
        Some(query) if query.width() < width => Ok(beside(scope, &[query.clone(), zeros(width - query.width())])),
        Some(query) => Err(format!(
            "needs a query that is not wider than its sequence: expected at most {width} columns, got {}",
            query.width()
        )),
    }
}

/// Attention of queries `[B, C]` to steps `[steps, C]`, with an MLP that computes the scores. The result is `[B, C]`, zeros for rows
/// without steps.
fn attention(scope: &Scope, config: &MlpConfig, query: &Tensor, steps: &Tensor, rows: &Ragged) -> Tensor {
    let q = query.jagged_broadcast(rows);
    let pairs = scope.concat(&[&q, steps, &(&q - steps), &(&q * steps)], 1);
    let zeros = zeros(scope, rows, steps.width());
    let padding = || Some(padding(scope, rows, &[query, &zeros, query, &zeros]));
    let hidden = scope.module("mlp", |scope| config.forward_steps(scope, &pairs, padding));
    let weights = linear(scope, "linear", &hidden, 1).jagged_softmax(rows);
    (&weights * steps).jagged_sum(rows)
}

impl SelfAttention {
    fn forward(&self, scope: &Scope, steps: &Tensor, rows: &Ragged, uncut: &Ragged) -> Result<Tensor, String> {
        let (width, heads) = (self.multihead_attn_dim, self.num_heads);
        if self.dropout > 0.0 && scope.mode() == Mode::Train {
            return Err(format!("is only supported without `dropout` of attention: expected 0, got {}", self.dropout));
        }
        if heads == 0 || width % heads != 0 {
            return Err(format!("needs `multihead_attn_dim` to be a multiple of `num_heads`, got {width} and {heads}"));
        }
        let (weight, bias) = scope.module("_multihead_attn", |scope| {
            (scope.weight("in_proj_weight", [3 * width, width]), scope.weight("in_proj_bias", [3 * width]))
        });
        let head = width / heads;
        let [q, k, v] = [("_query", 0), ("_key", 1), ("_value", 2)].map(|(name, part)| {
            let projected = linear(scope, name, steps, width);
            let (own, bias) = (weight.slice(0, part * width, width), bias.slice(0, part * width, width));
            projected.linear(&own, Some(&bias)).reshape([rows.total.clone(), heads.into(), head.into()])
        });
        let scores = (q * (1.0 / (head as f64).sqrt())).scores(&k, rows, rows);
        let mixed = scores.softmax_scores(None, rows, rows).weighted_sum(&v, rows, rows);
        let mixed = mixed.reshape([rows.total.clone(), width.into()]);
        let out = scope.module("_multihead_attn", |scope| linear(scope, "out_proj", &mixed, width));
        let count = uncut.lengths.cast(DType::F32).clamp(Some(1.0), None).reshape([uncut.batch.clone(), 1.into()]);
        Ok(out.jagged_sum(rows) / count)
    }
}

/// Means of gated steps over consecutive windows.
pub(crate) struct MultiWindow<'a> {
    pub windows_len: &'a [usize],
    pub attn_mlp: &'a MlpConfig,
}

impl MultiWindow<'_> {
    /// Maps queries `[B, C]` and steps `[steps, C]` to `[B, C (windows + 1)]`.
    fn forward(&self, scope: &Scope, query: &Tensor, steps: &Tensor, rows: &Ragged) -> Result<Tensor, String> {
        if self.windows_len.is_empty() {
            return Err("needs `windows_len`".to_owned());
        }
        let q = query.jagged_broadcast(rows);
        let pairs = scope.concat(&[steps, &(&q * steps), &q], 1);
        let zeros = zeros(scope, rows, steps.width());
        let padding = || Some(padding(scope, rows, &[&zeros, &zeros, query]));
        let hidden = scope.module("mlp", |scope| self.attn_mlp.forward_steps(scope, &pairs, padding));
        let gate = linear(scope, "linear", &hidden, 1);
        let slope = scope.module("active", |scope| scope.weight("weight", [1]));
        let gate = gate.gt(0.0).select(&gate, &(&gate * &slope));
        let gated = &gate * steps;
        let mut parts = vec![];
        let mut start = 0;
        for &length in self.windows_len {
            let starts = rows.lengths.minimum(start as i64);
            let kept = Ragged::from_lengths(&(&rows.lengths - &starts).minimum(length as i64));
            parts.push(gated.jagged_slice(rows, &starts, &kept).jagged_mean(&kept));
            start += length;
        }
        parts.push(query.clone());
        Ok(beside(scope, &parts))
    }

    /// [`MultiWindow::forward`] for the query and steps of a group.
    pub fn of(&self, scope: &Scope, sequence: &SequenceSteps) -> Result<Tensor, String> {
        self.forward(scope, &padded_query(scope, sequence)?, &sequence.steps, &sequence.rows)
    }
}

/// [`attention`] for the query and steps of a group.
pub(crate) fn din(scope: &Scope, config: &MlpConfig, sequence: &SequenceSteps) -> Result<Tensor, String> {
    Ok(attention(scope, config, &padded_query(scope, sequence)?, &sequence.steps, &sequence.rows))
}
