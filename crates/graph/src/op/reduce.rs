use super::jagged::{extent_of, global, host_vectors, rows_of, samples, with_row};
use super::{Accumulated, Accumulator, EvaluateError, Gradient, GradientError, Op, Requirement, Span, arity};
use crate::interpret::Array;
use crate::pointwise::{BinaryOp, ExprId};
use crate::{DType, Layout, Tensor, Type, TypeError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// The sum; 0 for an empty set.
    Sum,
    /// The maximum, NaN if an element is NaN; negative infinity for an empty set.
    Max,
    /// The minimum, NaN if an element is NaN; infinity for an empty set.
    Min,
}

/// A reduction along an axis, which is kept with extent 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// The reduction.
    pub op: ReduceOp,
    /// The axis.
    pub axis: usize,
}

/// The rows of every sample reduced, `[total, ..]` to `[B, ..]`.
///
/// Operands: `x` `[total, ..]` and host offsets `[B + 1]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentReduce {
    /// The reduction.
    pub op: ReduceOp,
}

impl ReduceOp {
    /// The function that reduces two elements.
    pub fn combine(self) -> BinaryOp {
        match self {
            Self::Sum => BinaryOp::Add,
            Self::Max => BinaryOp::Max,
            Self::Min => BinaryOp::Min,
        }
    }

    /// Reduces all elements in order.
    pub(super) fn combined(self, elements: impl Iterator<Item = f64>) -> f64 {
        elements.fold(self.start().into(), |all, element| self.combine().evaluate(all, element))
    }

    /// The result for an empty set.
    pub fn start(self) -> f32 {
        match self {
            Self::Sum => 0.0,
            Self::Max => f32::NEG_INFINITY,
            Self::Min => f32::INFINITY,
        }
    }
}

impl Op for Reduce {
    fn name(&self) -> &str {
        match self.op {
            ReduceOp::Sum => "reduce_sum",
            ReduceOp::Max => "reduce_max",
            ReduceOp::Min => "reduce_min",
        }
    }

    fn reduced_axis(&self) -> Option<usize> {
        Some(self.axis)
    }

    fn keeps_axis(&self, axis: usize) -> bool {
        self.axis != axis
    }

    fn attributes(&self) -> Value {
        json!({ "axis": self.axis })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = arity(inputs)?;
        if !x.dtype.is_float() || x.layout == Layout::Host {
            return Err(TypeError::new("x", "of floats", x));
        }
        let mut shape = x.shape.clone();
        match shape.get_mut(self.axis) {
            Some(dim) if x.layout == Layout::Device => *dim = 1.into(),
            _ => return Err(TypeError::new("axis", format!("an axis of {x}"), self.axis)),
        }
        Ok(vec![Type::device(DType::F32, shape)])
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let x = operands[0];
        let extent = x.shape[self.axis];
        let inner: usize = x.shape[self.axis + 1..].iter().product();
        let outer: usize = x.shape[..self.axis].iter().product();
        let mut values = Vec::with_capacity(outer * inner);
        for o in 0..outer {
            for i in 0..inner {
                values.push(self.op.combined((0..extent).map(|n| x.float((o * extent + n) * inner + i))));
            }
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let x = at.operand(0);
        let repeat = |y: &Tensor| y.broadcast(x.shape());
        Ok(vec![Some(at.combined(self.op, x, repeat, |hits| hits.sum(self.axis)))])
    }
}

impl Accumulated for Reduce {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let extent = at.ty(0).shape[self.axis].clone();
        at.accumulate(self.op, Span::Dense(extent), coords, &mut |at, n| {
            let mut index = coords.to_vec();
            index[self.axis] = n;
            vec![at.load(0, &index)]
        })
    }

    fn reduced(&self) -> Option<usize> {
        Some(self.axis)
    }
}

impl Op for SegmentReduce {
    fn name(&self) -> &str {
        match self.op {
            ReduceOp::Sum => "segment_sum",
            ReduceOp::Max => "segment_max",
            ReduceOp::Min => "segment_min",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, offsets] = arity(inputs)?;
        rows_of("x", &x)?;
        if !x.dtype.is_float() {
            return Err(TypeError::new("x", "of floats", x));
        }
        let mut shape = x.shape;
        shape[0] = host_vectors(&[("offsets", &offsets, 1)])?;
        Ok(vec![Type::device(DType::F32, shape)])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        vec![Requirement::offsets(1, &extent_of(inputs, 0, 0))]
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let x = operands[0];
        let inner: usize = shape[1..].iter().product();
        let mut values = Vec::with_capacity(shape.iter().product());
        for rows in samples(operands[1], x.shape[0])? {
            values.extend((0..inner).map(|i| self.op.combined(rows.clone().map(|row| x.float(row * inner + i)))));
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let x = at.operand(0);
        let rows = at.ragged(1, &x.dim(0));
        let repeat = |y: &Tensor| y.jagged_broadcast(&rows);
        let sum = |hits: &Tensor| hits.segment_reduce(ReduceOp::Sum, &rows);
        Ok(vec![Some(at.combined(self.op, x, repeat, sum)), None])
    }
}

impl Accumulated for SegmentReduce {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let (sample, inner) = (coords[0], &coords[1..]);
        at.accumulate(self.op, Span::Ragged { offsets: 1, sample }, coords, &mut |at, row| {
            let row = global(at, 1, sample, row);
            vec![at.load(0, &with_row(row, inner))]
        })
    }
}
