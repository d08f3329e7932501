//! Building blocks of lowerings: types, sizes, and operators that move elements.

use crate::ScalarType;
use crate::array::Array;
use crate::size::Size;
use crate::sizes::Sizes;
use crate::value::{Fault, Lowered, Number};
use rewire_graph::op::{IndexExpr, Remap, Reshape};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Scope, Tensor, Value};
use std::cell::RefCell;
use std::collections::HashMap;

/// The scope of a graph and its sizes.
pub(crate) struct Context {
    pub scope: Scope,
    pub sizes: RefCell<Sizes>,
    /// Offsets as values of the shape program, by their values on the device.
    pub hosts: RefCell<HashMap<Value, Tensor>>,
    /// Bools, by the integers that they were cast to.
    bools: RefCell<HashMap<Value, Tensor>>,
}

/// The coordinate along an axis of the result.
pub(crate) fn coord(axis: usize) -> IndexExpr {
    IndexExpr::Coord(axis)
}

impl Context {
    pub fn new() -> Self {
        let scope = Scope::new().without_places();
        let sizes = RefCell::new(Sizes::new(&scope));
        Self { scope, sizes, hosts: RefCell::default(), bools: RefCell::default() }
    }

    /// The shape program's value of offsets that are on the device; `None` if the shape program does not have them.
    pub fn host_offsets(&self, x: &Tensor) -> Option<Tensor> {
        self.hosts.borrow().get(&x.value()?).cloned()
    }

    /// Undoes a cast of bools to integers; other tensors are returned unchanged. Sums of bools are cheaper.
    pub fn as_bools(&self, x: &Array) -> Array {
        let known = x.tensor.value().and_then(|value| self.bools.borrow().get(&value).cloned());
        known.map_or_else(|| x.clone(), |tensor| Array { tensor, ty: ScalarType::Bool })
    }

    /// The shape of a tensor.
    pub fn shape(&self, x: &Tensor) -> Vec<Size> {
        let mut sizes = self.sizes.borrow_mut();
        x.shape().iter().map(|dim| sizes.of(dim)).collect()
    }

    pub fn extent(&self, x: &Tensor, axis: usize) -> Size {
        self.sizes.borrow_mut().of(&x.dim(axis))
    }

    pub fn dim(&self, size: &Size) -> Lowered<Dim> {
        let dim = self.sizes.borrow_mut().dim(size);
        dim.ok_or_else(|| Fault::Unsupported("a size that no input determines".to_owned()))
    }

    pub fn dims(&self, shape: &[Size]) -> Lowered<Vec<Dim>> {
        shape.iter().map(|size| self.dim(size)).collect()
    }

    /// A size as an index expression.
    pub fn index(&self, size: &Size) -> Lowered<IndexExpr> {
        match size.as_const() {
            Some(value) => Ok(IndexExpr::Int(value)),
            None => self.dim(size).map(IndexExpr::Size),
        }
    }

    pub fn quotient(&self, a: &Size, b: &Size) -> Lowered<Size> {
        let quotient = self.sizes.borrow_mut().quotient(a, b);
        quotient.ok_or_else(|| Fault::Program("a division of sizes by 0".to_owned()))
    }

    /// The element type of a number that is not combined with a tensor.
    pub fn type_of(&self, number: &Number) -> ScalarType {
        match number {
            Number::Int(_) => ScalarType::I64,
            Number::Bool(_) => ScalarType::Bool,
            Number::Float(_) | Number::Computed(_) => ScalarType::F32,
        }
    }

    /// A number as a 0-dim tensor.
    pub fn number(&self, number: &Number, ty: ScalarType) -> Lowered<Array> {
        let tensor = match number {
            Number::Float(value) => return self.scalar(*value, ty),
            Number::Bool(value) => self.scope.scalar(DType::Bool, i64::from(*value)),
            Number::Computed(tensor) => tensor.clone(),
            Number::Int(size) => match size.as_const() {
                Some(value) if ty.is_float() => return self.scalar(value as f64, ty),
                Some(value) => self.scope.scalar(DType::I64, value),
                None => {
                    let host = self.sizes.borrow_mut().host(size);
                    let unknown = || Fault::Unsupported("a size that no input determines".to_owned());
                    host.ok_or_else(unknown)?.cast(DType::I64)
                }
            },
        };
        let own = self.type_of(number);
        Ok(self.cast(&Array { tensor, ty: own }, ty))
    }

    /// A constant as a 0-dim tensor.
    pub fn scalar(&self, value: f64, ty: ScalarType) -> Lowered<Array> {
        if value.is_finite() && !(value as f32).is_finite() {
            return Fault::unsupported(format!("{value:e} is out of the range of f32"));
        }
        if ty.is_float() {
            let tensor = self.scope.scalar(DType::F32, value);
            return Ok(self.cast(&Array { tensor, ty: ScalarType::F32 }, ty));
        }
        let whole = self.scope.scalar(DType::I64, value as i64);
        Ok(self.cast(&Array { tensor: whole, ty: ScalarType::I64 }, ty))
    }

    /// Converts a tensor to another element type.
    pub fn cast(&self, x: &Array, ty: ScalarType) -> Array {
        if x.ty == ty {
            return x.clone();
        }
        let tensor = match (x.ty.is_float(), ty) {
            // As in C: first convert to an integer that can hold the value.
            (true, ty) if ty.is_integer() && ty.bits() <= 16 => x.tensor.cast(DType::I64).cast(DType::I32),
            (true, ScalarType::Bool) => x.tensor.not_equal(0.0),
            (false, ScalarType::Bool) if x.ty != ScalarType::Bool => x.tensor.not_equal(0i64),
            _ => x.tensor.cast(ty.computed()),
        };
        let tensor = self.wrapped(&tensor, ty);
        if let (ScalarType::Bool, true, Some(value)) = (x.ty, ty.is_integer(), tensor.value()) {
            self.bools.borrow_mut().insert(value, x.tensor.clone());
        }
        Array { tensor, ty }
    }

    /// Rounds the result of a computation in [`ScalarType::computed`] to `ty`: narrow integers wrap around, narrow floats are rounded.
    fn wrapped(&self, x: &Tensor, ty: ScalarType) -> Tensor {
        match ty {
            ScalarType::F16 | ScalarType::BF16 => self.rounded(x, ty).cast(ty.dtype()),
            ScalarType::F32 | ScalarType::F64 | ScalarType::Bool => x.clone(),
            ScalarType::I32 | ScalarType::I64 | ScalarType::U64 => x.clone(),
            _ if ty.is_float() => self.narrowed(x, ty, true),
            _ if ty.is_unsigned() => x.and((1i64 << ty.bits()) - 1),
            _ => {
                let half = 1i64 << (ty.bits() - 1);
                (x + half).and(2 * half - 1) - half
            }
        }
    }

    /// A computed tensor as an array of element type `ty`.
    pub fn stored(&self, x: &Tensor, ty: ScalarType) -> Lowered<Array> {
        if x.dtype().scalar() != ty.dtype().scalar() && !x.is_poisoned() {
            return Fault::unsupported(format!("a result of type {ty}, computed as {}", x.dtype()));
        }
        let exact = x.dtype() == ty.dtype() && matches!(ty, ScalarType::F16 | ScalarType::BF16);
        Ok(Array { tensor: if exact { x.clone() } else { self.wrapped(x, ty) }, ty })
    }

    /// `0, 1, 2, ...` as an `I64`.
    pub fn iota(&self, len: &Size) -> Lowered<Tensor> {
        Ok(self.scope.iota(self.dim(len)?))
    }

    /// The coordinate along an axis as an `I64` tensor that broadcasts to `shape`.
    pub fn positions(&self, shape: &[Size], axis: usize) -> Lowered<Tensor> {
        let mut along = vec![Size::from(1); shape.len() - axis];
        along[0] = shape[axis].clone();
        self.reshape(&self.iota(&shape[axis])?, &along)
    }

    /// Elements of `x` at computed indices. Out-of-range indices yield `fill`, or the nearest element without one.
    pub fn remap(
        &self,
        x: &Tensor,
        shape: &[Size],
        index: Vec<IndexExpr>,
        fill: Option<&Tensor>,
        loads: &[&Tensor],
    ) -> Lowered<Tensor> {
        let operands: Vec<&Tensor> = std::iter::once(x).chain(fill).chain(loads.iter().copied()).collect();
        let op = Remap { shape: self.dims(shape)?, index, is_filled: fill.is_some() };
        Ok(self.scope.apply(op, &operands))
    }

    /// Zero of a tensor's type, as a fill value.
    pub fn zero(&self, x: &Tensor) -> Tensor {
        let dtype = if x.dtype().is_float() { DType::F32 } else { x.dtype() };
        self.scope.scalar(dtype, 0i64)
    }

    /// Reshapes a tensor in row-major order.
    pub fn reshape(&self, x: &Tensor, shape: &[Size]) -> Lowered<Tensor> {
        let from = self.shape(x);
        if from == shape {
            return Ok(x.clone());
        }
        let (own, wanted) = (Size::product(&from), Size::product(shape));
        let is_proven = own == wanted;
        if !is_proven {
            self.check_equal(&own, &wanted)?;
        }
        let dims = self.dims(shape)?;
        if Reshape::runs(x.shape(), &dims).is_some() {
            return Ok(x.reshape(dims));
        }
        let mut index = vec![];
        let all = vec![(0..from.len(), 0..shape.len())];
        for (own, other) in if is_proven { runs(&from, shape) } else { all } {
            let mut flat = IndexExpr::Int(0);
            for axis in other.clone() {
                let scaled = flat.binary(BinaryOp::Mul, self.index(&shape[axis])?);
                flat = scaled.binary(BinaryOp::Add, coord(axis));
            }
            if let ([_], [axis]) = (&from[own.clone()], other.clone().collect::<Vec<_>>().as_slice()) {
                index.push(coord(*axis));
                continue;
            }
            let mut parts = vec![];
            for axis in own.clone().rev() {
                let extent = self.index(&from[axis])?;
                let is_first = axis == own.start;
                let part = if is_first { flat.clone() } else { flat.clone().binary(BinaryOp::Mod, extent.clone()) };
                parts.push(part);
                flat = flat.binary(BinaryOp::Div, extent);
            }
            parts.reverse();
            index.extend(parts);
        }
        self.remap(x, shape, index, None, &[])
    }

    /// Makes a run fail in which two sizes differ.
    fn check_equal(&self, a: &Size, b: &Size) -> Lowered<()> {
        if a.minus(b).as_const().is_some() {
            return Fault::unsupported("sizes that differ");
        }
        let mut sizes = self.sizes.borrow_mut();
        let (Some(a), Some(b)) = (sizes.host(a), sizes.host(b)) else {
            return Fault::unsupported("a size that no input determines");
        };
        a.at_most(&b, "a size");
        b.at_most(&a, "a size");
        Ok(())
    }

    /// The same tensor with equal sizes that are expressed differently. A run in which they differ fails.
    pub fn resized(&self, x: &Tensor, shape: &[Size]) -> Lowered<Tensor> {
        let own = self.shape(x);
        if own.len() != shape.len() {
            return Fault::unsupported(format!("{} axes instead of {}", own.len(), shape.len()));
        }
        for (own, size) in own.iter().zip(shape).filter(|(own, size)| own != size) {
            self.check_equal(own, size)?;
        }
        self.remap(x, shape, (0..own.len()).map(coord).collect(), None, &[])
    }

    /// Broadcasts a tensor to a shape.
    pub fn expand(&self, x: &Tensor, shape: &[Size]) -> Lowered<Tensor> {
        Ok(x.broadcast(self.dims(shape)?))
    }

    /// The shape to which tensors broadcast.
    pub fn broadcast_shape(&self, tensors: &[&Tensor]) -> Lowered<Vec<Size>> {
        let rank = tensors.iter().map(|x| x.rank()).max().unwrap_or(0);
        let mut shape = vec![Size::from(1); rank];
        for x in tensors {
            for (size, own) in shape.iter_mut().skip(rank - x.rank()).zip(self.shape(x)) {
                if own.as_const() == Some(1) || own == *size {
                    continue;
                }
                if size.as_const() != Some(1) {
                    return Fault::unsupported("a broadcast between sizes that cannot be proven equal");
                }
                *size = own;
            }
        }
        Ok(shape)
    }

    /// `len` entries of an axis, starting at `start`, `step` apart.
    pub fn slice(&self, x: &Tensor, axis: usize, (start, step): (&Size, i64), len: &Size) -> Lowered<Tensor> {
        let mut shape = self.shape(x);
        // After an error, tensors have no axes.
        if axis >= shape.len() {
            return Fault::program("no such axis");
        }
        if step == 1 && shape[axis] == *len {
            return Ok(x.clone());
        }
        let whole = (shape[axis].as_extent(), start.as_extent(), len.as_extent());
        if let ((Some(_), Some(start), Some(len)), 1) = (whole, step) {
            return Ok(x.slice(axis, start, len));
        }
        shape[axis] = len.clone();
        let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
        index[axis] = coord(axis).binary(BinaryOp::Mul, step).binary(BinaryOp::Add, self.index(start)?);
        self.remap(x, &shape, index, None, &[])
    }

    /// One entry of an axis. The axis is removed.
    pub fn select(&self, x: &Tensor, axis: usize, place: &Size) -> Lowered<Tensor> {
        let part = self.slice(x, axis, (place, 1), &Size::from(1))?;
        let mut shape = self.shape(&part);
        shape.remove(axis);
        self.reshape(&part, &shape)
    }

    /// Removes an axis of extent 1.
    pub fn squeeze(&self, x: &Tensor, axis: usize) -> Lowered<Tensor> {
        let mut shape = self.shape(x);
        if axis >= shape.len() {
            return Fault::program("no such axis");
        }
        shape.remove(axis);
        self.reshape(x, &shape)
    }

    /// Inserts an axis of extent 1.
    pub fn unsqueeze(&self, x: &Tensor, axis: usize) -> Lowered<Tensor> {
        let mut shape = self.shape(x);
        if axis > shape.len() {
            return Fault::program("no such axis");
        }
        shape.insert(axis, Size::from(1));
        self.reshape(x, &shape)
    }

    /// Concatenates tensors along an axis.
    pub fn concat(&self, parts: &[Tensor], axis: usize) -> Tensor {
        self.scope.concat(&parts.iter().collect::<Vec<_>>(), axis)
    }
}

/// Splits both shapes into the shortest ranges of axes with equal products.
fn runs(from: &[Size], to: &[Size]) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let prefixes =
        |shape: &[Size]| -> Vec<Size> { (0..=shape.len()).map(|end| Size::product(&shape[..end])).collect() };
    let (left, right) = (prefixes(from), prefixes(to));
    let (mut i, mut j, mut runs) = (0, 0, vec![]);
    while i < from.len() || j < to.len() {
        let next = (i + 1..left.len()).find_map(|end| {
            let other = (j + 1..right.len()).find(|&other| right[other] == left[end])?;
            Some((end, other))
        });
        let (mut end, mut other) = next.unwrap_or((from.len(), to.len()));
        let is_last = !(end + 1..left.len()).any(|more| (other + 1..right.len()).any(|b| right[b] == left[more]));
        if is_last && left[end] == left[from.len()] {
            (end, other) = (from.len(), to.len());
        }
        runs.push((i..end, j..other));
        (i, j) = (end, other);
    }
    runs
}
