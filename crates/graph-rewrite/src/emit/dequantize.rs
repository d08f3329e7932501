//! Weights of 8 bits that kernels read as halves.

use super::{EmittedKernel, Slot, Target, Windows};
use crate::plan::{Computation, MemorySpace};
use crate::schedule::{Product, Schedule};
use rewire_graph::DType;
use rewire_graph::pointwise::Expr;
use std::borrow::Cow;

/// A computation as its kernels on a target are, whatever their tuning: matrices that a workgroup shares are loaded as they lie in memory,
/// so that a right factor of [`DType::Rows8`] is halves there. Its operand, if there is one.
pub(super) fn dequantized<'c>(computation: &'c Computation, target: &Target) -> (Cow<'c, Computation>, Option<u16>) {
    let Some(operand) = right_rows(computation, target) else { return (Cow::Borrowed(computation), None) };
    let mut own = computation.clone();
    if let Some(rows) = own.body_mut().operands.get_mut(usize::from(operand)) {
        rows.dtype = DType::F16;
    }
    (Cow::Owned(own), Some(operand))
}

/// The operand that is the right factor of a product on matrix hardware, and nothing else, where it is rows of 8 bits.
fn right_rows(computation: &Computation, target: &Target) -> Option<u16> {
    if target.workgroup_matrices == 0 || !computation.body().operands.iter().any(|one| one.dtype == DType::Rows8) {
        return None;
    }
    let Schedule::Product(kernel) = Schedule::of(computation.nest()?).ok()? else { return None };
    let dag = &kernel.nest.body.dag;
    let &Expr::Load { operand, .. } = dag.expr(kernel.b) else { return None };
    let is_other = |id| id != kernel.b && matches!(dag.expr(id), Expr::Load { operand: read, .. } if *read == operand);
    let takes = !dag.ids().any(is_other) && kernel.takes_halves();
    (takes && may_be_halves(&kernel, operand, target)).then_some(operand)
}

fn may_be_halves(kernel: &Product<'_>, operand: u16, target: &Target) -> bool {
    let rows = kernel.nest.body.operands.get(usize::from(operand));
    rows.is_some_and(|rows| {
        let is_own = rows.dtype == DType::Rows8 && rows.space == MemorySpace::Device;
        is_own && Windows::of_tensor(DType::F16, &rows.shape, target) == 1
    })
}

impl EmittedKernel {
    /// The kernel with an operand bound as halves.
    pub(super) fn with_dequantized(mut self, operand: Option<u16>) -> Self {
        let is_it = |slot: &&mut Slot| operand.is_some_and(|operand| **slot == Slot::Operand(operand));
        self.slots.iter_mut().filter(is_it).for_each(|slot| *slot = Slot::Dequantized(operand.unwrap_or_default()));
        self
    }
}
