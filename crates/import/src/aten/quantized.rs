//! Quantization operators that torchao exports: integers with a scale and a zero point.

use super::One;
use super::binary::{computed, operand};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::size::Size;
use crate::value::Lowered;
use rewire_graph::Tensor;

pub(super) const ONE: One = &[
    ("quantized_decomposed.quantize_per_tensor", |c| quantize(c, per_tensor(c)?)),
    ("quantized_decomposed.dequantize_per_tensor", |c| dequantize(c, per_tensor(c)?)),
    ("quantized_decomposed.quantize_per_channel", |c| quantize(c, per_channel(c)?)),
    ("quantized_decomposed.dequantize_per_channel", |c| dequantize(c, per_channel(c)?)),
    ("aten.fake_quantize_per_tensor_affine", |c| fake(c, per_tensor(c)?)),
    ("aten.fake_quantize_per_channel_affine", |c| {
        let [scale, zero] = ["scale", "zero_point"].map(|name| along(c, name));
        fake(c, [scale?, zero?])
    }),
];

/// The scale and the zero point as floats.
fn per_tensor(c: &Call<'_>) -> Lowered<[Tensor; 2]> {
    let [scale, zero] = ["scale", "zero_point"].map(|name| computed(c, &operand(c, name)?, ScalarType::F32));
    Ok([scale?, zero?])
}

fn per_channel(c: &Call<'_>) -> Lowered<[Tensor; 2]> {
    let [scales, zeros] = ["scales", "zero_points"].map(|name| along(c, name));
    Ok([scales?, zeros?])
}

/// A vector, as floats, in a shape that broadcasts along the channel axis.
fn along(c: &Call<'_>, name: &str) -> Lowered<Tensor> {
    let (x, vector) = (c.x()?, c.cx.cast(&c.tensor(name)?, ScalarType::F32));
    let axis = c.axis("axis", x.rank())?;
    let mut shape = vec![Size::from(1); x.rank() - axis];
    shape[0] = c.cx.extent(&vector.tensor, 0);
    c.cx.reshape(&vector.tensor, &shape)
}

/// Quantized integers, clamped to their limits, as floats.
fn steps(c: &Call<'_>, [scale, zero]: &[Tensor; 2]) -> Lowered<Tensor> {
    let x = c.cx.cast(&c.x()?, ScalarType::F32).tensor;
    let (least, most) = (c.float("quant_min")?, c.float("quant_max")?);
    let inverse = c.cx.f(1.0) / scale;
    Ok(((x * inverse).round() + zero).maximum(least).minimum(most))
}

fn quantize(c: &Call<'_>, parameters: [Tensor; 2]) -> Lowered<Array> {
    let tensor = steps(c, &parameters)?;
    Ok(c.cx.cast(&Array { tensor, ty: ScalarType::F32 }, c.ty(0)?))
}

fn dequantize(c: &Call<'_>, [scale, zero]: [Tensor; 2]) -> Lowered<Array> {
    let x = c.cx.cast(&c.x()?, ScalarType::F32).tensor;
    c.result(&((x - zero) * scale))
}

fn fake(c: &Call<'_>, parameters: [Tensor; 2]) -> Lowered<Array> {
    let rounded = steps(c, &parameters)?;
    let [scale, zero] = parameters;
    c.result(&((rounded - zero) * scale))
}
