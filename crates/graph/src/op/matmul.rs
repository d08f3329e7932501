use super::accumulate::matrix;
use super::jagged::{extent_of, global, samples};
use super::{
    Accumulated, Accumulator, EvaluateError, Gradient, GradientError, Op, ReduceOp, Requirement, Span, arity, axes,
    same_size,
};
use crate::interpret::Array;
use crate::pointwise::ExprId;
use crate::{DType, Dim, Layout, Tensor, Type, TypeError};

/// Matmul of the last two axes: `[.., M, K]` by `[.., K, N]`; leading axes broadcast like in numpy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatMul;

/// A matmul per sample: `out_i = x_i dense_b` for the rows of sample `b`.
///
/// Operands: `x` `[total, K]`, `dense` `[B, K, N]`, host offsets `[B + 1]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JaggedMatMul;

/// For every sample `b` the sum of outer products of its rows: `out_b = sum_i x_i^T y_i`; 0 for an empty sample.
///
/// Operands: `x` `[total, K]`, `y` `[total, N]`, host offsets `[B + 1]`. The result is `[B, K, N]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JaggedJaggedMatMul;

impl Op for MatMul {
    fn name(&self) -> &str {
        "matmul"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [a, b] = arity(inputs)?;
        for (argument, ty) in [("a", &a), ("b", &b)] {
            if ty.rank() < 2 || !ty.dtype.is_float() || ty.layout != Layout::Device {
                return Err(TypeError::new(argument, "a device tensor of floats with at least 2 axes", ty));
            }
        }
        let (ra, rb) = (a.rank(), b.rank());
        same_size("b", "axis K", &b.shape[rb - 2], &a.shape[ra - 1])?;
        let mut shape = batch_shape(&a.shape[..ra - 2], &b.shape[..rb - 2])
            .ok_or_else(|| TypeError::new("b", format!("with leading axes broadcastable to those of {a}"), &b))?;
        shape.push(a.shape[ra - 2].clone());
        shape.push(b.shape[rb - 1].clone());
        Ok(vec![Type::device(DType::F32, shape)])
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let (a, b) = (operands[0], operands[1]);
        let (leading, tail) = shape.split_at(shape.len() - 2);
        let (m, n, k) = (tail[0], tail[1], a.shape[a.shape.len() - 1]);
        let mut values = Vec::with_capacity(shape.iter().product());
        for flat in 0..leading.iter().product() {
            let mut batch = vec![0; leading.len()];
            let mut rest: usize = flat;
            for (coord, &extent) in batch.iter_mut().zip(leading).rev() {
                (*coord, rest) = (rest % extent, rest / extent);
            }
            let (a0, b0) = (start(a, &batch), start(b, &batch));
            for i in 0..m {
                for j in 0..n {
                    values.push((0..k).map(|x| a.float(a0 + i * k + x) * b.float(b0 + x * n + j)).sum());
                }
            }
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let [a, b] = [0, 1].map(|operand| at.operand(operand));
        let gradients = [at.of.matmul(&b.transpose(-1, -2)), a.transpose(-1, -2).matmul(at.of)];
        Ok((0..2).map(|operand| Some(at.summed(operand, &gradients[operand]))).collect())
    }
}

impl Accumulated for MatMul {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let (entry, element) = coords.split_at(coords.len().saturating_sub(2));
        let [row, column] = axes(element);
        let (a, b) = (at.ty(0).clone(), at.ty(1).clone());
        let depth = a.shape[a.rank() - 1].clone();
        at.accumulate(ReduceOp::Sum, Span::Dense(depth), coords, &mut |at, k| {
            vec![at.load(0, &matrix(entry, &a, [row, k])), at.load(1, &matrix(entry, &b, [k, column]))]
        })
    }
}

/// The flat start of a matrix in an operand whose leading axes broadcast to those of the result.
fn start(operand: &Array, batch: &[usize]) -> usize {
    let rank = operand.shape.len();
    let leading = &operand.shape[..rank - 2];
    let skipped = batch.len() - leading.len();
    let flat = leading
        .iter()
        .zip(&batch[skipped..])
        .fold(0, |flat, (&extent, &i)| flat * extent + if extent == 1 { 0 } else { i });
    flat * operand.shape[rank - 2] * operand.shape[rank - 1]
}

/// The broadcast of leading axes.
fn batch_shape(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let one: Dim = 1.into();
    let rank = a.len().max(b.len());
    let axis = |shape: &[Dim], n: usize| (n + shape.len()).checked_sub(rank).and_then(|n| shape.get(n).cloned());
    (0..rank)
        .map(|n| match (axis(a, n), axis(b, n)) {
            (Some(x), Some(y)) if x == y || y == one => Some(x),
            (Some(x), Some(y)) if x == one => Some(y),
            (Some(x), None) | (None, Some(x)) => Some(x),
            _ => None,
        })
        .collect()
}

fn floats(argument: &str, ty: &Type, rank: usize) -> Result<(), TypeError> {
    super::rank(argument, ty, rank)?;
    if ty.dtype.is_float() && ty.layout == Layout::Device {
        Ok(())
    } else {
        Err(TypeError::new(argument, "a device tensor of floats", ty))
    }
}

impl Op for JaggedMatMul {
    fn name(&self) -> &str {
        "jagged_matmul"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, dense, offsets] = arity(inputs)?;
        floats("x", &x, 2)?;
        floats("dense", &dense, 3)?;
        let batch = super::jagged::host_vectors(&[("offsets", &offsets, 1)])?;
        same_size("dense", "batch size", &dense.shape[0], &batch)?;
        same_size("dense", "axis K", &dense.shape[1], &x.shape[1])?;
        Ok(vec![Type::device(DType::F32, vec![x.shape[0].clone(), dense.shape[2].clone()])])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        vec![Requirement::offsets(2, &extent_of(inputs, 0, 0))]
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let (x, dense) = (operands[0], operands[1]);
        let (k, n) = (dense.shape[1], dense.shape[2]);
        let mut values = vec![0.0; shape.iter().product()];
        for (sample, rows) in samples(operands[2], shape[0])?.into_iter().enumerate() {
            for row in rows {
                for j in 0..n {
                    values[row * n + j] =
                        (0..k).map(|c| x.float(row * k + c) * dense.float((sample * k + c) * n + j)).sum();
                }
            }
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let [x, dense] = [0, 1].map(|operand| at.operand(operand));
        let rows = at.ragged(2, &x.dim(0));
        let by_row = at.of.jagged_matmul(&dense.transpose(1, 2), &rows);
        Ok(vec![Some(by_row), Some(x.jagged_jagged_matmul(at.of, &rows)), None])
    }
}

impl Accumulated for JaggedMatMul {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let (row, column) = (coords[0], coords[1]);
        let sample = at.sample(2, row);
        let depth = at.ty(0).shape[1].clone();
        at.accumulate(ReduceOp::Sum, Span::Dense(depth), coords, &mut |at, k| {
            vec![at.load(0, &[row, k]), at.load(1, &[sample, k, column])]
        })
    }

    fn samples(&self) -> Option<(usize, usize)> {
        Some((0, 2))
    }
}

impl Op for JaggedJaggedMatMul {
    fn name(&self) -> &str {
        "jagged_jagged_matmul"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, y, offsets] = arity(inputs)?;
        floats("x", &x, 2)?;
        floats("y", &y, 2)?;
        same_size("y", "rows", &y.shape[0], &x.shape[0])?;
        let batch = super::jagged::host_vectors(&[("offsets", &offsets, 1)])?;
        Ok(vec![Type::device(DType::F32, vec![batch, x.shape[1].clone(), y.shape[1].clone()])])
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        vec![Requirement::offsets(2, &extent_of(inputs, 0, 0))]
    }

    fn evaluate(&self, operands: &[&Array], shape: Vec<usize>) -> Result<Array, EvaluateError> {
        let (x, y) = (operands[0], operands[1]);
        let (k, n) = (shape[1], shape[2]);
        let mut values = Vec::with_capacity(shape.iter().product());
        for rows in samples(operands[2], x.shape[0])? {
            let product = |i: usize, j: usize| rows.clone().map(move |row| x.float(row * k + i) * y.float(row * n + j));
            values.extend((0..k * n).map(|at| ReduceOp::Sum.combined(product(at / n, at % n))));
        }
        Ok(Array::from_floats(shape, values))
    }

    fn accumulated(&self) -> Option<&dyn Accumulated> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let [x, y] = [0, 1].map(|operand| at.operand(operand));
        let rows = at.ragged(2, &x.dim(0));
        Ok(vec![Some(y.jagged_matmul(&at.of.transpose(1, 2), &rows)), Some(x.jagged_matmul(at.of, &rows)), None])
    }
}

impl Accumulated for JaggedJaggedMatMul {
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId {
        let [sample, row, column] = axes(coords);
        at.accumulate(ReduceOp::Sum, Span::Ragged { offsets: 2, sample }, coords, &mut |at, n| {
            let n = global(at, 2, sample, n);
            vec![at.load(0, &[n, row]), at.load(1, &[n, column])]
        })
    }
}
