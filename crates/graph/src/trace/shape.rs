use super::{Axis, Ragged, Scope, Shape, Tensor, poisoned, shared};
use crate::op::{Broadcast, Concat, Flip, Gather, HostOp, IndexAdd, Permute, Reshape, Slice};
use crate::{Dim, TypeError};

impl Tensor {
    /// The same elements in row-major order under another shape.
    ///
    /// The sizes must be provably equal. Symbols may be regrouped with constants, such as `[n, 4, 2]` to `[4 n, 2]`,
    /// but two symbols are never multiplied.
    #[track_caller]
    pub fn reshape(&self, shape: impl Shape) -> Tensor {
        let shape = shape.dims();
        if self.has_shape(&shape) { self.clone() } else { self.apply(Reshape { shape }, &[]) }
    }

    /// All axes but the last merged into one.
    #[track_caller]
    pub fn flatten_rows(&self) -> Tensor {
        let Some((width, outer)) = self.shape().split_last() else {
            return self.fail("reshape", "x", "a tensor with an axis", self.ty());
        };
        let rows = outer.iter().try_fold(Dim::from(1), |rows, dim| rows.product(dim));
        match rows {
            Some(rows) => self.reshape(&[rows, width.clone()]),
            None => self.fail("reshape", "x", "of at most one symbolic leading extent", self.ty()),
        }
    }

    /// Axes in another order: result axis `n` is axis `axes[n]` of this.
    #[track_caller]
    pub fn permute(&self, axes: &[usize]) -> Tensor {
        self.apply(Permute { axes: axes.to_vec() }, &[])
    }

    /// Two axes swapped.
    #[track_caller]
    pub fn transpose(&self, a: impl Axis, b: impl Axis) -> Tensor {
        let (Some(a), Some(b)) = (self.axis("transpose", a), self.axis("transpose", b)) else {
            return poisoned(&self.state);
        };
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// `len` entries of an axis of constant extent, from `start` on.
    #[track_caller]
    pub fn slice(&self, axis: impl Axis, start: usize, len: usize) -> Tensor {
        match self.axis("slice", axis) {
            Some(axis) if start == 0 && self.ty().extent(axis) == Some(len) => self.clone(),
            Some(axis) => self.apply(Slice { axis, start, len }, &[]),
            None => poisoned(&self.state),
        }
    }

    /// The entries of an axis in reverse order.
    #[track_caller]
    pub fn flip(&self, axis: impl Axis) -> Tensor {
        self.along("flip", axis, |axis| Flip { axis })
    }

    /// The last axis split into consecutive parts of the given widths.
    #[track_caller]
    pub fn split_columns(&self, widths: &[usize]) -> Vec<Tensor> {
        let mut start = 0;
        let axis = self.rank().saturating_sub(1);
        widths
            .iter()
            .map(|&width| {
                let part = self.slice(axis, start, width);
                start = start.saturating_add(width);
                part
            })
            .collect()
    }

    /// Broadcasts to a shape: repeats extents of 1 and missing leading axes.
    #[track_caller]
    pub fn broadcast(&self, shape: impl Shape) -> Tensor {
        let shape = shape.dims();
        if self.has_shape(&shape) { self.clone() } else { self.apply(Broadcast { shape }, &[]) }
    }

    /// Rows of this table: `out[i.., c..] = self[index[i..], c..]`. An index outside the table is clamped. A run first
    /// checks the range of ids that are an input on the host, see [`Graph::id_inputs`](crate::Graph::id_inputs).
    #[track_caller]
    pub fn gather(&self, index: impl AsRef<Tensor>) -> Tensor {
        let index = index.as_ref();
        self.apply(Gather, &[index])
    }

    /// These values `[R.., D..]` summed by `index` `[R..]`: `[rows, D..]`, 0 for rows without values. An index outside
    /// the result is clamped. A run checks the range of ids that are an input, as for [`Tensor::gather`].
    #[track_caller]
    pub fn index_add(&self, index: impl AsRef<Tensor>, rows: impl Into<Dim>) -> Tensor {
        let index = index.as_ref();
        self.apply(IndexAdd { rows: rows.into() }, &[index])
    }
}

impl Tensor {
    /// Tensors concatenated along an axis.
    #[track_caller]
    pub(crate) fn joined(parts: &[&Tensor], axis: usize) -> Option<Tensor> {
        let (first, rest) = parts.split_first()?;
        Some(if rest.is_empty() { (*first).clone() } else { first.apply(Concat { axis }, rest) })
    }

    /// `extent` entries of an axis from `start` on; both may be symbolic.
    #[track_caller]
    pub(crate) fn part(&self, axis: usize, start: &Dim, extent: &Dim) -> Tensor {
        if let (Some(_), Some(start), Some(extent)) = (self.ty().extent(axis), start.as_const(), extent.as_const()) {
            return self.slice(axis, start, extent);
        }
        // The axis is treated as the rows of one sample.
        let one = |rows: &Dim| {
            let count = shared(&self.state, HostOp::Size(rows.clone()), &[]);
            Ragged::from_lengths(&count.host(HostOp::Fill(1.into()), &[]))
        };
        let first = self.transpose(0, axis);
        let part = first.jagged_slice(&one(&first.dim(0)), &one(start).lengths, &one(extent));
        part.transpose(0, axis)
    }
}

impl Scope {
    /// Tensors concatenated along an axis.
    #[track_caller]
    pub fn concat(&self, parts: &[impl AsRef<Tensor>], axis: impl Axis) -> Tensor {
        let parts: Vec<&Tensor> = parts.iter().map(AsRef::as_ref).collect();
        match &parts[..] {
            [one] => (*one).clone(),
            [first, ..] => match first.axis("concat", axis) {
                Some(axis) => self.apply(Concat { axis }, &parts),
                None => poisoned(&self.state),
            },
            [] => self.fail("concat", TypeError::new("parts", "at least one tensor", "none")),
        }
    }

    /// Tensors of one shape stacked along a new axis, given as an axis of the result.
    #[track_caller]
    pub fn stack(&self, parts: &[impl AsRef<Tensor>], axis: impl Axis) -> Tensor {
        let expanded: Vec<Tensor> = parts
            .iter()
            .map(|part| {
                let part = part.as_ref();
                let mut shape = part.shape().to_vec();
                let place = axis.of(shape.len() + 1).unwrap_or(0);
                shape.insert(place.min(shape.len()), 1.into());
                part.reshape(shape)
            })
            .collect();
        self.concat(&expanded, axis)
    }
}
