//! Discrete Fourier transforms as products with cosine and sine matrices.

use super::complex::{Complex, complex};
use super::reduce::limit;
use super::{One, matmul};
use crate::ScalarType;
use crate::array::Array;
use crate::call::{Call, axis};
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered, Number};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Tensor};
use std::f64::consts::TAU;

/// Maximum number of samples. Products of two indices are exact in f32.
const MOST: usize = 1 << 12;

/// Maximum number of elements of a cosine or sine matrix that the importer computes.
const MAX_CONSTANT: usize = 1 << 20;

/// Transforms of real operands.
pub(super) const ONE: One = &[
    ("aten.fft_fft", fft),
    ("aten.fft_ifft", ifft),
    ("aten.fft_rfft", rfft),
    ("aten.fft_irfft", irfft),
    ("aten.fft_hfft", |c| {
        // The inverse transform of the conjugate with the scale of a forward transform.
        let direction = Direction::Forward;
        let axis = c.axis_or("dim", -1, rank(c)?)?;
        let len = if c.has("n") { Some(c.size("n")?) } else { None };
        let x = complex(c, &c.x()?)?;
        Transform { c, axes: vec![(axis, len)], scale: scale(c, direction)? }
            .to_real_of(Complex { re: x.re, im: -x.im })
    }),
    ("aten.fft_fft2", fft_many),
    ("aten.fft_fftn", fft_many),
    ("aten.fft_ifft2", ifft_many),
    ("aten.fft_ifftn", ifft_many),
    ("aten.fft_rfft2", rfft_many),
    ("aten.fft_rfftn", rfft_many),
    ("aten.fft_irfft2", irfft_many),
    ("aten.fft_irfftn", irfft_many),
    ("aten._fft_c2c", complex_to_complex),
    ("aten._fft_r2c", real_to_complex),
    ("aten._fft_c2r", complex_to_real),
    ("aten.stft", stft),
    ("aten.istft", istft),
    ("aten.fft_fftfreq", frequencies),
    ("aten.fft_rfftfreq", frequencies),
    ("aten.fft_fftshift", |c| shifted(c, false)),
    ("aten.fft_ifftshift", |c| shifted(c, true)),
];

/// The direction of a transform.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Inverse,
}

/// The divisor of a transform over n samples: 1, sqrt(n) or n.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    One,
    Root,
    All,
}

/// A transform along axes. Each axis may have a number of samples to truncate or pad it to.
struct Transform<'c, 'a> {
    c: &'c Call<'a>,
    axes: Vec<(usize, Option<Size>)>,
    scale: Scale,
}

fn fft(c: &Call<'_>) -> Lowered<Array> {
    Transform::along(c, Direction::Forward)?.complex(Direction::Forward)
}

fn ifft(c: &Call<'_>) -> Lowered<Array> {
    Transform::along(c, Direction::Inverse)?.complex(Direction::Inverse)
}

fn rfft(c: &Call<'_>) -> Lowered<Array> {
    Transform::along(c, Direction::Forward)?.of_real(true)
}

fn irfft(c: &Call<'_>) -> Lowered<Array> {
    Transform::along(c, Direction::Inverse)?.to_real()
}

fn fft_many(c: &Call<'_>) -> Lowered<Array> {
    Transform::over(c, Direction::Forward)?.complex(Direction::Forward)
}

fn ifft_many(c: &Call<'_>) -> Lowered<Array> {
    Transform::over(c, Direction::Inverse)?.complex(Direction::Inverse)
}

fn rfft_many(c: &Call<'_>) -> Lowered<Array> {
    Transform::over(c, Direction::Forward)?.of_real(true)
}

fn irfft_many(c: &Call<'_>) -> Lowered<Array> {
    Transform::over(c, Direction::Inverse)?.to_real()
}

fn complex_to_complex(c: &Call<'_>) -> Lowered<Array> {
    let direction = if c.bool_or("forward", true)? { Direction::Forward } else { Direction::Inverse };
    Transform::core(c)?.complex(direction)
}

fn real_to_complex(c: &Call<'_>) -> Lowered<Array> {
    Transform::core(c)?.of_real(c.bool_or("onesided", true)?)
}

fn complex_to_real(c: &Call<'_>) -> Lowered<Array> {
    let mut transform = Transform::core(c)?;
    if let Some((_, len)) = transform.axes.last_mut() {
        *len = Some(c.size("last_dim_size")?);
    }
    transform.to_real()
}

/// The rank of the first argument as the program defines it.
fn rank(c: &Call<'_>) -> Lowered<usize> {
    let x = c.x()?;
    Ok(if x.ty == ScalarType::C64 { x.rank() - 1 } else { x.rank() })
}

fn scale(c: &Call<'_>, direction: Direction) -> Lowered<Scale> {
    Ok(match (c.string_or("norm", "backward")?.as_str(), direction) {
        ("ortho", _) => Scale::Root,
        ("backward", Direction::Inverse) | ("forward", Direction::Forward) => Scale::All,
        ("backward" | "forward", _) => Scale::One,
        (other, _) => return Fault::program(format!("no scale of a transform `{other}`")),
    })
}

impl<'c, 'a> Transform<'c, 'a> {
    /// A transform along one axis.
    fn along(c: &'c Call<'a>, direction: Direction) -> Lowered<Self> {
        let axis = c.axis_or("dim", -1, rank(c)?)?;
        let len = if c.has("n") { Some(c.size("n")?) } else { None };
        Ok(Self { c, axes: vec![(axis, len)], scale: scale(c, direction)? })
    }

    /// A transform along several axes.
    fn over(c: &'c Call<'a>, direction: Direction) -> Lowered<Self> {
        let rank = rank(c)?;
        let lens = if c.has("s") { Some(c.sizes("s")?) } else { None };
        let dims = match (c.has("dim"), &lens) {
            (true, _) => c.ints("dim")?,
            (false, _) if c.base.ends_with('2') => vec![-2, -1],
            (false, Some(lens)) => (-(lens.len() as i64)..0).collect(),
            (false, None) => (0..rank as i64).collect(),
        };
        let len = |place: usize| lens.as_ref().and_then(|lens| lens.get(place)).cloned();
        let given = |len: &Size| len.as_const() != Some(-1);
        let axes = dims.iter().enumerate().map(|(place, &dim)| Ok((axis(dim, rank)?, len(place).filter(given))));
        Ok(Self { c, axes: axes.collect::<Lowered<_>>()?, scale: scale(c, direction)? })
    }

    /// A transform of an operator that remains after decomposition.
    fn core(c: &'c Call<'a>) -> Lowered<Self> {
        let rank = rank(c)?;
        let axes = c.ints("dim")?.into_iter().map(|dim| Ok((axis(dim, rank)?, None))).collect::<Lowered<_>>()?;
        let scale = match c.int("normalization")? {
            0 => Scale::One,
            1 => Scale::Root,
            2 => Scale::All,
            other => return Fault::program(format!("no scale of a transform {other}")),
        };
        Ok(Self { c, axes, scale })
    }

    fn complex(&self, direction: Direction) -> Lowered<Array> {
        let mut x = complex(self.c, &self.c.x()?)?;
        for (axis, len) in &self.axes {
            x = self.one(x, *axis, len.as_ref(), direction)?;
        }
        x.array(self.c.cx)
    }

    /// The transform of real numbers. If `is_half`, the last axis only has the first half of the spectrum.
    fn of_real(&self, is_half: bool) -> Lowered<Array> {
        let cx = self.c.cx;
        let Some(((last, len), others)) = self.axes.split_last() else { return Fault::program("no axes") };
        let x = cx.cast(&self.c.x()?, ScalarType::F32).tensor;
        let x = fitted(cx, x, *last, len.as_ref())?;
        let n = cx.extent(&x, *last);
        let bins = if is_half { cx.quotient(&n, &2.into())?.plus(&1.into()) } else { n.clone() };
        let [cos, sin] = waves(cx, [&n, &bins], &n)?;
        let (re, im) = (contracted(cx, &x, *last, &cos)?, contracted(cx, &x, *last, &sin)?);
        let mut y = Complex { re: self.scaled(re, &n)?, im: -self.scaled(im, &n)? };
        for (axis, len) in others {
            y = self.one(y, *axis, len.as_ref(), Direction::Forward)?;
        }
        y.array(cx)
    }

    /// The inverse transform to real numbers. The last axis has the first half of the spectrum.
    fn to_real(&self) -> Lowered<Array> {
        self.to_real_of(complex(self.c, &self.c.x()?)?)
    }

    fn to_real_of(&self, mut x: Complex) -> Lowered<Array> {
        let cx = self.c.cx;
        let Some(((last, len), others)) = self.axes.split_last() else { return Fault::program("no axes") };
        for (axis, len) in others {
            x = self.one(x, *axis, len.as_ref(), Direction::Inverse)?;
        }
        let n = match len {
            Some(len) => len.clone(),
            None => cx.extent(&x.re, *last).minus(&1.into()).times(&2.into()),
        };
        let bins = cx.quotient(&n, &2.into())?.plus(&1.into());
        let [re, im] = [x.re, x.im].map(|part| fitted(cx, part, *last, Some(&bins)));
        // Each bin counts twice, except the first one and the one at half the number of samples.
        let place = cx.positions(std::slice::from_ref(&bins), 0)?;
        let samples = cx.number(&Number::Int(n.clone()), ScalarType::I64)?.tensor;
        let is_single = place.equal(0i64).or((&place + &place).equal(&samples));
        let weight = is_single.select(&cx.f(1.0), &cx.f(2.0));
        let weight = cx.reshape(&weight, &[bins.clone(), 1.into()])?;
        let [cos, sin] = waves(cx, [&bins, &n], &n)?;
        let re = contracted(cx, &re?, *last, &(cos * &weight))?;
        let im = contracted(cx, &im?, *last, &(sin * weight))?;
        Ok(Array { tensor: self.scaled(re - im, &n)?, ty: ScalarType::F32 })
    }

    fn one(&self, x: Complex, axis: usize, len: Option<&Size>, direction: Direction) -> Lowered<Complex> {
        let cx = self.c.cx;
        let [re, im] = [x.re, x.im].map(|part| fitted(cx, part, axis, len));
        let (re, im) = (re?, im?);
        let n = cx.extent(&re, axis);
        let [cos, sin] = waves(cx, [&n, &n], &n)?;
        let sin = if direction == Direction::Forward { sin } else { -sin };
        let along = |part: &Tensor, wave: &Tensor| contracted(cx, part, axis, wave);
        let real = along(&re, &cos)? + along(&im, &sin)?;
        let imaginary = along(&im, &cos)? - along(&re, &sin)?;
        Ok(Complex { re: self.scaled(real, &n)?, im: self.scaled(imaginary, &n)? })
    }

    fn scaled(&self, x: Tensor, n: &Size) -> Lowered<Tensor> {
        let count = self.c.cx.number(&Number::Int(n.clone()), ScalarType::F32)?.tensor;
        Ok(match self.scale {
            Scale::One => x,
            Scale::Root => x / count.sqrt(),
            Scale::All => x / count,
        })
    }
}

/// Transforms of windows that slide over a signal, `[.., bins, windows]`.
fn stft(c: &Call<'_>) -> Lowered<Array> {
    let (cx, x) = (c.cx, c.x()?);
    if x.ty == ScalarType::C64 || c.ty(0)? != ScalarType::C64 || c.bool_or("align_to_window", false)? {
        return Fault::unsupported("of complex numbers, or to pairs of real ones");
    }
    let samples = c.int("n_fft")?;
    let (hop, width) = (c.int_or("hop_length", samples / 4)?, c.int_or("win_length", samples)?);
    if samples < 1 || hop < 1 || !(1..=samples).contains(&width) {
        return Fault::program("stft: no windows");
    }
    let n = Size::from(samples);
    let mut shape = cx.shape(&x.tensor);
    let Some(last) = shape.len().checked_sub(1) else { return Fault::program("stft: a number") };
    shape[last] = cx.quotient(&shape[last].minus(&n), &hop.into())?.plus(&1.into());
    shape.push(n.clone());
    let mut index: Vec<IndexExpr> = (0..last).map(coord).collect();
    index.push(coord(last).binary(BinaryOp::Mul, hop).binary(BinaryOp::Add, coord(last + 1)));
    let frames = cx.remap(&cx.cast(&x, ScalarType::F32).tensor, &shape, index, None, &[])?;
    let frames = frames * window(c, samples, width)?;
    let bins = if c.bool_or("onesided", true)? { samples / 2 + 1 } else { samples };
    let [cos, sin] = waves(cx, [&n, &bins.into()], &n)?;
    let scale = if c.bool_or("normalized", false)? { Scale::Root } else { Scale::One };
    let transform = Transform { c, axes: vec![], scale };
    let along = |wave: &Tensor| transform.scaled(contracted(cx, &frames, last + 1, wave)?.transpose(-1, -2), &n);
    Complex { re: along(&cos)?, im: -along(&sin)? }.array(cx)
}

/// The window of a transform. A shorter window is centred.
fn window(c: &Call<'_>, samples: i64, width: i64) -> Lowered<Tensor> {
    let window = match c.optional_tensor("window")? {
        Some(window) => c.cx.cast(&window, ScalarType::F32).tensor,
        None => c.cx.expand(&c.cx.f(1.0), &[width.into()])?,
    };
    let place = coord(0).binary(BinaryOp::Sub, (samples - width) / 2);
    c.cx.remap(&window, &[samples.into()], vec![place], Some(&c.cx.f(0.0)), &[])
}

/// Reconstructs the signal of a spectrum: the sum of overlapping windows, divided by the sum of their squared window functions.
fn istft(c: &Call<'_>) -> Lowered<Array> {
    let (cx, samples) = (c.cx, c.int("n_fft")?);
    let (hop, width) = (c.int_or("hop_length", samples / 4)?, c.int_or("win_length", samples)?);
    if samples < 1 || hop < 1 || !(1..=samples).contains(&width) || samples / hop > MOST_OVERLAPPING {
        return Fault::unsupported("windows of these sizes");
    }
    if !c.bool_or("onesided", true)? || c.bool_or("return_complex", false)? || c.ty(0)? == ScalarType::C64 {
        return Fault::unsupported("of a whole spectrum, or to complex numbers");
    }
    let window = window(c, samples, width)?;
    let bins = rank(c)?.checked_sub(2).ok_or_else(|| Fault::Program("istft: a vector".to_owned()))?;
    let scale = if c.bool_or("normalized", false)? { Scale::Root } else { Scale::All };
    let frames = Transform { c, axes: vec![(bins, Some(samples.into()))], scale }.to_real()?.tensor;
    // `[.., windows, samples]`
    let frames = frames.transpose(bins, bins + 1) * &window;
    let mut shape = cx.shape(&frames);
    let squares = cx.expand(&window.square(), &shape[bins..])?;
    let start = if c.bool_or("center", true)? { samples / 2 } else { 0 };
    shape.pop();
    shape[bins] = c.shape(0)?.pop().ok_or_else(|| Fault::Program("istft: no samples".to_owned()))?;
    let sum = |x: &Tensor, outer: usize, shape: &[Size]| {
        let mut sum = None;
        for n in 0..=(samples - 1) / hop {
            let place = coord(outer).binary(BinaryOp::Add, start);
            let frame = place.clone().binary(BinaryOp::Div, hop).binary(BinaryOp::Sub, n);
            let within = place.binary(BinaryOp::Mod, hop).binary(BinaryOp::Add, n * hop);
            let index = (0..outer).map(coord).chain([frame, within]).collect();
            let part = cx.remap(x, shape, index, Some(&cx.f(0.0)), &[])?;
            sum = Some(sum.map_or_else(|| part.clone(), |sum: Tensor| sum + &part));
        }
        sum.ok_or_else(|| Fault::Program("istft: no windows".to_owned()))
    };
    c.result(&(sum(&frames, bins, &shape)? / sum(&squares, 0, &shape[bins..])?))
}

/// Maximum number of overlapping windows.
const MOST_OVERLAPPING: i64 = 64;

/// The frequencies of bins. The second half of a full spectrum is negative.
fn frequencies(c: &Call<'_>) -> Lowered<Array> {
    let (samples, shape) = (c.int("n")?, c.shape(0)?);
    if samples < 1 {
        return Fault::program("frequencies of no samples");
    }
    let places = c.cx.positions(&shape, 0)?;
    let places = match c.base {
        "aten.fft_fftfreq" => places.ge((samples + 1) / 2).select(&(&places - samples), &places),
        _ => places,
    };
    let step = (samples as f64 * c.float_or("d", 1.0)?).recip();
    Ok(c.cx.cast(&Array { tensor: places.cast(DType::F32) * step, ty: ScalarType::F32 }, c.ty(0)?))
}

/// Truncates an axis or pads it with zeros.
fn fitted(cx: &Context, x: Tensor, axis: usize, len: Option<&Size>) -> Lowered<Tensor> {
    let mut shape = cx.shape(&x);
    let Some(len) = len.filter(|len| **len != shape[axis]) else { return Ok(x) };
    shape[axis] = len.clone();
    let index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
    cx.remap(&x, &shape, index, Some(&cx.f(0.0)), &[])
}

/// Multiplies an axis with a matrix.
fn contracted(cx: &Context, x: &Tensor, axis: usize, matrix: &Tensor) -> Lowered<Tensor> {
    let last = x.rank() - 1;
    if axis == last {
        return matmul::matmul(cx, x, matrix);
    }
    Ok(matmul::matmul(cx, &x.transpose(axis, last), matrix)?.transpose(axis, last))
}

/// Cosines and sines of `2 pi row column / n`.
fn waves(cx: &Context, [rows, columns]: [&Size; 2], n: &Size) -> Lowered<[Tensor; 2]> {
    if let (Some(rows), Some(columns), Some(n)) = (rows.as_extent(), columns.as_extent(), n.as_extent())
        && rows.saturating_mul(columns) <= MAX_CONSTANT
        && n > 0
    {
        let wave = |f: fn(f64) -> f64| {
            let places = (0..rows).flat_map(|row| (0..columns).map(move |column| row * column % n));
            let values: Vec<f64> = places.map(|place| f(TAU * place as f64 / n as f64)).collect();
            let tensor = HostTensor::from_f64(DType::F32, vec![rows, columns], &values);
            tensor.map(|tensor| cx.scope.constant(tensor)).map_err(|error| Fault::Program(error.to_string()))
        };
        return Ok([wave(f64::cos)?, wave(f64::sin)?]);
    }
    limit(cx, n, MOST, "samples of a Fourier transform")?;
    let shape = [rows.clone(), columns.clone()];
    let product = cx.positions(&shape, 0)?.cast(DType::F32) * cx.positions(&shape, 1)?.cast(DType::F32);
    let count = cx.number(&Number::Int(n.clone()), ScalarType::F32)?.tensor;
    let turns = &product - (&product / &count).floor() * &count;
    let angle = turns / count * TAU;
    Ok([angle.cos(), angle.sin()])
}

fn shifted(c: &Call<'_>, is_back: bool) -> Lowered<Array> {
    let x = c.x()?;
    let mut tensor = x.tensor;
    for axis in c.axes("dim", tensor.rank())? {
        let n = c.cx.extent(&tensor, axis);
        let half = c.cx.quotient(&n, &2.into())?;
        let first = if is_back { half } else { n.minus(&half) };
        let rest = n.minus(&first);
        let parts =
            [c.cx.slice(&tensor, axis, (&first, 1), &rest)?, c.cx.slice(&tensor, axis, (&0.into(), 1), &first)?];
        tensor = c.cx.concat(&parts, axis);
    }
    Ok(Array { tensor, ty: x.ty })
}
