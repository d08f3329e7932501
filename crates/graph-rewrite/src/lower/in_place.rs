//! Kernels that set rows of states in place.

use crate::error::NotLowerable;
use crate::plan::{Computation, Nest, Plan, Step};
use rewire_graph::pointwise::Expr;
use rewire_graph::{Ordered, Value};
use std::collections::BTreeMap;

impl Plan {
    /// Moves steps that set rows of states in place after all others, which read the previous states.
    pub(super) fn write_states_last(&mut self) {
        let steps = std::mem::take(&mut self.steps);
        let (last, first): (Vec<Step>, Vec<Step>) =
            steps.into_iter().partition(|step| step.writes.iter().any(|&id| self.is_state(id)));
        self.steps = [first, last].concat();
    }
}

/// Removes operands from which a kernel loads nothing.
///
/// # Errors
/// [`NotLowerable`] if no schedule supports the rest.
pub(super) fn leave_out(
    kernel: &mut Computation,
    operands: &mut Vec<Value>,
    is_left: impl Fn(Value) -> bool,
) -> Result<(), NotLowerable> {
    let kept = (0..).zip(operands.iter()).filter(|(_, value)| !is_left(**value)).map(|(position, _)| position);
    let moved: BTreeMap<u16, u16> = kept.zip(0..).ordered_map();
    if moved.len() == operands.len() {
        return Ok(());
    }
    let Computation::Nest(kernel) = kernel else { return Ok(()) };
    operands.retain(|&value| !is_left(value));
    kernel.edit(|nest| renumber(nest, &moved))
}

/// Renumbers operands, and removes those without a new position.
fn renumber(nest: &mut Nest, moved: &BTreeMap<u16, u16>) {
    let declared = std::mem::take(&mut nest.body.operands);
    nest.rebuild(|dag, expr, index| match expr {
        Expr::Load { operand, .. } => {
            let dtype = declared.get(usize::from(*operand))?.dtype;
            Some(dag.load(*moved.get(operand)?, dtype, index.to_vec()))
        }
        Expr::Sample { offsets, .. } => Some(dag.sample(*moved.get(offsets)?, *index.first()?)),
        _ => None,
    });
    let is_kept = |position: usize| moved.contains_key(&(position as u16));
    nest.body.operands = declared.into_iter().enumerate().filter(|(n, _)| is_kept(*n)).map(|(_, own)| own).collect();
}
