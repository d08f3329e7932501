//! Golden cases with other attributes, other shapes and random values.

use crate::backend::{Tensors, oracle, run, session};
use crate::case::parameter;
use crate::compare::{Tolerance, differences};
use crate::golden::Golden;
use crate::noise::Noise;
use rewire_graph::{DType, HostTensor};
use rewire_runtime::Kernel;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Attributes that do not affect the shapes of inputs, with valid values.
pub fn attributes() -> Vec<(&'static str, Value)> {
    vec![
        ("action_embedding_dim", json!([1, 5])),
        ("action_weights", json!([[1], [3, 5, 8, 64]])),
        ("activation", json!(["nn.ReLU", "nn.Tanh", "nn.Sigmoid", "nn.SiLU"])),
        ("alpha", json!([0.3, -0.7, 0.0])),
        ("attention_dim", json!([1, 7, 16])),
        ("attn_alpha", json!([0.0, 0.37])),
        ("attn_num_layers", json!([1, 3])),
        ("attn_truncation_split_layer", json!([0, 1])),
        ("attn_truncation_tail_len", json!([0, 1, 6])),
        ("bias", json!([true, false])),
        ("causal", json!([true, false])),
        ("contextual_dropout_ratio", json!([0.0, 0.4])),
        ("dropout_pr", json!([0.0, 0.4])),
        ("dropout_ratio", json!([0.0, 0.4])),
        ("enable_interleaving", json!([true, false])),
        ("eps", json!([1e-6, 1e-3])),
        ("hidden_dim", json!([1, 5, 16])),
        ("hidden_units", json!([[5], [3, 25]])),
        ("interleave_targets", json!([true, false])),
        ("max_attn_len", json!([null, 0, 1, 3])),
        ("max_kv_caching_len", json!([0, 50])),
        ("max_seq_len", json!([500])),
        ("min_full_attn_seq_len", json!([0, 1, 4])),
        ("nheads", json!([1, 3])),
        ("norm_eps", json!([1e-6, 1e-3])),
        ("num_position_buckets", json!([1, 40])),
        ("num_time_buckets", json!([1, 33])),
        ("output_dropout_ratio", json!([0.0, 0.5])),
        ("recompute_y_in_backward", json!([true, false])),
        ("return_full_embeddings", json!([true, false])),
        ("scaling_seqlen", json!([-1, 7, 1000])),
        ("sequential_output_dim", json!([1, 9])),
        ("sla_k1", json!([0, 2])),
        ("sla_k2", json!([0, 3])),
        ("target_aware", json!([true, false])),
        ("time_bucket_fn", json!(["sqrt", "log"])),
        ("time_bucket_increments", json!([1.0, 7.5, 60.0])),
        ("truncate_split_layer", json!([0, 1])),
        ("truncate_tail_len", json!([0, 1, 5])),
        ("use_bn", json!([true, false])),
        ("use_group_norm", json!([true, false])),
        ("use_ln", json!([false])),
        ("use_time_encoding", json!([true, false])),
    ]
}

/// Sets all occurrences of `key` to a value, and returns their number.
pub fn set(attrs: &mut Value, key: &str, value: &Value) -> usize {
    match attrs {
        Value::Object(entries) => entries
            .iter_mut()
            .map(|(name, entry)| {
                if name == key {
                    *entry = value.clone();
                    1
                } else {
                    set(entry, key, value)
                }
            })
            .sum(),
        Value::Array(entries) => entries.iter_mut().map(|entry| set(entry, key, value)).sum(),
        _ => 0,
    }
}

/// True unless a sample has more targets than rows; interleaved targets have two rows each.
pub fn has_room_for_targets(golden: &Golden) -> bool {
    let values = |name: &str| golden.tensors.get(name).map(HostTensor::to_i64).unwrap_or_default();
    let rows = if golden.attrs["interleave_targets"] == true { 2 } else { 1 };
    values("in.num_targets").iter().zip(values("in.seq_lengths")).all(|(targets, length)| rows * targets <= length)
}

/// Runs a case with random floats on the interpreter and a kernel and compares them. Integers are unchanged.
pub fn check(golden: &Golden, kernel: Kernel, seed: u64) -> Result<(), String> {
    let replay = golden.trace()?;
    let graph = &replay.graph;
    let parameters: Tensors =
        graph.parameters().iter().map(|p| (p.name.clone(), parameter(&p.name, p.dtype, &p.shape, seed))).collect();
    let inputs: Tensors = golden
        .inputs(graph)
        .into_iter()
        .map(|(name, tensor)| match tensor.dtype().is_float() {
            true => (name.clone(), Noise::new(seed, &name).floats(tensor.dtype(), tensor.shape(), 1.0)),
            false => (name, tensor),
        })
        .collect();
    let expected = oracle(graph, &inputs, &parameters)?;
    let Some(mut session) = session(graph, &parameters, kernel)? else { return Ok(()) };
    let actual = run(&mut session, &inputs)?;
    let tolerance = if golden.half { Tolerance { relative: 3e-3, ..Tolerance::SINGLE } } else { Tolerance::SINGLE };
    let found = differences(&actual, &expected, tolerance);
    if found.is_empty() { Ok(()) } else { Err(format!("{kernel}: {}", found.join("\n  "))) }
}

/// The lengths of the samples of a varied case: one sample, empty ones, only empty ones, many.
pub const LENGTHS: [&[i64]; 7] = [&[0], &[1], &[0, 0, 0], &[5, 0, 1, 37], &[64, 65, 63], &[0, 25], &[21; 100]];

/// The number of target rows per sample.
#[derive(Clone, Copy, Debug)]
pub enum Targets {
    /// Not given.
    Absent,
    /// No row.
    None,
    /// Every row after the contextual prefix.
    All,
    /// Up to two rows.
    Some,
}

/// All kinds of targets.
pub const TARGETS: [Targets; 4] = [Targets::Absent, Targets::None, Targets::All, Targets::Some];

/// A case of an operator over samples of given lengths.
#[derive(Debug)]
pub struct Shape {
    /// Rows of every sample.
    pub lengths: Vec<i64>,
    /// Heads, width of queries and keys, width of values.
    pub widths: [usize; 3],
    /// The targets.
    pub targets: Targets,
    /// The contextual prefix.
    pub context: i64,
}

impl Shape {
    fn case(&self, op: &str, attrs: Value, floats: &[(&str, &[usize])]) -> Golden {
        let mut tensors: BTreeMap<String, HostTensor> = floats
            .iter()
            .map(|(name, shape)| (format!("in.{name}"), Noise::new(3, name).floats(DType::F32, shape, 1.0)))
            .collect();
        let count = |length: &i64| match self.targets {
            Targets::Absent | Targets::None => 0,
            Targets::All => (length - self.context).max(0),
            Targets::Some => (length - self.context).clamp(0, 2),
        };
        let targets: Vec<i64> = self.lengths.iter().map(count).collect();
        if !matches!(self.targets, Targets::Absent) {
            tensors.insert("in.num_targets".to_owned(), HostTensor::lengths(&targets));
        }
        for name in ["seq_offsets", "x_offsets"] {
            tensors.insert(format!("in.{name}"), HostTensor::lengths(&offsets(&self.lengths)));
        }
        tensors.insert("in.seq_lengths".to_owned(), HostTensor::lengths(&self.lengths));
        Golden { name: format!("{op} {attrs} {self:?}"), op: op.to_owned(), attrs, half: false, tensors }
    }

    /// Operators over the samples.
    pub fn cases(&self) -> Vec<Golden> {
        let total = self.lengths.iter().sum::<i64>() as usize;
        let (batch, [h, a, v]) = (self.lengths.len(), self.widths);
        let longest = self.lengths.iter().copied().max().unwrap_or(0).max(1);
        let (rows_a, rows_v, wide) = ([total, h, a], [total, h, v], [total, h * v]);
        let delta = self.lengths.iter().copied().min().unwrap_or(0).min(4) as usize;
        let mask = json!({"max_seq_len": longest + 2, "alpha": 0.31, "max_attn_len": v % 4,
            "contextual_seq_len": self.context, "scaling_seqlen": if a % 2 == 0 { -1 } else { 19 },
            "min_full_attn_seq_len": v % 3, "causal": h != 3});
        let norms = json!({"eps": 1e-3, "dropout_ratio": 0.0, "training": false, "concat_ux": h % 2 == 0,
            "group_norm": v % 2 == 1, "num_heads": h, "linear_dim": v});
        let affine: &[usize] = if v % 2 == 1 { &[h] } else { &[h * v] };
        let out = if h % 2 == 0 { 3 } else { 1 };
        let uvqk = json!({"norm_eps": 1e-3, "num_heads": h, "attn_dim": a, "hidden_dim": v});
        let uvqk_floats: [(&str, &[usize]); 5] = [
            ("x", &[total, a]),
            ("norm_weight", &[a]),
            ("norm_bias", &[a]),
            ("uvqk_weight", &[a, 2 * h * (a + v)]),
            ("uvqk_bias", &[2 * h * (a + v)]),
        ];
        let mut attended = uvqk.clone();
        merge(&mut attended, &mask);
        merge(&mut attended, &json!({"attn_alpha": 0.2}));
        let mut output = norms.clone();
        merge(&mut output, &json!({"norm_eps": 1e-3, "recompute_y_in_backward": true}));
        output.as_object_mut().map(|entries| entries.remove("eps"));
        let rows = [total, v];
        vec![
            self.case("hstu_mha", mask.clone(), &[("q", &rows_a), ("k", &rows_a), ("v", &rows_v)]),
            self.case("delta_hstu_mha", mask, &[("delta_q", &[batch * delta, h, a]), ("k", &rows_a), ("v", &rows_v)]),
            self.case(
                "build_sla_func_tensor",
                json!({"nheads": h, "sla_k1": v % 5, "sla_k2": a % 4, "total_q": total, "contextual_seq_len": self.context}),
                &[],
            ),
            self.case(
                "stu_truncation",
                json!({"max_seq_len": longest, "truncate_tail_len": v % 7, "contextual_seq_len": self.context}),
                &[("x", &rows)],
            ),
            self.case("norm_mul_dropout", norms, &[("x", &wide), ("u", &wide), ("weight", affine), ("bias", affine)]),
            self.case(
                "hstu_compute_output",
                output,
                &[
                    ("attn", &wide),
                    ("u", &wide),
                    ("x", &[total, a]),
                    ("norm_weight", affine),
                    ("norm_bias", affine),
                    ("output_weight", &[out * h * v, a]),
                ],
            ),
            self.case("hstu_compute_uqvk", uvqk, &uvqk_floats),
            self.case("hstu_preprocess_and_attention", attended, &uvqk_floats),
            self.case("layer_norm", json!({"eps": 1e-3}), &[("x", &rows), ("weight", &[v]), ("bias", &[v])]),
            self.case("swish_layer_norm", json!({"eps": 1e-3}), &[("x", &rows), ("weight", &[v]), ("bias", &[v])]),
            self.case("rms_norm", json!({"eps": 1e-3}), &[("x", &rows), ("weight", &[v])]),
            self.case("addmm", json!({}), &[("input", &rows), ("mat1", &[total, a]), ("mat2", &[a, v])]),
            self.case(
                "jagged_dense_bmm_broadcast_add",
                json!({"max_seq_len": longest}),
                &[("jagged", &[total, a]), ("dense", &[batch, a, v]), ("bias", &[batch, v])],
            ),
            self.case(
                "add_positional_embeddings",
                json!({"alpha": 1.7, "max_seq_len": longest, "interleave_targets": false}),
                &[("position_embeddings_weight", &[1 + a, v]), ("seq_embeddings", &rows)],
            ),
        ]
    }
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        into.extend(from.clone());
    }
}

fn offsets(lengths: &[i64]) -> Vec<i64> {
    let ends = lengths.iter().scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    });
    std::iter::once(0).chain(ends).collect()
}
