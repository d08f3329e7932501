use super::{Elements, Elementwise, Gradient, GradientError, Op, arity, rank};
use crate::pointwise::{BinaryOp, ExprId};
use crate::{Dim, HostTensor, Layout, Tensor, Type, TypeError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The patches of images as columns, which makes a convolution a matmul (im2col).
///
/// The operand is `[N, C, H, W]`, the result `[N, groups, C / groups * kh * kw, H' * W']`, with zeros beyond
/// the border and `H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unfold {
    /// Height and width of a patch.
    pub kernel: [usize; 2],
    /// The positions of patches.
    pub window: Window,
}

/// The geometry of a convolution, by height and width; the defaults are those of torch's `conv2d`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Window {
    /// Step between patches, in pixels.
    pub stride: [usize; 2],
    /// Zeros on each side of the image.
    pub padding: [usize; 2],
    /// Step between the elements of a patch, in pixels.
    pub dilation: [usize; 2],
    /// Groups of channels; each has its own kernel.
    pub groups: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Unfold {
    /// Height and width of the result of a convolution; `None` if a patch is larger than the padded image.
    pub fn extents(&self, height: usize, width: usize) -> Option<[usize; 2]> {
        let Window { stride, padding, dilation, .. } = &self.window;
        let along = |axis: usize, extent: usize| {
            let span = dilation[axis].checked_mul(self.kernel[axis].checked_sub(1)?)?.checked_add(1)?;
            let room = extent.checked_add(padding[axis].checked_mul(2)?)?.checked_sub(span)?;
            room.checked_div(stride[axis])?.checked_add(1)
        };
        Some([along(0, height)?, along(1, width)?])
    }
}

impl Op for Unfold {
    fn name(&self) -> &str {
        "unfold"
    }

    fn attributes(&self) -> Value {
        json!({ "kernel": self.kernel, "window": self.window })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        rank("x", &x, 4)?;
        let (Some(channels), Some(height), Some(width)) = (x.extent(1), x.extent(2), x.extent(3)) else {
            return Err(TypeError::new("x", "[N, C, H, W] with constant C, H and W", x));
        };
        if x.layout != Layout::Device || !x.dtype.is_float() {
            return Err(TypeError::new("x", "a device tensor of floats", x));
        }
        let groups = self.window.groups;
        if groups == 0 || channels % groups != 0 {
            return Err(TypeError::new("groups", format!("a divisor of {channels} channels"), groups));
        }
        for (argument, pair) in [("stride", self.window.stride), ("dilation", self.window.dilation)] {
            if pair.contains(&0) {
                return Err(TypeError::new(argument, "at least 1", format!("{pair:?}")));
            }
        }
        let Some([rows, columns]) = self.extents(height, width) else {
            return Err(TypeError::new(
                "kernel",
                format!("within an image of {height} x {width}"),
                format!("{} x {} with {:?}", self.kernel[0], self.kernel[1], self.window),
            ));
        };
        let area = self.kernel[0].checked_mul(self.kernel[1]);
        let patch = area.and_then(|area| area.checked_mul(channels / groups));
        let (Some(patch), Some(places)) = (patch, rows.checked_mul(columns)) else {
            return Err(TypeError::new("kernel", "with patches that can be counted", format!("{self:?}")));
        };
        let shape: Vec<Dim> = vec![x.shape[0].clone(), groups.into(), patch.into(), places.into()];
        Ok(vec![Type::device(x.dtype, shape)])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let x = at.operand(0);
        let [channels, height, width] = [1, 2, 3].map(|axis| x.ty().constant_extent(axis));
        let pixels = self.pixels([channels, height, width]).ok_or(GradientError::Image)?;
        let size = channels * height * width;
        // Elements beyond the border are summed into one extra pixel.
        let sums = at.of.permute(&[1, 2, 3, 0]).index_add(&x.constant(pixels), size + 1);
        Ok(vec![Some(sums.slice(0, 0, size).transpose(0, 1).reshape(x.shape()))])
    }
}

impl Elementwise for Unfold {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let [channels, height, width] = [1, 2, 3].map(|axis| at.ty(0).constant_extent(axis));
        let columns = self.extents(height, width).map_or(1, |[_, columns]| columns);
        let (patch_x, rest) = split(at, coords[2], self.kernel[1]);
        let (patch_y, channel) = split(at, rest, self.kernel[0]);
        let (column, row) = split(at, coords[3], columns);
        let group = at.dag().int((channels / self.window.groups) as i64);
        let first = at.dag().binary(BinaryOp::Mul, coords[1], group);
        let channel = at.dag().binary(BinaryOp::Add, first, channel);
        let (y, inside_y) = self.pixel(at, 0, row, patch_y, height);
        let (x, inside_x) = self.pixel(at, 1, column, patch_x, width);
        let inside = at.dag().binary(BinaryOp::And, inside_y, inside_x);
        let value = at.load(0, &[coords[0], channel, y, x]);
        let zero = at.dag().float(0.0);
        at.dag().select(inside, value, zero)
    }
}

/// `(n mod divisor, n / divisor)`
fn split(at: &mut dyn Elements, n: ExprId, divisor: usize) -> (ExprId, ExprId) {
    let divisor = at.dag().int(divisor as i64);
    (at.dag().binary(BinaryOp::Mod, n, divisor), at.dag().binary(BinaryOp::Div, n, divisor))
}

impl Unfold {
    /// For each element of a patch matrix `[groups, patch, places]` the pixel of an image `[channels, height, width]`;
    /// one past the last pixel for elements beyond the border.
    fn pixels(&self, [channels, height, width]: [usize; 3]) -> Option<HostTensor> {
        let Window { stride, padding, dilation, groups } = &self.window;
        let [rows, columns] = self.extents(height, width)?;
        let along = |axis: usize, step: usize, within: usize, extent: usize| {
            let pixel = (step * stride[axis] + within * dilation[axis]).checked_sub(padding[axis]);
            pixel.filter(|&pixel| pixel < extent)
        };
        let [kh, kw] = self.kernel;
        let mut pixels = vec![];
        for (channel, dy, dx) in (0..channels * kh * kw).map(|n| (n / (kh * kw), n / kw % kh, n % kw)) {
            for (row, column) in (0..rows * columns).map(|n| (n / columns, n % columns)) {
                let pixel = along(0, row, dy, height).zip(along(1, column, dx, width));
                let pixel = pixel.map(|(y, x)| (channel * height + y) * width + x);
                pixels.push(i32::try_from(pixel.unwrap_or(channels * height * width)).ok()?);
            }
        }
        HostTensor::new([*groups, channels / groups * kh * kw, rows * columns], &pixels).ok()
    }

    /// The pixel of a patch along an axis, and whether it lies in the image.
    fn pixel(
        &self,
        at: &mut dyn Elements,
        axis: usize,
        step: ExprId,
        within: ExprId,
        extent: usize,
    ) -> (ExprId, ExprId) {
        let dag = at.dag();
        let Window { stride, padding, dilation, .. } = &self.window;
        let [stride, dilation, padding, extent, zero] =
            [stride[axis], dilation[axis], padding[axis], extent, 0].map(|n| dag.int(n as i64));
        let start = dag.binary(BinaryOp::Mul, step, stride);
        let inner = dag.binary(BinaryOp::Mul, within, dilation);
        let sum = dag.binary(BinaryOp::Add, start, inner);
        let pixel = dag.binary(BinaryOp::Sub, sum, padding);
        let (above, below) = (dag.binary(BinaryOp::Ge, pixel, zero), dag.binary(BinaryOp::Lt, pixel, extent));
        (pixel, dag.binary(BinaryOp::And, above, below))
    }
}
