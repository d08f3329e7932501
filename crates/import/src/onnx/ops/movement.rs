//! Operators that move elements.

use super::{Many, One};
use crate::array::Array;
use crate::context::coord;
use crate::onnx::item::Item;
use crate::onnx::node::{Node, axis};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;

pub(super) const ONE: One = &[
    ("Reshape", reshape),
    ("Flatten", |n| {
        let x = n.x()?;
        let shape = n.shape(&x);
        let rank = shape.len() as i64;
        let at = n.int("axis", 1);
        let at = if at < 0 { at + rank } else { at };
        let at = usize::try_from(at).ok().filter(|&at| at <= shape.len());
        let at = at.ok_or_else(|| Fault::Program("Flatten: no such axis".to_owned()))?;
        let matrix = [Size::product(&shape[..at]), Size::product(&shape[at..])];
        moved(n, &x, &matrix)
    }),
    ("Squeeze", |n| {
        let x = n.x()?;
        let shape = n.shape(&x);
        let axes = match n.ints_of("axes", 1)? {
            Some(axes) => axes.iter().map(|&dim| axis(dim, x.rank())).collect::<Lowered<Vec<_>>>()?,
            None => (0..shape.len()).filter(|&axis| shape[axis].as_const() == Some(1)).collect(),
        };
        let rest = shape.into_iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, size)| size);
        moved(n, &x, &rest.collect::<Vec<_>>())
    }),
    ("Unsqueeze", |n| {
        let x = n.x()?;
        let axes = n.ints_of("axes", 1)?.unwrap_or_default();
        let rank = x.rank() + axes.len();
        let axes = axes.iter().map(|&dim| axis(dim, rank)).collect::<Lowered<Vec<usize>>>()?;
        let mut own = n.shape(&x).into_iter();
        let shape = (0..rank).map(|axis| if axes.contains(&axis) { Some(1.into()) } else { own.next() });
        let shape = shape.collect::<Option<Vec<Size>>>();
        moved(n, &x, &shape.ok_or_else(|| Fault::Program("Unsqueeze: an axis twice".to_owned()))?)
    }),
    ("Transpose", |n| {
        let x = n.x()?;
        let axes = match n.ints("perm") {
            Some(axes) => axes.iter().map(|&dim| axis(dim, x.rank())).collect::<Lowered<Vec<_>>>()?,
            None => (0..x.rank()).rev().collect(),
        };
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if sorted != (0..x.rank()).collect::<Vec<_>>() {
            return Fault::program("Transpose: no permutation");
        }
        Ok(Array { tensor: x.tensor.permute(&axes), ty: x.ty })
    }),
    ("Expand", |n| {
        let x = n.x()?;
        let (own, wanted) = (n.shape(&x), n.sizes(1)?);
        let rank = own.len().max(wanted.len());
        let at = |shape: &[Size], axis: usize| match axis.checked_sub(rank - shape.len()) {
            Some(axis) => shape[axis].clone(),
            None => Size::from(1),
        };
        let is_one = |size: &Size| size.as_const() == Some(1);
        let pairs = (0..rank).map(|axis| (at(&own, axis), at(&wanted, axis)));
        let shape: Vec<Size> = pairs.map(|(own, wanted)| if is_one(&wanted) { own } else { wanted }).collect();
        let skipped = rank - own.len();
        let pairs = own.iter().zip(&shape[skipped..]);
        let equal: Vec<Size> = pairs.map(|(own, size)| if is_one(own) { own } else { size }.clone()).collect();
        let x = n.resized(&x, &equal)?;
        Ok(Array { tensor: n.cx.expand(&x.tensor, &shape)?, ty: x.ty })
    }),
    ("Tile", |n| {
        let x = n.x()?;
        let times = n.sizes(1)?;
        if times.len() != x.rank() {
            return Fault::unsupported("one number of repeats for all axes");
        }
        let shape: Vec<Size> = n.shape(&x).iter().zip(&times).map(|(size, times)| size.times(times)).collect();
        let ty = x.ty;
        n.aten("aten.repeat", vec![("self", x.into())], ty, &shape)
    }),
    ("Concat", |n| {
        let parts = n.arrays()?;
        let first = parts.first().ok_or_else(|| Fault::Program("Concat without inputs".to_owned()))?;
        let axis = n.axis("axis", 1, first.rank())?;
        let shape = n.shape(first);
        let one = |x: &Array| {
            let mut equal = shape.clone();
            if let (Some(own), Some(size)) = (n.shape(x).get(axis), equal.get_mut(axis)) {
                *size = own.clone();
            }
            n.resized(x, &equal)
        };
        let parts = parts.iter().map(one).collect::<Lowered<Vec<Array>>>()?;
        let first = &parts[0];
        // The graph does not concatenate empty tensors with others.
        let is_empty = |x: &&Array| n.shape(x)[axis].as_const() == Some(0);
        let tensors: Vec<_> = parts.iter().filter(|x| !is_empty(x)).map(|x| x.tensor.clone()).collect();
        match tensors.as_slice() {
            [] => Ok(first.clone()),
            [one] => Ok(Array { tensor: one.clone(), ty: first.ty }),
            _ => Ok(Array { tensor: n.cx.concat(&tensors, axis), ty: first.ty }),
        }
    }),
    ("Slice", slice),
    ("Pad", pad),
    ("DepthToSpace", |n| depth_to_space(n, n.text("mode", "DCR") == "CRD")),
    ("SpaceToDepth", space_to_depth),
    ("Trilu", |n| {
        let x = n.x()?;
        let shape = n.shape(&x);
        let (Some(row), Some(column)) = (shape.len().checked_sub(2), shape.len().checked_sub(1)) else {
            return Fault::program("Trilu of a vector");
        };
        let mut rows = n.cx.positions(&shape, row)?;
        if let Some(diagonal) = n.optional(1)? {
            rows = rows + n.cx.reshape(&diagonal.tensor, &[])?;
        }
        let columns = n.cx.positions(&shape, column)?;
        let kept = if n.int("upper", 1) != 0 { rows.le(&columns) } else { rows.ge(&columns) };
        n.stored(&kept.select(&x.tensor, &n.cx.zero(&x.tensor)), x.ty)
    }),
    ("ReverseSequence", |n| {
        let (x, lengths) = (n.x()?, n.array(1)?);
        let (batch, time) = (n.axis("batch_axis", 1, x.rank())?, n.axis("time_axis", 0, x.rank())?);
        let length = IndexExpr::Load { operand: 1, index: vec![coord(batch)] };
        let inside = coord(time).binary(BinaryOp::Lt, length.clone());
        let back = length.binary(BinaryOp::Sub, 1i64).binary(BinaryOp::Sub, coord(time));
        // `t + inside * (back - t)`
        let step = back.binary(BinaryOp::Sub, coord(time));
        let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
        index[time] = coord(time).binary(BinaryOp::Add, inside.binary(BinaryOp::Mul, step));
        let tensor = n.cx.remap(&x.tensor, &n.shape(&x), index, None, &[&lengths.tensor])?;
        Ok(Array { tensor, ty: x.ty })
    }),
    ("CenterCropPad", center_crop_pad),
];

pub(super) const MANY: Many = &[
    ("Identity", |n| Ok(vec![n.item(0).clone()])),
    ("Split", |n| {
        let x = n.x()?;
        let given = match n.ints("split") {
            Some(parts) => Some(parts.into_iter().map(Size::from).collect()),
            None if n.has(1) => Some(n.sizes(1)?),
            None => None,
        };
        let parts = split_sizes(n, &x, given)?;
        let axis = n.axis("axis", 0, x.rank())?;
        split(n, &x, axis, &parts)
    }),
];

fn moved(n: &Node<'_>, x: &Array, shape: &[Size]) -> Lowered<Array> {
    Ok(Array { tensor: n.cx.reshape(&x.tensor, shape)?, ty: x.ty })
}

fn reshape(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let own = n.shape(&x);
    let wanted = match n.ints("shape") {
        Some(shape) => shape.into_iter().map(Size::from).collect(),
        None => n.sizes(1)?,
    };
    let keeps = !n.is("allowzero");
    let mut shape = vec![];
    let mut open = None;
    for (axis, size) in wanted.iter().enumerate() {
        shape.push(match size.as_const() {
            Some(0) if keeps => {
                own.get(axis).cloned().ok_or_else(|| Fault::Program("Reshape: no axis to keep".to_owned()))?
            }
            Some(-1) if open.is_none() => {
                open = Some(axis);
                Size::from(1)
            }
            Some(negative) if negative < 0 => return Fault::program("Reshape: a negative extent"),
            _ => size.clone(),
        });
    }
    if let Some(axis) = open {
        let others = Size::product(&shape);
        shape[axis] =
            if others.as_const() == Some(0) { Size::from(0) } else { n.cx.quotient(&Size::product(&own), &others)? };
    }
    moved(n, &x, &shape)
}

/// A bound of a slice, clamped to the axis. Negative bounds count from the end.
fn bound(n: &Node<'_>, value: &Size, extent: &Size) -> Lowered<Size> {
    let (low, high) = n.cx.sizes.borrow().bounds(value);
    let place = match (low >= 0, high < 0) {
        (true, _) => value.clone(),
        (_, true) => value.plus(extent),
        _ => return Fault::unsupported("a place that may count from either end"),
    };
    let mut sizes = n.cx.sizes.borrow_mut();
    let above = sizes.larger(&place, &0.into());
    Ok(sizes.smaller(&above, extent))
}

/// A slice of an axis.
fn sliced(n: &Node<'_>, x: &Array, along: usize, [start, end]: [&Size; 2], step: i64) -> Lowered<Array> {
    let extent = n.shape(x)[along].clone();
    let (start, len) = if step > 0 {
        let (start, end) = (bound(n, start, &extent)?, bound(n, end, &extent)?);
        let len = n.cx.quotient(&end.minus(&start).plus(&Size::from(step - 1)), &step.into())?;
        (start, n.cx.sizes.borrow_mut().larger(&len, &0.into()))
    } else {
        let known = (start.as_const(), end.as_const(), extent.as_const());
        let (Some(start), Some(end), Some(extent)) = known else {
            return Fault::unsupported("a slice from the end of a symbolic axis");
        };
        let place = |at: i64| (if at < 0 { at.saturating_add(extent) } else { at }).clamp(-1, extent - 1);
        let (start, end) = (place(start), place(end));
        let len = start.saturating_sub(end).div_euclid(step.saturating_neg().max(1));
        let rest = i64::from(start.saturating_sub(end).rem_euclid(step.saturating_neg().max(1)) > 0);
        (Size::from(start), Size::from((len + rest).max(0)))
    };
    Ok(Array { tensor: n.cx.slice(&x.tensor, along, (&start, step), &len)?, ty: x.ty })
}

fn slice(n: &Node<'_>) -> Lowered<Array> {
    let mut x = n.x()?;
    let rank = x.rank();
    let given = |name: &str, place: usize| match n.ints(name) {
        Some(values) => Ok(values.into_iter().map(Size::from).collect()),
        None => n.sizes(place),
    };
    let (starts, ends): (Vec<Size>, Vec<Size>) = (given("starts", 1)?, given("ends", 2)?);
    let axes = n.ints_of("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if n.has(4) { n.known_ints(4)? } else { vec![1; starts.len()] };
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return Fault::program("Slice: bounds of different numbers");
    }
    for (place, &dim) in axes.iter().enumerate() {
        if steps[place] == 0 {
            return Fault::program("Slice: a step of 0");
        }
        x = sliced(n, &x, axis(dim, rank)?, [&starts[place], &ends[place]], steps[place])?;
    }
    Ok(x)
}

/// The sizes of the results of a split.
pub(super) fn split_sizes(n: &Node<'_>, x: &Array, given: Option<Vec<Size>>) -> Lowered<Vec<Size>> {
    if let Some(parts) = given {
        return Ok(parts);
    }
    let axis = n.axis("axis", 0, x.rank())?;
    let count = usize::try_from(n.int("num_outputs", n.results.len() as i64)).unwrap_or(0).max(1);
    let extent = n.shape(x)[axis].clone();
    let each = n.cx.quotient(&extent.plus(&Size::from(count - 1)), &count.into())?;
    let mut parts = vec![each.clone(); count];
    parts[count - 1] = extent.minus(&each.times(&Size::from(count - 1)));
    if parts[count - 1].as_const().is_some_and(|last| last < 0) {
        return Fault::unsupported("more parts than elements");
    }
    Ok(parts)
}

pub(super) fn split(n: &Node<'_>, x: &Array, axis: usize, parts: &[Size]) -> Lowered<Vec<Item>> {
    let mut start = Size::default();
    let mut items = vec![];
    for part in parts {
        let tensor = n.cx.slice(&x.tensor, axis, (&start, 1), part)?;
        items.push(Item::Array(Array { tensor, ty: x.ty }));
        start = start.plus(part);
    }
    Ok(items)
}

fn pad(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let (rank, ty) = (x.rank(), x.ty);
    let pads = match n.ints("pads").or_else(|| n.ints("paddings")) {
        Some(pads) => pads.into_iter().map(Size::from).collect(),
        None => n.sizes(1)?,
    };
    let axes = match n.has(3) {
        true => n.known_ints(3)?.iter().map(|&dim| axis(dim, rank)).collect::<Lowered<Vec<_>>>()?,
        false => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Fault::program("Pad: paddings of another number of axes");
    }
    let mut all: Vec<Value> = vec![];
    for axis in (0..rank).rev() {
        let place = axes.iter().position(|&own| own == axis);
        let pair = place.map_or([Size::default(), Size::default()], |place| {
            [pads[place].clone(), pads[axes.len() + place].clone()]
        });
        all.extend(pair.map(Value::int));
    }
    let mut arguments: Vec<(&str, Value)> = vec![("self", x.into()), ("pad", Value::List(all))];
    let mode = match n.text("mode", "constant").as_str() {
        "constant" => {
            let value = match n.optional(2)? {
                Some(value) => Array { tensor: n.cx.reshape(&value.tensor, &[])?, ty: value.ty },
                None => n.cx.scalar(n.float("value", 0.0), ty)?,
            };
            arguments.push(("value", value.into()));
            "constant"
        }
        "edge" => "replicate",
        "reflect" => "reflect",
        "wrap" => "circular",
        other => return Fault::unsupported(format!("mode=`{other}`")),
    };
    arguments.push(("mode", Value::String(mode.to_owned())));
    n.aten("aten.pad", arguments, ty, &[])
}

/// The shape of an image and the size of its blocks.
fn blocks(n: &Node<'_>, x: &Array) -> Lowered<(Vec<Size>, Size)> {
    let shape = n.shape(x);
    if shape.len() != 4 {
        return Fault::program(format!("{} of a tensor of {} axes", n.op, shape.len()));
    }
    Ok((shape, Size::from(n.int("blocksize", 1))))
}

fn depth_to_space(n: &Node<'_>, is_column_first: bool) -> Lowered<Array> {
    let x = n.x()?;
    let (shape, block) = blocks(n, &x)?;
    let depth = n.cx.quotient(&shape[1], &block.times(&block))?;
    let [batch, height, width] = [0, 2, 3].map(|axis| shape[axis].clone());
    let (split, axes) = if is_column_first {
        (
            vec![batch.clone(), depth.clone(), block.clone(), block.clone(), height.clone(), width.clone()],
            [0, 1, 4, 2, 5, 3],
        )
    } else {
        (
            vec![batch.clone(), block.clone(), block.clone(), depth.clone(), height.clone(), width.clone()],
            [0, 3, 4, 1, 5, 2],
        )
    };
    let parts = n.cx.reshape(&x.tensor, &split)?.permute(&axes);
    let tensor = n.cx.reshape(&parts, &[batch, depth, height.times(&block), width.times(&block)])?;
    Ok(Array { tensor, ty: x.ty })
}

fn space_to_depth(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let (shape, block) = blocks(n, &x)?;
    let [batch, depth] = [0, 1].map(|axis| shape[axis].clone());
    let (height, width) = (n.cx.quotient(&shape[2], &block)?, n.cx.quotient(&shape[3], &block)?);
    let split = [batch.clone(), depth.clone(), height.clone(), block.clone(), width.clone(), block.clone()];
    let parts = n.cx.reshape(&x.tensor, &split)?.permute(&[0, 3, 5, 1, 2, 4]);
    let tensor = n.cx.reshape(&parts, &[batch, depth.times(&block).times(&block), height, width])?;
    Ok(Array { tensor, ty: x.ty })
}

fn center_crop_pad(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let mut shape = n.shape(&x);
    let wanted = n.sizes(1)?;
    let axes = match n.ints("axes") {
        Some(axes) => axes.iter().map(|&dim| axis(dim, x.rank())).collect::<Lowered<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
    for (&axis, size) in axes.iter().zip(&wanted) {
        let (Some(own), Some(to)) = (shape[axis].as_const(), size.as_const()) else {
            return Fault::unsupported("a symbolic size");
        };
        let start = if own > to { (own - to) / 2 } else { -((to - own) / 2) };
        index[axis] = coord(axis).binary(BinaryOp::Add, start);
        shape[axis] = size.clone();
    }
    Ok(Array { tensor: n.cx.remap(&x.tensor, &shape, index, Some(&n.cx.zero(&x.tensor)), &[])?, ty: x.ty })
}
