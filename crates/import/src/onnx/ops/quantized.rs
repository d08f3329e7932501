//! Quantization: integers with a scale and a zero point.

use super::bytes;
use super::norm::per_channel;
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::item::{Quantized, Rounded};
use crate::onnx::node::{Node, axis};
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("QuantizeLinear", quantize),
    ("DequantizeLinear", dequantize),
    ("com.microsoft.QuantizeLinear", quantize),
    ("com.microsoft.DequantizeLinear", dequantize),
    ("MatMulInteger", |n| Ok(Array { tensor: product_of(n, [0, 1], [2, 3])?.cast(DType::I32), ty: ScalarType::I32 })),
    ("ConvInteger", |n| {
        let y = convolution_of(n, 1, [2, 3])?;
        Ok(Array { tensor: y.cast(DType::I32), ty: ScalarType::I32 })
    }),
    ("QLinearMatMul", |n| {
        let product = product_of(n, [0, 3], [2, 5])?.cast(DType::F32);
        let [a_scale, b_scale, y_scale] = [scale(n, 1, true)?, scale(n, 4, false)?, scale(n, 6, true)?];
        let zero = n.array(7)?;
        let y = product * (a_scale * b_scale / y_scale);
        limited(n, &(y.round() + n.f32(&zero)), zero.ty)
    }),
    ("QLinearConv", |n| {
        let rank = n.array(3)?.rank();
        let mut y = convolution_of(n, 3, [2, 5])?.cast(DType::F32);
        if let Some(bias) = n.optional(8)? {
            y = y + per_channel(n, &Array { tensor: n.f32(&bias), ty: ScalarType::F32 }, rank)?;
        }
        let factor = scale(n, 1, true)? * outermost(n, &n.array(4)?, rank - 1)? / scale(n, 6, true)?;
        let zero = n.array(7)?;
        let zero = Array { tensor: n.cx.reshape(&zero.tensor, &[])?, ty: zero.ty };
        limited(n, &((y * factor).round() + n.f32(&zero)), zero.ty)
    }),
    ("com.microsoft.DynamicQuantizeMatMul", |n| {
        let x = n.x()?;
        let (y, own) = dynamic_of(n, &x)?;
        let product = match bytes::product(n, &y, Some(&own.point), [n.item(1), n.item(3)])? {
            Some(product) => product,
            None => whole_product(n, &(n.f32(&y) - own.zero), &centered(n, 1, 3, false)?)?,
        };
        let y = product.cast(DType::F32) * (own.scale * scale(n, 2, false)?);
        with_bias(n, y, 4, x.ty)
    }),
    ("com.microsoft.MatMulIntegerToFloat", |n| {
        let y = scaled(n, &product_of(n, [0, 1], [4, 5])?, 2, 3)?;
        with_bias(n, y, 6, n.array(3)?.ty)
    }),
    ("com.microsoft.MatMulNBits", matmul_bits),
];

pub(super) const MANY: Many = &[("DynamicQuantizeLinear", |n| {
    let x = n.x()?;
    let (y, Rounded { scale, point, .. }) = dynamic_of(n, &x)?;
    Ok(vec![y.into(), n.stored(&scale, x.ty)?.into(), point.into()])
})];

/// The smallest and the largest integer of a type.
fn limits(ty: ScalarType) -> [f64; 2] {
    let span = 2f64.powi(ty.bits() as i32);
    if ty.is_unsigned() { [0.0, span - 1.0] } else { [-span / 2.0, span / 2.0 - 1.0] }
}

/// Clamps integral floats to the limits of a type, and converts them to it.
fn limited(n: &Node<'_>, x: &Tensor, ty: ScalarType) -> Lowered<Array> {
    if !ty.is_integer() || ty.bits() > 16 {
        return Fault::unsupported(format!("quantization to {ty}"));
    }
    let [least, most] = limits(ty);
    Ok(n.cast(&x.maximum(least).minimum(most), ty))
}

/// A quantization parameter in a shape that broadcasts to `x`: a number, a vector along an axis, or one value per block.
fn beside(n: &Node<'_>, x: &Array, parameter: &Array) -> Lowered<Tensor> {
    let own = n.f32(parameter);
    let (shape, extents) = (n.shape(x), n.shape(parameter));
    if Size::product(&extents).as_const() == Some(1) {
        return n.cx.reshape(&own, &[]);
    }
    let axis = axis(n.int("axis", 1), x.rank())?;
    let block = n.int("block_size", 0);
    if block < 0 || block == 0 && extents.len() != 1 || block > 0 && extents.len() != x.rank() {
        return Fault::program(format!("{}: parameters of other axes", n.op));
    }
    if block == 0 {
        let mut along = vec![Size::from(1); x.rank() - axis];
        along[0] = extents[0].clone();
        return n.cx.reshape(&own, &along);
    }
    let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
    index[axis] = coord(axis).binary(BinaryOp::Div, block);
    n.cx.remap(&own, &shape, index, None, &[])
}

fn quantize(n: &Node<'_>) -> Lowered<Array> {
    let (x, scale, zero) = (n.x()?, n.array(1)?, n.optional(2)?);
    let declared = i32::try_from(n.int("output_dtype", 0)).ok().and_then(ScalarType::of_onnx);
    let ty = zero.as_ref().map(|zero| zero.ty).or(declared).unwrap_or(ScalarType::U8);
    let quotient = n.f32(&x) / beside(n, &x, &scale)?;
    let zero = zero.map(|zero| beside(n, &x, &zero)).transpose()?;
    if ty.is_float() {
        let shifted = zero.map_or_else(|| quotient.clone(), |zero| &quotient + zero);
        return Ok(Array { tensor: n.cx.narrowed(&shifted, ty, n.int("saturate", 1) != 0), ty });
    }
    let whole = quotient.round();
    limited(n, &zero.map_or_else(|| whole.clone(), |zero| &whole + zero), ty)
}

fn dequantize(n: &Node<'_>) -> Lowered<Array> {
    let (x, scale, zero) = (n.x()?, n.array(1)?, n.optional(2)?);
    let declared = i32::try_from(n.int("output_dtype", 0)).ok().and_then(ScalarType::of_onnx);
    let factor = beside(n, &x, &scale)?;
    let own = match zero {
        // Differences of 32-bit integers are not exact in f32.
        Some(zero) if x.ty.bits() < 32 => n.f32(&x) - beside(n, &x, &zero)?,
        _ => n.f32(&x),
    };
    let y = n.stored(&(own * factor), declared.unwrap_or(scale.ty))?;
    let [x, scale, zero] = [0, 1, 2].map(|place| n.item(place).clone());
    n.store.note_quantized(&y, Quantized { x, scale, zero, axis: n.int("axis", 1) });
    Ok(y)
}

/// Integers minus their zero points, as floats. A vector of zero points has one entry per row or per column.
fn centered(n: &Node<'_>, place: usize, zero: usize, by_rows: bool) -> Lowered<Tensor> {
    let x = n.array(place)?;
    let own = n.f32(&x);
    let Some(zero) = n.optional(zero)? else { return Ok(own) };
    Ok(own - lined_up(n, &zero, by_rows)?)
}

fn scale(n: &Node<'_>, place: usize, by_rows: bool) -> Lowered<Tensor> {
    let scale = n.array(place)?;
    lined_up(n, &scale, by_rows)
}

fn lined_up(n: &Node<'_>, vector: &Array, by_rows: bool) -> Lowered<Tensor> {
    let own = n.f32(vector);
    match (Size::product(&n.shape(vector)).as_const(), vector.rank(), by_rows) {
        (Some(1), _, _) => n.cx.reshape(&own, &[]),
        (_, 1, true) => n.cx.unsqueeze(&own, 1),
        _ => Ok(own),
    }
}

/// A number, or a vector along the first of `rank` axes, as floats.
fn outermost(n: &Node<'_>, vector: &Array, rank: usize) -> Lowered<Tensor> {
    let count = Size::product(&n.shape(vector));
    if count.as_const() == Some(1) {
        return n.cx.reshape(&n.f32(vector), &[]);
    }
    let mut shape = vec![Size::from(1); rank];
    shape[0] = count;
    n.cx.reshape(&n.f32(vector), &shape)
}

/// Maximum number of products of bytes whose float sum is exact.
const EXACT: usize = (1 << 24) / (255 * 255);

/// The exact product of matrices of integers with at most 9 bits, as `I64`.
fn whole_product(n: &Node<'_>, a: &Tensor, b: &Tensor) -> Lowered<Tensor> {
    let depth = n.cx.extent(a, a.rank().saturating_sub(1)).as_extent();
    match depth {
        Some(depth) if depth <= EXACT => Ok(a.matmul(b).cast(DType::I64)),
        // Splits one matrix into digits of 4 bits, whose products have exact sums.
        Some(depth) if depth <= EXACT * 16 => {
            let high = (a * (1.0 / 16.0)).floor();
            let low = a - &high * 16.0;
            Ok(high.matmul(b).cast(DType::I64) * 16i64 + low.matmul(b).cast(DType::I64))
        }
        _ => Fault::unsupported(format!("a product of integers over more than {} elements", EXACT * 16)),
    }
}

/// A convolution of integers whose float sums are exact.
fn exact_convolution(n: &Node<'_>, x: &Array, weight: Array) -> Lowered<Tensor> {
    let depth = Size::product(&n.shape(&weight)[1..]).as_extent();
    if depth.is_none_or(|depth| depth > EXACT) {
        return Fault::unsupported(format!("a convolution of integers over more than {EXACT} elements"));
    }
    Ok(super::conv::convolution(n, x, weight, None)?.tensor)
}

/// Quantizes floats to bytes with a scale and a zero point computed from the data.
fn dynamic_of(n: &Node<'_>, x: &Array) -> Lowered<(Array, Rounded)> {
    let flat = n.cx.reshape(&x.tensor, &[Size::product(&n.shape(x))])?;
    let most = n.cx.reshape(&flat.max(0), &[])?.maximum(0.0);
    let least = n.cx.reshape(&flat.min(0), &[])?.minimum(0.0);
    let is_flat = most.equal(&least);
    let span = is_flat.select(&n.cx.f(1.0), &(&most - &least));
    // GPUs do not divide exactly, which could change the rounding of ties. The remainder is exact and corrects the quotient.
    let rough = &span / 255.0;
    let rest = (&span - &rough * 256.0) + &rough;
    let scale = &rough + rest / 255.0;
    let zero = (-(least / &scale).round()).maximum(0.0).minimum(255.0);
    let y = limited(n, &((&x.tensor / &scale).round() + &zero), ScalarType::U8)?;
    let point = n.cast(&zero, ScalarType::U8);
    let rounded = Rounded { x: x.tensor.clone(), scale, zero, point };
    n.store.note_rounded(&y, rounded.clone());
    Ok((y, rounded))
}

/// The exact product of two integer inputs with their zero points, as integers.
pub(super) fn product_of(n: &Node<'_>, [a, b]: [usize; 2], zeros: [usize; 2]) -> Lowered<Tensor> {
    let zero = n.optional(zeros[0])?;
    if let Some(y) = bytes::product(n, &n.array(a)?, zero.as_ref(), [n.item(b), n.item(zeros[1])])? {
        return Ok(y);
    }
    let [a, b] = [centered(n, a, zeros[0], true)?, centered(n, b, zeros[1], false)?];
    whole_product(n, &a, &b)
}

/// The exact convolution of the first input with another one, with their zero points.
fn convolution_of(n: &Node<'_>, place: usize, zeros: [usize; 2]) -> Lowered<Tensor> {
    let zero = n.optional(zeros[0])?;
    if let Some(y) = bytes::convolution(n, &n.x()?, zero.as_ref(), [n.item(place), n.item(zeros[1])])? {
        return Ok(y);
    }
    let x = Array { tensor: centered(n, 0, zeros[0], true)?, ty: ScalarType::F32 };
    let weight = n.array(place)?;
    let own = n.f32(&weight);
    let own = match n.optional(zeros[1])? {
        Some(zero) => own - outermost(n, &zero, weight.rank())?,
        None => own,
    };
    exact_convolution(n, &x, Array { tensor: own, ty: ScalarType::F32 })
}

/// Multiplies an integer product by the scales of both operands.
pub(super) fn scaled(n: &Node<'_>, product: &Tensor, a: usize, b: usize) -> Lowered<Tensor> {
    Ok(product.cast(DType::F32) * (scale(n, a, true)? * scale(n, b, false)?))
}

fn with_bias(n: &Node<'_>, y: Tensor, place: usize, ty: ScalarType) -> Lowered<Array> {
    let y = match n.optional(place)? {
        Some(bias) => y + n.f32(&bias),
        None => y,
    };
    n.stored(&y, ty)
}

/// A product with a matrix that is quantized in blocks to 4 or 8 bits.
fn matmul_bits(n: &Node<'_>) -> Lowered<Array> {
    let (x, packed, scales) = (n.x()?, n.array(1)?, n.array(2)?);
    let (depth, columns) = (n.int("K", 0), n.int("N", 0));
    let (bits, block) = (n.int("bits", 4), n.int("block_size", 0));
    if !matches!(bits, 4 | 8) || block < 1 || depth < 1 || columns < 1 || n.has(4) {
        return Fault::unsupported("blocks of other bits, or in another order");
    }
    let blocks = (depth + block - 1) / block;
    let bytes = block * bits / 8;
    let packed = n.cx.reshape(&packed.tensor, &[columns.into(), (blocks * bytes).into()])?;
    let each = 8 / bits;
    let element = |packed: &Tensor, shape: &[Size], row: IndexExpr, at: IndexExpr| -> Lowered<Tensor> {
        let byte = n.cx.remap(packed, shape, vec![row, at.binary(BinaryOp::Div, each)], None, &[])?;
        if each == 1 {
            return Ok(byte.cast(DType::F32));
        }
        let odd = n.cx.positions(shape, 1)?.modulo(2i64).equal(1i64);
        Ok(odd.select(&(&byte / 16i64), &byte.modulo(16i64)).cast(DType::F32))
    };
    let shape = [Size::from(columns), Size::from(depth)];
    let values = element(&packed, &shape, coord(0), coord(1))?;
    let spread = |x: &Tensor| -> Lowered<Tensor> {
        let x = n.cx.reshape(x, &[columns.into(), blocks.into()])?;
        n.cx.remap(&x, &shape, vec![coord(0), coord(1).binary(BinaryOp::Div, block)], None, &[])
    };
    let zero = match n.optional(3)? {
        None => n.cx.f(2f64.powi(bits as i32 - 1)),
        Some(zero) if zero.ty.is_float() => spread(&n.f32(&zero))?,
        Some(zero) => {
            let row = (blocks + each - 1) / each;
            let zero = n.cx.reshape(&zero.tensor, &[columns.into(), row.into()])?;
            let zeros = element(&zero, &[columns.into(), blocks.into()], coord(0), coord(1))?;
            spread(&zeros)?
        }
    };
    let weight = (values - zero) * spread(&n.f32(&scales))?;
    with_bias(n, n.f32(&x).matmul(&weight.transpose(0, 1)), 5, x.ty)
}
