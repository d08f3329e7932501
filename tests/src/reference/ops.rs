use super::primitives::{floats, function, rows};
use super::{Function, Sketch};
use rewire_graph::{DType, Dim, Ragged, Tensor};
use rewire_hstu::ops::{
    Attention, IntervalMask, NormMulDropout, Positions, SemiLocal, StandardMask, TimeBucketFn, TimeBuckets,
    UvqkWeights, add_positional_embeddings, add_timestamp_positional_embeddings, build_sla_func_tensor,
    concat_2d_jagged, delta_hstu_mha, hstu_compute_output, hstu_compute_uqvk, hstu_mha, hstu_preprocess_and_attention,
    jagged_dense_bmm_broadcast_add, last_rows, norm_mul_dropout, own_hstu_mha, split_2d_jagged, stu_truncation,
    target_hstu_mha,
};

fn vector(scope: &Sketch, name: &str, width: usize) -> Tensor {
    scope.parameter(name, DType::F32, &[width.into()])
}

fn matrix(scope: &Sketch, name: &str, rows: usize, columns: usize) -> Tensor {
    scope.parameter(name, DType::F32, &[rows.into(), columns.into()])
}

/// A row a row of all samples.
fn values(scope: &Sketch, name: &str, width: usize) -> Tensor {
    floats(scope, name, [rows(scope).total, width.into()])
}

/// Queries, keys or values `[total, 2, width]`.
fn heads(scope: &Sketch, name: &str, width: usize) -> Tensor {
    floats(scope, name, [rows(scope).total, 2.into(), width.into()])
}

fn others(scope: &Sketch) -> Ragged {
    scope.lengths("others", &scope.size("other samples"))
}

fn mask(scope: &Sketch) -> StandardMask {
    let targets = scope.host_input("num_targets", &[rows(scope).batch]);
    StandardMask { num_targets: Some(targets), contextual_seq_len: 2, max_attn_len: 9, ..StandardMask::default() }
}

fn mha(s: &Sketch, [q, k, v]: [Tensor; 3], alpha: f64) -> Tensor {
    hstu_mha(s, [&q, &k, &v], &rows(s), &Attention::new(alpha, 64), |pairs| mask(s).trace(pairs))
}

fn qkv(s: &Sketch) -> [Tensor; 3] {
    [heads(s, "q", 4), heads(s, "k", 4), heads(s, "v", 5)]
}

fn uvqk(s: &Sketch) -> UvqkWeights {
    UvqkWeights {
        norm_weight: vector(s, "norm_weight", 6),
        norm_bias: vector(s, "norm_bias", 6),
        uvqk_weight: matrix(s, "uvqk_weight", 6, 36),
        uvqk_bias: vector(s, "uvqk_bias", 36),
        norm_eps: 1e-6,
        num_heads: 2,
        attn_dim: 4,
        hidden_dim: 5,
        recompute_normed_x: false,
        recompute_uvqk: false,
    }
}

fn gated(s: &Sketch, options: &NormMulDropout) -> Tensor {
    let width = options.group_norm.unwrap_or(10);
    let norm = [&vector(s, "weight", width), &vector(s, "bias", width)];
    norm_mul_dropout(s, &values(s, "x", 10), &values(s, "u", 10), norm, options)
}

const PLAIN: NormMulDropout =
    NormMulDropout { eps: 1e-6, group_norm: None, concat_ux: true, dropout_ratio: 0.0, recompute_y: false };

fn output(s: &Sketch, attn: Tensor, u: Tensor, x: Tensor, weight: Tensor) -> Tensor {
    let norm = [&vector(s, "weight", 10), &vector(s, "bias", 10)];
    hstu_compute_output(s, [&attn, &u, &x], norm, &weight, &PLAIN)
}

fn place<'a>(rows: &'a Ragged) -> Positions<'a> {
    Positions { rows, seq_lengths: &rows.lengths, num_targets: None, interleave_targets: false, first: None }
}

fn positions(s: &Sketch, table: Tensor, alpha: f64) -> Tensor {
    add_positional_embeddings(&values(s, "x", 6), &table, alpha, &place(&rows(s)))
}

fn timestamp_positions(s: &Sketch, [positions, times]: [Tensor; 2], timestamps: Tensor, increments: f64) -> Tensor {
    let time = TimeBuckets { timestamps: &timestamps, query_time: None, bucket_fn: TimeBucketFn::Sqrt, increments };
    add_timestamp_positional_embeddings(s, &values(s, "x", 6), [&positions, &times], 2.0, &place(&rows(s)), 1, &time)
}

fn tables(s: &Sketch) -> [Tensor; 2] {
    [matrix(s, "positions", 9, 6), matrix(s, "times", 5, 6)]
}

fn times(s: &Sketch, dtype: DType) -> Tensor {
    s.input("timestamps", dtype, &[rows(s).total])
}

pub(super) fn all() -> Vec<Function> {
    [attention(), layers(), jagged(), position()].concat()
}

fn attention() -> Vec<Function> {
    vec![
        function(
            "hstu_mha",
            |s| mha(s, qkv(s), 0.5),
            &[
                |s| mha(s, [values(s, "q", 8), heads(s, "k", 4), heads(s, "v", 5)], 0.5),
                |s| mha(s, [heads(s, "q", 4), heads(s, "k", 3), heads(s, "v", 5)], 0.5),
                |s| {
                    mha(
                        s,
                        [heads(s, "q", 4), heads(s, "k", 4), floats(s, "v", [rows(s).total, 3.into(), 5.into()])],
                        0.5,
                    )
                },
                |s| mha(s, [heads(s, "q", 4), heads(s, "k", 4), heads(s, "v", 5).cast(DType::I32)], 0.5),
                |s| mha(s, qkv(s), f64::NAN),
                |s| {
                    let [q, k, v] = qkv(s);
                    let mask = IntervalMask {
                        attn_func: s.input("attn_func", DType::I32, &[2.into(), 2.into(), rows(s).total]),
                    };
                    hstu_mha(s, [&q, &k, &v], &rows(s), &Attention::new(0.5, 64), |pairs| mask.trace(pairs))
                },
                |s| {
                    let [q, k, v] = qkv(s);
                    hstu_mha(s, [&q, &k, &v], &rows(s), &Attention::new(0.5, 64), |pairs| pairs.row().clone())
                },
            ],
        ),
        function(
            "delta_hstu_mha",
            |s| {
                let last = Ragged::dense(s, rows(s).batch, &s.host_size(1));
                let q = floats(s, "delta_q", [last.total.clone(), 2.into(), 4.into()]);
                let [_, k, v] = qkv(s);
                delta_hstu_mha(s, [&q, &k, &v], &last, &rows(s), &Attention::new(0.5, 64), |pairs| mask(s).trace(pairs))
            },
            &[|s| {
                let [q, k, v] = qkv(s);
                delta_hstu_mha(s, [&q, &k, &v], &rows(s), &others(s), &Attention::new(0.5, 64), |pairs| {
                    mask(s).trace(pairs)
                })
            }],
        ),
        function(
            "target_hstu_mha",
            |s| {
                let targets = Ragged::dense(s, rows(s).batch, &s.host_size(3));
                let q = floats(s, "target_q", [targets.total.clone(), 2.into(), 4.into()]);
                let [_, k, v] = qkv(s);
                target_hstu_mha(s, [&q, &k, &v], &targets, &rows(s), &Attention::new(0.5, 64), |pairs| {
                    let num_targets = Some(targets.lengths.clone());
                    StandardMask { num_targets, max_attn_len: 9, ..StandardMask::default() }.trace(pairs)
                })
            },
            &[|s| {
                let [q, k, v] = qkv(s);
                target_hstu_mha(s, [&q, &k, &v], &rows(s), &others(s), &Attention::new(0.5, 64), |pairs| {
                    StandardMask::default().trace(pairs)
                })
            }],
        ),
        function(
            "own_hstu_mha",
            |s| {
                let [q, k, v] = qkv(s);
                own_hstu_mha(&q, &k, &v, &Attention::new(0.5, 64))
            },
            &[|s| own_hstu_mha(&heads(s, "q", 4), &heads(s, "k", 3), &heads(s, "v", 5), &Attention::new(0.5, 64))],
        ),
        function(
            "build_sla_func_tensor",
            |s| build_sla_func_tensor(s, &rows(s), 2, &semi_local()),
            &[|s| build_sla_func_tensor(s, &rows(s), 0, &semi_local())],
        ),
    ]
}

fn semi_local() -> SemiLocal {
    SemiLocal { sla_k1: 3, sla_k2: 2, contextual_seq_len: 0, num_targets: None }
}

fn layers() -> Vec<Function> {
    vec![
        function(
            "hstu_compute_uqvk",
            |s| hstu_compute_uqvk(&values(s, "x", 6), &uvqk(s)).u,
            &[
                |s| hstu_compute_uqvk(&heads(s, "x", 6), &uvqk(s)).u,
                |s| hstu_compute_uqvk(&values(s, "x", 6), &UvqkWeights { num_heads: 0, ..uvqk(s) }).u,
                |s| hstu_compute_uqvk(&values(s, "x", 6), &UvqkWeights { attn_dim: usize::MAX, ..uvqk(s) }).u,
                |s| hstu_compute_uqvk(&values(s, "x", 6), &UvqkWeights { hidden_dim: 0, ..uvqk(s) }).u,
                |s| hstu_compute_uqvk(&values(s, "x", 6), &UvqkWeights { norm_weight: vector(s, "w", 5), ..uvqk(s) }).u,
                |s| hstu_compute_uqvk(&values(s, "x", 6), &UvqkWeights { norm_bias: vector(s, "b", 5), ..uvqk(s) }).u,
                |s| {
                    hstu_compute_uqvk(
                        &values(s, "x", 6),
                        &UvqkWeights { uvqk_weight: matrix(s, "w", 6, 35), ..uvqk(s) },
                    )
                    .u
                },
                |s| hstu_compute_uqvk(&values(s, "x", 6), &UvqkWeights { uvqk_bias: vector(s, "b", 35), ..uvqk(s) }).u,
                |s| hstu_compute_uqvk(&values(s, "x", 6), &UvqkWeights { norm_eps: -1.0, ..uvqk(s) }).u,
            ],
        ),
        function(
            "hstu_preprocess_and_attention",
            |s| {
                let attention = Attention::new(0.5, 64);
                hstu_preprocess_and_attention(s, &values(s, "x", 6), &rows(s), &uvqk(s), &attention, &mask(s)).1
            },
            &[],
        ),
        function(
            "norm_mul_dropout",
            |s| gated(s, &PLAIN),
            &[
                |s| gated(s, &NormMulDropout { group_norm: Some(3), ..PLAIN }),
                |s| gated(s, &NormMulDropout { group_norm: Some(0), ..PLAIN }),
                |s| gated(s, &NormMulDropout { dropout_ratio: 1.0, ..PLAIN }),
                |s| gated(s, &NormMulDropout { dropout_ratio: -0.5, ..PLAIN }),
                |s| gated(s, &NormMulDropout { eps: f64::NAN, ..PLAIN }),
                |s| {
                    let norm = [&vector(s, "weight", 10), &vector(s, "bias", 10)];
                    norm_mul_dropout(s, &values(s, "x", 10), &values(s, "u", 9), norm, &PLAIN)
                },
                |s| {
                    let norm = [&vector(s, "weight", 2), &vector(s, "bias", 10)];
                    norm_mul_dropout(s, &values(s, "x", 10), &values(s, "u", 10), norm, &PLAIN)
                },
            ],
        ),
        function(
            "hstu_compute_output",
            |s| output(s, values(s, "attn", 10), values(s, "u", 10), values(s, "x", 6), matrix(s, "output", 30, 6)),
            &[
                |s| output(s, values(s, "attn", 10), values(s, "u", 10), values(s, "x", 6), matrix(s, "output", 10, 6)),
                |s| output(s, values(s, "attn", 10), values(s, "u", 10), heads(s, "x", 6), matrix(s, "output", 30, 6)),
                |s| output(s, heads(s, "attn", 5), values(s, "u", 10), values(s, "x", 6), matrix(s, "output", 30, 6)),
                |s| output(s, values(s, "attn", 10), values(s, "u", 8), values(s, "x", 6), matrix(s, "output", 30, 6)),
            ],
        ),
    ]
}

fn jagged() -> Vec<Function> {
    vec![
        function(
            "concat_2d_jagged",
            |s| concat_2d_jagged(&values(s, "a", 3), &rows(s), &values(s, "b", 3), &rows(s)).0,
            &[
                |s| concat_2d_jagged(&values(s, "a", 3), &rows(s), &values(s, "b", 3), &others(s)).0,
                |s| concat_2d_jagged(&values(s, "a", 3), &rows(s), &values(s, "b", 2), &rows(s)).0,
            ],
        ),
        function(
            "split_2d_jagged",
            |s| {
                let both = rows(s).plus(&rows(s));
                split_2d_jagged(&floats(s, "x", [both.total, 3.into()]), &rows(s), &rows(s)).1
            },
            &[|s| split_2d_jagged(&values(s, "x", 3), &rows(s), &others(s)).0],
        ),
        function(
            "jagged_dense_bmm_broadcast_add",
            |s| bmm(s, [3, 5], 5),
            &[
                |s| bmm(s, [4, 5], 5),
                |s| bmm(s, [3, 5], 4),
                |s| {
                    jagged_dense_bmm_broadcast_add(
                        &heads(s, "x", 3),
                        &rows(s),
                        &values(s, "dense", 5),
                        &values(s, "bias", 5),
                    )
                },
            ],
        ),
        function(
            "last_rows",
            |s| last_rows(s, &values(s, "x", 3), &rows(s)),
            &[|s| last_rows(s, &s.scalar(DType::F32, 1.5), &rows(s))],
        ),
        function(
            "stu_truncation",
            |s| {
                let plan = stu_truncation(s, &rows(s), mask(s).num_targets.as_ref(), 2, 5);
                plan.apply(&values(s, "x", 3))
            },
            &[|s| stu_truncation(s, &rows(s), Some(&others(s).lengths), 2, 5).apply(&values(s, "x", 3))],
        ),
    ]
}

fn bmm(s: &Sketch, [k, n]: [usize; 2], bias: usize) -> Tensor {
    let batch: Dim = rows(s).batch;
    let dense = floats(s, "dense", [batch.clone(), k.into(), n.into()]);
    jagged_dense_bmm_broadcast_add(&values(s, "x", 3), &rows(s), &dense, &floats(s, "bias", [batch, bias.into()]))
}

fn position() -> Vec<Function> {
    vec![
        function(
            "add_positional_embeddings",
            |s| positions(s, matrix(s, "table", 9, 6), 2.0),
            &[
                |s| positions(s, matrix(s, "table", 9, 5), 2.0),
                |s| positions(s, matrix(s, "table", 0, 6), 2.0),
                |s| positions(s, matrix(s, "table", 9, 6), f64::INFINITY),
            ],
        ),
        function(
            "add_timestamp_positional_embeddings",
            |s| timestamp_positions(s, tables(s), times(s, DType::I64), 60.0),
            &[
                |s| timestamp_positions(s, [matrix(s, "p", 9, 5), matrix(s, "t", 5, 6)], times(s, DType::I64), 60.0),
                |s| timestamp_positions(s, [matrix(s, "p", 9, 6), matrix(s, "t", 5, 7)], times(s, DType::I64), 60.0),
                |s| timestamp_positions(s, tables(s), times(s, DType::Bool), 60.0),
                |s| timestamp_positions(s, tables(s), s.input("t", DType::I64, &[7.into()]), 60.0),
                |s| timestamp_positions(s, tables(s), times(s, DType::I64), 0.0),
            ],
        ),
    ]
}
