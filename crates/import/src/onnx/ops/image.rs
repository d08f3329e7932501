//! Images sampled at computed positions.

use super::One;
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::op::IndexExpr;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[("GridSample", grid_sample), ("AffineGrid", affine_grid), ("RoiAlign", roi_align)];

/// Handling of positions beyond the border of an image.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    Zeros,
    Nearest,
    Reflected,
}

/// How positions along an axis are mapped into the image.
struct Places<'a> {
    node: &'a Node<'a>,
    extent: Tensor,
    border: Border,
    is_aligned: bool,
}

/// A neighbour along an axis for each position of the result: its index and its weight.
struct Tap {
    index: Tensor,
    weight: Tensor,
}

impl Places<'_> {
    /// Reflects a position at both ends until it is between them.
    fn reflected(&self, x: &Tensor) -> Tensor {
        let (low, span) = match self.is_aligned {
            true => (0.0, &self.extent - 1.0),
            false => (-0.5, self.extent.clone()),
        };
        let distance = (x - low).abs();
        let turns = (&distance / &span).floor();
        let rest = &distance - &turns * &span;
        let odd = (&turns * 0.5).floor().not_equal(&(&turns * 0.5));
        let y = odd.select(&(&span - &rest), &rest) + low;
        span.gt(0.0).select(&y, &self.node.cx.f(0.0))
    }

    fn clamped(&self, x: &Tensor) -> Tensor {
        x.maximum(0.0).minimum(&(&self.extent - 1.0))
    }

    fn bounded(&self, x: &Tensor) -> Tensor {
        match self.border {
            Border::Zeros => x.clone(),
            Border::Nearest => self.clamped(x),
            Border::Reflected => self.reflected(x),
        }
    }

    fn tap(&self, place: &Tensor, weight: Tensor) -> Tap {
        let cx = self.node.cx;
        let weight = match self.border {
            Border::Zeros => {
                let inside = place.ge(0.0).and(place.le(&(&self.extent - 1.0)));
                inside.select(&weight, &cx.f(0.0))
            }
            _ => weight,
        };
        let place = if self.border == Border::Reflected { self.reflected(place).trunc() } else { place.clone() };
        Tap { index: self.clamped(&place).cast(DType::I64), weight }
    }

    fn taps(&self, place: &Tensor, mode: &str) -> Lowered<Vec<Tap>> {
        let cx = self.node.cx;
        let floor = place.floor();
        let ratio = place - &floor;
        Ok(match mode {
            "nearest" => {
                let nearest = self.bounded(&place.round()).trunc();
                vec![self.tap(&nearest, cx.f(1.0))]
            }
            "linear" => {
                let place = self.bounded(place);
                let floor = place.floor();
                let ratio = &place - &floor;
                vec![self.tap(&floor, cx.f(1.0) - &ratio), self.tap(&(&floor + 1.0), ratio)]
            }
            "cubic" => {
                let (place, floor, ratio) = match self.border {
                    Border::Zeros => (place.clone(), floor, ratio),
                    _ => {
                        let place = self.bounded(place);
                        (place.clone(), place.floor(), &place - place.floor())
                    }
                };
                debug_assert_eq!(place.rank(), floor.rank(), "places of one shape");
                let taps = (-1..=2).map(|step| {
                    let step = f64::from(step);
                    self.tap(&(&floor + step), cubic(&(&ratio - step).abs()))
                });
                taps.collect()
            }
            other => return Fault::unsupported(format!("mode=`{other}`")),
        })
    }
}

/// The kernel of cubic convolution with a = -0.75 (Keys, 1981).
fn cubic(x: &Tensor) -> Tensor {
    const A: f64 = -0.75;
    let near = ((x * (A + 2.0)) - (A + 3.0)) * x * x + 1.0;
    let far = ((x * A - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    x.le(1.0).select(&near, &far)
}

fn grid_sample(n: &Node<'_>) -> Lowered<Array> {
    let (x, grid) = (n.x()?, n.array(1)?);
    let own = n.shape(&x);
    let spatial = own.len().saturating_sub(2);
    let mode = match n.text("mode", "linear").as_str() {
        "bilinear" | "linear" => "linear",
        "bicubic" | "cubic" => "cubic",
        "nearest" => "nearest",
        other => return Fault::unsupported(format!("mode=`{other}`")),
    };
    let border = match n.text("padding_mode", "zeros").as_str() {
        "zeros" => Border::Zeros,
        "border" => Border::Nearest,
        "reflection" => Border::Reflected,
        other => return Fault::unsupported(format!("padding_mode=`{other}`")),
    };
    if !(1..=3).contains(&spatial) || grid.rank() != own.len() {
        return Fault::unsupported("images of more than three axes");
    }
    let is_aligned = n.is("align_corners");
    let grid_shape = n.shape(&grid);
    let mut result = vec![own[0].clone(), own[1].clone()];
    result.extend(grid_shape[1..=spatial].iter().cloned());
    let mut taps = vec![];
    for axis in 0..spatial {
        let unit = n.cx.select(&n.f32(&grid), spatial + 1, &(spatial - 1 - axis).into())?;
        let extent = n.number(&own[2 + axis])?.cast(DType::F32);
        let place = match is_aligned {
            true => (unit + 1.0) * 0.5 * (&extent - 1.0),
            false => ((unit + 1.0) * &extent - 1.0) * 0.5,
        };
        taps.push(Places { node: n, extent, border, is_aligned }.taps(&place, mode)?);
    }
    let y = summed(n, &n.f32(&x), &result, &taps)?;
    n.stored(&y, x.ty)
}

/// The weighted sum over all combinations of neighbours, one per axis.
fn summed(n: &Node<'_>, x: &Tensor, shape: &[Size], taps: &[Vec<Tap>]) -> Lowered<Tensor> {
    let count: usize = taps.iter().map(Vec::len).product();
    let spatial = shape.len() - 2;
    let load = |operand: usize| {
        let index = std::iter::once(coord(0)).chain((0..spatial).map(|axis| coord(2 + axis))).collect();
        IndexExpr::Load { operand, index }
    };
    let mut sum: Option<Tensor> = None;
    for mut number in 0..count {
        let mut chosen = vec![];
        for taps in taps {
            chosen.push(&taps[number % taps.len()]);
            number /= taps.len();
        }
        let index = [coord(0), coord(1)].into_iter().chain((0..chosen.len()).map(|axis| load(axis + 1))).collect();
        let loads: Vec<&Tensor> = chosen.iter().map(|tap| &tap.index).collect();
        let values = n.cx.remap(x, shape, index, None, &loads)?;
        let weight = chosen.iter().skip(1).fold(chosen[0].weight.clone(), |weight, tap| weight * &tap.weight);
        let weight = if weight.rank() == 0 { weight } else { n.cx.unsqueeze(&weight, 1)? };
        let part = values * weight;
        sum = Some(sum.map_or_else(|| part.clone(), |sum| sum + &part));
    }
    sum.ok_or_else(|| Fault::Program("an image without axes".to_owned()))
}

fn affine_grid(n: &Node<'_>) -> Lowered<Array> {
    let theta = n.x()?;
    let size = n.sizes(1)?;
    let shape = size.get(2..).unwrap_or_default().to_vec();
    let rank = shape.len();
    if !(2..=3).contains(&rank) {
        return Fault::program("AffineGrid: a size of other axes");
    }
    let unit = |axis: usize| -> Lowered<Tensor> {
        let places = n.cx.positions(&shape, axis)?.cast(DType::F32);
        let extent = n.number(&shape[axis])?.cast(DType::F32);
        Ok(match n.is("align_corners") {
            true => places * 2.0 / (extent - 1.0) - 1.0,
            false => (places * 2.0 + 1.0) / extent - 1.0,
        })
    };
    let units = (0..rank).map(unit).collect::<Lowered<Vec<_>>>()?;
    let entry = |i: usize, j: usize| -> Lowered<Tensor> {
        let entry = n.cx.select(&n.cx.select(&theta.tensor, 1, &i.into())?, 1, &j.into())?;
        let mut samples = vec![Size::from(1); rank + 1];
        samples[0] = size[0].clone();
        n.cx.reshape(&entry, &samples)
    };
    let mut all = vec![size[0].clone()];
    all.extend(shape.iter().cloned());
    let mut parts = vec![];
    for i in 0..rank {
        let mut sum = entry(i, rank)?;
        for j in 0..rank {
            sum = sum + entry(i, j)? * &units[rank - 1 - j];
        }
        parts.push(n.cx.unsqueeze(&n.cx.expand(&sum, &all)?, rank + 1)?);
    }
    n.stored(&n.cx.concat(&parts, rank + 1), theta.ty)
}

/// Means or maxima of samples in the cells of regions.
fn roi_align(n: &Node<'_>) -> Lowered<Array> {
    let (x, regions, batch) = (n.x()?, n.array(1)?, n.array(2)?);
    let (own, count) = (n.shape(&x), n.shape(&regions)[0].clone());
    let ratio = n.int("sampling_ratio", 0);
    let (height, width) = (n.int("output_height", 1), n.int("output_width", 1));
    let is_half = n.version >= 16 && n.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
    if ratio < 1 || own.len() != 4 {
        return Fault::unsupported("a number of samples by the size of a region");
    }
    let scale = n.float("spatial_scale", 1.0);
    let offset = if is_half { 0.5 } else { 0.0 };
    let edge = |place: usize| -> Lowered<Tensor> {
        let edge = n.cx.select(&n.f32(&regions), 1, &place.into())?;
        let edge = edge * scale - offset;
        n.cx.reshape(&edge, &[count.clone(), 1.into(), 1.into(), 1.into(), 1.into()])
    };
    // Axes: region, row, column, and samples in both directions.
    let grid = [count.clone(), height.into(), width.into(), ratio.into(), ratio.into()];
    let mut taps = vec![];
    let mut inside: Option<Tensor> = None;
    for (axis, cells) in [(0, height), (1, width)] {
        let (start, end) = (edge(1 - axis)?, edge(3 - axis)?);
        let span = end - &start;
        let span = if is_half { span } else { span.maximum(1.0) };
        let cell = n.cx.positions(&grid, 1 + axis)?.cast(DType::F32);
        let sample = n.cx.positions(&grid, 3 + axis)?.cast(DType::F32);
        let place = start + (cell + (sample + 0.5) / ratio as f64) * (span / cells as f64);
        let extent = n.number(&own[2 + axis])?.cast(DType::F32);
        let within = place.ge(-1.0).and(place.le(&extent));
        inside = Some(inside.map_or_else(|| within.clone(), |inside| inside.and(&within)));
        let places = Places { node: n, extent, border: Border::Nearest, is_aligned: true };
        let place = places.clamped(&place);
        let floor = place.floor();
        let weight = &place - &floor;
        taps.push(
            [(floor.clone(), n.cx.f(1.0) - &weight), (floor + 1.0, weight)].map(|(at, weight)| places.tap(&at, weight)),
        );
    }
    let inside = inside.ok_or_else(|| Fault::Program("no axes".to_owned()))?;
    let shape = [count.clone(), own[1].clone(), height.into(), width.into(), ratio.into(), ratio.into()];
    let batch = n.cx.cast(&batch, ScalarType::I64).tensor;
    let is_max = n.text("mode", "avg") == "max";
    let mut sum: Option<Tensor> = None;
    for row in &taps[0] {
        for column in &taps[1] {
            let [rows, columns] = [row, column].map(|tap| n.cx.expand(&tap.index, &grid));
            let (rows, columns) = (rows?, columns?);
            let at = |operand: usize| IndexExpr::Load {
                operand,
                index: vec![coord(0), coord(2), coord(3), coord(4), coord(5)],
            };
            let index = vec![IndexExpr::Load { operand: 1, index: vec![coord(0)] }, coord(1), at(2), at(3)];
            let values = n.cx.remap(&n.f32(&x), &shape, index, None, &[&batch, &rows, &columns])?;
            let weight = n.cx.unsqueeze(&n.cx.expand(&(&row.weight * &column.weight), &grid)?, 1)?;
            let part = values * weight;
            sum = Some(match sum {
                None => part,
                Some(sum) if is_max => sum.maximum(&part),
                Some(sum) => sum + part,
            });
        }
    }
    let samples = sum.ok_or_else(|| Fault::Program("no samples".to_owned()))?;
    let samples = n.cx.unsqueeze(&inside, 1)?.select(&samples, &n.cx.f(0.0));
    let y = match is_max {
        true => samples.max(5).max(4),
        false => samples.sum(5).sum(4) / (ratio * ratio) as f64,
    };
    n.stored(&n.cx.reshape(&y, &shape[..4])?, x.ty)
}
