//! Plans with indices as complex as those of models, and modifications of their files.

use crate::plan::{Plan, ShapeValues};
use crate::{lower, optimize};
use rewire_graph::op::{IndexExpr, Remap};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Graph, Ragged, Scope, Tensor};
use serde_json::{Value, json};
use std::sync::OnceLock;

const F32: DType = DType::F32;

/// All have the host inputs `a` and `b`, the lengths of the samples in the rows `x` and `y`.
pub(super) fn stored() -> &'static [Plan] {
    static STORED: OnceLock<Vec<Plan>> = OnceLock::new();
    STORED.get_or_init(|| {
        let plan = |graph: Graph| lower(&optimize(graph).unwrap().0).unwrap();
        [jagged(), windowed(), joined()].map(plan).into()
    })
}

struct Rows {
    scope: Scope,
    a: Ragged,
    b: Ragged,
    x: Tensor,
    y: Tensor,
    ids: Tensor,
}

fn rows() -> Rows {
    let scope = Scope::new();
    let batch = scope.size("samples");
    let [a, b] = ["a", "b"].map(|name| scope.lengths(name, &batch));
    let rows = |name: &str, rows: &Ragged, width: usize| scope.input(name, F32, &[rows.total.clone(), width.into()]);
    let (x, y) = (rows("x", &a, 6), rows("y", &b, 6));
    let ids = scope.input("ids", DType::I64, std::slice::from_ref(&a.total));
    Rows { scope, a, b, x, y, ids }
}

/// Nested jagged operators, a matmul, a norm and attention.
fn jagged() -> Graph {
    let Rows { scope, a, b, x, y, ids } = rows();
    let (both, all) = x.jagged_concat(&a, &y, &b);
    let tail = both.jagged_tail(&all, &a);
    let looked_up = scope.parameter("table", F32, &[7.into(), 6.into()]).gather(&ids);
    let h = (&tail + &looked_up).matmul(&scope.parameter("w", F32, &[6.into(), 8.into()]));
    let heads = h.softmax(1).reshape(&[a.total.clone(), 2.into(), 4.into()]);
    let causal = a.row_index(&a, 2).ge(&a.key_index(&a, 2));
    let zero = scope.scalar(F32, 0.0);
    let weights = causal.select(&heads.scores(&heads, &a, &a).silu(), &zero);
    let attended = weights.weighted_sum(&heads, &a, &a).reshape(&[a.total.clone(), 8.into()]);
    let sums: Tensor = both.jagged_sum(&all).jagged_broadcast(&a);
    let joined = scope.concat(&[&attended, &sums], 1);
    scope.finish(&[("joined", joined), ("padded", y.jagged_softmax(&b))]).unwrap()
}

/// Windowed attention with a bias by key, norms of groups, a jagged matmul, lookups by quotients, and parts of results
/// that several kernels write.
fn windowed() -> Graph {
    let Rows { scope, a, b, x, y, ids } = rows();
    let groups = x.reshape(&[a.total.clone(), 2.into(), 3.into()]).normalize(1e-5);
    let table = scope.parameter("table", F32, &[9.into(), 6.into()]);
    let [bucket, rest] = [BinaryOp::Div, BinaryOp::Mod].map(|op| table.gather(&ids.binary_scalar(op, 3i64)));
    let h = &(&groups.reshape(x.shape()) + &bucket) * &rest;
    let heads = h.reshape(&[a.total.clone(), 2.into(), 3.into()]);
    let distance = &a.row_index(&a, 2) - &a.key_index(&a, 2);
    let near = distance.binary_scalar(BinaryOp::Lt, 3i64).and(&distance.binary_scalar(BinaryOp::Ge, 0i64));
    let by_key = a.per_key(&a, 2, &scope.parameter("bias", F32, &[5.into()]).gather(&ids));
    let weights = near.select(&(&heads.scores(&heads, &a, &a) + &by_key).silu(), &scope.scalar(F32, 0.0));
    let attended = weights.weighted_sum(&heads, &a, &a).reshape(x.shape());
    let dense = y.jagged_to_padded(&b, &3.into(), 0.0).reshape(&[a.batch.clone(), 3.into(), 6.into()]);
    let product = attended.slice(1, 0, 3).jagged_matmul(&dense, &a);
    let weight = scope.parameter("w", F32, &[6.into(), 8.into()]);
    let [left, right] = &product.matmul(&weight).split_columns(&[5, 3])[..] else { unreachable!() };
    let head = x.jagged_head(&a, &a);
    let turned = scope.concat(&[&head.transpose(0, 1), &product.transpose(0, 1)], 0);
    scope.finish(&[("left", left.silu()), ("right", right.clone()), ("turned", turned)]).unwrap()
}

/// Two axes joined to one for a matmul, and split again.
fn joined() -> Graph {
    let Rows { scope, a, x, .. } = rows();
    let (samples, rows) = (a.batch.clone(), a.total.clone());
    let both = scope.host_size(samples.clone()).binary(BinaryOp::Mul, &scope.host_size(rows.clone())).as_dim();
    let sums: Tensor = x.jagged_sum(&a).reshape(&[samples.clone(), 1.into(), 6.into()]);
    let pairs = &sums.broadcast([samples.clone(), rows.clone(), 6.into()]) + &x;
    let count = || IndexExpr::from(rows.clone());
    let [outer, inner] = [BinaryOp::Div, BinaryOp::Mod].map(|op| IndexExpr::Coord(0).binary(op, count()));
    let flat = Remap { shape: vec![both, 6.into()], index: vec![outer, inner, IndexExpr::Coord(1)], is_filled: false };
    let product = scope.apply(flat, &[&pairs]).matmul(&scope.parameter("w", F32, &[6.into(), 8.into()]));
    let row = IndexExpr::Coord(0).binary(BinaryOp::Mul, count()).binary(BinaryOp::Add, IndexExpr::Coord(1));
    let split = Remap { shape: vec![samples, rows, 8.into()], index: vec![row, IndexExpr::Coord(2)], is_filled: false };
    let split = scope.apply(split, &[&product]);
    scope.finish(&[("flat", product.silu()), ("split", split)]).unwrap()
}

/// Runs the shape program of a plan; `None` if it rejects the lengths.
pub(super) fn sizes(plan: &Plan, [a, b]: [&[i64]; 2]) -> Option<ShapeValues> {
    let total = |name: &str| if name == "y" { b.iter().sum::<i64>() } else { a.iter().sum() };
    let host = plan.host_inputs.iter().map(|input| (input, if input.name == "b" { b.to_vec() } else { a.to_vec() }));
    let extent = |name: &str, axis: usize| match name {
        "a" | "b" => Some(a.len()),
        _ if axis == 0 => usize::try_from(total(name)).ok(),
        _ => Some(6),
    };
    plan.shapes.run(host, extent).ok()
}

/// The numbers of a stored plan's kernels and of its shape program, by JSON pointer.
pub(super) fn numbers(plan: &Value) -> Vec<String> {
    let mut found = vec![];
    collect(plan, "", &mut found);
    found
}

fn collect(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| collect(item, &format!("{at}/{n}"), found))
        }
        Value::Object(entries) => entries.iter().for_each(|(key, item)| collect(item, &format!("{at}/{key}"), found)),
        Value::Number(_) if at.starts_with("/steps") || at.contains("entries") => found.push(at.to_owned()),
        _ => {}
    }
}

/// A stored plan with some numbers replaced, if it is still valid.
pub(super) fn changed<'a>(plan: &Plan, changes: impl IntoIterator<Item = (&'a str, i64)>) -> Option<Plan> {
    let mut value = json!(plan);
    for (place, number) in changes {
        *value.pointer_mut(place).unwrap_or_else(|| panic!("{place} is not a place")) = json!(number);
    }
    serde_json::from_value(value).ok()
}
