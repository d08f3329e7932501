//! Resizing. The weights of neighbours are computed while the model is read.

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

pub(super) const ONE: One = &[
    ("Resize", |n| {
        // Before operator set 11 there is no input for a region.
        let first = if n.version < 11 { 1 } else { 2 };
        resize(n, Some(1).filter(|_| n.version >= 11), first)
    }),
    ("Upsample", |n| match n.version {
        ..7 => Fault::unsupported("Upsample before operator set 7"),
        _ => resize(n, None, 1),
    }),
];

/// The resize of one axis.
struct Line<'a> {
    node: &'a Node<'a>,
    from: usize,
    to: usize,
    scale: f64,
    region: [f64; 2],
}

/// The neighbours of each position of the result with their weights. All positions have the same number of neighbours.
struct Taps {
    count: usize,
    places: Vec<i64>,
    weights: Vec<f64>,
}

fn resize(n: &Node<'_>, region: Option<usize>, first: usize) -> Lowered<Array> {
    let x = n.x()?;
    let own = n.shape(&x);
    let axes = match n.ints("axes") {
        Some(axes) => axes.iter().map(|&dim| axis(dim, x.rank())).collect::<Lowered<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    let targets = targets(n, &axes.iter().map(|&axis| own[axis].clone()).collect::<Vec<_>>(), first)?;
    let regions = match region {
        Some(place) if n.text("coordinate_transformation_mode", "") == "tf_crop_and_resize" => n.known_floats(place)?,
        _ => vec![],
    };
    let mut y = n.f32(&x);
    for ((place, &axis), Target { scale, to }) in axes.iter().enumerate().zip(targets) {
        let region = match regions.len() == 2 * axes.len() {
            true => [regions[place], regions[axes.len() + place]],
            false => [0.0, 1.0],
        };
        let Some(from) = own[axis].as_extent() else {
            y = repeated(n, &y, axis, scale)?;
            continue;
        };
        if !(0.0..f64::from(1 << 20)).contains(&to) {
            return Fault::unsupported("a size that is not known, or large");
        }
        let line = Line { node: n, from, to: to as usize, scale, region };
        if line.from == line.to && scale == 1.0 && region == [0.0, 1.0] {
            continue;
        }
        y = line.along(&y, axis)?;
    }
    if x.ty.is_float() {
        return n.stored(&y, x.ty);
    }
    Ok(n.cast(&y, x.ty))
}

/// The scale of an axis, and the resulting extent, which is 0 if symbolic.
struct Target {
    scale: f64,
    to: f64,
}

/// The scales and resulting extents of axes with these extents.
fn targets(n: &Node<'_>, extents: &[Size], first: usize) -> Lowered<Vec<Target>> {
    let scales = match n.floats("scales") {
        Some(scales) => scales,
        None if n.has(first) => n.known_floats(first)?,
        None => vec![],
    };
    let known = |size: &Size| size.as_extent().map(|extent| extent as f64);
    let count = extents.len();
    if scales.len() == count {
        // Scales are f32.
        let to = |scale: f64, size: &Size| known(size).map_or(0.0, |extent| (scale * extent).floor());
        return Ok(scales.iter().zip(extents).map(|(&scale, size)| Target { scale, to: to(scale, size) }).collect());
    }
    let sizes = if n.has(first + 1) { n.sizes(first + 1)? } else { vec![] };
    if sizes.len() != count {
        return Fault::program(format!("{}: scales of other axes", n.op));
    }
    let each = sizes.iter().zip(extents).map(|(size, extent)| match (known(size), known(extent)) {
        (Some(size), Some(extent)) => Some(Target { scale: size / extent, to: size }),
        _ => size.divided(extent)?.as_const().map(|factor| Target { scale: factor as f64, to: 0.0 }),
    });
    let each: Option<Vec<Target>> = each.collect();
    let each = each.ok_or_else(|| Fault::Unsupported("a size that is not a multiple of a symbolic one".to_owned()))?;
    let scales = each.iter().map(|target| target.scale);
    let scale = match n.text("keep_aspect_ratio_policy", "stretch").as_str() {
        "not_larger" => scales.fold(f64::INFINITY, f64::min),
        "not_smaller" => scales.fold(0.0, f64::max),
        _ => return Ok(each),
    };
    let to = |extent: &Size| known(extent).map_or(0.0, |extent| (scale * extent + 0.5).floor());
    Ok(extents.iter().map(|extent| Target { scale, to: to(extent) }).collect())
}

/// Repeats the elements along an axis of symbolic extent; the scale must be an integer.
fn repeated(n: &Node<'_>, x: &Tensor, axis: usize, scale: f64) -> Lowered<Tensor> {
    if scale == 1.0 {
        return Ok(x.clone());
    }
    let is_old = n.op == "Upsample" || n.version < 11;
    let (coordinates, nearest) = if is_old { ("asymmetric", "floor") } else { ("half_pixel", "round_prefer_floor") };
    let coordinates = n.text("coordinate_transformation_mode", coordinates);
    let nearest = n.text("nearest_mode", nearest);
    let is_whole = matches!(
        (&*coordinates, &*nearest),
        ("asymmetric", "floor") | ("half_pixel", "round_prefer_floor" | "round_prefer_ceil")
    );
    let factor = scale as i64;
    if n.text("mode", "nearest") != "nearest" || !is_whole || factor < 1 || factor as f64 != scale {
        return Fault::unsupported("a symbolic size that is not multiplied by repetition");
    }
    let mut shape = n.cx.shape(x);
    shape[axis] = shape[axis].times(&factor.into());
    let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
    index[axis] = coord(axis).binary(BinaryOp::Div, factor);
    n.cx.remap(x, &shape, index, None, &[])
}

impl Line<'_> {
    /// The position in the operand that corresponds to a position of the result.
    fn origin(&self, place: f64) -> Lowered<f64> {
        let (from, scale) = (self.from as f64, self.scale);
        let to = scale * from;
        let default = if self.node.op == "Upsample" || self.node.version < 11 { "asymmetric" } else { "half_pixel" };
        Ok(match self.node.text("coordinate_transformation_mode", default).as_str() {
            "half_pixel" => (place + 0.5) / scale - 0.5,
            "pytorch_half_pixel" if to == 1.0 => -0.5,
            "pytorch_half_pixel" => (place + 0.5) / scale - 0.5,
            "half_pixel_symmetric" => {
                let adjusted = self.to as f64 / to;
                from / 2.0 * (1.0 - adjusted) + (place + 0.5) / scale - 0.5
            }
            "align_corners" if to == 1.0 => 0.0,
            "align_corners" => place * (from - 1.0) / (to - 1.0),
            "asymmetric" => place / scale,
            "tf_crop_and_resize" => {
                let [start, end] = self.region;
                let inner = match to == 1.0 {
                    true => (end - start) * (from - 1.0) / 2.0,
                    false => place * (end - start) * (from - 1.0) / (to - 1.0),
                };
                inner + start * (from - 1.0)
            }
            other => return Fault::unsupported(format!("coordinate_transformation_mode=`{other}`")),
        })
    }

    /// The weights of neighbours by the distance from the left one, which is in (0, 1].
    fn coefficients(&self, ratio: f64) -> Lowered<Vec<f64>> {
        let n = self.node;
        let scale = if n.is("antialias") { self.scale.min(1.0) } else { 1.0 };
        let cubic = |x: f64| {
            let (a, x) = (n.float("cubic_coeff_a", -0.75), x.abs());
            match x {
                x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
                x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
                _ => 0.0,
            }
        };
        let spread = |reach: f64, f: &dyn Fn(f64) -> f64| {
            let start = (-reach / scale).floor() as i64 + 1;
            let values: Vec<f64> = (start..2 - start).map(|at| f(scale * (at as f64 - ratio))).collect();
            let sum: f64 = values.iter().sum();
            values.into_iter().map(|value| value / sum).collect::<Vec<f64>>()
        };
        Ok(match n.text("mode", "nearest").as_str() {
            "nearest" => {
                let default = if n.version < 11 { "floor" } else { "round_prefer_floor" };
                let is_right = ratio == 1.0
                    || match n.text("nearest_mode", default).as_str() {
                        "round_prefer_floor" => ratio > 0.5,
                        "round_prefer_ceil" => ratio >= 0.5,
                        "floor" => false,
                        "ceil" => true,
                        other => return Fault::unsupported(format!("nearest_mode=`{other}`")),
                    };
                if is_right { vec![0.0, 1.0] } else { vec![1.0, 0.0] }
            }
            "linear" => spread(1.0, &|x| (1.0 - x.abs()).clamp(0.0, 1.0)),
            "cubic" => spread(2.0, &cubic),
            other => return Fault::unsupported(format!("mode=`{other}`")),
        })
    }

    fn taps(&self) -> Lowered<Taps> {
        let mut taps = Taps { count: 0, places: vec![], weights: vec![] };
        for place in 0..self.to {
            let origin = self.origin(place as f64)?;
            let left = if origin.fract() == 0.0 { origin - 1.0 } else { origin.floor() };
            let mut weights = self.coefficients(origin - left)?;
            taps.count = weights.len();
            let start = left as i64 - (weights.len() as i64 / 2 - 1);
            let places: Vec<i64> = (0..weights.len() as i64).map(|step| start + step).collect();
            if self.node.is("exclude_outside") {
                let outside = |at: i64| at < 0 || at >= self.from as i64;
                weights.iter_mut().zip(&places).filter(|(_, at)| outside(**at)).for_each(|(weight, _)| *weight = 0.0);
                let sum: f64 = weights.iter().sum();
                weights.iter_mut().for_each(|weight| *weight /= if sum == 0.0 { 1.0 } else { sum });
            }
            taps.places.extend(places.into_iter().map(|at| at.clamp(0, self.from as i64 - 1)));
            taps.weights.extend(weights);
        }
        Ok(taps)
    }

    fn along(&self, x: &Tensor, axis: usize) -> Lowered<Tensor> {
        let (n, cx) = (self.node, self.node.cx);
        let mut shape = cx.shape(x);
        if self.from == 0 || self.to == 0 {
            return Fault::unsupported("images without elements");
        }
        let taps = self.taps()?;
        let failed = |error: rewire_graph::TensorSizeError| Fault::Program(error.to_string());
        let own = vec![self.to, taps.count];
        let places = cx.scope.constant(HostTensor::i64(own.clone(), &taps.places).map_err(failed)?);
        let weights = cx.scope.constant(HostTensor::from_f64(DType::F32, own, &taps.weights).map_err(failed)?);
        shape[axis] = self.to.into();
        shape.insert(axis + 1, taps.count.into());
        let mut index: Vec<IndexExpr> = (0..shape.len()).filter(|&place| place != axis + 1).map(coord).collect();
        index[axis] = IndexExpr::Load { operand: 1, index: vec![coord(axis), coord(axis + 1)] };
        let values = cx.remap(x, &shape, index, None, &[&places])?;
        let mut along = vec![Size::from(1); shape.len() - axis];
        (along[0], along[1]) = (self.to.into(), taps.count.into());
        let sum = (values * cx.reshape(&weights, &along)?).sum(axis + 1);
        let y = cx.squeeze(&sum, axis + 1)?;
        if n.text("coordinate_transformation_mode", "") != "tf_crop_and_resize" {
            return Ok(y);
        }
        let mut inside = vec![];
        for place in 0..self.to {
            let origin = self.origin(place as f64)?;
            inside.push(f64::from(u8::from(origin >= 0.0 && origin <= self.from as f64 - 1.0)));
        }
        let inside = HostTensor::from_f64(DType::Bool, vec![self.to], &inside).map_err(failed)?;
        let inside = cx.scope.constant(inside);
        let mut along = vec![Size::from(1); x.rank() - axis];
        along[0] = self.to.into();
        let beyond = cx.scalar(n.float("extrapolation_value", 0.0), ScalarType::F32)?.tensor;
        Ok(cx.reshape(&inside, &along)?.select(&y, &beyond))
    }
}
