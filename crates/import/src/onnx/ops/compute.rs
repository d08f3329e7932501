//! Operators with data-dependent shapes. The operands that determine the shapes must be known.

use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::value::{Fault, Lowered};
use rewire_graph::HostTensor;
use std::cmp::Ordering;

pub(super) const ONE: One = &[("Compress", compress)];

pub(super) const MANY: Many = &[("NonZero", non_zero), ("Unique", unique)];

fn non_zero(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let constant = n.constant(0)?;
    let (shape, values) = (constant.data.tensor.shape(), constant.data.tensor.to_f64());
    let hits: Vec<usize> = (0..values.len()).filter(|&place| values[place] != 0.0).collect();
    let mut places = vec![];
    for axis in 0..shape.len() {
        let step: usize = shape[axis + 1..].iter().product();
        places.extend(hits.iter().map(|hit| (hit / step % shape[axis]) as i64));
    }
    Ok(vec![Item::integers(vec![shape.len(), hits.len()], &places)?])
}

/// Selects slices along an axis, or elements, where a condition is true.
fn compress(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let kept: Vec<i64> =
        n.known_ints(1)?.iter().enumerate().filter(|(_, kept)| **kept != 0).map(|(n, _)| n as i64).collect();
    let index = HostTensor::i64(vec![kept.len()], &kept).map_err(|error| Fault::Program(error.to_string()))?;
    let index = Array { tensor: n.cx.scope.constant(index), ty: ScalarType::I64 };
    let flat = crate::size::Size::product(&n.shape(&x));
    let (x, axis) = match n.attribute("axis") {
        Some(_) => (x.clone(), n.axis("axis", 0, x.rank())?),
        None => (Array { tensor: n.cx.reshape(&x.tensor, &[flat])?, ty: x.ty }, 0),
    };
    let ty = x.ty;
    let arguments = vec![("self", x.into()), ("dim", crate::value::Value::int(axis)), ("index", index.into())];
    n.aten("aten.index_select", arguments, ty, &[])
}

/// The distinct slices along an axis, or elements, with their first positions, inverse indices and counts.
fn unique(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let constant = n.constant(0)?;
    let (tensor, ty) = (&constant.data.tensor, constant.data.ty);
    let is_flat = n.attribute("axis").is_none();
    let axis = if is_flat { 0 } else { n.axis("axis", 0, tensor.shape().len())? };
    let shape = if is_flat { vec![tensor.len()] } else { tensor.shape().to_vec() };
    let (outer, inner): (usize, usize) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
    let values = tensor.to_f64();
    let at = |place: usize, o: usize, i: usize| values[(o * shape[axis] + place) * inner + i];
    let pairs = || (0..outer).flat_map(move |o| (0..inner).map(move |i| (o, i)));
    let compare = |a: usize, b: usize| {
        let mut orders = pairs().map(|(o, i)| at(a, o, i).total_cmp(&at(b, o, i)));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..shape[axis]).collect();
    order.sort_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
    let mut groups: Vec<Vec<usize>> = vec![];
    for place in order {
        match groups.last_mut().filter(|group| compare(group[0], place).is_eq()) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    if n.int("sorted", 1) == 0 {
        groups.sort_by_key(|group| group[0]);
    }
    let mut kept = vec![];
    for o in 0..outer {
        for group in &groups {
            kept.extend((0..inner).map(|i| at(group[0], o, i)));
        }
    }
    let mut result = shape.clone();
    result[axis] = groups.len();
    let failed = |error: rewire_graph::TensorSizeError| Fault::Program(error.to_string());
    let y = HostTensor::from_f64(ty.dtype(), result, &kept).map_err(failed)?;
    let mut inverse = vec![0i64; shape[axis]];
    groups.iter().enumerate().for_each(|(n, group)| group.iter().for_each(|&place| inverse[place] = n as i64));
    let first: Vec<i64> = groups.iter().map(|group| group[0] as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
    let vector = |values: &[i64]| Item::integers(vec![values.len()], values);
    Ok(vec![Item::constant(ty, y), vector(&first)?, vector(&inverse)?, vector(&counts)?])
}
