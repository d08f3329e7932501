//! Integer products of bytes with a constant matrix.

use super::conv::Spatial;
use crate::ScalarType;
use crate::TypedTensor;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::item::{Constant, Item, Rounded};
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::op::{IndexExpr, IntegerProduct, QuantizedProduct};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Tensor};
use std::rc::Rc;

/// Maximum number of products of bytes whose sum fits an `I32`.
const MOST: usize = 1 << 15;

/// Offset by which unsigned bytes are converted to signed ones.
const HALF: i64 = 128;

/// A constant right operand, packed by columns.
struct Right {
    words: Tensor,
    depth: usize,
    columns: usize,
    /// For each column the sum of its elements minus their zero points, which is multiplied by the left operand's zero point.
    sums: Tensor,
    /// Zero points of the signed bytes; `None` if all are 0.
    zeros: Option<Tensor>,
}

/// The left operand: signed bytes and their zero point.
struct Left {
    bytes: Tensor,
    zero: Option<Tensor>,
}

/// The offset that converts elements of a type to signed bytes; `None` for other types.
fn half(ty: ScalarType) -> Option<i64> {
    match ty {
        ScalarType::U8 => Some(HALF),
        ScalarType::I8 => Some(0),
        _ => None,
    }
}

fn vector(n: &Node<'_>, shape: Vec<usize>, values: &[f64], name: Option<String>) -> Lowered<Tensor> {
    let tensor = HostTensor::from_f64(DType::I32, shape, values).map_err(|error| Fault::Program(error.to_string()))?;
    let data = TypedTensor { ty: ScalarType::I32, tensor };
    Ok(n.store.array(n.cx, &Item::Constant(Rc::new(Constant { name, data })))?.tensor)
}

/// Packs a constant matrix. `None` if types or sizes are not supported, or zero points are not known.
fn right(n: &Node<'_>, [item, zero]: [&Item; 2], is_by_column: bool) -> Lowered<Option<Right>> {
    let Item::Constant(constant) = item else { return Ok(None) };
    let (tensor, Some(half)) = (&constant.data.tensor, half(constant.data.ty)) else { return Ok(None) };
    let (depth, columns) = match (tensor.shape(), is_by_column) {
        (&[depth, columns], false) => (depth, columns),
        ([columns, others @ ..], true) => (others.iter().product(), *columns),
        _ => return Ok(None),
    };
    if !(1..=MOST).contains(&depth) || columns == 0 {
        return Ok(None);
    }
    let zeros: Vec<i64> = match zero {
        Item::Absent => vec![-half],
        Item::Constant(zero) => zero.data.tensor.to_i64().iter().map(|zero| zero - half).collect(),
        _ => return Ok(None),
    };
    if zeros.len() != 1 && zeros.len() != columns {
        return Ok(None);
    }
    let (values, across) = (tensor.to_i64(), if is_by_column { 1 } else { columns });
    let down = if is_by_column { depth } else { 1 };
    let bytes: Vec<i8> = (0..columns)
        .flat_map(|column| (0..depth).map(move |k| column * down + k * across))
        .map(|at| (values[at] - half) as i8)
        .collect();
    let of = |column: usize| zeros.get(column).or(zeros.first()).copied().unwrap_or(0);
    let sums = bytes.chunks(depth).enumerate().map(|(column, bytes)| {
        let sum: i64 = bytes.iter().map(|&byte| i64::from(byte)).sum();
        (sum - depth as i64 * of(column)) as f64
    });
    let sums = vector(n, vec![columns], &sums.collect::<Vec<_>>(), None)?;
    let words: Vec<f64> = IntegerProduct::words(&bytes, depth).into_iter().map(f64::from).collect();
    let name = constant.name.as_ref().map(|name| format!("{name}.words"));
    let words = vector(n, vec![columns, words.len() / columns], &words, name)?;
    let all: Vec<f64> = (0..columns).map(|column| of(column) as f64).collect();
    let zeros = all.iter().any(|&zero| zero != 0.0).then(|| vector(n, vec![columns], &all, None)).transpose()?;
    Ok(Some(Right { words, depth, columns, sums, zeros }))
}

/// Converts the left operand, computed at run time. `None` if its type is not supported.
fn left(n: &Node<'_>, x: &Array, zero: Option<&Array>) -> Lowered<Option<Left>> {
    let Some(half) = half(x.ty) else { return Ok(None) };
    let zero = match zero {
        None if half == 0 => None,
        None => Some(n.cx.scope.scalar(DType::I32, -half)),
        Some(zero) => {
            let own = n.cx.cast(zero, ScalarType::I32).tensor;
            let is_one = Size::product(&n.shape(zero)).as_const() == Some(1);
            let own = match (is_one, zero.rank()) {
                (true, _) => n.cx.reshape(&own, &[])?,
                (_, 1) => n.cx.unsqueeze(&own, 1)?,
                _ => own,
            };
            Some(if half == 0 { own } else { own - half })
        }
    };
    let own = n.cx.cast(x, ScalarType::I32).tensor;
    Ok(Some(Left { bytes: if half == 0 { own } else { own - half }, zero }))
}

/// Applies the product of matrices over the last axis of a tensor.
fn over_last(n: &Node<'_>, x: &Tensor, right: &Right, product: impl FnOnce(&Tensor) -> Tensor) -> Lowered<Tensor> {
    let mut shape = n.cx.shape(x);
    shape.pop();
    let flat = n.cx.reshape(x, &[Size::product(&shape), right.depth.into()])?;
    shape.push(right.columns.into());
    n.cx.reshape(&product(&flat), &shape)
}

/// The product over the last axis.
fn multiplied(n: &Node<'_>, left: &Left, right: &Right) -> Lowered<Tensor> {
    let own = |x: &Tensor| n.cx.scope.apply(IntegerProduct, &[x, &right.words]);
    let mut y = over_last(n, &left.bytes, right, own)?;
    let axis = left.bytes.rank() - 1;
    if let Some(zero) = &left.zero {
        y = y - zero * &right.sums;
    }
    if let Some(zeros) = &right.zeros {
        // For so few bytes, float sums are exact.
        let sums = left.bytes.cast(DType::F32).sum(axis).cast(DType::I32);
        y = y - sums * zeros;
    }
    Ok(y)
}

/// The product of bytes with a constant matrix, including zero points, as `I32`; `None` for unsupported operands.
pub(super) fn product(n: &Node<'_>, x: &Array, zero: Option<&Array>, factor: [&Item; 2]) -> Lowered<Option<Tensor>> {
    by_matrix(n, x, zero, right(n, factor, false)?)
}

/// Like [`product`], with the transposed matrix.
pub(super) fn product_transposed(
    n: &Node<'_>,
    x: &Array,
    zero: Option<&Array>,
    factor: [&Item; 2],
) -> Lowered<Option<Tensor>> {
    by_matrix(n, x, zero, right(n, factor, true)?)
}

fn by_matrix(n: &Node<'_>, x: &Array, zero: Option<&Array>, right: Option<Right>) -> Lowered<Option<Tensor>> {
    let Some(right) = right else { return Ok(None) };
    let depth = n.shape(x).last().and_then(Size::as_extent);
    if x.rank() < 2 || depth != Some(right.depth) {
        return Ok(None);
    }
    let is_same = |rounded: &Rounded| zero.is_some_and(|zero| zero.tensor.value() == rounded.point.tensor.value());
    if let Some(floats) = n.store.rounded(x).filter(is_same).filter(|_| right.zeros.is_none()) {
        let operands = [&floats.scale, &floats.zero, &right.words];
        return over_last(n, &floats.x, &right, |x| {
            n.cx.scope.apply(QuantizedProduct, &[&[x], &operands[..]].concat())
        })
        .map(Some);
    }
    let Some(left) = left(n, x, zero)? else { return Ok(None) };
    multiplied(n, &left, &right).map(Some)
}

/// A convolution of bytes with a constant kernel, including zero points, as `I32`; `None` for unsupported operands.
pub(super) fn convolution(
    n: &Node<'_>,
    x: &Array,
    zero: Option<&Array>,
    factor: [&Item; 2],
) -> Lowered<Option<Tensor>> {
    let (shape, kernel) = (n.shape(x), n.store.array(n.cx, factor[0])?);
    let extents: Option<Vec<i64>> = n.shape(&kernel).iter().skip(1).map(Size::as_const).collect();
    let Some([channels, window @ ..]) = extents.as_deref() else { return Ok(None) };
    if n.int("group", 1) != 1 || shape.len() != window.len() + 2 || shape[1].as_const() != Some(*channels) {
        return Ok(None);
    }
    let (Some(right), Some(left)) = (right(n, factor, true)?, left(n, x, zero)?) else { return Ok(None) };
    let spatial = Spatial::of(n, window.to_vec(), &shape[2..])?;
    // Axes: `[batch, positions.., channels, window..]`.
    let rank = window.len();
    let mut patches = vec![shape[0].clone()];
    patches.extend(spatial.places.iter().cloned());
    patches.push(shape[1].clone());
    patches.extend(window.iter().map(|&extent| Size::from(extent)));
    let mut index: Vec<IndexExpr> = vec![coord(0), coord(rank + 1)];
    for axis in 0..rank {
        let start = coord(axis + 1).binary(BinaryOp::Mul, spatial.strides[axis]);
        let step = coord(rank + 2 + axis).binary(BinaryOp::Mul, spatial.dilations[axis]);
        index.push(start.binary(BinaryOp::Add, step).binary(BinaryOp::Sub, spatial.pads[axis][0]));
    }
    let fill = match &left.zero {
        Some(zero) if zero.rank() == 0 => zero.clone(),
        Some(_) => return Ok(None),
        None => n.cx.scope.scalar(DType::I32, 0i64),
    };
    let bytes = n.cx.remap(&left.bytes, &patches, index, Some(&fill), &[])?;
    let mut rows = patches[..rank + 1].to_vec();
    rows.push(right.depth.into());
    let left = Left { bytes: n.cx.reshape(&bytes, &rows)?, ..left };
    let y = multiplied(n, &left, &right)?;
    let order: Vec<usize> = [0, rank + 1].into_iter().chain(1..=rank).collect();
    Ok(Some(y.permute(&order)))
}

/// An integer product: by matrix, transposed matrix or convolution.
type Product = fn(&Node<'_>, &Array, Option<&Array>, [&Item; 2]) -> Lowered<Option<Tensor>>;

/// If `DequantizeLinear` nodes computed the first two inputs, the product of their integers, multiplied by the scales. The second scale may
/// be a vector along `axis`, which is followed by `inner` axes in the result.
pub(super) fn dequantized(n: &Node<'_>, multiply: Product, (axis, inner): (usize, usize)) -> Lowered<Option<Tensor>> {
    let (Some(left), Some(right)) = (n.store.quantized(n.item(0)), n.store.quantized(n.item(1))) else {
        return Ok(None);
    };
    let read = |item: &Item| n.store.array(n.cx, item);
    let (x, x_scale, y_scale) = (read(&left.x)?, read(&left.scale)?, read(&right.scale)?);
    let zero = if matches!(left.zero, Item::Absent) { None } else { Some(read(&left.zero)?) };
    let is_along = crate::onnx::node::axis(right.axis, read(&right.x)?.rank()).is_ok_and(|own| own == axis);
    let is_one = |x: &Array| Size::product(&n.shape(x)).as_const() == Some(1);
    if !is_one(&x_scale) || !is_one(&y_scale) && (y_scale.rank() != 1 || !is_along) {
        return Ok(None);
    }
    let Some(product) = multiply(n, &x, zero.as_ref(), [&right.x, &right.zero])? else { return Ok(None) };
    let own = match is_one(&y_scale) {
        true => n.cx.reshape(&n.f32(&y_scale), &[])?,
        false => {
            let mut along = vec![Size::from(1); inner + 1];
            along[0] = n.shape(&y_scale)[0].clone();
            n.cx.reshape(&n.f32(&y_scale), &along)?
        }
    };
    let factor = n.cx.reshape(&n.f32(&x_scale), &[])? * own;
    Ok(Some(product.cast(DType::F32) * factor))
}
