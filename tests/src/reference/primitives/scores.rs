//! Scores of pairs of rows, and their reductions.

use super::{attended, floats, function, heads, others, rows, x};
use crate::reference::Function;
use rewire_graph::op::{ReduceOp, ScoreIndex, ScoreKind, WeightedSum};
use rewire_graph::{DType, Ragged, Tensor};

pub(super) fn scores() -> Vec<Function> {
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
            "ScoreGather",
            |s| {
                let table = floats(s, "bias", [7.into(), 2.into()]);
                attended(s, |scores, rows| {
                    let distance = rows.key_index(rows, 2) - rows.row_index(rows, 2);
                    scores + table.gather_scores(&(distance + 3))
                })
            },
            &[
                |s| floats(s, "bias", [7.into(), 2.into()]).gather_scores(&floats(s, "index", [s.size("n")])),
                |s| floats(s, "bias", [7.into(), 3.into()]).gather_scores(&rows(s).row_index(&rows(s), 2)),
                |s| floats(s, "bias", [7.into()]).gather_scores(&rows(s).row_index(&rows(s), 2)),
            ],
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
