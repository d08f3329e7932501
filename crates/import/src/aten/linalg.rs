//! Determinants, inverses and solutions of small linear systems, by unrolled elimination.

use super::{Many, One};
use crate::array::Array;
use crate::call::Call;
use crate::context::Context;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.linalg_det", |c| c.result(&determinant(c.cx, &c.x()?.tensor)?)),
    ("aten.det", |c| c.result(&determinant(c.cx, &c.x()?.tensor)?)),
    ("aten.linalg_inv", |c| c.result(&inverse(c.cx, &c.x()?.tensor)?)),
    ("aten.inverse", |c| c.result(&inverse(c.cx, &c.x()?.tensor)?)),
    ("aten.linalg_solve", |c| c.result(&solve(c)?)),
    ("aten.linalg_cholesky", |c| c.result(&cholesky(c)?)),
    ("aten.cholesky", |c| c.result(&cholesky(c)?)),
    ("aten.cholesky_solve", |c| {
        let (b, factor) = (c.x()?.tensor, c.tensor("input2")?.tensor);
        let factor = if c.bool_or("upper", false)? { factor.transpose(-1, -2) } else { factor };
        let half = solution(c.cx, &factor, &b)?;
        c.result(&solution(c.cx, &factor.transpose(-1, -2), &half)?)
    }),
    ("aten.logdet", |c| {
        let x = c.x()?.tensor;
        let pivots = Eliminated::of(c.cx, &x, rows_of(c.cx, &x)?)?;
        let product =
            pivots.pivots(c.cx)?.into_iter().fold(pivots.sign.clone(), |sign, pivot| sign * c.cx.sign(&pivot));
        let log = pivots.pivots(c.cx)?.into_iter().fold(c.cx.f(0.0), |log, pivot| log + pivot.abs().log());
        let log = product.lt(0.0).select(&c.cx.f(f64::NAN), &log);
        c.result(&scalars(c.cx, &log)?)
    }),
    ("aten.linalg_solve_triangular", solve_triangular),
    ("aten.linalg_matrix_power", matrix_power),
];

pub(super) const MANY: Many = &[
    ("aten.linalg_slogdet", logarithm),
    ("aten._linalg_slogdet", logarithm),
    ("aten._linalg_det", |c| with_nothing(c, |c| determinant(c.cx, &c.x()?.tensor))),
    ("aten.linalg_inv_ex", |c| with_success(c, |c| inverse(c.cx, &c.x()?.tensor))),
    ("aten._linalg_solve_ex", |c| with_nothing(c, solve)),
    ("aten.linalg_cholesky_ex", |c| with_success(c, cholesky)),
];

/// Maximum number of rows of a matrix.
const MOST: usize = 8;

/// The number of rows of square matrices.
fn rows_of(cx: &Context, x: &Tensor) -> Lowered<usize> {
    let shape = cx.shape(x);
    let extents = shape.iter().rev().take(2).map(Size::as_extent).collect::<Option<Vec<_>>>();
    match extents.as_deref() {
        Some(&[columns, rows]) if rows == columns && (1..=MOST).contains(&rows) => Ok(rows),
        _ => Fault::unsupported(format!("matrices that are not square, or of more than {MOST} rows")),
    }
}

/// Splits matrices into rows, each `[.., 1, columns]`.
fn rows(cx: &Context, x: &Tensor, count: usize) -> Lowered<Vec<Tensor>> {
    (0..count).map(|row| cx.slice(x, x.rank() - 2, (&row.into(), 1), &1.into())).collect()
}

/// The element of a row at a column, `[.., 1, 1]`.
fn element(cx: &Context, row: &Tensor, column: usize) -> Lowered<Tensor> {
    cx.slice(row, row.rank() - 1, (&column.into(), 1), &1.into())
}

/// Rows after Gaussian elimination with partial pivoting. Elements below the diagonal are 0.
struct Eliminated {
    rows: Vec<Tensor>,
    /// -1 if the number of row exchanges is odd.
    sign: Tensor,
}

impl Eliminated {
    fn of(cx: &Context, x: &Tensor, count: usize) -> Lowered<Self> {
        let (mut rows, mut sign) = (rows(cx, x, count)?, cx.f(1.0));
        for k in 0..count {
            for i in k + 1..count {
                let larger = element(cx, &rows[i], k)?.abs().gt(&element(cx, &rows[k], k)?.abs());
                let upper = larger.select(&rows[i], &rows[k]);
                rows[i] = larger.select(&rows[k], &rows[i]);
                rows[k] = upper;
                sign = larger.select(&-&sign, &sign);
            }
            let pivot = element(cx, &rows[k], k)?;
            for i in k + 1..count {
                let factor = element(cx, &rows[i], k)? / &pivot;
                // A column of zeros is left unchanged.
                let factor = pivot.equal(0.0).select(&cx.f(0.0), &factor);
                rows[i] = &rows[i] - &rows[k] * factor;
            }
        }
        Ok(Self { rows, sign })
    }

    /// The diagonal elements.
    fn pivots(&self, cx: &Context) -> Lowered<Vec<Tensor>> {
        self.rows.iter().enumerate().map(|(k, row)| element(cx, row, k)).collect()
    }
}

/// Removes the last two axes, which have extent 1.
fn scalars(cx: &Context, x: &Tensor) -> Lowered<Tensor> {
    let axis = x.rank() - 1;
    cx.squeeze(&cx.squeeze(x, axis)?, axis - 1)
}

pub(crate) fn determinant(cx: &Context, x: &Tensor) -> Lowered<Tensor> {
    let eliminated = Eliminated::of(cx, x, rows_of(cx, x)?)?;
    let product = eliminated.pivots(cx)?.into_iter().fold(eliminated.sign, |product, pivot| product * pivot);
    scalars(cx, &product)
}

fn logarithm(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let x = c.x()?.tensor;
    let eliminated = Eliminated::of(c.cx, &x, rows_of(c.cx, &x)?)?;
    let (mut sign, mut log) = (eliminated.sign.clone(), c.cx.f(0.0));
    for pivot in eliminated.pivots(c.cx)? {
        sign = sign * c.cx.sign(&pivot);
        log = log + pivot.abs().log();
    }
    // The remaining results are the factorization, which programs do not use.
    let others = (2..c.declared.len()).map(|_| Ok(Value::None));
    [c.nth(0, &scalars(c.cx, &sign)?), c.nth(1, &scalars(c.cx, &log)?)].into_iter().chain(others).collect()
}

/// Solves `a x = b`.
fn solution(cx: &Context, a: &Tensor, b: &Tensor) -> Lowered<Tensor> {
    let count = rows_of(cx, a)?;
    let batch = cx.broadcast_shape(&[&scalars_of(cx, a)?, &scalars_of(cx, b)?])?;
    let expanded = |x: &Tensor| {
        let own = cx.shape(x);
        cx.expand(x, &batch.iter().chain(&own[own.len() - 2..]).cloned().collect::<Vec<_>>())
    };
    let both = cx.concat(&[expanded(a)?, expanded(b)?], batch.len() + 1);
    let rows = Eliminated::of(cx, &both, count)?.rows;
    let width = cx.extent(b, b.rank() - 1);
    let right = |row: &Tensor| cx.slice(row, row.rank() - 1, (&count.into(), 1), &width);
    let mut known: Vec<Tensor> = vec![];
    for k in (0..count).rev() {
        let mut rest = right(&rows[k])?;
        for (i, x) in (k + 1..count).zip(known.iter().rev()) {
            rest = rest - element(cx, &rows[k], i)? * x;
        }
        known.push(rest / element(cx, &rows[k], k)?);
    }
    known.reverse();
    Ok(cx.concat(&known, batch.len()))
}

/// A tensor with the shape of the axes before the last two.
fn scalars_of(cx: &Context, x: &Tensor) -> Lowered<Tensor> {
    let one = |x: &Tensor, axis: usize| cx.slice(x, axis, (&Size::default(), 1), &1.into());
    scalars(cx, &one(&one(x, x.rank() - 1)?, x.rank() - 2)?)
}

fn inverse(cx: &Context, x: &Tensor) -> Lowered<Tensor> {
    let count = rows_of(cx, x)?;
    let shape = [Size::from(count), Size::from(count)];
    let unit = cx.positions(&shape, 0)?.equal(&cx.positions(&shape, 1)?).cast(DType::F32);
    solution(cx, x, &unit)
}

fn solve(c: &Call<'_>) -> Lowered<Tensor> {
    let (a, b) = (c.tensor("A")?.tensor, c.tensor("B")?.tensor);
    // `b` is a batch of vectors, or of matrices.
    let is_vector = b.rank() == 1 || (b.rank() + 1 == a.rank() && c.cx.shape(&b) == c.cx.shape(&a)[..b.rank()]);
    match (c.bool_or("left", true)?, is_vector) {
        (true, false) => solution(c.cx, &a, &b),
        (true, true) => c.cx.squeeze(&solution(c.cx, &a, &c.cx.unsqueeze(&b, b.rank())?)?, a.rank() - 1),
        (false, false) => Ok(solution(c.cx, &a.transpose(-1, -2), &b.transpose(-1, -2))?.transpose(-1, -2)),
        (false, true) => Fault::unsupported("vectors on the right"),
    }
}

/// The lower Cholesky factor of positive definite matrices, column by column.
fn cholesky(c: &Call<'_>) -> Lowered<Tensor> {
    let x = c.x()?.tensor;
    let count = rows_of(c.cx, &x)?;
    let (row, column) = (x.rank() - 2, x.rank() - 1);
    let places = c.cx.positions(&c.cx.shape(&x), row)?;
    let mut columns: Vec<Tensor> = vec![];
    for k in 0..count {
        let mut own = c.cx.slice(&x, column, (&k.into(), 1), &1.into())?;
        let entry = |x: &Tensor| c.cx.slice(x, row, (&k.into(), 1), &1.into());
        for other in &columns {
            own = own - other * entry(other)?;
        }
        let own = &own / entry(&own)?.sqrt();
        columns.push(places.ge(k as i64).select(&own, &c.cx.f(0.0)));
    }
    let lower = c.cx.concat(&columns, column);
    Ok(if c.bool_or("upper", false)? { lower.transpose(-1, -2) } else { lower })
}

fn solve_triangular(c: &Call<'_>) -> Lowered<Array> {
    let (a, b) = (c.x()?.tensor, c.tensor("B")?.tensor);
    rows_of(c.cx, &a)?;
    let shape = c.cx.shape(&a);
    let (row, column) = (c.cx.positions(&shape, a.rank() - 2)?, c.cx.positions(&shape, a.rank() - 1)?);
    let kept = if c.bool_or("upper", false)? { row.le(&column) } else { row.ge(&column) };
    let mut a = kept.select(&a, &c.cx.f(0.0));
    if c.bool_or("unitriangular", false)? {
        a = row.equal(&column).select(&c.cx.f(1.0), &a);
    }
    c.result(&match c.bool_or("left", true)? {
        true => solution(c.cx, &a, &b)?,
        false => solution(c.cx, &a.transpose(-1, -2), &b.transpose(-1, -2))?.transpose(-1, -2),
    })
}

/// Maximum power of a matrix.
const MOST_POWER: i64 = 1 << 10;

fn matrix_power(c: &Call<'_>) -> Lowered<Array> {
    let (x, power) = (c.x()?.tensor, c.int("n")?);
    if power == 0 || power.abs() > MOST_POWER {
        return Fault::unsupported(format!("a power of {power}"));
    }
    let mut square = if power < 0 { inverse(c.cx, &x)? } else { x };
    let (mut rest, mut result) = (power.unsigned_abs(), None::<Tensor>);
    loop {
        if rest % 2 == 1 {
            result = Some(result.map_or_else(|| square.clone(), |result| result.matmul(&square)));
        }
        rest /= 2;
        match result {
            Some(result) if rest == 0 => return c.result(&result),
            _ => square = square.matmul(&square),
        }
    }
}

/// Returns the result of `f`, and None for the factors.
fn with_nothing(c: &Call<'_>, f: fn(&Call<'_>) -> Lowered<Tensor>) -> Lowered<Vec<Value>> {
    let others = (1..c.declared.len()).map(|_| Ok(Value::None));
    std::iter::once(c.nth(0, &f(c)?)).chain(others).collect()
}

/// Returns the result of `f`, and a status of 0, which means success.
fn with_success(c: &Call<'_>, f: fn(&Call<'_>) -> Lowered<Tensor>) -> Lowered<Vec<Value>> {
    let y = f(c)?;
    let zero = c.cx.scope.scalar(DType::I32, 0i64);
    Ok(vec![c.nth(0, &y)?, c.nth(1, &c.cx.expand(&zero, &c.shape(1)?)?)?])
}
