//! Concatenation.

use super::One;
use super::movement::common_list;
use crate::array::Array;
use crate::call::Call;
use crate::context::Context;
use crate::value::{Fault, Lowered};
use rewire_graph::Tensor;

pub(super) const ONE: One = &[
    ("aten.cat", cat),
    ("aten.concat", cat),
    ("aten.concatenate", cat),
    ("aten.stack", stack),
    ("aten.hstack", |c| joined(c, |rank| usize::from(rank > 1))),
    ("aten.vstack", |c| joined(c, |_| 0)),
    ("aten.column_stack", |c| {
        let column = |x: Tensor| if x.rank() == 1 { c.cx.unsqueeze(&x, 1) } else { Ok(x) };
        let parts = common_list(c)?.into_iter().map(column).collect::<Lowered<Vec<_>>>()?;
        c.result(&c.cx.concat(&parts, 1))
    }),
];

fn cat(c: &Call<'_>) -> Lowered<Array> {
    let parts = common_list(c)?;
    let rank = parts.first().map_or(0, Tensor::rank);
    let axis = c.axis_or("dim", 0, rank)?;
    c.result(&c.cx.concat(&alike(c.cx, parts, Some(axis))?, axis))
}

/// Gives all tensors the sizes of the first one, except along one axis. Equal sizes may be expressed in different ways.
fn alike(cx: &Context, parts: Vec<Tensor>, except: Option<usize>) -> Lowered<Vec<Tensor>> {
    let shape = parts.first().map_or_else(Vec::new, |first| cx.shape(first));
    let resize = |x: Tensor| {
        let mut wanted = shape.clone();
        let own = cx.shape(&x);
        if let (Some(axis), true) = (except, own.len() == shape.len()) {
            wanted[axis] = own[axis].clone();
        }
        if own == wanted { Ok(x) } else { cx.resized(&x, &wanted) }
    };
    parts.into_iter().map(resize).collect()
}

fn stack(c: &Call<'_>) -> Lowered<Array> {
    let parts = common_list(c)?;
    let axis = c.axis_or("dim", 0, parts.first().map_or(0, Tensor::rank) + 1)?;
    let parts = alike(c.cx, parts, None)?.iter().map(|x| c.cx.unsqueeze(x, axis)).collect::<Lowered<Vec<_>>>()?;
    c.result(&c.cx.concat(&parts, axis))
}

fn joined(c: &Call<'_>, axis: fn(usize) -> usize) -> Lowered<Array> {
    let parts = common_list(c)?;
    let rank = parts.first().map_or(0, Tensor::rank);
    if rank < 2 && c.base == "aten.vstack" || rank == 0 {
        return Fault::unsupported("tensors of less than two axes");
    }
    c.result(&c.cx.concat(&parts, axis(rank)))
}
