use super::{Elements, Elementwise, Gradient, GradientError, Op, ViewProps, arity, same_size};
use crate::pointwise::{BinaryOp, ExprId};
use crate::{Arrange, DType, Dim, Layout, Tensor, Type, TypeError};
use serde_json::{Value, json};

/// The same elements in row-major order under another shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The new shape.
    pub shape: Vec<Dim>,
}

/// Axes in another order: result axis `n` is operand axis `axes[n]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permute {
    /// One per axis.
    pub axes: Vec<usize>,
}

/// `len` entries of an axis, from `start` on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// First entry.
    pub start: usize,
    /// Number of entries.
    pub len: usize,
}

/// The entries of an axis in reverse order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flip {
    /// The axis.
    pub axis: usize,
}

/// Operands concatenated along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

/// Repeats extents of 1 and missing leading axes to a shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broadcast {
    /// The new shape.
    pub shape: Vec<Dim>,
}

fn device(argument: &str, ty: &Type) -> Result<(), TypeError> {
    if ty.layout == Layout::Device { Ok(()) } else { Err(TypeError::new(argument, "a device tensor", ty)) }
}

impl Op for Reshape {
    fn name(&self) -> &str {
        "reshape"
    }

    fn weight(&self) -> usize {
        0
    }

    fn attributes(&self) -> Value {
        json!({ "shape": super::texts(&self.shape) })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        device("x", &x)?;
        if groups(&x.shape, &self.shape).is_none() {
            let shape = Type::device(x.dtype, self.shape.clone());
            return Err(TypeError::new("shape", format!("a regrouping of {x}"), shape));
        }
        Ok(vec![Type::device(x.dtype, self.shape.clone())])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        self.shape.iter_mut().for_each(size);
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: true, is_unique: true })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Ok(vec![Some(at.of.reshape(at.operand(0).shape()))])
    }
}

/// Splits both shapes into groups of axes with equal numbers of elements.
fn groups(from: &[Dim], to: &[Dim]) -> Option<Vec<(usize, usize)>> {
    let mut cuts = vec![];
    let (mut i, mut j) = (0, 0);
    while i < from.len() && j < to.len() {
        let (mut left, mut right) = (from[i].clone(), to[j].clone());
        (i, j) = (i + 1, j + 1);
        while left != right {
            if extends(&left, &right) {
                left = left.product(from.get(i)?)?;
                i += 1;
            } else {
                right = right.product(to.get(j)?)?;
                j += 1;
            }
        }
        cuts.push((i, j));
    }
    let one: Dim = 1.into();
    if from[i..].iter().chain(&to[j..]).any(|dim| *dim != one) {
        return None;
    }
    match cuts.last_mut() {
        Some(last) => *last = (from.len(), to.len()),
        None => cuts.push((from.len(), to.len())),
    }
    Some(cuts)
}

/// True if the left group has to grow to match the right one.
fn extends(left: &Dim, right: &Dim) -> bool {
    let weight = |dim: &Dim| dim.terms().next().map_or((0, dim.constant()), |(_, factor)| (1, factor));
    weight(left) < weight(right)
}

impl Elementwise for Reshape {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let from = at.ty(0).shape.clone();
        let index = Self::map(at, &self.shape, &from, coords);
        at.load(0, &index)
    }
}

impl Reshape {
    /// Splits two shapes into the shortest groups of axes with equal numbers of elements: the end of each group in
    /// `from` and in `to`. `None` if that is impossible, in which case neither is a reshape of the other.
    pub fn runs(from: &[Dim], to: &[Dim]) -> Option<Vec<(usize, usize)>> {
        groups(from, to)
    }

    /// The coordinates in shape `to` of the element at `coords` in shape `from`.
    pub fn map(at: &mut dyn Elements, from: &[Dim], to: &[Dim], coords: &[ExprId]) -> Vec<ExprId> {
        let (mut i, mut j) = (0, 0);
        let mut index = Vec::with_capacity(to.len());
        let runs = groups(from, to);
        debug_assert!(runs.is_some(), "{from:?} is not a reshape of {to:?}");
        for (next_i, next_j) in runs.into_iter().flatten() {
            let flat = flatten(at, &from[i..next_i], &coords[i..next_i]);
            index.extend(unflatten(at, &to[j..next_j], flat));
            (i, j) = (next_i, next_j);
        }
        index
    }
}

fn flatten(at: &mut dyn Elements, shape: &[Dim], coords: &[ExprId]) -> ExprId {
    let mut flat = at.dag().int(0);
    for (dim, &coord) in shape.iter().zip(coords) {
        let extent = at.size(dim);
        let scaled = at.dag().binary(BinaryOp::Mul, flat, extent);
        flat = at.dag().binary(BinaryOp::Add, scaled, coord);
    }
    flat
}

fn unflatten(at: &mut dyn Elements, shape: &[Dim], flat: ExprId) -> Vec<ExprId> {
    let mut index = Vec::with_capacity(shape.len());
    let mut rest = flat;
    for dim in shape.iter().skip(1).rev() {
        let extent = at.size(dim);
        index.push(at.dag().binary(BinaryOp::Mod, rest, extent));
        rest = at.dag().binary(BinaryOp::Div, rest, extent);
    }
    if !shape.is_empty() {
        index.push(rest);
    }
    index.reverse();
    index
}

impl Op for Permute {
    fn name(&self) -> &str {
        "permute"
    }

    fn weight(&self) -> usize {
        0
    }

    fn keeps_axis(&self, axis: usize) -> bool {
        self.axes.get(axis) == Some(&axis)
    }

    fn attributes(&self) -> Value {
        json!({ "axes": self.axes })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        device("x", &x)?;
        let mut sorted = self.axes.clone();
        sorted.arrange();
        if !sorted.into_iter().eq(0..x.rank()) {
            let expected = format!("each of 0..{} once", x.rank());
            return Err(TypeError::new("axes", expected, format!("{:?}", self.axes)));
        }
        Ok(vec![Type::device(x.dtype, self.axes.iter().map(|&axis| x.shape[axis].clone()).collect())])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: self.axes.is_sorted(), is_complete: true, is_unique: true })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let mut back = vec![0; self.axes.len()];
        self.axes.iter().enumerate().for_each(|(to, &from)| back[from] = to);
        Ok(vec![Some(at.of.permute(&back))])
    }
}

impl Elementwise for Permute {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let mut index = coords.to_vec();
        for (&axis, &coord) in self.axes.iter().zip(coords) {
            index[axis] = coord;
        }
        at.load(0, &index)
    }
}

impl Op for Slice {
    fn name(&self) -> &str {
        "slice"
    }

    fn weight(&self) -> usize {
        0
    }

    fn keeps_axis(&self, axis: usize) -> bool {
        self.axis != axis
    }

    fn attributes(&self) -> Value {
        json!({ "axis": self.axis, "start": self.start, "len": self.len })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        device("x", &x)?;
        let Some(extent) = x.extent(self.axis) else {
            return Err(TypeError::new("x", format!("of constant extent along axis {}", self.axis), x));
        };
        if self.start.checked_add(self.len).is_none_or(|end| end > extent) {
            let actual = format!("{}..{}", self.start, self.start.saturating_add(self.len));
            return Err(TypeError::new("range", format!("within 0..{extent}"), actual));
        }
        let mut shape = x.shape;
        shape[self.axis] = self.len.into();
        Ok(vec![Type::device(x.dtype, shape)])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: false, is_unique: true })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let x = at.operand(0);
        let after = x.ty().constant_extent(self.axis) - (self.start + self.len);
        let zeros = |extent: usize| {
            let mut shape = x.shape().to_vec();
            shape[self.axis] = extent.into();
            (extent > 0).then(|| x.scalar(DType::F32, 0.0).broadcast(shape))
        };
        let (first, last) = (zeros(self.start), zeros(after));
        let parts: Vec<&Tensor> = first.iter().chain([at.of]).chain(&last).collect();
        Ok(vec![Tensor::joined(&parts, self.axis)])
    }
}

impl Elementwise for Slice {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let start = at.dag().int(self.start as i64);
        let mut index = coords.to_vec();
        index[self.axis] = at.dag().binary(BinaryOp::Add, coords[self.axis], start);
        at.load(0, &index)
    }
}

impl Op for Flip {
    fn name(&self) -> &str {
        "flip"
    }

    fn keeps_axis(&self, axis: usize) -> bool {
        self.axis != axis
    }

    fn attributes(&self) -> Value {
        json!({ "axis": self.axis })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        device("x", &x)?;
        if self.axis >= x.rank() {
            return Err(TypeError::new("axis", format!("an axis of {x}"), self.axis));
        }
        Ok(vec![x])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: false, is_complete: true, is_unique: true })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Ok(vec![Some(at.of.flip(self.axis))])
    }
}

impl Elementwise for Flip {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let extent = at.ty(0).shape[self.axis].clone();
        let (extent, one) = (at.size(&extent), at.dag().int(1));
        let last = at.dag().binary(BinaryOp::Sub, extent, one);
        let mut index = coords.to_vec();
        index[self.axis] = at.dag().binary(BinaryOp::Sub, last, coords[self.axis]);
        at.load(0, &index)
    }
}

impl Op for Concat {
    fn name(&self) -> &str {
        "concat"
    }

    fn weight(&self) -> usize {
        0
    }

    fn keeps_axis(&self, axis: usize) -> bool {
        self.axis != axis
    }

    fn attributes(&self) -> Value {
        json!({ "axis": self.axis })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let Some((&first, rest)) = inputs.split_first() else {
            return Err(TypeError::new("operands", "at least one value", "none"));
        };
        device("operand 0", first)?;
        if self.axis >= first.rank() {
            return Err(TypeError::new("axis", format!("below {}", first.rank()), self.axis));
        }
        let mut shape = first.shape.clone();
        for (position, &ty) in rest.iter().enumerate() {
            let argument = format!("operand {}", position + 1);
            device(&argument, ty)?;
            super::rank(&argument, ty, first.rank())?;
            if ty.dtype.scalar() != first.dtype.scalar() {
                return Err(TypeError::new(argument, format!("of type {}", first.dtype), ty));
            }
            for axis in (0..first.rank()).filter(|&axis| axis != self.axis) {
                same_size(&argument, &format!("axis {axis}"), &ty.shape[axis], &first.shape[axis])?;
            }
            shape[self.axis] = shape[self.axis].clone() + ty.shape[self.axis].clone();
        }
        let same = rest.iter().all(|ty| ty.dtype == first.dtype);
        Ok(vec![Type::device(if same { first.dtype } else { DType::F32 }, shape)])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: true, is_unique: true })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let mut parts = vec![];
        let mut before = Dim::default();
        for x in at.operands {
            let extent = x.dim(self.axis);
            parts.push(Some(at.of.part(self.axis, &before, &extent)));
            before = before + extent;
        }
        Ok(parts)
    }
}

impl Elementwise for Concat {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        self.part(at, 0, coords)
    }
}

impl Concat {
    /// The element at `coords` of the parts from `operand` on; `coords` are relative to the first of these parts.
    fn part(&self, at: &mut dyn Elements, operand: usize, coords: &[ExprId]) -> ExprId {
        let here = at.load(operand, coords);
        if operand + 1 >= at.operands() {
            return here;
        }
        let extent = at.ty(operand).shape[self.axis].clone();
        let end = at.size(&extent);
        let mut beyond = coords.to_vec();
        beyond[self.axis] = at.dag().binary(BinaryOp::Sub, coords[self.axis], end);
        let rest = self.part(at, operand + 1, &beyond);
        let inside = at.dag().binary(BinaryOp::Lt, coords[self.axis], end);
        at.dag().select(inside, here, rest)
    }
}

impl Op for Broadcast {
    fn name(&self) -> &str {
        "broadcast"
    }

    fn weight(&self) -> usize {
        0
    }

    fn attributes(&self) -> Value {
        json!({ "shape": super::texts(&self.shape) })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        let target = Type::device(x.dtype, self.shape.clone());
        let fits = x.layout != Layout::Scores
            && x.rank() <= self.shape.len()
            && x.shape.iter().rev().zip(self.shape.iter().rev()).all(|(from, to)| from == to || *from == 1.into());
        if fits { Ok(vec![target]) } else { Err(TypeError::new("x", format!("broadcastable to {target}"), x)) }
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        self.shape.iter_mut().for_each(size);
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: true, is_unique: false })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Ok(vec![Some(at.summed(0, at.of))])
    }
}

impl Elementwise for Broadcast {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let shape = at.ty(0).shape.clone();
        let zero = at.dag().int(0);
        let index: Vec<ExprId> = shape
            .iter()
            .zip(&coords[coords.len() - shape.len()..])
            .map(|(dim, &coord)| if *dim == 1.into() { zero } else { coord })
            .collect();
        at.load(0, &index)
    }
}
