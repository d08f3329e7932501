//! Operators that move, repeat and sum elements.

use super::{attended, floats, function, integers, rows, set_rows, weight, x};
use crate::reference::Function;
use rewire_graph::DType;
use rewire_graph::op::{Broadcast, Concat, Reduce, ReduceOp, Reshape, SetRows, Slice, Unfold, Window};

pub(super) fn movement() -> Vec<Function> {
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
