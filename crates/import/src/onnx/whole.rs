//! Nodes on integers computed from sizes, which the shape program evaluates.

use super::item::{Item, Whole};
use super::node::{Node, axis};
use crate::ScalarType;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::pointwise::BinaryOp;
use std::rc::Rc;

/// Evaluates a node on integers computed from sizes; `None` if it is not such a node.
pub(super) fn evaluate(node: &Node<'_>) -> Option<Lowered<Vec<Item>>> {
    let operands = || node.inputs.iter().map(Item::whole).collect::<Option<Vec<Rc<Whole>>>>();
    let first = node.item(0).whole();
    let one = match node.op {
        "Identity" => return Some(Ok(vec![node.item(0).clone()])),
        "Cast" => cast(node, first.as_deref()?)?,
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Min" | "Max" => arithmetic(node, &operands()?)?,
        "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => compared(node, &operands()?)?,
        "Neg" => {
            let x = first?;
            let values = x.values.iter().map(|size| Size::default().minus(size)).collect();
            Item::sizes(x.shape.clone(), values, x.ty)
        }
        "Where" => chosen(&operands()?)?,
        "Gather" => gathered(node, first.as_deref()?)?,
        "Concat" => joined(&operands()?)?,
        "Slice" => sliced(node, first.as_deref()?)?,
        "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" => reshaped(node, first.as_deref()?)?,
        "ReduceProd" | "ReduceSum" if node.inputs.len() == 1 || !node.has(1) || first.as_ref()?.shape.len() == 1 => {
            reduced(node, first.as_deref()?)
        }
        "Split" => return split(node, first.as_deref()?),
        _ => return None,
    };
    Some(one.map(|item| vec![item]))
}

fn cast(node: &Node<'_>, x: &Whole) -> Option<Lowered<Item>> {
    let ty = ScalarType::of_onnx(i32::try_from(node.int("to", 0)).ok()?)?;
    let fits = matches!(ty, ScalarType::I64 | ScalarType::I32);
    fits.then(|| Item::sizes(x.shape.clone(), x.values.clone(), ty))
}

/// The shape of a result, and for each of its elements the elements of both operands.
type Pairs = (Vec<usize>, Vec<(Size, Size)>);

/// Broadcasts two operands, and pairs their elements.
fn pairs(a: &Whole, b: &Whole) -> Option<Pairs> {
    let at = |x: &Whole, n: usize| x.values[if x.values.len() == 1 { 0 } else { n }].clone();
    let shape = if b.shape.len() > a.shape.len() || b.values.len() > a.values.len() { &b.shape } else { &a.shape };
    let count = a.values.len().max(b.values.len());
    let is_one = |x: &Whole| x.values.len() == 1 && x.shape.len() <= shape.len();
    let fits = a.values.len() == b.values.len() && a.shape == b.shape || is_one(a) || is_one(b);
    let fits = fits && a.values.len().min(b.values.len()) > 0;
    fits.then(|| (shape.clone(), (0..count).map(|n| (at(a, n), at(b, n))).collect()))
}

fn arithmetic(node: &Node<'_>, operands: &[Rc<Whole>]) -> Option<Lowered<Item>> {
    let [a, b] = operands else { return None };
    let (shape, pairs) = pairs(a, b)?;
    let mut values = vec![];
    for (x, y) in &pairs {
        let mut sizes = node.cx.sizes.borrow_mut();
        let is_natural = sizes.bounds(x).0 >= 0 && sizes.bounds(y).0 >= 0;
        values.push(match node.op {
            "Add" => x.plus(y),
            "Sub" => x.minus(y),
            "Mul" => x.times(y),
            "Div" if is_natural => sizes.quotient(x, y)?,
            "Mod" if is_natural => sizes.remainder(x, y)?,
            "Min" => sizes.smaller(x, y),
            "Max" => sizes.larger(x, y),
            _ => return None,
        });
    }
    Some(Item::sizes(shape, values, a.ty))
}

fn compared(node: &Node<'_>, operands: &[Rc<Whole>]) -> Option<Lowered<Item>> {
    let [a, b] = operands else { return None };
    let (shape, pairs) = pairs(a, b)?;
    let mut values = vec![];
    for (x, y) in &pairs {
        let mut sizes = node.cx.sizes.borrow_mut();
        let (low, high) = sizes.bounds(&x.minus(y));
        let (op, is_sure, is_never) = match node.op {
            "Equal" => (BinaryOp::Eq, low == 0 && high == 0, low > 0 || high < 0),
            "Less" => (BinaryOp::Lt, high < 0, low >= 0),
            "LessOrEqual" => (BinaryOp::Le, high <= 0, low > 0),
            "Greater" => (BinaryOp::Gt, low > 0, high <= 0),
            _ => (BinaryOp::Ge, low >= 0, high < 0),
        };
        values.push(match (is_sure, is_never) {
            (true, _) => Size::from(1),
            (_, true) => Size::from(0),
            _ => sizes.compared(op, x, y),
        });
    }
    Some(Item::sizes(shape, values, ScalarType::Bool))
}

fn chosen(operands: &[Rc<Whole>]) -> Option<Lowered<Item>> {
    let [condition, a, b] = operands else { return None };
    let (shape, branches) = pairs(a, b)?;
    let count = branches.len().max(condition.values.len());
    if branches.len() != count && branches.len() != 1 || condition.values.len() != count && condition.values.len() != 1
    {
        return None;
    }
    let shape = if condition.values.len() > branches.len() { condition.shape.clone() } else { shape };
    let values = (0..count).map(|n| {
        let (x, y) = &branches[if branches.len() == 1 { 0 } else { n }];
        let one = &condition.values[if condition.values.len() == 1 { 0 } else { n }];
        one.times(x).plus(&Size::from(1).minus(one).times(y))
    });
    Some(Item::sizes(shape, values.collect(), a.ty))
}

fn gathered(node: &Node<'_>, x: &Whole) -> Option<Lowered<Item>> {
    let Item::Constant(index) = node.item(1) else { return None };
    if x.shape.len() != 1 || node.int("axis", 0) > 0 {
        return None;
    }
    let places = index.data.tensor.to_i64();
    let values = places.iter().map(|&place| x.values.get(axis(place, x.values.len()).ok()?).cloned());
    Some(Item::sizes(index.data.tensor.shape().to_vec(), values.collect::<Option<_>>()?, x.ty))
}

fn joined(operands: &[Rc<Whole>]) -> Option<Lowered<Item>> {
    if operands.iter().any(|x| x.shape.len() != 1) {
        return None;
    }
    let values: Vec<Size> = operands.iter().flat_map(|x| x.values.iter().cloned()).collect();
    Some(Item::sizes(vec![values.len()], values, operands.first()?.ty))
}

fn sliced(node: &Node<'_>, x: &Whole) -> Option<Lowered<Item>> {
    if x.shape.len() != 1 {
        return None;
    }
    let count = x.values.len() as i64;
    let one = |name: &str, place: usize, default: i64| match (node.ints(name), node.item(place)) {
        (Some(values), _) => values.first().copied(),
        (None, Item::Constant(constant)) => constant.data.tensor.to_i64().first().copied(),
        (None, Item::Absent) => Some(default),
        _ => None,
    };
    let (start, end, step) = (one("starts", 1, 0)?, one("ends", 2, count)?, one("steps", 4, 1)?);
    if step < 1 {
        return None;
    }
    let place = |at: i64| (if at < 0 { at.saturating_add(count) } else { at }).clamp(0, count) as usize;
    let (start, end) = (place(start), place(end));
    let values: Vec<Size> = x.values.get(start..end.max(start))?.iter().step_by(step as usize).cloned().collect();
    Some(Item::sizes(vec![values.len()], values, x.ty))
}

fn reshaped(node: &Node<'_>, x: &Whole) -> Option<Lowered<Item>> {
    let count = x.values.len();
    let axes = match (node.item(1), node.ints("axes")) {
        (Item::Constant(axes), _) => axes.data.tensor.len(),
        (_, Some(axes)) => axes.len(),
        _ => 0,
    };
    let shape = match (node.op, node.item(1)) {
        ("Squeeze", _) if x.shape == [1] => vec![],
        ("Unsqueeze", _) if x.shape.is_empty() && axes == 1 => vec![1],
        ("Reshape", Item::Constant(shape)) if shape.data.tensor.len() == 1 => vec![count],
        ("Reshape", Item::Constant(shape)) if shape.data.tensor.is_empty() && count == 1 => vec![],
        _ => return None,
    };
    Some(Item::sizes(shape, x.values.clone(), x.ty))
}

fn reduced(node: &Node<'_>, x: &Whole) -> Lowered<Item> {
    let value = match node.op {
        "ReduceProd" => Size::product(&x.values),
        _ => x.values.iter().fold(Size::default(), |sum, size| sum.plus(size)),
    };
    let shape = if node.int("keepdims", 1) != 0 { vec![1; x.shape.len()] } else { vec![] };
    Item::sizes(shape, vec![value], x.ty)
}

fn split(node: &Node<'_>, x: &Whole) -> Option<Lowered<Vec<Item>>> {
    let parts = match (node.ints("split"), node.item(1)) {
        (Some(parts), _) => parts,
        (None, Item::Constant(parts)) => parts.data.tensor.to_i64(),
        (None, _) => {
            let each = x.values.len().div_ceil(node.results.len().max(1));
            x.values.chunks(each.max(1)).map(|part| part.len() as i64).collect()
        }
    };
    let (mut start, mut items) = (0usize, vec![]);
    for part in parts {
        let end = start.checked_add(usize::try_from(part).ok()?)?;
        items.push(Item::sizes(vec![end - start], x.values.get(start..end)?.to_vec(), x.ty));
        start = end;
    }
    let items = items.into_iter().collect::<Lowered<Vec<Item>>>();
    Some(if start == x.values.len() { items } else { Fault::program("parts of another size") })
}
