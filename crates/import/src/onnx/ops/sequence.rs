//! Sequences of known length, and optional values.

use super::Many;
use super::movement::split;
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::{DType, HostTensor};

pub(super) const MANY: Many = &[
    ("SequenceEmpty", |_| Ok(vec![Item::List(vec![])])),
    ("SequenceConstruct", |n| Ok(vec![Item::List(n.inputs.clone())])),
    ("SequenceLength", |n| Ok(vec![Item::integers(vec![], &[n.list(0)?.len() as i64])?])),
    ("SequenceAt", |n| {
        let items = n.list(0)?;
        let place = place(n, 1, items.len(), items.len())?;
        let item = items.get(place).cloned();
        Ok(vec![item.ok_or_else(|| Fault::Program("SequenceAt: no such element".to_owned()))?])
    }),
    ("SequenceInsert", |n| {
        let mut items = n.list(0)?;
        let place = if n.has(2) { place(n, 2, items.len(), items.len() + 1)? } else { items.len() };
        items.insert(place, n.item(1).clone());
        Ok(vec![Item::List(items)])
    }),
    ("SequenceErase", |n| {
        let mut items = n.list(0)?;
        let last = items.len().saturating_sub(1);
        let place = if n.has(1) { place(n, 1, items.len(), items.len())? } else { last };
        if place < items.len() {
            items.remove(place);
        }
        Ok(vec![Item::List(items)])
    }),
    ("SplitToSequence", split_to_sequence),
    ("ConcatFromSequence", |n| {
        let items = n.list(0)?;
        let arrays = items.iter().map(|item| n.store.array(n.cx, item)).collect::<Lowered<Vec<Array>>>()?;
        let first = arrays.first().ok_or_else(|| Fault::Unsupported("an empty sequence".to_owned()))?;
        let is_new = n.is("new_axis");
        let axis = n.axis("axis", 0, first.rank() + usize::from(is_new))?;
        let parts = arrays.iter().map(|x| if is_new { n.cx.unsqueeze(&x.tensor, axis) } else { Ok(x.tensor.clone()) });
        let tensor = n.cx.concat(&parts.collect::<Lowered<Vec<_>>>()?, axis);
        Ok(vec![Item::Array(Array { tensor, ty: first.ty })])
    }),
    ("Optional", |n| Ok(vec![n.item(0).clone()])),
    ("OptionalGetElement", |n| Ok(vec![n.item(0).clone()])),
    ("OptionalHasElement", |n| {
        let has = if n.has(0) { 1.0 } else { 0.0 };
        let tensor =
            HostTensor::from_f64(DType::Bool, vec![], &[has]).map_err(|error| Fault::Program(error.to_string()))?;
        Ok(vec![Item::constant(ScalarType::Bool, tensor)])
    }),
];

/// A position in a sequence; negative ones count from the end.
fn place(n: &Node<'_>, input: usize, len: usize, most: usize) -> Lowered<usize> {
    let at = n.known_int(input)?;
    let at = if at < 0 { at.saturating_add(len as i64) } else { at };
    let place = usize::try_from(at).ok().filter(|&place| place < most);
    place.ok_or_else(|| Fault::Program(format!("{}: no element {at}", n.op)))
}

fn split_to_sequence(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let x = n.x()?;
    let axis = n.axis("axis", 0, x.rank())?;
    let extent = || {
        let extent = n.shape(&x)[axis].as_extent();
        extent.ok_or_else(|| Fault::Unsupported("an axis of symbolic size".to_owned()))
    };
    let known = if n.has(1) { Some(n.constant(1)?) } else { None };
    let parts: Vec<i64> = match &known {
        None => vec![1; extent()?],
        Some(constant) if constant.data.tensor.shape().is_empty() => {
            let each = usize::try_from(n.known_int(1)?).unwrap_or(0).max(1);
            let extent = extent()?;
            (0..extent).step_by(each).map(|start| each.min(extent - start) as i64).collect()
        }
        Some(_) => n.known_ints(1)?,
    };
    let parts: Vec<Size> = parts.into_iter().map(Size::from).collect();
    let mut items = split(n, &x, axis, &parts)?;
    if known.is_none() && n.int("keepdims", 1) == 0 {
        for item in &mut items {
            let array = n.store.array(n.cx, item)?;
            *item = Item::Array(Array { tensor: n.cx.squeeze(&array.tensor, axis)?, ty: array.ty });
        }
    }
    Ok(vec![Item::List(items)])
}
