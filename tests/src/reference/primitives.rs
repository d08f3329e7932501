use super::{Function, Sketch, Trace};
use rewire_graph::op::{
    Broadcast, Call, Concat, Dropout, Input, JaggedJaggedMatMul, JaggedToPadded, Parameter, Reduce, ReduceOp, Reshape,
    RowIndex, RowIndexKind, ScoreIndex, ScoreKind, SegmentReduce, SetRows, Slice, Unfold, WeightedSum, Window,
};
use rewire_graph::pointwise::ScalarFunction;
use rewire_graph::{DType, Dim, HostTensor, Ragged, Tensor, Type};

pub(super) fn function(item: &'static str, example: Trace, violations: &[Trace]) -> Function {
    Function { item, example, violations: violations.to_vec() }
}

pub(super) fn rows(scope: &Sketch) -> Ragged {
    scope.lengths("lengths", &scope.size("samples"))
}

pub(super) fn floats<const N: usize>(scope: &Sketch, name: &str, shape: [Dim; N]) -> Tensor {
    scope.input(name, DType::F32, &shape)
}

/// `[n, 6]`
fn x(scope: &Sketch) -> Tensor {
    floats(scope, "x", [scope.size("n"), 6.into()])
}

fn weight<const N: usize>(scope: &Sketch, shape: [usize; N]) -> Tensor {
    scope.parameter("weight", DType::F32, &shape.map(Dim::from))
}

/// A state `[7, 6]` of which rows are set.
fn set_rows(scope: &Sketch, rows: Tensor) -> Tensor {
    let table = scope.state("table", DType::F32, [7, 6]);
    scope.set_state_rows("table", &integers(scope), &rows);
    table.sum(0)
}

fn integers(scope: &Sketch) -> Tensor {
    scope.input("i", DType::I32, &[scope.size("n")])
}

/// Queries and keys `[rows, 2, 4]`.
fn heads(scope: &Sketch, rows: &Ragged) -> [Tensor; 2] {
    ["q", "k"].map(|name| floats(scope, name, [rows.total.clone(), 2.into(), 4.into()]))
}

fn attended(scope: &Sketch, weights: impl Fn(&Tensor, &Ragged) -> Tensor) -> Tensor {
    let rows = rows(scope);
    let [q, k] = heads(scope, &rows);
    weights(&q.scores(&k, &rows, &rows), &rows).weighted_sum(&k, &rows, &rows)
}

/// `log(1 + e^x)`, a user's function.
#[derive(Debug)]
struct Softplus;

impl ScalarFunction for Softplus {
    fn name(&self) -> &str {
        "softplus"
    }

    fn arguments(&self) -> usize {
        1
    }

    fn wgsl(&self) -> String {
        "fn softplus(x: f32) -> f32 { return max(x, 0.0f) + log(1.0f + exp(-abs(x))); }".to_owned()
    }

    fn evaluate(&self, x: &[f32]) -> f32 {
        x.first().map_or(0.0, |x| x.max(0.0) + (-x.abs()).exp().ln_1p())
    }
}

pub(super) fn all() -> Vec<Function> {
    [sources(), pointwise(), movement(), jagged(), products(), scores()].concat()
}

fn sources() -> Vec<Function> {
    vec![
        function(
            "Input",
            x,
            &[
                |s| {
                    s.input("x", DType::F32, &[4.into()]);
                    s.input("x", DType::F32, &[5.into()])
                },
                |s| s.apply(Input { name: "x".to_owned(), ty: Type::device(DType::F32, vec![]) }, &[&x(s)]),
            ],
        ),
        function(
            "Parameter",
            |s| weight(s, [3, 2]).relu(),
            &[
                |s| {
                    weight(s, [4]);
                    weight(s, [5])
                },
                |s| s.apply(Parameter { name: "w".to_owned(), ty: Type::device(DType::F32, vec![]) }, &[&x(s)]),
            ],
        ),
        function(
            "Constant",
            |s| &x(s) * &s.constant(HostTensor::lengths(&[3]).reshape(vec![]).unwrap()).cast(DType::F32),
            &[],
        ),
        function(
            "HostOp",
            |s| rows(s).plus(&rows(s)).offsets,
            &[
                |s| {
                    rows(s)
                        .lengths
                        .binary(rewire_graph::pointwise::BinaryOp::Add, &s.lengths("other", &s.size("others")).lengths)
                },
                |s| s.apply(rewire_graph::op::HostOp::Sum, &[&x(s)]),
                |s| &rows(s).lengths + -1.5,
            ],
        ),
    ]
}

fn pointwise() -> Vec<Function> {
    vec![
        function("UnaryOp", |s| x(s).silu(), &[|s| integers(s).exp(), |s| x(s).not()]),
        function(
            "BinaryOp",
            |s| &x(s) * &x(s),
            &[
                |s| x(s).and(&x(s)),
                |s| &x(s) + &integers(s),
                |s| &x(s) + &weight(s, [5]),
                |s| attended(s, |scores, _| scores + &x(s)),
            ],
        ),
        function(
            "Where",
            |s| x(s).gt(&x(s).square()).select(&x(s), &s.scalar(DType::F32, 0.5)),
            &[|s| x(s).select(&x(s), &x(s)), |s| x(s).gt(&x(s)).select(&x(s), &integers(s))],
        ),
        function(
            "Cast",
            |s| integers(s).cast(DType::F32),
            &[|s| s.apply(rewire_graph::op::Cast { dtype: DType::F32 }, &[])],
        ),
        function("Detach", |s| x(s).detach(), &[|s| s.host_input("lengths", [s.size("samples")]).detach()]),
        function(
            "Call",
            |s| s.apply(Call::new(Softplus), &[&x(s)]),
            &[|s| s.apply(Call::new(Softplus), &[]), |s| s.apply(Call::new(Softplus), &[&integers(s)])],
        ),
        function(
            "Dropout",
            |s| x(s).dropout(0.2, &s.input("seed", DType::I64, &[])),
            &[
                |s| integers(s).dropout(0.2, &s.input("seed", DType::I64, &[])),
                |s| attended(s, |scores, _| scores.dropout(0.2, &s.input("seed", DType::I64, &[]))),
                |s| x(s).dropout(0.2, &x(s)),
                |s| x(s).dropout(1.0, &s.input("seed", DType::I64, &[])),
                |s| s.apply(Dropout { ratio: f32::NAN }, &[&x(s), &s.input("seed", DType::I64, &[])]),
                |s| s.apply(Dropout { ratio: 0.2 }, &[&x(s), &s.input("seed", DType::I64, &[]), &x(s)]),
            ],
        ),
    ]
}

fn movement() -> Vec<Function> {
    vec![
        function(
            "Reshape",
            |s| {
                let x = x(s);
                x.reshape(&[x.dim(0), 2.into(), 3.into()])
            },
            &[|s| x(s).reshape(&[12.into()]), |s| s.apply(Reshape { shape: vec![5.into()] }, &[&weight(s, [6])])],
        ),
        function(
            "Permute",
            |s| x(s).transpose(0, 1),
            &[|s| x(s).permute(&[0, 0]), |s| x(s).permute(&[0]), |s| x(s).transpose(0, 2)],
        ),
        function(
            "Slice",
            |s| x(s).slice(1, 2, 3),
            &[
                |s| x(s).slice(1, 4, 3),
                |s| x(s).slice(0, 0, 1),
                |s| s.apply(Slice { axis: 2, start: 0, len: 1 }, &[&x(s)]),
                |s| x(s).slice(1, usize::MAX, 2),
            ],
        ),
        function("Flip", |s| x(s).flip(1), &[|s| x(s).flip(2)]),
        function(
            "Concat",
            |s| s.concat(&[&x(s), &x(s).relu()], 1),
            &[
                |s| s.apply(Concat { axis: 0 }, &[]),
                |s| s.concat(&[&x(s), &x(s)], 2),
                |s| s.concat(&[&x(s), &weight(s, [6])], 1),
                |s| s.concat(&[&x(s), &weight(s, [5, 5])], 0),
                |s| s.concat(&[&integers(s), &weight(s, [3])], 0),
            ],
        ),
        function(
            "Broadcast",
            |s| weight(s, [6]).broadcast(&[3.into(), 6.into()]),
            &[|s| weight(s, [5]).broadcast(&[3.into(), 6.into()]), |s| s.apply(Broadcast { shape: vec![] }, &[&x(s)])],
        ),
        function(
            "Gather",
            |s| weight(s, [7, 3]).gather(&integers(s)),
            &[
                |s| s.scalar(DType::F32, 2.0).gather(&integers(s)),
                |s| weight(s, [0, 3]).gather(&integers(s)),
                |s| weight(s, [7, 3]).gather(&x(s)),
            ],
        ),
        function(
            "IndexAdd",
            |s| x(s).index_add(&integers(s), &7.into()),
            &[
                |s| x(s).index_add(&x(s), &7.into()),
                |s| integers(s).index_add(&integers(s), &7.into()),
                |s| s.scalar(DType::F32, 1.5).index_add(&integers(s), &7.into()),
                |s| weight(s, [5, 6]).index_add(&integers(s), &7.into()),
                |s| x(s).index_add(&integers(s), &0.into()),
            ],
        ),
        function(
            "SetRows",
            |s| set_rows(s, x(s).gather(&integers(s))),
            &[
                |s| set_rows(s, x(s).gather(&integers(s)).sum(1)),
                |s| s.apply(SetRows, &[&weight(s, [0, 6]), &integers(s), &x(s)]),
                |s| s.apply(SetRows, &[&x(s), &x(s), &x(s)]),
            ],
        ),
        function(
            "Unfold",
            |s| {
                let image = floats(s, "x", [s.size("n"), 2.into(), 5.into(), 4.into()]);
                s.apply(Unfold { kernel: [3, 2], window: Window::default() }, &[&image])
            },
            &[
                |s| s.apply(Unfold { kernel: [1, 1], window: Window::default() }, &[&x(s)]),
                |s| s.apply(Unfold { kernel: [6, 1], window: Window::default() }, &[&weight(s, [1, 2, 5, 4])]),
                |s| s.apply(Unfold { kernel: [0, 1], window: Window::default() }, &[&weight(s, [1, 2, 5, 4])]),
                |s| {
                    s.apply(
                        Unfold { kernel: [1, 1], window: Window { groups: 3, ..Window::default() } },
                        &[&weight(s, [1, 2, 5, 4])],
                    )
                },
                |s| {
                    s.apply(
                        Unfold { kernel: [1, 1], window: Window { stride: [1, 0], ..Window::default() } },
                        &[&weight(s, [1, 2, 5, 4])],
                    )
                },
                |s| {
                    s.apply(
                        Unfold { kernel: [1, 1], window: Window { dilation: [0, 1], ..Window::default() } },
                        &[&weight(s, [1, 2, 5, 4])],
                    )
                },
            ],
        ),
        function(
            "Reduce",
            |s| x(s).sum(1),
            &[
                |s| x(s).sum(2),
                |s| integers(s).max(0),
                |s| attended(s, |scores, _| scores.sum(3)),
                |s| s.apply(Reduce { op: ReduceOp::Min, axis: 0 }, &[&rows(s).lengths]),
            ],
        ),
    ]
}

/// Rows `[total, width]`.
fn values(s: &Sketch, width: usize) -> Tensor {
    floats(s, &format!("x{width}"), [rows(s).total, width.into()])
}

/// Rows of other samples.
fn others(s: &Sketch) -> Ragged {
    s.lengths("others", &s.size("other samples"))
}

fn jagged() -> Vec<Function> {
    vec![
        function(
            "JaggedConcat",
            |s| values(s, 3).jagged_concat(&rows(s), &values(s, 3), &rows(s)).0,
            &[
                |s| values(s, 3).jagged_concat(&rows(s), &values(s, 2), &rows(s)).0,
                |s| values(s, 3).jagged_concat(&rows(s), &weight(s, [3]), &rows(s)).0,
                |s| values(s, 3).jagged_concat(&rows(s), &values(s, 3), &others(s)).0,
                |s| values(s, 3).jagged_concat(&rows(s), &values(s, 3).cast(DType::I32), &rows(s)).0,
            ],
        ),
        function(
            "JaggedSlice",
            |s| {
                let kept = Ragged::from_lengths(&rows(s).lengths.minimum(&s.host_fill(rows(s).batch, &s.host_size(2))));
                values(s, 3).jagged_tail(&rows(s), &kept)
            },
            &[
                |s| values(s, 3).jagged_slice(&rows(s), &others(s).lengths, &rows(s)),
                |s| rows(s).lengths.jagged_slice(&rows(s), &rows(s).lengths, &rows(s)),
            ],
        ),
        function(
            "JaggedBroadcast",
            |s| floats(s, "x", [rows(s).batch, 3.into()]).jagged_broadcast(&rows(s)),
            &[|s| values(s, 3).jagged_broadcast(&rows(s)), |s| s.scalar(DType::F32, 1.5).jagged_broadcast(&rows(s))],
        ),
        function(
            "RowIndex",
            |s| rows(s).position(),
            &[|s| s.apply(RowIndex { kind: RowIndexKind::Position, rows: rows(s).total }, &[&x(s)])],
        ),
        function(
            "JaggedToPadded",
            |s| values(s, 3).jagged_to_padded(&rows(s), &5.into(), 0.5),
            &[
                |s| s.apply(JaggedToPadded { extent: 5.into() }, &[&values(s, 3), &x(s), &rows(s).offsets]),
                |s| {
                    s.apply(
                        JaggedToPadded { extent: 5.into() },
                        &[&values(s, 3), &s.scalar(DType::I32, 1.0), &rows(s).offsets],
                    )
                },
                |s| s.scalar(DType::F32, 1.5).jagged_to_padded(&rows(s), &5.into(), 0.5),
            ],
        ),
        function(
            "PaddedToJagged",
            |s| floats(s, "x", [rows(s).batch, 4.into(), 3.into()]).padded_to_jagged(&rows(s)),
            &[|s| weight(s, [3, 4, 2]).padded_to_jagged(&rows(s)), |s| weight(s, [3]).padded_to_jagged(&rows(s))],
        ),
        function(
            "SegmentReduce",
            |s| values(s, 3).segment_reduce(ReduceOp::Sum, &rows(s)),
            &[
                |s| s.scalar(DType::F32, 1.5).segment_reduce(ReduceOp::Max, &rows(s)),
                |s| values(s, 3).cast(DType::I32).segment_reduce(ReduceOp::Sum, &rows(s)),
                |s| s.apply(SegmentReduce { op: ReduceOp::Sum }, &[&values(s, 3), &integers(s)]),
            ],
        ),
        function(
            "JaggedMatMul",
            |s| values(s, 3).jagged_matmul(&floats(s, "d", [rows(s).batch, 3.into(), 5.into()]), &rows(s)),
            &[
                |s| values(s, 3).jagged_matmul(&floats(s, "d", [rows(s).batch, 4.into(), 5.into()]), &rows(s)),
                |s| values(s, 3).jagged_matmul(&weight(s, [2, 3, 5]), &rows(s)),
                |s| values(s, 3).jagged_matmul(&weight(s, [3, 5]), &rows(s)),
                |s| {
                    values(s, 3)
                        .cast(DType::I32)
                        .jagged_matmul(&floats(s, "d", [rows(s).batch, 3.into(), 5.into()]), &rows(s))
                },
            ],
        ),
    ]
}

fn products() -> Vec<Function> {
    vec![
        function(
            "MatMul",
            |s| x(s).matmul(&weight(s, [6, 5])),
            &[
                |s| x(s).matmul(&weight(s, [5, 6])),
                |s| x(s).matmul(&weight(s, [6])),
                |s| x(s).matmul(&weight(s, [6, 5]).cast(DType::I32)),
                |s| floats(s, "a", [2.into(), 4.into(), 6.into()]).matmul(&weight(s, [3, 6, 5])),
            ],
        ),
        function(
            "JaggedJaggedMatMul",
            |s| values(s, 3).jagged_jagged_matmul(&values(s, 5), &rows(s)),
            &[
                |s| weight(s, [3]).jagged_jagged_matmul(&values(s, 5), &rows(s)),
                |s| values(s, 3).jagged_jagged_matmul(&values(s, 5).cast(DType::I32), &rows(s)),
                |s| values(s, 3).jagged_jagged_matmul(&x(s), &rows(s)),
                |s| s.apply(JaggedJaggedMatMul, &[&values(s, 3), &values(s, 5), &integers(s)]),
            ],
        ),
    ]
}

fn scores() -> Vec<Function> {
    vec![
        function(
            "Scores",
            |s| attended(s, |scores, _| scores.silu()),
            &[
                |s| {
                    let (rows, [q, _]) = (rows(s), heads(s, &rows(s)));
                    q.scores(&floats(s, "other", [rows.total.clone(), 2.into(), 3.into()]), &rows, &rows)
                },
                |s| {
                    let (rows, [q, _]) = (rows(s), heads(s, &rows(s)));
                    q.scores(&floats(s, "other", [rows.total.clone(), 1.into(), 4.into()]), &rows, &rows)
                },
                |s| x(s).scores(&x(s), &rows(s), &rows(s)),
                |s| {
                    let (rows, [q, k]) = (rows(s), heads(s, &rows(s)));
                    q.scores(&k, &rows, &s.lengths("others", &s.size("other samples")))
                },
            ],
        ),
        function(
            "ScoreSoftmax",
            |s| {
                let weights = |scores: &Tensor, rows: &Ragged| {
                    let causal = rows.row_index(rows, 2).ge(&rows.key_index(rows, 2));
                    scores.softmax_scores(Some(&causal), rows, rows)
                };
                attended(s, weights)
            },
            &[
                |s| {
                    let (rows, [q, _]) = (rows(s), heads(s, &rows(s)));
                    q.softmax_scores(None, &rows, &rows)
                },
                |s| {
                    let (rows, [q, k]) = (rows(s), heads(s, &rows(s)));
                    let scores = q.scores(&k, &rows, &rows);
                    scores.softmax_scores(Some(&scores), &rows, &rows)
                },
            ],
        ),
        function(
            "WeightedSum",
            |s| attended(s, |scores, _| scores.relu()),
            &[
                |s| heads(s, &rows(s))[0].weighted_sum(&heads(s, &rows(s))[1], &rows(s), &rows(s)),
                |s| {
                    let (rows, [q, k]) = (rows(s), heads(s, &rows(s)));
                    q.scores(&k, &rows, &rows).weighted_sum(
                        &floats(s, "v", [rows.total.clone(), 3.into(), 4.into()]),
                        &rows,
                        &rows,
                    )
                },
                |s| {
                    let (rows, [q, k]) = (rows(s), heads(s, &rows(s)));
                    q.scores(&k, &rows, &rows).weighted_sum(
                        &floats(s, "v", [s.size("n"), 2.into(), 4.into()]),
                        &rows,
                        &rows,
                    )
                },
                |s| {
                    let (rows, [q, _]) = (rows(s), heads(s, &rows(s)));
                    let keys = s.lengths("others", &rows.batch);
                    let k = floats(s, "keys", [keys.total.clone(), 2.into(), 4.into()]);
                    q.scores(&k, &rows, &keys).weighted_sum_by_key(&k, &rows, &keys)
                },
                |s| {
                    let (rows, [q, k]) = (rows(s), heads(s, &rows(s)));
                    let sum = WeightedSum { kind: ScoreKind::Sample };
                    s.apply(sum, &[&q.scores(&k, &rows, &rows), &k, &rows.offsets, &rows.offsets])
                },
            ],
        ),
        function(
            "ScoreReduce",
            |s| {
                let (rows, [q, k]) = (rows(s), heads(s, &rows(s)));
                q.scores(&k, &rows, &rows).reduce_scores(ReduceOp::Sum, ScoreKind::Key, &rows, &rows)
            },
            &[
                |s| heads(s, &rows(s))[0].reduce_scores(ReduceOp::Sum, ScoreKind::Row, &rows(s), &rows(s)),
                |s| rows(s).row_index(&rows(s), 2).reduce_scores(ReduceOp::Max, ScoreKind::Row, &rows(s), &rows(s)),
                |s| {
                    let (rows, [q, k]) = (rows(s), heads(s, &rows(s)));
                    q.scores(&k, &rows, &rows).reduce_scores(ReduceOp::Sum, ScoreKind::Row, &rows, &others(s))
                },
            ],
        ),
        function(
            "ScoreIndex",
            |s| {
                let causal = |scores: &Tensor, rows: &Ragged| {
                    rows.row_index(rows, 2).ge(&rows.key_index(rows, 2)).select(scores, &s.scalar(DType::F32, 0.0))
                };
                attended(s, causal)
            },
            &[|s| {
                let rows = rows(s);
                let op = ScoreIndex {
                    kind: ScoreKind::Sample,
                    heads: 2,
                    rows: rows.total.clone(),
                    keys: rows.total.clone(),
                };
                s.apply(op, &[&rows.offsets, &rows.offsets])
            }],
        ),
        function(
            "ScoreBroadcast",
            |s| attended(s, |scores, rows| scores + &rows.per_row(rows, 2, &floats(s, "bias", [rows.total.clone()]))),
            &[
                |s| attended(s, |scores, rows| scores + &rows.per_key(rows, 2, &floats(s, "bias", [s.size("n")]))),
                |s| {
                    attended(s, |scores, rows| {
                        scores + &rows.per_row(rows, 2, &floats(s, "bias", [3.into(), rows.total.clone()]))
                    })
                },
                |s| attended(s, |scores, rows| scores + &rows.per_sample(rows, 2, &s.scalar(DType::F32, 2.0))),
            ],
        ),
    ]
}
