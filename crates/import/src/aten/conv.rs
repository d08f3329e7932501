//! Convolutions: patches, followed by a matrix product per group.

use super::One;
use super::movement::OUTSIDE;
use crate::array::Array;
use crate::call::Call;
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::Tensor;
use rewire_graph::op::{IndexExpr, Window};
use rewire_graph::pointwise::BinaryOp;

pub(super) const ONE: One = &[
    ("aten.conv1d", |c| convolution(c, Some(false))),
    ("aten.conv2d", |c| convolution(c, Some(false))),
    ("aten.conv3d", |c| convolution(c, Some(false))),
    ("aten.conv_transpose1d", |c| convolution(c, Some(true))),
    ("aten.conv_transpose2d", |c| convolution(c, Some(true))),
    ("aten.conv_transpose3d", |c| convolution(c, Some(true))),
    ("aten.convolution", |c| convolution(c, None)),
    ("aten._convolution", |c| convolution(c, None)),
    ("aten.cudnn_convolution", |c| convolution(c, Some(false))),
    ("aten.im2col", im2col),
    ("aten.col2im", col2im),
];

/// A window that slides over the spatial axes of a tensor.
pub(crate) struct Sliding {
    pub kernel: Vec<i64>,
    pub stride: Vec<i64>,
    pub padding: Vec<i64>,
    pub dilation: Vec<i64>,
}

/// Extends a list of one entry to `rank` equal entries. A list of `rank` entries is unchanged.
pub(super) fn spread(values: Vec<i64>, rank: usize) -> Lowered<Vec<i64>> {
    match values.as_slice() {
        [one] => Ok(vec![*one; rank]),
        _ if values.len() == rank => Ok(values),
        _ => Fault::program(format!("{} entries for {rank} axes", values.len())),
    }
}

impl Sliding {
    fn of(c: &Call<'_>, kernel: Vec<i64>) -> Lowered<Self> {
        let rank = kernel.len();
        let dilation = spread(c.ints_or("dilation", &[1])?, rank)?;
        let stride = spread(c.ints_or("stride", &[1])?, rank)?;
        let padding = match c.get("padding") {
            Some(crate::value::Value::String(mode)) if mode == "same" => {
                kernel.iter().zip(&dilation).map(|(kernel, dilation)| dilation * (kernel - 1) / 2).collect()
            }
            Some(crate::value::Value::String(mode)) if mode == "valid" => vec![0; rank],
            _ => spread(c.ints_or("padding", &[0])?, rank)?,
        };
        Ok(Self { kernel, stride, padding, dilation })
    }

    /// Index of an operand element along a spatial axis, given the index of a window and of an element within the window.
    pub fn place(&self, axis: usize, window: IndexExpr, within: IndexExpr) -> IndexExpr {
        let start = window.binary(BinaryOp::Mul, self.stride[axis]);
        let inner = within.binary(BinaryOp::Mul, self.dilation[axis]);
        start.binary(BinaryOp::Add, inner).binary(BinaryOp::Sub, self.padding[axis])
    }

    /// [`Sliding::place`] of a transposed convolution.
    fn transposed_place(&self, axis: usize, window: IndexExpr, within: IndexExpr) -> IndexExpr {
        let inner = within.binary(BinaryOp::Mul, self.dilation[axis]);
        let place = window.binary(BinaryOp::Add, self.padding[axis]).binary(BinaryOp::Sub, inner);
        let between = place.clone().binary(BinaryOp::Mod, self.stride[axis]).binary(BinaryOp::Ne, 0i64);
        let place = place.binary(BinaryOp::Div, self.stride[axis]);
        place.binary(BinaryOp::Sub, between.binary(BinaryOp::Mul, OUTSIDE))
    }

    /// True if every window is a single element of the operand.
    fn is_pointwise(&self) -> bool {
        let is_one = |values: &[i64]| values.iter().all(|&value| value == 1);
        is_one(&self.kernel) && is_one(&self.stride) && self.padding.iter().all(|&value| value == 0)
    }
}

fn convolution(c: &Call<'_>, transposed: Option<bool>) -> Lowered<Array> {
    let (x, weight) = (c.x()?, c.tensor("weight")?);
    if !x.ty.is_float() {
        return Fault::unsupported("integers");
    }
    let kernel = c.cx.shape(&weight.tensor).iter().skip(2).map(Size::as_const).collect::<Option<Vec<_>>>();
    let kernel = kernel.ok_or_else(|| Fault::Unsupported("a kernel of symbolic size".to_owned()))?;
    let rank = kernel.len();
    let window = Sliding::of(c, kernel)?;
    let is_transposed = transposed.map_or_else(|| c.bool_or("transposed", false), Ok)?;
    let is_batched = x.rank() == rank + 2;
    let images = if is_batched { x.tensor } else { c.cx.unsqueeze(&x.tensor, 0)? };
    let mut shape = c.shape(0)?;
    if !is_batched {
        shape.insert(0, 1.into());
    }
    let groups = c.int_or("groups", 1)?;
    let job = Convolution { cx: c.cx, images, weight: weight.tensor, window, groups, shape, is_transposed };
    let y = job.lower()?;
    let y = match c.optional_tensor("bias")? {
        Some(bias) => {
            let mut channels = vec![Size::from(1); rank + 1];
            channels[0] = c.cx.extent(&bias.tensor, 0);
            y + c.cx.reshape(&bias.tensor, &channels)?
        }
        None => y,
    };
    c.result(&if is_batched { y } else { c.cx.squeeze(&y, 0)? })
}

/// Maximum number of elements of a single-channel kernel that are summed in the loop over positions.
const MOST_IN_LOOP: i64 = 49;

struct Convolution<'a> {
    cx: &'a Context,
    /// Images, `[N, C, ..]`.
    images: Tensor,
    weight: Tensor,
    window: Sliding,
    groups: i64,
    /// Shape of the result, `[N, O, ..]`.
    shape: Vec<Size>,
    is_transposed: bool,
}

impl Convolution<'_> {
    fn lower(&self) -> Lowered<Tensor> {
        if let Some(images) = self.by_channel()? {
            return Ok(images);
        }
        if let Some(images) = self.of_constant_extents() {
            return Ok(images);
        }
        let own = self.cx.shape(&self.images);
        let groups = Size::from(self.groups);
        let channels = self.cx.quotient(&own[1], &groups)?;
        let outputs = self.cx.quotient(&self.shape[1], &groups)?;
        let kernel: Vec<Size> = self.window.kernel.iter().map(|&extent| Size::from(extent)).collect();
        let places = &self.shape[2..];
        let depth = channels.times(&Size::product(&kernel));
        let flat = [own[0].clone(), groups.clone(), depth.clone(), Size::product(places)];
        let patches = if self.window.is_pointwise() {
            self.cx.reshape(&self.images, &flat)?
        } else {
            let patches = [&[own[0].clone(), groups.clone(), channels.clone()], kernel.as_slice(), places].concat();
            self.cx.reshape(&self.patches(&patches, &channels)?, &flat)?
        };
        let weight = if self.is_transposed {
            let split = [&[groups.clone(), channels, outputs.clone()], kernel.as_slice()].concat();
            let mut axes: Vec<usize> = (0..split.len()).collect();
            axes.swap(1, 2);
            self.cx.reshape(&self.weight, &split)?.permute(&axes)
        } else {
            self.weight.clone()
        };
        let weight = self.cx.reshape(&weight, &[groups, outputs, depth])?;
        self.cx.reshape(&weight.matmul(&patches), &self.shape)
    }

    /// A depthwise convolution, which sums shifted images. As matrix products with one row it would copy all patches.
    fn by_channel(&self) -> Lowered<Option<Tensor>> {
        let (channels, kernel) = (self.cx.extent(&self.images, 1), &self.window.kernel);
        let count = kernel.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent));
        let Some(count @ 1..=MOST_IN_LOOP) = count else { return Ok(None) };
        if self.is_transposed || self.groups < 2 || channels.as_const() != Some(self.groups) {
            return Ok(None);
        }
        let each = self.cx.quotient(&self.shape[1], &channels)?;
        let weight = self.cx.reshape(&self.weight, &[self.shape[1].clone(), count.into()])?;
        let mut along = vec![Size::from(1); kernel.len() + 1];
        along[0] = self.shape[1].clone();
        let mut sum: Option<Tensor> = None;
        for flat in 0..count {
            let mut index = vec![coord(0), coord(1).binary(BinaryOp::Div, self.cx.index(&each)?)];
            let mut rest = count;
            for (axis, &extent) in kernel.iter().enumerate() {
                rest /= extent;
                index.push(self.window.place(axis, coord(2 + axis), IndexExpr::Int(flat / rest % extent)));
            }
            let element = self.cx.remap(&self.images, &self.shape, index, Some(&self.cx.f(0.0)), &[])?;
            let part = element * self.cx.reshape(&self.cx.select(&weight, 1, &flat.into())?, &along)?;
            sum = Some(sum.map_or_else(|| part.clone(), |sum| sum + &part));
        }
        Ok(sum)
    }

    /// Elements of all patches by image, group, channel, kernel element and position.
    fn patches(&self, shape: &[Size], channels: &Size) -> Lowered<Tensor> {
        let rank = self.window.kernel.len();
        let channel = coord(1).binary(BinaryOp::Mul, self.cx.index(channels)?).binary(BinaryOp::Add, coord(2));
        let spatial = (0..rank).map(|axis| {
            let (within, window) = (coord(3 + axis), coord(3 + rank + axis));
            match self.is_transposed {
                true => self.window.transposed_place(axis, window, within),
                false => self.window.place(axis, window, within),
            }
        });
        let index = [coord(0), channel].into_iter().chain(spatial).collect();
        self.cx.remap(&self.images, shape, index, Some(&self.cx.f(0.0)), &[])
    }

    /// The graph's own convolution, which requires constant image extents; `None` if it does not apply.
    fn of_constant_extents(&self) -> Option<Tensor> {
        let pair = |values: &[i64]| -> Option<[usize; 2]> {
            let values = values.iter().map(|&value| usize::try_from(value).ok()).collect::<Option<Vec<_>>>()?;
            values.try_into().ok()
        };
        let (images, window) = (self.images.ty(), &self.window);
        let is_constant = (1..4).all(|axis| images.extent(axis).is_some());
        if self.is_transposed || !is_constant || images.rank() != 4 {
            return None;
        }
        let window = Window {
            stride: pair(&window.stride)?,
            padding: pair(&window.padding)?,
            dilation: pair(&window.dilation)?,
            groups: usize::try_from(self.groups).ok()?,
        };
        let y = self.images.conv2d(&self.weight, None, &window);
        // The shapes differ if padding is longer at one end.
        let expected = self.cx.dims(&self.shape).ok()?;
        (y.shape() == expected).then_some(y)
    }
}

/// Patches as columns, `[N, C * kernel, positions]`.
fn im2col(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    if x.rank() != 4 {
        return Fault::unsupported("an image without a batch");
    }
    let window = Sliding::of(c, spread(c.ints("kernel_size")?, 2)?)?;
    let own = c.cx.shape(&x.tensor);
    let mut shape = vec![own[0].clone(), own[1].clone()];
    shape.extend(window.kernel.iter().map(|&extent| Size::from(extent)));
    for axis in 0..2 {
        let span = window.dilation[axis] * (window.kernel[axis] - 1) + 1;
        let room = own[2 + axis].plus(&Size::from(2 * window.padding[axis] - span));
        shape.push(c.cx.quotient(&room, &window.stride[axis].into())?.plus(&1.into()));
    }
    let spatial = (0..2).map(|axis| window.place(axis, coord(4 + axis), coord(2 + axis)));
    let index = [coord(0), coord(1)].into_iter().chain(spatial).collect();
    let patches = c.cx.remap(&x.tensor, &shape, index, Some(&c.cx.zero(&x.tensor)), &[])?;
    c.result(&c.cx.reshape(&patches, &c.shape(0)?)?)
}

/// The sum of overlapping patches: the transpose of [`im2col`].
fn col2im(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    if x.rank() != 3 || !x.ty.is_float() {
        return Fault::unsupported("columns without a batch, or of integers");
    }
    let window = Sliding::of(c, spread(c.ints("kernel_size")?, 2)?)?;
    let shape = c.shape(0)?;
    let kernel: Vec<Size> = window.kernel.iter().map(|&extent| Size::from(extent)).collect();
    let mut places = vec![];
    for axis in 0..2 {
        let span = window.dilation[axis] * (window.kernel[axis] - 1) + 1;
        let room = shape[2 + axis].plus(&Size::from(2 * window.padding[axis] - span));
        places.push(c.cx.quotient(&room, &window.stride[axis].into())?.plus(&1.into()));
    }
    let columns = [&shape[..2], kernel.as_slice(), &places].concat();
    let columns = c.cx.reshape(&x.tensor, &columns)?;
    // For each kernel element, its contribution to each pixel.
    let parts = [&shape[..2], kernel.as_slice(), &shape[2..]].concat();
    let spatial = (0..2).map(|axis| window.transposed_place(axis, coord(4 + axis), coord(2 + axis)));
    let index = (0..4).map(coord).chain(spatial).collect();
    let parts = c.cx.remap(&columns, &parts, index, Some(&c.cx.f(0.0)), &[])?;
    c.result(&c.cx.reshape(&parts.sum(3).sum(2), &shape)?)
}
