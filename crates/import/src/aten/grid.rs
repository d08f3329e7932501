//! Images and volumes sampled at computed positions.

use super::One;
use super::resize::cubic;
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::coord;
use crate::size::Size;
use crate::value::{Fault, Lowered, Number};
use rewire_graph::op::IndexExpr;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.grid_sampler", grid_sampler),
    ("aten.grid_sampler_2d", grid_sampler),
    ("aten.grid_sampler_3d", grid_sampler),
];

/// Handling of positions beyond the border.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    Zeros,
    Nearest,
    Reflected,
}

/// The extent of an axis as a float.
pub(super) fn extent(c: &Call<'_>, size: &Size) -> Lowered<Tensor> {
    Ok(c.cx.number(&Number::Int(size.clone()), ScalarType::F32)?.tensor)
}

struct Sampler<'c, 'a> {
    c: &'c Call<'a>,
    x: Tensor,
    result: Vec<Size>,
    /// Extents of the spatial axes.
    extents: Vec<Tensor>,
    is_aligned: bool,
    border: Border,
}

impl Sampler<'_, '_> {
    /// A position along a spatial axis, moved into the image unless positions beyond the border are zeros.
    fn within(&self, place: &Tensor, axis: usize) -> Tensor {
        let last = &self.extents[axis] - 1.0;
        let place = match self.border {
            Border::Zeros => return place.clone(),
            Border::Nearest => place.clone(),
            Border::Reflected => self.reflected(place, axis),
        };
        place.maximum(0.0).minimum(&last)
    }

    /// Reflects a position at the centers of the outermost elements, or at their outer edges.
    fn reflected(&self, place: &Tensor, axis: usize) -> Tensor {
        let size = &self.extents[axis];
        let (low, span) = if self.is_aligned { (0.0, size - 1.0) } else { (-0.5, size.clone()) };
        let zero = self.c.cx.f(0.0);
        let is_point = span.equal(0.0);
        let span = is_point.select(&self.c.cx.f(1.0), &span);
        let distance = (place - low).abs();
        let rest = distance.modulo(&span);
        let is_back = (&distance / &span).floor().modulo(2.0).gt(0.5);
        let place = is_back.select(&(&span - &rest), &rest) + low;
        is_point.select(&zero, &place)
    }

    /// Elements at integer positions.
    fn tap(&self, places: &[Tensor]) -> Lowered<Tensor> {
        let places: Vec<Tensor> = places.iter().map(|place| place.cast(DType::I64)).collect();
        let rank = places.len();
        let load = |axis: usize| {
            let index = std::iter::once(0).chain(2..rank + 2).map(coord).collect();
            IndexExpr::Load { operand: axis + 2, index }
        };
        let index = [coord(0), coord(1)].into_iter().chain((0..rank).map(load)).collect();
        let loads: Vec<&Tensor> = places.iter().collect();
        self.c.cx.remap(&self.x, &self.result, index, Some(&self.c.cx.f(0.0)), &loads)
    }

    /// The weighted sum of neighbours. A weight is the product of weights along the axes.
    fn sum(&self, taps: &[Vec<(Tensor, Tensor)>]) -> Lowered<Tensor> {
        let count: usize = taps.iter().map(Vec::len).product();
        let mut sum = None;
        for flat in 0..count {
            let (mut rest, mut places, mut weight) = (flat, vec![], None);
            for own in taps {
                let (place, factor) = &own[rest % own.len()];
                rest /= own.len();
                places.push(place.clone());
                weight = Some(weight.map_or_else(|| factor.clone(), |weight: Tensor| weight * factor));
            }
            let Some(weight) = weight else { return Fault::program("an image without axes") };
            let part = self.tap(&places)? * self.c.cx.unsqueeze(&weight, 1)?;
            sum = Some(sum.map_or_else(|| part.clone(), |sum: Tensor| sum + &part));
        }
        sum.ok_or_else(|| Fault::Program("an image without neighbours".to_owned()))
    }
}

fn grid_sampler(c: &Call<'_>) -> Lowered<Array> {
    let (x, grid) = (c.x()?, c.tensor("grid")?);
    let rank = x.rank().saturating_sub(2);
    let border = match c.int_or("padding_mode", 0)? {
        0 => Border::Zeros,
        1 => Border::Nearest,
        _ => Border::Reflected,
    };
    if !(2..=3).contains(&rank) || grid.rank() != x.rank() {
        return Fault::program("a grid for an image of other axes");
    }
    let extents = c.cx.shape(&x.tensor)[2..].iter().map(|size| extent(c, size)).collect::<Lowered<Vec<_>>>()?;
    let is_aligned = c.bool_or("align_corners", false)?;
    let sampler = Sampler { c, x: x.tensor, result: c.shape(0)?, extents, is_aligned, border };
    let place = |axis: usize| -> Lowered<Tensor> {
        // The last component of a grid position belongs to the first spatial axis.
        let unit = c.cx.select(&grid.tensor, rank + 1, &(rank - 1 - axis).into())?;
        let size = &sampler.extents[axis];
        Ok(match is_aligned {
            true => (unit + 1.0) * 0.5 * (size - 1.0),
            false => ((unit + 1.0) * size - 1.0) * 0.5,
        })
    };
    let places = (0..rank).map(place).collect::<Lowered<Vec<_>>>()?;
    let taps = |place: &Tensor, axis: usize| -> Lowered<Vec<(Tensor, Tensor)>> {
        let first = place.floor();
        let ratio = place - &first;
        Ok(match c.int_or("interpolation_mode", 0)? {
            0 => vec![(first.clone(), c.cx.f(1.0) - &ratio), (first + 1.0, ratio)],
            _ => (-1..3)
                .map(|step| {
                    let step = f64::from(step);
                    (sampler.within(&(&first + step), axis), cubic(&(&ratio - step).abs()))
                })
                .collect(),
        })
    };
    let mode = c.int_or("interpolation_mode", 0)?;
    if mode == 2 && rank == 3 {
        return Fault::unsupported("bicubic interpolation of volumes");
    }
    // With cubic interpolation, neighbours are moved into the image. Otherwise the position itself is.
    let places: Vec<Tensor> = match mode {
        2 => places,
        _ => places.iter().enumerate().map(|(axis, place)| sampler.within(place, axis)).collect(),
    };
    if mode == 1 {
        let places: Vec<Tensor> = places.iter().map(Tensor::round).collect();
        return c.result(&sampler.tap(&places)?);
    }
    let taps = places.iter().enumerate().map(|(axis, place)| taps(place, axis)).collect::<Lowered<Vec<_>>>()?;
    c.result(&sampler.sum(&taps)?)
}
