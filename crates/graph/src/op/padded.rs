use super::jagged::{extent, extent_of, host_vectors, locate, rows_of, with_row};
use super::{Elements, Elementwise, Gradient, GradientError, Op, Requirement, arity, rank, same_size};
use crate::pointwise::{BinaryOp, ExprId};
use crate::{Dim, Layout, Tensor, Type, TypeError};
use serde_json::{Value, json};

/// Jagged rows as a padded tensor: `out[b, i] = i < length[b] ? x[offsets[b] + i] : fill`.
///
/// Samples are truncated to the extent. Operands: `x` `[total, ..]`, the scalar `fill` of the type of `x`, and host
/// offsets `[B + 1]`. The result is `[B, extent, ..]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JaggedToPadded {
    /// Rows of every sample in the result.
    pub extent: Dim,
}

/// Padded rows as jagged rows: `out[offsets[b] + i] = i < N ? x[b, i] : 0`.
///
/// Operands: `x` `[B, N, ..]` and host offsets `[B + 1]`. The result is `[total, ..]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PaddedToJagged {
    /// Rows of the result.
    pub rows: Dim,
}

impl Op for JaggedToPadded {
    fn name(&self) -> &str {
        "jagged_to_padded"
    }

    fn attributes(&self) -> Value {
        json!({ "extent": self.extent.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, fill, offsets] = arity(inputs)?;
        rows_of("x", &x)?;
        rank("fill", &fill, 0)?;
        if fill.layout != Layout::Device || fill.dtype.scalar() != x.dtype.scalar() {
            return Err(TypeError::new("fill", format!("a scalar of the type of x, {}", x.dtype), fill));
        }
        let batch = host_vectors(&[("offsets", &offsets, 1)])?;
        let mut shape = x.shape;
        shape.splice(0..1, [batch, self.extent.clone()]);
        Ok(vec![Type::device(x.dtype, shape)])
    }

    fn resize(&mut self, size: &mut dyn FnMut(&mut Dim)) {
        size(&mut self.extent);
    }

    fn requires(&self, inputs: &[&Type]) -> Vec<Requirement> {
        vec![Requirement::offsets(2, &extent_of(inputs, 0, 0))]
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let rows = at.ragged(2, &at.operand(0).dim(0));
        let x = at.of.padded_to_jagged(&rows);
        // Padding holds the fill value.
        let sum = |tensor: &Tensor| (0..tensor.rank()).fold(tensor.clone(), |sum, axis| sum.sum(axis)).reshape(());
        let fill = sum(at.of) - sum(&x);
        Ok(vec![Some(x), Some(fill), None])
    }
}

impl Elementwise for JaggedToPadded {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let (sample, position) = (coords[0], coords[1]);
        let (start, rows) = extent(at, 2, sample);
        let row = at.dag().binary(BinaryOp::Add, start, position);
        let (x, fill) = (at.load(0, &with_row(row, &coords[2..])), at.load(1, &[]));
        let present = at.dag().binary(BinaryOp::Lt, position, rows);
        at.dag().select(present, x, fill)
    }
}

impl Op for PaddedToJagged {
    fn name(&self) -> &str {
        "padded_to_jagged"
    }

    fn attributes(&self) -> Value {
        json!({ "rows": self.rows.to_string() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, offsets] = arity(inputs)?;
        if x.layout != Layout::Device || x.rank() < 2 {
            return Err(TypeError::new("x", "a device tensor of samples and rows", x));
        }
        let batch = host_vectors(&[("offsets", &offsets, 1)])?;
        same_size("x", "batch size", &x.shape[0], &batch)?;
        let mut shape = x.shape;
        shape.splice(0..2, [self.rows.clone()]);
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

    fn gradient(&self, at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        let x = at.operand(0);
        let rows = at.ragged(1, &self.rows);
        Ok(vec![Some(at.of.jagged_to_padded(&rows, &x.dim(1), 0.0)), None])
    }
}

impl Elementwise for PaddedToJagged {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let (sample, position) = locate(at, 1, coords[0]);
        let extent = at.ty(0).shape[1].clone();
        let extent = at.size(&extent);
        let index: Vec<ExprId> = [sample, position].into_iter().chain(coords[1..].iter().copied()).collect();
        let x = at.load(0, &index);
        let scalar = at.dag().scalar(x);
        let zero = at.dag().constant(scalar, 0);
        let present = at.dag().binary(BinaryOp::Lt, position, extent);
        at.dag().select(present, x, zero)
    }
}
