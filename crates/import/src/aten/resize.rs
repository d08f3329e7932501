//! Resizing of images.

use super::One;
use super::order::along;
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::size::Size;
use crate::value::{Fault, Lowered, Number};
use rewire_graph::{DType, HostTensor, Tensor};

pub(super) const ONE: One = &[
    ("aten.upsample_nearest1d", |c| resized(c, Mode::Nearest)),
    ("aten.upsample_nearest2d", |c| resized(c, Mode::Nearest)),
    ("aten.upsample_nearest3d", |c| resized(c, Mode::Nearest)),
    ("aten._upsample_nearest_exact1d", |c| resized(c, Mode::NearestExact)),
    ("aten._upsample_nearest_exact2d", |c| resized(c, Mode::NearestExact)),
    ("aten._upsample_nearest_exact3d", |c| resized(c, Mode::NearestExact)),
    ("aten.upsample_linear1d", |c| resized(c, Mode::Linear)),
    ("aten.upsample_bilinear2d", |c| resized(c, Mode::Linear)),
    ("aten.upsample_trilinear3d", |c| resized(c, Mode::Linear)),
    ("aten.upsample_bicubic2d", |c| resized(c, Mode::Cubic)),
    ("aten._upsample_bilinear2d_aa", |c| smoothed(c, 1.0, |x| (1.0 - x).max(0.0))),
    ("aten._upsample_bicubic2d_aa", |c| smoothed(c, 2.0, smooth_cubic)),
];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Nearest,
    NearestExact,
    Linear,
    Cubic,
}

fn resized(c: &Call<'_>, mode: Mode) -> Lowered<Array> {
    let x = c.x()?;
    if !x.ty.is_float() {
        return Fault::unsupported("integers");
    }
    let (shape, aligned) = (c.shape(0)?, c.bool_or("align_corners", false)?);
    if shape.len() != x.rank() {
        return Fault::program("a resize to another number of axes");
    }
    let mut y = x.tensor.clone();
    for (axis, to) in shape.iter().enumerate().skip(2) {
        let from = c.cx.extent(&y, axis);
        if from == *to {
            continue;
        }
        let scale = scale(c, axis - 2, [&from, to], aligned && mode != Mode::Nearest)?;
        let mut along = vec![Size::from(1); x.rank() - axis];
        along[0] = to.clone();
        let places = c.cx.reshape(&c.cx.iota(to)?.cast(DType::F32), &along)?;
        let place = match mode {
            Mode::Nearest => places * scale,
            Mode::NearestExact => (places + 0.5) * scale,
            _ if aligned => places * scale,
            Mode::Linear => ((places + 0.5) * scale - 0.5).maximum(0.0),
            Mode::Cubic => (places + 0.5) * scale - 0.5,
        };
        y = interpolated(c, &y, axis, &place, mode)?;
    }
    c.result(&y)
}

/// Maximum number of weights along an axis that the importer computes.
const MAX_WEIGHTS: usize = 1 << 22;

/// An antialiased resize. The kernel is 0 from distance `support` on, and is stretched by the factor of downsampling.
fn smoothed(c: &Call<'_>, support: f64, kernel: fn(f64) -> f64) -> Lowered<Array> {
    let x = c.x()?;
    if !x.ty.is_float() || c.bool_or("align_corners", false)? {
        return Fault::unsupported("integers, or corners that are aligned");
    }
    let (mut y, own, shape) = (x.tensor.clone(), c.cx.shape(&x.tensor), c.shape(0)?);
    for axis in 2..shape.len() {
        let (Some(from), Some(to)) = (own[axis].as_extent(), shape[axis].as_extent()) else {
            return Fault::unsupported("a size that differs from run to run");
        };
        if from.saturating_mul(to) > MAX_WEIGHTS {
            return Fault::unsupported(format!("more than {MAX_WEIGHTS} weights"));
        }
        let given = match (c.has("scale_factors"), ["scales_h", "scales_w"].get(axis - 2)) {
            (true, _) => c.floats("scale_factors")?.get(axis - 2).copied(),
            (false, Some(name)) if c.has(name) => Some(c.float(name)?),
            _ => None,
        };
        let scale = given.map_or(from as f64 / to as f64, f64::recip);
        let weights: Vec<f64> = (0..to).flat_map(|place| taps(place, from, scale, (support, kernel))).collect();
        let matrix = HostTensor::from_f64(DType::F32, vec![to, from], &weights);
        let matrix = matrix.map_err(|error| Fault::Program(error.to_string()))?;
        let matrix = c.cx.scope.constant(matrix).transpose(0, 1);
        y = y.transpose(axis, -1).matmul(&matrix).transpose(axis, -1);
    }
    c.result(&y)
}

/// The weights of all elements for one position of the result.
fn taps(place: usize, from: usize, scale: f64, (support, kernel): (f64, fn(f64) -> f64)) -> Vec<f64> {
    let (center, wider) = (scale * (place as f64 + 0.5), scale.max(1.0));
    let first = (center - support * wider + 0.5).max(0.0).trunc();
    let end = (center + support * wider + 0.5).min(from as f64).trunc();
    let weight = |n: usize| match (first..end).contains(&(n as f64)) {
        true => kernel(((n as f64 - center + 0.5) / wider).abs()),
        false => 0.0,
    };
    let total: f64 = (0..from).map(weight).sum();
    (0..from).map(|n| if total == 0.0 { 0.0 } else { weight(n) / total }).collect()
}

/// The kernel of cubic convolution with a = -0.5.
fn smooth_cubic(x: f64) -> f64 {
    match x {
        ..1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        ..2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        _ => 0.0,
    }
}

/// The distance in the operand between adjacent positions of the result along an axis.
fn scale(c: &Call<'_>, axis: usize, [from, to]: [&Size; 2], aligned: bool) -> Lowered<Tensor> {
    let number = |size: &Size| Ok(c.cx.number(&Number::Int(size.clone()), ScalarType::F32)?.tensor);
    if aligned {
        let (from, to) = (number(&from.minus(&1.into()))?, number(&to.minus(&1.into()))?);
        return Ok(to.gt(0.0).select(&(from / &to), &c.cx.f(0.0)));
    }
    let given = match c.has("scale_factors") {
        true => c.floats("scale_factors")?.get(axis).copied(),
        false => {
            let name = match (c.has("scales"), ["scales_d", "scales_h", "scales_w"]) {
                (true, _) => "scales",
                (false, names) => {
                    let rank = if c.base.contains("3d") { 3 } else { 2 };
                    names[3 - rank + axis]
                }
            };
            if c.has(name) { Some(c.float(name)?) } else { None }
        }
    };
    match (given, from.as_const(), to.as_const()) {
        (Some(scale), _, _) => Ok(c.cx.f(f64::from(scale.recip() as f32))),
        (None, Some(from), Some(to)) => Ok(c.cx.f(f64::from(from as f32 / to as f32))),
        _ => Ok(number(from)? / number(to)?),
    }
}

fn interpolated(c: &Call<'_>, x: &Tensor, axis: usize, place: &Tensor, mode: Mode) -> Lowered<Tensor> {
    let last = c.cx.number(&Number::Int(c.cx.extent(x, axis).minus(&1.into())), ScalarType::I64)?.tensor;
    let mut shape = c.cx.shape(x);
    shape[axis] = c.cx.extent(place, 0);
    let taken = |index: Tensor| {
        let index = index.maximum(0i64).minimum(&last);
        along(c.cx, x, axis, &c.cx.expand(&index, &shape)?)
    };
    let floor = place.floor();
    let first = floor.cast(DType::I64);
    let weight = place - &floor;
    match mode {
        Mode::Nearest | Mode::NearestExact => taken(first),
        Mode::Linear => {
            let (a, b) = (taken(first.clone())?, taken(first + 1i64)?);
            Ok(a * (c.cx.f(1.0) - &weight) + b * weight)
        }
        Mode::Cubic => {
            let mut sum: Option<Tensor> = None;
            for step in -1i64..=2 {
                let distance = (&weight - step as f64).abs();
                let part = taken(&first + step)? * cubic(&distance);
                sum = Some(sum.map_or_else(|| part.clone(), |sum| sum + &part));
            }
            sum.ok_or_else(|| Fault::Program("no taps".to_owned()))
        }
    }
}

/// The kernel of cubic convolution with a = -0.75 (Keys, 1981).
pub(super) fn cubic(distance: &Tensor) -> Tensor {
    const A: f64 = -0.75;
    let x = distance;
    let near = ((x * (A + 2.0)) - (A + 3.0)) * x * x + 1.0;
    let far = ((x * A - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    x.le(1.0).select(&near, &far)
}
