use super::ReduceOp;
use super::{
    Check, Elements, Elementwise, EvaluateError, Gradient, GradientError, Op, Requirement, ViewProps, arity, rank,
    same_size,
};
use crate::interpret::Array;
use crate::pointwise::{BinaryOp, ExprId};
use crate::{DType, Dim, Layout, Ragged, Tensor, Type, TypeError};
use serde_json::{Value, json};
use std::ops::Range;

/// For every sample, the rows of `a` followed by those of `b`.
///
/// Operands: `a` `[total a, ..]`, `b` `[total b, ..]`, and the host offsets `[B + 1]` of a, b and the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JaggedConcat;

/// Consecutive rows of every sample. A run fails if they extend beyond their sample.
///
/// Operands: `x` `[total, ..]`, its host offsets `[B + 1]`, the first kept row of each sample `[B]`, and the host
/// offsets `[B + 1]` of the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JaggedSlice {
    /// Rows of the result.
    pub rows: Dim,
}

/// One row per sample, repeated for each row of the sample.
///
/// Operands: `x` `[B, ..]` on the device or the host, and host offsets `[B + 1]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JaggedBroadcast {
    /// Rows of the result.
    pub rows: Dim,
}

/// An index of every row, an `I32`, from host offsets `[B + 1]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowIndex {
    /// The kind of index.
    pub kind: RowIndexKind,
    /// Rows of the result.
    pub rows: Dim,
}

/// The kinds of indices that [`RowIndex`] computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowIndexKind {
    /// Its position among all rows.
    Row,
    /// Its position within its sample.
    Position,
    /// The first row after its sample, counted over all samples.
    SampleEnd,
}

/// Checks host vectors of `B` entries plus `extra[n]`; the first one determines `B`.
pub(super) fn host_vectors(named: &[(&str, &Type, i64)]) -> Result<Dim, TypeError> {
    let mut batch: Option<Dim> = None;
    for &(argument, ty, extra) in named {
        if ty.layout != Layout::Host || ty.rank() != 1 {
            return Err(TypeError::new(argument, "a vector of the shape program", ty));
        }
        let count = ty.shape[0].clone() + Dim::from(1) * -extra;
        match &batch {
            None => batch = Some(count),
            Some(batch) => same_size(argument, "batch size", &count, batch)?,
        }
    }
    Ok(batch.unwrap_or_default())
}

/// The extent of an axis of an operand; 0 if it does not exist.
pub(super) fn extent_of(inputs: &[&Type], operand: usize, axis: usize) -> Dim {
    inputs.get(operand).and_then(|ty| ty.shape.get(axis)).cloned().unwrap_or_default()
}

pub(super) fn rows_of(argument: &str, x: &Type) -> Result<(), TypeError> {
    if x.layout == Layout::Device && x.rank() > 0 {
        Ok(())
    } else {
        Err(TypeError::new(argument, "a device tensor with rows", x))
    }
}

impl Op for JaggedConcat {
    fn name(&self) -> &str {
        "jagged_concat"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [a, b, a_offsets, b_offsets, offsets] = arity(inputs)?;
        rows_of("a", &a)?;
        rows_of("b", &b)?;
        host_vectors(&[("a_offsets", &a_offsets, 1), ("b_offsets", &b_offsets, 1), ("offsets", &offsets, 1)])?;
        rank("b", &b, a.rank())?;
        for axis in 1..a.rank() {
            same_size("b", &format!("axis {axis}"), &b.shape[axis], &a.shape[axis])?;
        }
        if a.dtype.scalar() != b.dtype.scalar() {
            return Err(TypeError::new("b", format!("of the type of a, {}", a.dtype), b));
        }
        let dtype = if a.dtype == b.dtype { a.dtype } else { DType::F32 };
        let mut shape = a.shape;
        shape[0] = shape[0].clone() + b.shape[0].clone();
        Ok(vec![Type::device(dtype, shape)])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        let [a, b] = [0, 1].map(|operand| extent_of(inputs, operand, 0));
        vec![
            Requirement::offsets(2, &a),
            Requirement::offsets(3, &b),
            Requirement::new(Check::Sum, &[2, 3, 4]),
            Requirement::offsets(4, &(a + b)),
        ]
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: true, is_unique: true })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let rows = at.ragged(4, &at.result.dim(0));
        let [first, second] = [0, 1].map(|operand| at.ragged(operand + 2, &at.operand(operand).dim(0)));
        let a = at.of.jagged_slice(&rows, &(&first.lengths * 0.0), &first);
        let b = at.of.jagged_slice(&rows, &first.lengths, &second);
        Ok(vec![Some(a), Some(b), None, None, None])
    }
}

impl Elementwise for JaggedConcat {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let (row, inner) = (coords[0], &coords[1..]);
        let (sample, position) = locate(at, 4, row);
        let (a_start, a_rows) = extent(at, 2, sample);
        let b_start = at.load(3, &[sample]);
        let from_a = at.dag().binary(BinaryOp::Add, a_start, position);
        let beyond = at.dag().binary(BinaryOp::Sub, position, a_rows);
        let from_b = at.dag().binary(BinaryOp::Add, b_start, beyond);
        let a = at.load(0, &with_row(from_a, inner));
        let b = at.load(1, &with_row(from_b, inner));
        let first = at.dag().binary(BinaryOp::Lt, position, a_rows);
        at.dag().select(first, a, b)
    }
}

impl Op for JaggedSlice {
    fn name(&self) -> &str {
        "jagged_slice"
    }

    fn attributes(&self) -> Value {
        json!({ "rows": self.rows.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, x_offsets, starts, offsets] = arity(inputs)?;
        rows_of("x", &x)?;
        host_vectors(&[("x_offsets", &x_offsets, 1), ("starts", &starts, 0), ("offsets", &offsets, 1)])?;
        let mut shape = x.shape;
        shape[0] = self.rows.clone();
        Ok(vec![Type::device(x.dtype, shape)])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        size(&mut self.rows);
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        vec![
            Requirement::offsets(1, &extent_of(inputs, 0, 0)),
            Requirement::offsets(3, &self.rows),
            Requirement::new(Check::Slices, &[1, 2, 3]),
        ]
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: false, is_unique: true })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let x = at.operand(0);
        let (rows, kept) = (at.ragged(1, &x.dim(0)), at.ragged(3, &self.rows));
        let before = Ragged::from_lengths(at.operand(2));
        let after = Ragged::from_lengths(&(&rows.lengths - &before.lengths - &kept.lengths));
        let [first, last] = [&before, &after].map(|part| {
            let shape = std::iter::once(part.total.clone()).chain(x.shape().iter().skip(1).cloned());
            x.scalar(DType::F32, 0.0).broadcast(shape.collect::<Vec<Dim>>())
        });
        let (moved, both) = first.jagged_concat(&before, at.of, &kept);
        let (whole, _) = moved.jagged_concat(&both, &last, &after);
        Ok(vec![Some(whole), None, None, None])
    }
}

impl Elementwise for JaggedSlice {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let (sample, position) = locate(at, 3, coords[0]);
        let start = at.load(1, &[sample]);
        let skipped = at.load(2, &[sample]);
        let start = at.dag().binary(BinaryOp::Add, start, skipped);
        let row = at.dag().binary(BinaryOp::Add, start, position);
        at.load(0, &with_row(row, &coords[1..]))
    }
}

impl Op for JaggedBroadcast {
    fn name(&self) -> &str {
        "jagged_broadcast"
    }

    fn attributes(&self) -> Value {
        json!({ "rows": self.rows.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, offsets] = arity(inputs)?;
        let batch = host_vectors(&[("offsets", &offsets, 1)])?;
        if x.layout == Layout::Scores || x.rank() == 0 {
            return Err(TypeError::new("x", "a tensor with one row per sample", x));
        }
        same_size("x", "rows", &x.shape[0], &batch)?;
        let mut shape = x.shape;
        shape[0] = self.rows.clone();
        Ok(vec![Type::device(x.dtype, shape)])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        size(&mut self.rows);
    }

    fn requires(&self, _: &[&Type]) -> Vec<Requirement> {
        vec![Requirement::offsets(1, &self.rows)]
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: true, is_complete: false, is_unique: false })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let rows = at.ragged(1, &self.rows);
        Ok(vec![Some(at.of.segment_reduce(ReduceOp::Sum, &rows)), None])
    }
}

impl Elementwise for JaggedBroadcast {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let sample = at.sample(1, coords[0]);
        at.load(0, &with_row(sample, &coords[1..]))
    }
}

impl Op for RowIndex {
    fn name(&self) -> &str {
        match self.kind {
            RowIndexKind::Row => "row",
            RowIndexKind::Position => "position",
            RowIndexKind::SampleEnd => "sample_end",
        }
    }

    fn attributes(&self) -> Value {
        json!({ "rows": self.rows.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [offsets] = arity(inputs)?;
        host_vectors(&[("offsets", &offsets, 1)])?;
        Ok(vec![Type::device(DType::I32, vec![self.rows.clone()])])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        size(&mut self.rows);
    }

    fn requires(&self, _: &[&Type]) -> Vec<Requirement> {
        vec![Requirement::offsets(0, &self.rows)]
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for RowIndex {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let (sample, position) = locate(at, 0, coords[0]);
        match self.kind {
            RowIndexKind::Row => coords[0],
            RowIndexKind::Position => position,
            RowIndexKind::SampleEnd => {
                let (start, rows) = extent(at, 0, sample);
                at.dag().binary(BinaryOp::Add, start, rows)
            }
        }
    }
}

pub(super) fn with_row(row: ExprId, inner: &[ExprId]) -> Vec<ExprId> {
    std::iter::once(row).chain(inner.iter().copied()).collect()
}

/// The sample of a row and the row's position within it, from the offsets in operand `offsets`.
pub(super) fn locate(at: &mut dyn Elements, offsets: usize, row: ExprId) -> (ExprId, ExprId) {
    let sample = at.sample(offsets, row);
    let start = at.load(offsets, &[sample]);
    let position = at.dag().binary(BinaryOp::Sub, row, start);
    (sample, position)
}

/// The first row of a sample and its number of rows.
pub(super) fn extent(at: &mut dyn Elements, offsets: usize, sample: ExprId) -> (ExprId, ExprId) {
    let start = at.load(offsets, &[sample]);
    let one = at.dag().int(1);
    let next = at.dag().binary(BinaryOp::Add, sample, one);
    let end = at.load(offsets, &[next]);
    let rows = at.dag().binary(BinaryOp::Sub, end, start);
    (start, rows)
}

/// The rows of every sample, from offsets into `total` rows.
pub(super) fn samples(offsets: &Array, total: usize) -> Result<Vec<Range<usize>>, EvaluateError> {
    let offsets = offsets.integers();
    let range = |pair: &[i64]| match pair {
        &[start, end] if start >= 0 && end >= start && end as usize <= total => Ok(start as usize..end as usize),
        _ => Err(EvaluateError::Offsets { total, actual: [pair[0], pair[1]] }),
    };
    offsets.windows(2).map(range).collect()
}

/// The global index of a row of a sample, from the offsets in operand `offsets`.
pub(super) fn global<E: Elements + ?Sized>(at: &mut E, offsets: usize, sample: ExprId, row: ExprId) -> ExprId {
    let start = at.load(offsets, &[sample]);
    at.dag().binary(BinaryOp::Add, start, row)
}
