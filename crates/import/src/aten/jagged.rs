//! Jagged operators of fbgemm.

use super::index::integers;
use super::movement::OUTSIDE;
use super::{Many, One};
use crate::array::Array;
use crate::call::Call;
use crate::context::coord;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Ragged, Tensor};

pub(super) const ONE: One = &[
    ("fbgemm.jagged_to_padded_dense", to_padded),
    ("fbgemm.jagged_to_padded_dense_forward", to_padded),
    ("fbgemm.jagged_2d_to_dense", to_padded),
    ("fbgemm.dense_to_jagged_forward", |c| {
        let (dense, offsets) = (c.tensor("dense")?, offsets(c, "x_offsets")?);
        to_jagged(c, &dense, &offsets)
    }),
    ("fbgemm.asynchronous_complete_cumsum", |c| {
        let x = c.x()?;
        if x.rank() != 1 {
            return Fault::unsupported("lengths of several axes");
        }
        let sums = super::scan::prefix_sum(c.cx, &x, 0)?.cast(x.tensor.dtype());
        let longer = c.cx.extent(&sums, 0).plus(&1.into());
        let index = vec![coord(0).binary(BinaryOp::Sub, 1i64)];
        c.result(&c.cx.remap(&sums, &[longer], index, Some(&c.cx.zero(&sums)), &[])?)
    }),
];

pub(super) const MANY: Many = &[("fbgemm.dense_to_jagged", |c| {
    let (dense, all) = (c.tensor("dense")?, c.tensors("x_offsets")?);
    let values = to_jagged(c, &dense, &offsets(c, "x_offsets")?)?;
    Ok(vec![values.into(), Value::List(all.into_iter().map(Value::Tensor).collect())])
})];

/// The offsets of a list with a single entry.
fn offsets(c: &Call<'_>, name: &str) -> Lowered<Array> {
    match c.tensors(name)?.as_slice() {
        [offsets] => Ok(offsets.clone()),
        _ => Fault::unsupported("several jagged axes"),
    }
}

/// Rows divided by offsets on the host; `None` if the offsets are not on the host.
fn ragged(c: &Call<'_>, offsets: &Array, rows: &Size) -> Lowered<Option<Ragged>> {
    let Some(host) = c.cx.host_offsets(&offsets.tensor) else { return Ok(None) };
    let total = c.cx.dim(rows)?;
    let checked = Ragged::from_offsets(&host).of_total(&total);
    Ok(Some(Ragged { total, ..checked }))
}

fn to_padded(c: &Call<'_>) -> Lowered<Array> {
    let values = c.tensor("values")?;
    let is_2d = c.base == "fbgemm.jagged_2d_to_dense";
    let offsets = if is_2d { c.tensor("offsets")? } else { offsets(c, "offsets")? };
    let longest = if is_2d { vec![c.size("max_sequence_length")?] } else { c.sizes("max_lengths")? };
    let [longest] = longest.as_slice() else { return Fault::unsupported("several jagged axes") };
    let padding = c.float_or("padding_value", 0.0)?;
    let is_vector = values.rank() == 1;
    let rows = c.cx.extent(&values.tensor, 0);
    if let Some(ragged) = ragged(c, &offsets, &rows)? {
        return c.result(&values.tensor.jagged_to_padded(&ragged, &c.cx.dim(longest)?, padding));
    }
    let offsets = integers(&offsets)?;
    let batch = c.cx.extent(&offsets, 0).minus(&1.into());
    let at = |step: i64| IndexExpr::Load { operand: 2, index: vec![coord(0).binary(BinaryOp::Add, step)] };
    let row = at(0).binary(BinaryOp::Add, coord(1));
    let beyond = row.clone().binary(BinaryOp::Ge, at(1)).binary(BinaryOp::Mul, OUTSIDE);
    let mut index = vec![row.binary(BinaryOp::Add, beyond)];
    let mut shape = vec![batch, longest.clone()];
    if !is_vector {
        index.push(coord(2));
        shape.push(c.cx.extent(&values.tensor, 1));
    }
    let fill = c.cx.scalar(padding, values.ty)?;
    c.result(&c.cx.remap(&values.tensor, &shape, index, Some(&fill.tensor), &[&offsets])?)
}

fn to_jagged(c: &Call<'_>, dense: &Array, offsets: &Array) -> Lowered<Array> {
    let shape = c.shape(0)?;
    if let Some(ragged) = ragged(c, offsets, &shape[0])? {
        return c.result(&dense.tensor.padded_to_jagged(&ragged));
    }
    let offsets = integers(offsets)?.cast(DType::I64);
    // The sample of a row is the number of offsets up to the row, minus 1.
    let entries = c.cx.extent(&offsets, 0);
    let pairs = [shape[0].clone(), entries];
    let rows = c.cx.positions(&pairs, 0)?;
    let reached = c.cx.unsqueeze(&offsets, 0)?.le(&rows).cast(DType::F32).sum(1);
    let sample: Tensor = c.cx.squeeze(&reached, 1)?.cast(DType::I64) - 1i64;
    let own = IndexExpr::Load { operand: 2, index: vec![coord(0)] };
    let start = IndexExpr::Load { operand: 3, index: vec![own.clone()] };
    let mut index = vec![own, coord(0).binary(BinaryOp::Sub, start)];
    index.extend((1..shape.len()).map(coord));
    let fill = c.cx.zero(&dense.tensor);
    c.result(&c.cx.remap(&dense.tensor, &shape, index, Some(&fill), &[&sample, &offsets])?)
}
