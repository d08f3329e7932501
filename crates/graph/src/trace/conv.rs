use super::Tensor;
use crate::op::{Unfold, Window};

impl Tensor {
    /// Cross-correlation of images `[N, C, H, W]` with `weight` `[C', C / groups, kh, kw]` and an optional bias
    /// `[C']`: `[N, C', H', W']`, with `H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1`.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope, op::Window};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[scope.size("images"), 4.into(), 9.into(), 7.into()]);
    /// let weight = scope.parameter("weight", DType::F32, &[6.into(), 2.into(), 3.into(), 3.into()]);
    /// let y = x.conv2d(&weight, None, &Window { stride: [2, 1], groups: 2, ..Window::default() });
    /// assert_eq!(y.shape()[1..], [6.into(), 4.into(), 5.into()]);
    /// ```
    #[track_caller]
    pub fn conv2d(&self, weight: impl AsRef<Tensor>, bias: Option<&Tensor>, window: &Window) -> Tensor {
        let weight = weight.as_ref();
        let groups = window.groups;
        let (Some([channels, height, width]), Some([out, per_group, kh, kw])) = (extents(self, 1), extents(weight, 0))
        else {
            self.require("conv2d", "x", extents::<3>(self, 1).is_some(), "[N, C, H, W] of constant C, H, W", self.ty());
            return weight.fail("conv2d", "weight", "[C', C / groups, kh, kw] of constants", weight.ty());
        };
        let divides = groups > 0 && out.is_multiple_of(groups) && per_group.checked_mul(groups) == Some(channels);
        if !divides {
            let expected = format!("a divisor of {channels} and {out} that leaves {per_group} channels a group");
            return self.fail("conv2d", "groups", &expected, groups);
        }
        let patches = Unfold { kernel: [kh, kw], window: window.clone() };
        let columns = self.apply(patches.clone(), &[]);
        let Some([rows, places]) = patches.extents(height, width) else { return columns };
        if let Some(bias) = bias {
            bias.require_shape("conv2d", "bias", &[out.into()]);
        }
        let kernel = weight.reshape(&[groups.into(), (out / groups).into(), columns.dim(2)]);
        let images = kernel.matmul(&columns).reshape(&[self.dim(0), out.into(), rows.into(), places.into()]);
        match bias {
            Some(bias) => images + bias.reshape(&[out.into(), 1.into(), 1.into()]),
            None => images,
        }
    }
}

/// Constant extents from axis `first` to the fourth.
fn extents<const N: usize>(x: &Tensor, first: usize) -> Option<[usize; N]> {
    let extents: Vec<usize> = (first..x.rank()).map(|axis| x.ty().extent(axis)).collect::<Option<_>>()?;
    if x.rank() == 4 { extents.try_into().ok() } else { None }
}
