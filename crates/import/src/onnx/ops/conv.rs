//! Convolutions.

use super::norm::per_channel;
use super::{Many, One, bytes};
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::item::Item;
use crate::onnx::node::{Node, flag, ints};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;

pub(super) const ONE: One = &[
    ("Conv", |n| {
        let (x, weight, bias) = (n.x()?, n.array(1)?, n.optional(2)?);
        let inner = x.rank().saturating_sub(2);
        let Some(y) = bytes::dequantized(n, bytes::convolution, (0, inner))? else {
            return convolution(n, &x, weight, bias);
        };
        let y = match bias {
            Some(bias) => y + per_channel(n, &Array { tensor: n.f32(&bias), ty: ScalarType::F32 }, x.rank())?,
            None => y,
        };
        n.stored(&y, x.ty)
    }),
    ("ConvTranspose", transposed),
    ("Col2Im", col2im),
    ("DeformConv", deformed),
];

pub(super) const MANY: Many = &[("CausalConvWithState", causal)];

/// Maximum extent of a dilated window along an axis.
const MOST_SPAN: i64 = 1 << 24;

/// A sliding window over the spatial axes, from the attributes of a node.
pub(super) struct Spatial {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    /// Padding before and after each axis.
    pub pads: Vec<[i64; 2]>,
    /// Spatial extents of the result.
    pub places: Vec<Size>,
}

impl Spatial {
    /// The window for an image with these spatial extents.
    pub fn of(n: &Node<'_>, kernel: Vec<i64>, extents: &[Size]) -> Lowered<Self> {
        let rank = kernel.len();
        let list = |name: &str| n.ints(name).filter(|list| list.len() == rank).unwrap_or_else(|| vec![1; rank]);
        let (strides, dilations) = (list("strides"), list("dilations"));
        if extents.len() != rank || [&kernel, &strides, &dilations].iter().any(|list| list.iter().any(|&x| x < 1)) {
            return Fault::program(format!("{}: a window of another number of axes", n.op));
        }
        let given = n.ints("pads").filter(|pads| pads.len() == 2 * rank).unwrap_or_else(|| vec![0; 2 * rank]);
        let mut pads: Vec<[i64; 2]> = (0..rank).map(|axis| [given[axis], given[rank + axis]]).collect();
        let auto = n.text("auto_pad", "NOTSET");
        let mut places = vec![];
        if dilations.iter().zip(&kernel).any(|(dilation, extent)| dilation.saturating_mul(*extent) > MOST_SPAN) {
            return Fault::unsupported("a window of many elements");
        }
        for axis in 0..rank {
            let span = dilations[axis] * (kernel[axis] - 1) + 1;
            let stride = Size::from(strides[axis]);
            if auto.starts_with("SAME") {
                let Some(extent) = extents[axis].as_const() else {
                    return Fault::unsupported("auto_pad of a symbolic size");
                };
                let count = extent.div_euclid(strides[axis]) + i64::from(extent % strides[axis] != 0);
                let total = ((count - 1).saturating_mul(strides[axis]).saturating_add(span - extent)).max(0);
                let less = total / 2;
                pads[axis] = if auto == "SAME_UPPER" { [less, total - less] } else { [total - less, less] };
                places.push(Size::from(count));
                continue;
            }
            if auto == "VALID" {
                pads[axis] = [0, 0];
            }
            let room = extents[axis].plus(&Size::from(pads[axis][0] + pads[axis][1] - span));
            let is_ceil = n.is("ceil_mode");
            let room = if is_ceil { room.plus(&Size::from(strides[axis] - 1)) } else { room };
            let mut count = n.cx.quotient(&room, &stride)?.plus(&1.into());
            if is_ceil {
                // The last window must start within the image or the padding before it.
                let start = count.minus(&1.into()).times(&stride);
                let end = extents[axis].plus(&pads[axis][0].into());
                let starts_beyond = n.cx.sizes.borrow_mut().compared(BinaryOp::Ge, &start, &end);
                count = count.minus(&starts_beyond);
            }
            places.push(count);
        }
        Ok(Self { kernel, strides, dilations, pads, places })
    }

    pub fn before(&self) -> Vec<i64> {
        self.pads.iter().map(|pads| pads[0]).collect()
    }
}

/// The spatial extents of a kernel, which must be constant.
fn kernel_of(n: &Node<'_>, weight: &Array) -> Lowered<Vec<i64>> {
    let kernel = n.shape(weight).iter().skip(2).map(Size::as_const).collect::<Option<Vec<i64>>>();
    kernel.ok_or_else(|| Fault::Unsupported("a kernel of symbolic size".to_owned()))
}

/// A convolution of floats.
pub(super) fn convolution(n: &Node<'_>, x: &Array, weight: Array, bias: Option<Array>) -> Lowered<Array> {
    let (shape, ty) = (n.shape(x), x.ty);
    let kernel = kernel_of(n, &weight)?;
    if shape.len() < 3 || kernel.len() + 2 != shape.len() {
        return Fault::program("a convolution of another number of axes");
    }
    let window = Spatial::of(n, kernel, &shape[2..])?;
    let mut result = vec![shape[0].clone(), n.shape(&weight)[0].clone()];
    result.extend(window.places.iter().cloned());
    let mut arguments: Vec<(&str, Value)> = vec![
        ("self", x.clone().into()),
        ("weight", weight.into()),
        ("stride", ints(&window.strides)),
        ("padding", ints(&window.before())),
        ("dilation", ints(&window.dilations)),
        ("groups", Value::int(n.int("group", 1))),
        ("transposed", flag(false)),
    ];
    if let Some(bias) = bias {
        arguments.push(("bias", bias.into()));
    }
    n.aten("aten.convolution", arguments, ty, &result)
}

fn transposed(n: &Node<'_>) -> Lowered<Array> {
    let (x, weight, bias) = (n.x()?, n.array(1)?, n.optional(2)?);
    let (shape, ty) = (n.shape(&x), x.ty);
    let kernel = kernel_of(n, &weight)?;
    let rank = kernel.len();
    if shape.len() != rank + 2 || kernel.iter().any(|extent| !(1..MOST_SPAN).contains(extent)) {
        return Fault::program("a convolution of another number of axes");
    }
    let list = |name: &str, default: i64| {
        n.ints(name).filter(|list| list.len() == rank).unwrap_or_else(|| vec![default; rank])
    };
    let (strides, dilations, extra) = (list("strides", 1), list("dilations", 1), list("output_padding", 0));
    let given = n.ints("pads").filter(|pads| pads.len() == 2 * rank).unwrap_or_else(|| vec![0; 2 * rank]);
    if strides.iter().chain(&dilations).any(|step| *step < 1)
        || n.ints("output_shape").is_some_and(|shape| shape.len() < rank)
    {
        return Fault::program("ConvTranspose: steps or extents of other axes");
    }
    let (auto, wanted) = (n.text("auto_pad", "NOTSET"), n.ints("output_shape"));
    let (mut before, mut places) = (vec![], vec![]);
    for axis in 0..rank {
        let span = dilations[axis] * (kernel[axis] - 1) + 1;
        let whole = shape[2 + axis].minus(&1.into()).times(&strides[axis].into()).plus(&Size::from(span + extra[axis]));
        let wanted = match (&wanted, auto.starts_with("SAME")) {
            (Some(wanted), _) => wanted.iter().rev().nth(rank - 1 - axis).map(|&size| Size::from(size)),
            (None, true) => Some(shape[2 + axis].times(&strides[axis].into())),
            (None, false) => None,
        };
        let Some(wanted) = wanted else {
            let pads = if auto == "VALID" { [0, 0] } else { [given[axis], given[rank + axis]] };
            before.push(pads[0]);
            places.push(whole.minus(&Size::from(pads[0] + pads[1])));
            continue;
        };
        let Some(total) = whole.minus(&wanted).as_const() else {
            return Fault::unsupported("padding of symbolic size");
        };
        let total = total.max(0);
        before.push(if auto == "SAME_UPPER" { total / 2 } else { total - total / 2 });
        places.push(wanted);
    }
    let groups = n.int("group", 1);
    let outputs = n.shape(&weight).get(1).cloned().unwrap_or_default().times(&groups.into());
    let result = [vec![shape[0].clone(), outputs], places].concat();
    let mut arguments: Vec<(&str, Value)> = vec![
        ("self", x.into()),
        ("weight", weight.into()),
        ("stride", ints(&strides)),
        ("padding", ints(&before)),
        ("dilation", ints(&dilations)),
        ("groups", Value::int(groups)),
        ("transposed", flag(true)),
    ];
    if let Some(bias) = bias {
        arguments.push(("bias", bias.into()));
    }
    n.aten("aten.convolution", arguments, ty, &result)
}

/// The sum of overlapping patches. For each position, adds up the elements of all windows that contain it, by kernel element.
fn col2im(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let (image, block) = (n.known_ints(1)?, n.known_ints(2)?);
    let rank = block.len();
    let shape = n.shape(&x);
    if image.len() != rank || shape.len() != 3 || image.iter().chain(&block).any(|&extent| extent < 1) {
        return Fault::program("Col2Im: an image of another number of axes");
    }
    let extents: Vec<Size> = image.iter().map(|&extent| Size::from(extent)).collect();
    let window = Spatial::of(n, block, &extents)?;
    let kernel: Vec<Size> = window.kernel.iter().map(|&extent| Size::from(extent)).collect();
    let channels = n.cx.quotient(&shape[1], &Size::product(&kernel))?;
    let columns = [&[shape[0].clone(), channels.clone()], kernel.as_slice(), &window.places].concat();
    let columns = n.cx.reshape(&x.tensor, &columns)?;
    let parts = [&[shape[0].clone(), channels.clone()], kernel.as_slice(), &extents].concat();
    let mut index: Vec<IndexExpr> = (0..2 + rank).map(coord).collect();
    for axis in 0..rank {
        let inner = coord(2 + axis).binary(BinaryOp::Mul, window.dilations[axis]);
        let place = coord(2 + rank + axis).binary(BinaryOp::Add, window.pads[axis][0]).binary(BinaryOp::Sub, inner);
        let between = place.clone().binary(BinaryOp::Mod, window.strides[axis]).binary(BinaryOp::Ne, 0i64);
        let place = place.binary(BinaryOp::Div, window.strides[axis]);
        index.push(place.binary(BinaryOp::Sub, between.binary(BinaryOp::Mul, 1i64 << 30)));
    }
    let parts = n.cx.remap(&columns, &parts, index, Some(&n.cx.f(0.0)), &[])?;
    let sum = (2..2 + rank).rev().fold(parts, |sum, axis| sum.sum(axis));
    let result = [&[shape[0].clone(), channels], extents.as_slice()].concat();
    n.stored(&n.cx.reshape(&sum, &result)?, x.ty)
}

/// A causal depthwise convolution over time, which continues from the previous elements.
fn causal(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let (x, weight) = (n.x()?, n.array(1)?);
    let (shape, ty) = (n.shape(&x), x.ty);
    let taps = n.shape(&weight).get(2).and_then(Size::as_extent);
    let taps =
        taps.filter(|&taps| taps > 0).ok_or_else(|| Fault::Unsupported("a kernel of symbolic size".to_owned()))?;
    let before = Size::from(taps - 1);
    let past = match n.optional(3)? {
        Some(past) => past.tensor,
        None => n.cx.expand(&n.cx.f(0.0), &[shape[0].clone(), shape[1].clone(), before.clone()])?,
    };
    let all =
        if taps == 1 { x.tensor.clone() } else { n.cx.concat(&[past.cast(x.tensor.dtype()), x.tensor.clone()], 2) };
    let mut sum: Option<Tensor> = None;
    for tap in 0..taps {
        let part = n.cx.slice(&all, 2, (&tap.into(), 1), &shape[2])?;
        let factor = n.cx.select(&weight.tensor, 2, &tap.into())?;
        let factor = n.cx.reshape(&factor, &[shape[1].clone(), 1.into()])?;
        let part = part * factor;
        sum = Some(sum.map_or_else(|| part.clone(), |sum| sum + &part));
    }
    let mut y = sum.ok_or_else(|| Fault::Program("a kernel without elements".to_owned()))?;
    if let Some(bias) = n.optional(2)? {
        y = y + per_channel(n, &bias, 3)?;
    }
    y = match n.text("activation", "none").as_str() {
        "none" => y,
        "silu" | "swish" => y.silu(),
        other => return Fault::unsupported(format!("activation=`{other}`")),
    };
    let state = n.cx.slice(&all, 2, (&shape[2], 1), &before)?;
    Ok(vec![n.stored(&y, ty)?.into(), n.stored(&state, ty)?.into()])
}

/// A deformable convolution: elements are linearly interpolated at positions with computed offsets.
fn deformed(n: &Node<'_>) -> Lowered<Array> {
    let [x, weight, offset] = [n.array(0)?, n.array(1)?, n.array(2)?];
    let (bias, mask) = (n.optional(3)?, n.optional(4)?);
    let (shape, ty) = (n.extents(&x)?, x.ty);
    let kernel = kernel_of(n, &weight)?;
    let (groups, offsets) = (n.int("group", 1).max(1), n.int("offset_group", 1).max(1));
    if shape.len() != 4 || kernel.len() != 2 || shape[1] as i64 % groups != 0 || shape[1] as i64 % offsets != 0 {
        return Fault::unsupported("other images than planes, or groups of other sizes");
    }
    let spatial: Vec<Size> = shape[2..].iter().map(|&extent| Size::from(extent)).collect();
    let window = Spatial::of(n, kernel, &spatial)?;
    let (taps, places) = (window.kernel[0] * window.kernel[1], &window.places);
    let [batch, channels] = [0, 1].map(|axis| Size::from(shape[axis]));
    // Axes: sample, offset group, tap, spatial axis, position.
    let split = [batch.clone(), offsets.into(), taps.into(), 2.into(), places[0].clone(), places[1].clone()];
    let offset = n.cx.reshape(&n.f32(&offset), &split)?;
    let grid = [batch.clone(), offsets.into(), taps.into(), places[0].clone(), places[1].clone()];
    let place = |axis: usize| -> Lowered<Tensor> {
        let moved = n.cx.select(&offset, 3, &axis.into())?;
        let tap = n.cx.positions(&grid, 2)?;
        let tap = if axis == 0 { tap / window.kernel[1] } else { tap.modulo(window.kernel[1]) };
        let start = n.cx.positions(&grid, 3 + axis)? * window.strides[axis] - window.pads[axis][0];
        Ok(moved + (start + tap * window.dilations[axis]).cast(rewire_graph::DType::F32))
    };
    let (row, column) = (place(0)?, place(1)?);
    let each = shape[1] as i64 / offsets;
    let patches = [batch.clone(), channels.clone(), taps.into(), places[0].clone(), places[1].clone()];
    let taken = |row: &Tensor, column: &Tensor| -> Lowered<Tensor> {
        let (row, column) = (row.cast(rewire_graph::DType::I64), column.cast(rewire_graph::DType::I64));
        let load = |operand: usize| IndexExpr::Load {
            operand,
            index: vec![coord(0), coord(1).binary(BinaryOp::Div, each), coord(2), coord(3), coord(4)],
        };
        n.cx.remap(
            &x.tensor,
            &patches,
            vec![coord(0), coord(1), load(2), load(3)],
            Some(&n.cx.zero(&x.tensor)),
            &[&row, &column],
        )
    };
    let spread = |x: &Tensor| {
        let index = vec![coord(0), coord(1).binary(BinaryOp::Div, each), coord(2), coord(3), coord(4)];
        n.cx.remap(x, &patches, index, None, &[])
    };
    let (top, left) = (row.floor(), column.floor());
    let (down, right) = (spread(&(&row - &top))?, spread(&(&column - &left))?);
    let (bottom, after) = (&top + 1.0, &left + 1.0);
    let (up, near) = (n.cx.f(1.0) - &down, n.cx.f(1.0) - &right);
    let upper = taken(&top, &left)? * &near + taken(&top, &after)? * &right;
    let lower = taken(&bottom, &left)? * &near + taken(&bottom, &after)? * &right;
    let mut values = upper * up + lower * down;
    if let Some(mask) = mask {
        values = values * spread(&n.cx.reshape(&n.f32(&mask), &grid)?)?;
    }
    let outputs = n.shape(&weight)[0].clone();
    let depth = Size::from(shape[1] as i64 / groups * taps);
    let area = places[0].times(&places[1]);
    let columns = n.cx.reshape(&values, &[batch.clone(), groups.into(), depth.clone(), area])?;
    let rows = n.cx.quotient(&outputs, &groups.into())?;
    let weight = n.cx.reshape(&weight.tensor, &[groups.into(), rows, depth])?;
    let mut y = n.cx.reshape(&weight.matmul(&columns), &[batch, outputs, places[0].clone(), places[1].clone()])?;
    if let Some(bias) = bias {
        y = y + per_channel(n, &bias, 4)?;
    }
    n.stored(&y, ty)
}
