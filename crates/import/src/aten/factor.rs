//! Factorizations of small matrices: QR, singular values, pseudoinverse, and the matrix exponential.

use super::{Many, One, matmul};
use crate::array::Array;
use crate::call::Call;
use crate::context::Context;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::op::OrthogonalColumns;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.linalg_svdvals", |c| c.result(&singular_values(c.cx, &c.x()?.tensor)?)),
    ("aten.linalg_eigvalsh", |c| c.result(&eigenvalues(c)?)),
    ("aten.linalg_pinv", pseudoinverse),
    ("aten.pinverse", pseudoinverse),
    ("aten.linalg_matrix_rank", matrix_rank),
    ("aten.matrix_exp", exponential),
    ("aten.linalg_matrix_exp", exponential),
];

pub(super) const MANY: Many = &[
    ("aten.linalg_qr", qr),
    ("aten._linalg_svd", svd),
    ("aten.linalg_svd", svd),
    ("aten._linalg_eigh", eigh),
    ("aten.linalg_eigh", eigh),
];

/// Only singular values. The signs of singular vectors are not defined, so programs that read vectors are rejected.
fn svd(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let values = singular_values(c.cx, &c.x()?.tensor)?;
    let vectors = Value::Unsupported("singular vectors, whose signs are not defined");
    Ok(vec![vectors.clone(), c.nth(1, &values)?, vectors])
}

fn eigh(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let vectors = Value::Unsupported("eigenvectors, whose signs are not defined");
    Ok(vec![c.nth(0, &eigenvalues(c)?)?, vectors])
}

/// Rows and columns of matrices, each at most [`OrthogonalColumns::MOST`].
fn extents(cx: &Context, x: &Tensor) -> Lowered<[usize; 2]> {
    let most = OrthogonalColumns::MOST;
    let shape = cx.shape(x);
    let known: Option<Vec<usize>> = shape.iter().rev().take(2).map(Size::as_extent).collect();
    match known.as_deref() {
        Some(&[columns, rows]) if (1..=most).contains(&rows) && (1..=most).contains(&columns) => Ok([rows, columns]),
        _ => {
            Fault::unsupported(format!("matrices of a size that is not known, or of more than {most} rows or columns"))
        }
    }
}

/// `A V` with orthogonal columns, and `V`.
fn orthogonal(cx: &Context, x: &Tensor) -> Lowered<[Tensor; 2]> {
    let ([rows, columns], mut shape) = (extents(cx, x)?, cx.shape(x));
    let batch = Size::product(&shape[..shape.len() - 2]);
    let flat = cx.reshape(&x.cast(DType::F32), &[batch, rows.into(), columns.into()])?;
    let both = cx.scope.apply(OrthogonalColumns, &[&flat]);
    let axis = shape.len() - 2;
    let mut part = |start: usize, len: usize| {
        shape[axis] = len.into();
        cx.reshape(&cx.slice(&both, 1, (&start.into(), 1), &len.into())?, &shape)
    };
    Ok([part(0, rows)?, part(rows, columns)?])
}

/// Matrices with at least as many rows as columns: `x` or its transpose, and whether it was transposed.
fn tall(cx: &Context, x: &Tensor) -> Lowered<(Tensor, bool)> {
    let [rows, columns] = extents(cx, x)?;
    Ok(if rows < columns { (x.transpose(-1, -2), true) } else { (x.clone(), false) })
}

/// The sum of squares along an axis, which is removed.
fn squares(cx: &Context, x: &Tensor, axis: usize) -> Lowered<Tensor> {
    cx.squeeze(&x.square().sum(axis), axis)
}

/// Sorts numbers along the last axis.
fn in_order(cx: &Context, x: &Tensor, is_descending: bool) -> Lowered<Tensor> {
    let axis = x.rank() - 1;
    let array = Array { tensor: x.clone(), ty: crate::ScalarType::F32 };
    let index = super::order::sorted(cx, &array, axis, is_descending)?;
    super::order::along(cx, x, axis, &index)
}

/// The singular values in descending order.
fn singular_values(cx: &Context, x: &Tensor) -> Lowered<Tensor> {
    let (x, _) = tall(cx, x)?;
    let [columns, _] = orthogonal(cx, &x)?;
    in_order(cx, &squares(cx, &columns, x.rank() - 2)?.sqrt(), true)
}

/// Eigenvalues of symmetric matrices in ascending order: singular values after a shift that makes all eigenvalues positive.
fn eigenvalues(c: &Call<'_>) -> Lowered<Tensor> {
    let (cx, x) = (c.cx, c.x()?.tensor);
    let [rows, columns] = extents(cx, &x)?;
    if rows != columns {
        return Fault::program("eigenvalues of matrices that are not square");
    }
    let shape = cx.shape(&x);
    let (row, column) = (x.rank() - 2, x.rank() - 1);
    let difference = cx.positions(&shape, row)? - cx.positions(&shape, column)?;
    let is_upper = c.string_or("UPLO", "L")?.eq_ignore_ascii_case("u");
    let given = if is_upper { difference.le(0i64) } else { difference.ge(0i64) };
    let symmetric = given.select(&x, &x.transpose(-1, -2));
    let move_by = symmetric.square().sum(column).sum(row).sqrt();
    let moved = difference.equal(0i64).select(&(&symmetric + &move_by), &symmetric);
    let [columns, _] = orthogonal(cx, &moved)?;
    let values = squares(cx, &columns, row)?.sqrt() - cx.squeeze(&move_by, row)?;
    in_order(cx, &values, false)
}

/// The threshold up to which singular values count as 0, `[.., 1, 1]`.
fn tolerance(c: &Call<'_>, largest: &Tensor, [rows, columns]: [usize; 2]) -> Lowered<Tensor> {
    let number = |name: &str| -> Lowered<Option<Tensor>> {
        match c.get(name) {
            None => Ok(None),
            Some(Value::Tensor(array)) if array.rank() == 0 => Ok(Some(array.tensor.cast(DType::F32))),
            Some(Value::Tensor(_)) => Fault::unsupported(format!("a `{name}` for each matrix")),
            Some(_) => Ok(Some(c.cx.f(c.float(name)?))),
        }
    };
    let absolute = match number("tol")? {
        Some(tol) => return Ok(tol),
        None => number("atol")?,
    };
    let default = c.cx.f(f64::from(f32::EPSILON) * rows.max(columns) as f64);
    let relative = match (number("rtol")?.or(number("rcond")?), &absolute) {
        (Some(relative), _) => relative,
        (None, Some(absolute)) => absolute.gt(0.0).select(&c.cx.f(0.0), &default),
        (None, None) => default,
    };
    let relative = largest * relative;
    Ok(absolute.map_or_else(|| relative.clone(), |absolute| relative.maximum(&absolute)))
}

fn pseudoinverse(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?.tensor;
    let extents = extents(c.cx, &x)?;
    let (x, is_transposed) = tall(c.cx, &x)?;
    let [columns, rotation] = orthogonal(c.cx, &x)?;
    let (row, column) = (x.rank() - 2, x.rank() - 1);
    let squares = columns.square().sum(row);
    let lengths = squares.sqrt();
    let least = tolerance(c, &lengths.max(column), extents)?;
    let inverse = lengths.gt(&least).select(&(c.cx.f(1.0) / squares), &c.cx.f(0.0));
    let y = matmul::matmul(c.cx, &(rotation * inverse), &columns.transpose(-1, -2))?;
    c.result(&if is_transposed { y.transpose(-1, -2) } else { y })
}

fn matrix_rank(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?.tensor;
    let extents = extents(c.cx, &x)?;
    let (x, _) = tall(c.cx, &x)?;
    let [columns, _] = orthogonal(c.cx, &x)?;
    let (row, column) = (x.rank() - 2, x.rank() - 1);
    let lengths = columns.square().sum(row).sqrt();
    let counted = lengths.gt(&tolerance(c, &lengths.max(column), extents)?);
    let count = counted.cast(DType::F32).sum(column).cast(DType::I64);
    c.result(&c.cx.squeeze(&c.cx.squeeze(&count, column)?, row)?)
}

/// QR by Householder reflections, with the signs that LAPACK uses.
fn qr(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let (cx, x) = (c.cx, c.x()?.tensor);
    let [rows, columns] = extents(cx, &x)?;
    let (row, column) = (x.rank() - 2, x.rank() - 1);
    let mut shape = cx.shape(&x);
    let places = cx.positions(&shape, row)?;
    let mut r = x;
    shape[column] = rows.into();
    let unit = places.equal(&cx.positions(&shape, column)?).cast(DType::F32);
    let mut q = cx.expand(&unit, &shape)?;
    let zero = cx.f(0.0);
    for k in 0..columns.min(rows.saturating_sub(1)) {
        let own = cx.slice(&r, column, (&k.into(), 1), &1.into())?;
        let pivot = cx.slice(&own, row, (&k.into(), 1), &1.into())?;
        let below = places.gt(k as i64).select(&own, &zero);
        let rest = below.square().sum(row);
        let length = (pivot.square() + &rest).sqrt();
        let target = pivot.ge(0.0).select(&-&length, &length);
        let is_done = rest.equal(0.0);
        let factor = is_done.select(&zero, &((&target - &pivot) / &target));
        let scaled = below / is_done.select(&cx.f(1.0), &(&pivot - &target));
        let mirror = places.equal(k as i64).select(&cx.f(1.0), &scaled);
        r = &r - &mirror * &factor * (&mirror * &r).sum(row);
        let turned = mirror.transpose(-1, -2);
        q = &q - (&q * &turned).sum(column) * &factor * &turned;
    }
    let below = cx.positions(&cx.shape(&r), row)?.gt(&cx.positions(&cx.shape(&r), column)?);
    let mut r = below.select(&zero, &r);
    let mode = c.string_or("mode", "reduced")?;
    if mode != "complete" && rows > columns {
        r = cx.slice(&r, row, (&0.into(), 1), &columns.into())?;
        q = cx.slice(&q, column, (&0.into(), 1), &columns.into())?;
    }
    if mode == "r" {
        return Ok(vec![Value::None, c.nth(1, &r)?]);
    }
    Ok(vec![c.nth(0, &q)?, c.nth(1, &r)?])
}

/// Number of squarings of the matrix exponential.
const SQUARINGS: i32 = 6;

/// Number of terms of its series.
const TERMS: u32 = 10;

/// `e^A = (e^(A / 2^n))^(2^n)`
fn exponential(c: &Call<'_>) -> Lowered<Array> {
    let (cx, x) = (c.cx, c.x()?.tensor);
    let [rows, columns] = extents(cx, &x)?;
    if rows != columns {
        return Fault::program("powers of matrices that are not square");
    }
    let shape = cx.shape(&x);
    let unit = cx.positions(&shape, x.rank() - 2)?.equal(&cx.positions(&shape, x.rank() - 1)?).cast(DType::F32);
    let small = &x * 2f64.powi(-SQUARINGS);
    // The series without the unit matrix. Adding it would round small elements.
    let mut rest = &small * f64::from(TERMS).recip();
    for n in (1..TERMS).rev() {
        rest = matmul::matmul(cx, &small, &(rest + &unit))? * f64::from(n).recip();
    }
    for _ in 0..SQUARINGS {
        rest = matmul::matmul(cx, &rest, &rest)? + rest * 2.0;
    }
    c.result(&(rest + unit))
}
