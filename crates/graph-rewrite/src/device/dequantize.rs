//! Weights of 8 bits that kernels read as f16.

use super::{BindingChunks, BindingSource, EmittedKernel, Target};
use crate::plan::{Computation, MemorySpace};
use crate::schedule::{Analysis, Bound, Schedule};
use rewire_graph::DType;
use rewire_graph::pointwise::{Expr, ExprId};
use std::borrow::Cow;

/// A computation as its kernels on a target run it, for any tuning. Workgroup-scope matrices are loaded in their memory
/// layout, so a right factor of [`DType::Rows8`] is converted to f16, with one row per step of `k`. Also returns the
/// binding of that factor, if any.
pub fn dequantized<'c>(computation: &'c Computation, target: &Target) -> (Cow<'c, Computation>, Option<BindingSource>) {
    let Some((operand, transposed)) = right_rows(computation, target) else {
        return (Cow::Borrowed(computation), None);
    };
    let mut own = computation.clone();
    let body = own.body_mut();
    if transposed {
        body.dag.transpose(|read| read == operand);
    }
    let is_one_binding = body.operands.get_mut(usize::from(operand)).is_some_and(|rows| {
        rows.dtype = DType::F16;
        if let (true, [.., first, second]) = (transposed, rows.shape.as_mut_slice()) {
            std::mem::swap(first, second);
        }
        BindingChunks::of_tensor(rows.dtype, &rows.shape, target) == 1
    });
    match is_one_binding {
        true => (Cow::Owned(own), Some(BindingSource::Dequantized { operand, transposed })),
        false => (Cow::Borrowed(computation), None),
    }
}

/// The operand that is only the right factor of a matmul on matrix hardware, if it is stored as [`DType::Rows8`], and
/// whether its rows are columns of the matmul.
fn right_rows(computation: &Computation, target: &Target) -> Option<(u16, bool)> {
    if !target.shares_matrices() || !computation.body().operands.iter().any(|one| one.dtype == DType::Rows8) {
        return None;
    }
    let (nest, Schedule::Product(schedule)) = (computation.nest()?, computation.schedule()?) else { return None };
    let kernel = Bound { nest, schedule };
    let dag = &kernel.nest.body.dag;
    let Expr::Load { operand, index } = dag.expr(kernel.b) else { return None };
    let is_other = |id| id != kernel.b && matches!(dag.expr(id), Expr::Load { operand: read, .. } if read == operand);
    let rows = kernel.nest.body.operands.get(usize::from(*operand))?;
    let is_own = rows.dtype == DType::Rows8 && rows.space == MemorySpace::Device;
    let takes = is_own && !dag.ids().any(is_other) && kernel.allows_f16_operands();
    let is_depth = |id: &ExprId| *dag.expr(*id) == Expr::Coord(kernel.depth);
    takes.then_some((*operand, index.len() > 1 && index.last().is_some_and(is_depth)))
}

impl EmittedKernel {
    /// The kernel with an 8-bit operand bound as f16.
    pub fn with_dequantized(mut self, bound: Option<BindingSource>) -> Self {
        if let Some(bound @ BindingSource::Dequantized { operand, .. }) = bound {
            self.slots
                .iter_mut()
                .filter(|slot| **slot == BindingSource::Operand(operand))
                .for_each(|slot| *slot = bound);
        }
        self
    }
}
