use super::jagged::with_row;
use super::{
    Accumulated, Accumulator, Elements, Elementwise, EvaluateError, Gradient, GradientError, Op, ReduceOp, Span,
    ViewProps, arity, rank, same_size,
};
use crate::interpret::Array;
use crate::pointwise::{BinaryOp, ExprId};
use crate::{DType, Dim, Layout, Scalar, Tensor, Type, TypeError};
use serde_json::{Value, json};

/// Rows of a table: `out[i.., c..] = table[index[i..], c..]`. An index outside the table is clamped. If the index is an
/// unchanged input of the run, the run checks its range first, unless disabled in the run's options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather;

/// Values summed by index: `out[n, c..]` is the sum of `values[i.., c..]` over all `i..` with `index[i..] = n`, in
/// row-major order; 0 if there are none. An index outside the result is clamped. If the index is an unchanged input of
/// the run, the run checks its range first, unless disabled in the run's options.
///
/// Operands: `values` `[R.., D..]` and `index` `[R..]`. The result is `[rows, D..]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexAdd {
    /// Rows of the result, at least one.
    pub rows: Dim,
}

/// A table with some rows replaced: row `index[u]` of the result is `rows[u]`, all others are the table's. An index
/// outside the table is clamped. If several rows have the same index, one of them is kept; it is unspecified which. If
/// the index is an unchanged input of the run, the run checks its range first, unless disabled in the run's options.
///
/// Operands: `table` `[V, D..]`, `index` `[U]` and `rows` `[U, D..]` of the table's type. Kernels support only tables
/// that are states of a session, and write them in place: see [`crate::Scope::set_state_rows`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetRows;

fn is_index(ty: &Type) -> Result<(), TypeError> {
    if matches!(ty.dtype, DType::I32 | DType::I64 | DType::U32) && ty.layout == Layout::Device {
        Ok(())
    } else {
        Err(TypeError::new("index", "a device tensor of integers", ty))
    }
}

impl Op for Gather {
    fn name(&self) -> &str {
        "gather"
    }

    fn is_lookup(&self) -> bool {
        true
    }

    fn indexed_rows(&self, first: &Type) -> Option<Dim> {
        first.shape.first().cloned()
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [table, index] = arity(inputs)?;
        if table.rank() == 0 || table.layout == Layout::Scores {
            return Err(TypeError::new("table", "a tensor with rows", table));
        }
        if table.extent(0) == Some(0) {
            return Err(TypeError::new("table", "a tensor with at least one row", table));
        }
        is_index(&index)?;
        let shape = index.shape.into_iter().chain(table.shape.into_iter().skip(1)).collect();
        // Rows with a scale are read as floats.
        let dtype = if table.dtype.format().is_written() { table.dtype } else { DType::F32 };
        Ok(vec![Type::device(dtype, shape)])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn movement(&self) -> Option<ViewProps> {
        Some(ViewProps { is_ordered: false, is_complete: false, is_unique: false })
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let index = at.operand(1);
        Ok(vec![Some(at.of.index_add(index, at.operand(0).dim(0))), None])
    }
}

impl Elementwise for Gather {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let (outer, inner) = coords.split_at(at.ty(1).rank());
        let rows = at.ty(0).shape[0].clone();
        let row = nearest(at, outer, &rows);
        at.load(0, &with_row(row, inner))
    }
}

impl Op for SetRows {
    fn name(&self) -> &str {
        "set_rows"
    }

    fn sets_rows(&self) -> bool {
        true
    }

    fn indexed_rows(&self, first: &Type) -> Option<Dim> {
        first.shape.first().cloned()
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [table, index, rows] = arity(inputs)?;
        if table.rank() == 0 || table.layout != Layout::Device || table.extent(0) == Some(0) {
            return Err(TypeError::new("table", "a device tensor with at least one row", table));
        }
        is_index(&index)?;
        rank("index", &index, 1)?;
        let shape = index.shape.into_iter().chain(table.shape.iter().skip(1).cloned()).collect();
        let expected = Type::device(table.dtype, shape);
        if rows != expected {
            return Err(TypeError::new("rows", expected.to_string(), rows));
        }
        Ok(vec![table])
    }

    fn evaluate(&self, operands: &[&Array], _: Vec<usize>) -> Result<Array, EvaluateError> {
        let (table, index, rows) = (operands[0], operands[1], operands[2]);
        let last = table.shape[0] as i64 - 1;
        let index = index.integers().into_iter().map(|row| row.clamp(0, last) as usize);
        Ok(table.with_rows(index, rows))
    }

    fn gradient(&self, _: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Err(GradientError::State)
    }
}

impl SetRows {
    /// The index in the table of an element of the rows.
    pub fn place(&self, at: &mut dyn Elements, element: &[ExprId]) -> Vec<ExprId> {
        let (row, inner) = element.split_at(element.len().min(1));
        let rows = at.ty(0).shape[0].clone();
        with_row(nearest(at, row, &rows), inner)
    }
}

/// The row that operand 1, the index, has at a position; clamped to `rows`.
pub(super) fn nearest<E: Elements + ?Sized>(at: &mut E, place: &[ExprId], rows: &Dim) -> ExprId {
    let index = at.load(1, place);
    let (rows, one) = (at.size(rows), at.dag().int(1));
    let last = at.dag().binary(BinaryOp::Sub, rows, one);
    // Clamped in its own type, since a 64-bit index would wrap around.
    let scalar = at.dag().scalar(index);
    let (zero, last) = (at.dag().constant(scalar, 0), at.dag().cast(scalar, last));
    let row = at.dag().binary(BinaryOp::Min, index, last);
    let row = at.dag().binary(BinaryOp::Max, row, zero);
    at.dag().cast(Scalar::I32, row)
}

impl Op for IndexAdd {
    fn name(&self) -> &str {
        "index_add"
    }

    fn indexed_rows(&self, _: &Type) -> Option<Dim> {
        Some(self.rows.clone())
    }

    fn attributes(&self) -> Value {
        json!({ "rows": self.rows.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [values, index] = arity(inputs)?;
        is_index(&index)?;
        if !values.dtype.is_float() || values.layout != Layout::Device || values.rank() < index.rank() {
            let expected = format!("a device tensor of floats with at least {} axes", index.rank());
            return Err(TypeError::new("values", expected, values));
        }
        for (axis, extent) in index.shape.iter().enumerate() {
            same_size("values", &format!("axis {axis}"), &values.shape[axis], extent)?;
        }
        if self.rows == 0.into() {
            return Err(TypeError::new("rows", "at least 1", &self.rows));
        }
        let inner = values.shape.into_iter().skip(index.rank());
        Ok(vec![Type::device(DType::F32, std::iter::once(self.rows.clone()).chain(inner).collect())])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        size(&mut self.rows);
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let (values, index) = (operands[0], operands[1]);
        let inner: usize = shape[1..].iter().product();
        let mut sums = vec![0.0; shape.iter().product()];
        let Some(last) = shape[0].checked_sub(1) else { return Ok(Array::from_floats(shape, sums)) };
        for (from, row) in index.integers().into_iter().enumerate() {
            let row = row.clamp(0, last as i64) as usize;
            for i in 0..inner {
                sums[row * inner + i] += values.float(from * inner + i);
            }
        }
        Ok(Array::from_floats(shape, sums))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Ok(vec![Some(at.of.gather(at.operand(1))), None])
    }
}

impl Accumulated for IndexAdd {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let places = at.ty(1).shape.clone();
        self.over(at, &places, &[], coords)
    }
}

impl IndexAdd {
    /// The sum over the index axes from `places` on; `outer` are the coordinates of the axes before them.
    fn over(&self, at: &mut dyn Accumulator, places: &[Dim], outer: &[ExprId], coords: &[ExprId]) -> ExprId {
        let Some((first, rest)) = places.split_first() else {
            let (row, zero) = (nearest(at, outer, &self.rows), at.dag().float(0.0));
            let hit = at.dag().binary(BinaryOp::Eq, row, coords[0]);
            let value = at.load(0, &[outer, &coords[1..]].concat());
            return at.dag().select(hit, value, zero);
        };
        // Axes with a common extent are merged, so that a kernel loops over them once.
        let (count, rest) = match rest.iter().try_fold(first.clone(), |all, dim| all.product(dim)) {
            Some(all) => (all, &rest[rest.len()..]),
            None => (first.clone(), rest),
        };
        let joined = &places[..places.len() - rest.len()];
        at.accumulate(ReduceOp::Sum, Span::Dense(count), &[coords, outer].concat(), &mut |at, n| {
            let own = if joined.len() > 1 { unravelled(at, n, joined) } else { vec![n] };
            vec![self.over(at, rest, &[outer, &own].concat(), coords)]
        })
    }
}

/// The coordinates of a flat position in some axes.
fn unravelled<E: Elements + ?Sized>(at: &mut E, flat: ExprId, axes: &[Dim]) -> Vec<ExprId> {
    let (mut rest, mut coords) = (flat, vec![]);
    for dim in axes.iter().skip(1).rev() {
        let extent = at.size(dim);
        coords.push(at.dag().binary(BinaryOp::Mod, rest, extent));
        rest = at.dag().binary(BinaryOp::Div, rest, extent);
    }
    coords.push(rest);
    coords.reverse();
    coords
}
