//! Operators that a traced graph holds.

mod jagged;
mod movement;
mod scores;

use super::{Function, Sketch, Trace};
use rewire_graph::op::{Call, Dropout, Input, JaggedJaggedMatMul, Parameter};
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

/// A state `[7, 6]` with some rows set.
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

/// `log(1 + e^x)`, a custom function.
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
    [sources(), pointwise(), movement::movement(), jagged::jagged(), products(), scores::scores()].concat()
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

/// Rows `[total, width]`.
fn values(s: &Sketch, width: usize) -> Tensor {
    floats(s, &format!("x{width}"), [rows(s).total, width.into()])
}

/// Rows of other samples.
fn others(s: &Sketch) -> Ragged {
    s.lengths("others", &s.size("other samples"))
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
