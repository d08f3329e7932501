//! Fourier transforms and windows, as products with matrices that the importer computes.

use super::One;
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::node::{Node, axis};
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Tensor};
use std::f64::consts::PI;

pub(super) const ONE: One = &[
    ("DFT", |n| {
        let x = n.x()?;
        let at = match n.version >= 20 {
            true if n.has(2) => n.known_int(2)?,
            true => -2,
            false => n.int("axis", 1),
        };
        let along = axis(at, x.rank())?;
        transform(n, &x, along)
    }),
    ("STFT", short_time),
    ("HannWindow", |n| window(n, &[0.5, 0.5])),
    ("HammingWindow", |n| window(n, &[25.0 / 46.0, 21.0 / 46.0])),
    ("BlackmanWindow", |n| window(n, &[0.42, 0.5, 0.08])),
    ("MelWeightMatrix", mel),
];

/// Maximum number of elements of a matrix that the importer computes.
const MAX_ELEMENTS: usize = 1 << 22;

fn matrix(n: &Node<'_>, rows: usize, columns: usize, f: impl Fn(usize, usize) -> f64) -> Lowered<Tensor> {
    if rows.saturating_mul(columns) > MAX_ELEMENTS {
        return Fault::unsupported("a transform of many elements");
    }
    let values: Vec<f64> = (0..rows)
        .flat_map(|row| (0..columns).map(move |column| (row, column)))
        .map(|(row, column)| f(row, column))
        .collect();
    let tensor = HostTensor::from_f64(DType::F32, vec![rows, columns], &values);
    Ok(n.cx.scope.constant(tensor.map_err(|error| Fault::Program(error.to_string()))?))
}

/// The transform along an axis of complex or real numbers. Real and imaginary part are the last axis.
fn transform(n: &Node<'_>, x: &Array, along: usize) -> Lowered<Array> {
    let shape = n.shape(x);
    let parts = shape.len() - 1;
    let (inverse, onesided) = (n.is("inverse"), n.is("onesided"));
    if inverse && !onesided {
        return Fault::unsupported("an inverse transform to complex numbers");
    }
    let extent = shape[along].as_extent();
    let (Some(extent), false) = (extent, along == parts) else {
        return Fault::unsupported("a transform of symbolic size");
    };
    let length = match n.has(1) {
        true => usize::try_from(n.known_int(1)?).unwrap_or(0),
        false if inverse && onesided => 2 * extent.saturating_sub(1),
        false => extent,
    };
    if length == 0 {
        return Fault::program("a transform of no elements");
    }
    let is_half = inverse && onesided;
    let inputs = if is_half { extent.min(length / 2 + 1) } else { extent.min(length) };
    let outputs = if onesided && !inverse { length / 2 + 1 } else { length };
    // Each element of a one-sided spectrum counts twice, except the first one and the middle one.
    let weight = |row: usize| if is_half && row > 0 && 2 * row != length { 2.0 } else { 1.0 };
    let scale = if inverse { (length as f64).recip() } else { 1.0 };
    let sign = if inverse { 1.0 } else { -1.0 };
    let angle = |row: usize, column: usize| 2.0 * PI * ((row * column % length) as f64) / length as f64;
    let cosines = matrix(n, inputs, outputs, |row, column| angle(row, column).cos() * scale * weight(row))?;
    let sines = matrix(n, inputs, outputs, |row, column| sign * angle(row, column).sin() * scale * weight(row))?;
    let last = parts - 1;
    let part = |place: usize| -> Lowered<Tensor> {
        let part = n.cx.select(&n.f32(x), parts, &place.into())?;
        n.cx.slice(&part.transpose(along, last), last, (&0.into(), 1), &inputs.into())
    };
    let real = part(0)?;
    let is_complex = shape[parts].as_const() == Some(2);
    let (mut y, mut z) = (real.matmul(&cosines), real.matmul(&sines));
    if is_complex {
        let imaginary = part(1)?;
        y = y - imaginary.matmul(&sines);
        z = z + imaginary.matmul(&cosines);
    }
    let back = |x: Tensor| n.cx.unsqueeze(&x.transpose(along, last), parts);
    let y = back(y)?;
    let tensor = if is_half { y } else { n.cx.concat(&[y, back(z)?], parts) };
    n.stored(&tensor, x.ty)
}

fn short_time(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let shape = n.extents(&x)?;
    let step = n.known_int(1)?;
    let window = n.optional(2)?;
    let length = match (n.has(3), &window) {
        (true, _) => n.known_int(3)?,
        (false, Some(window)) => n.extents(window)?.first().map_or(0, |&length| length as i64),
        (false, None) => return Fault::program("STFT without a window or a length"),
    };
    let is_complex = shape.get(2) == Some(&2);
    if step < 1 || length < 1 || shape.len() < 2 || (shape[1] as i64) < length || is_complex {
        return Fault::unsupported("frames of complex signals, or longer than the signal");
    }
    let frames = (shape[1] as i64 - length) / step + 1;
    let outputs = if n.int("onesided", 1) != 0 { length / 2 + 1 } else { length } as usize;
    let signal = n.cx.reshape(&n.f32(&x), &[shape[0].into(), shape[1].into()])?;
    let place = coord(1).binary(BinaryOp::Mul, step).binary(BinaryOp::Add, coord(2));
    let index: Vec<IndexExpr> = vec![coord(0), place];
    let parts = [Size::from(shape[0]), frames.into(), length.into()];
    let mut framed = n.cx.remap(&signal, &parts, index, None, &[])?;
    if let Some(window) = window {
        framed = framed * n.f32(&window);
    }
    let angle = |row: usize, column: usize| 2.0 * PI * ((row * column % length as usize) as f64) / length as f64;
    let cosines = matrix(n, length as usize, outputs, |row, column| angle(row, column).cos())?;
    let sines = matrix(n, length as usize, outputs, |row, column| -angle(row, column).sin())?;
    let [y, z] = [cosines, sines].map(|matrix| n.cx.unsqueeze(&framed.matmul(&matrix), 3));
    n.stored(&n.cx.concat(&[y?, z?], 3), x.ty)
}

/// `a0 - a1 cos(2 pi k / N) + a2 cos(4 pi k / N)`
fn window(n: &Node<'_>, coefficients: &[f64]) -> Lowered<Array> {
    let size = usize::try_from(n.known_int(0)?).unwrap_or(0);
    let period = if n.int("periodic", 1) != 0 { size } else { size.saturating_sub(1) } as f64;
    let value = |place: usize| -> f64 {
        let term = |(k, a): (usize, &f64)| {
            let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
            sign * a * (2.0 * PI * k as f64 * place as f64 / period.max(1.0)).cos()
        };
        coefficients.iter().enumerate().map(term).sum()
    };
    let row = n.cx.reshape(&matrix(n, 1, size, |_, place| value(place))?, &[size.into()])?;
    let code = i32::try_from(n.int("output_datatype", 1)).unwrap_or(0);
    let ty = ScalarType::of_onnx(code).ok_or_else(|| Fault::Unsupported(format!("the type {code}")))?;
    Ok(n.cx.cast(&Array { tensor: row, ty: ScalarType::F32 }, ty))
}

fn mel(n: &Node<'_>) -> Lowered<Array> {
    let [bins, length, rate] = [n.known_int(0)?, n.known_int(1)?, n.known_int(2)?];
    let [low, high] = [n.known_floats(3)?, n.known_floats(4)?].map(|edge| edge.first().copied().unwrap_or(0.0));
    let (Ok(bins), Ok(length)) = (usize::try_from(bins), usize::try_from(length)) else {
        return Fault::program("a negative number of bins");
    };
    if bins > 1 << 12 || rate < 1 {
        return Fault::unsupported("many bins");
    }
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(high) - mel(low)) / (bins + 2) as f64;
    let edge = |place: usize| {
        let hertz = 700.0 * (10f64.powf((place as f64 * step + mel(low)) / 2595.0) - 1.0);
        ((length + 1) as f64 * hertz / rate as f64).floor() as i64
    };
    let edges: Vec<i64> = (0..bins + 2).map(edge).collect();
    let value = |row: usize, column: usize| {
        let (row, [left, center, right]) = (row as i64, [0, 1, 2].map(|n| edges[column + n]));
        let falls = row >= center && row < right && right > center;
        match (falls, left == center) {
            (true, _) => (right - row) as f64 / (right - center) as f64,
            (false, true) => f64::from(u8::from(row == center)),
            (false, false) if row >= left && row <= center => (row - left) as f64 / (center - left) as f64,
            _ => 0.0,
        }
    };
    let y = matrix(n, length / 2 + 1, bins, value)?;
    let code = i32::try_from(n.int("output_datatype", 1)).unwrap_or(0);
    let ty = ScalarType::of_onnx(code).ok_or_else(|| Fault::Unsupported(format!("the type {code}")))?;
    Ok(n.cx.cast(&Array { tensor: y, ty: ScalarType::F32 }, ty))
}
