//! Rows of samples.

use super::{floats, function, integers, others, rows, values, weight, x};
use crate::reference::Function;
use rewire_graph::op::{JaggedToPadded, ReduceOp, RowIndex, RowIndexKind, SegmentReduce};
use rewire_graph::{DType, Ragged};

pub(super) fn jagged() -> Vec<Function> {
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
