use super::EmitError;
use crate::plan::{Kernel, Written};
use rewire_graph::pointwise::ExprId;

/// Errors where a kernel refers to expressions that it does not have: one read from a file may.
pub(super) fn check(kernel: &Kernel) -> Result<(), EmitError> {
    let dag = &kernel.body().dag;
    let exists = |id: ExprId, count: usize| match (id.0 as usize) < count {
        true => Ok(()),
        false => Err(EmitError::Missing { what: "expression", index: id.0 as usize, count }),
    };
    for id in dag.ids() {
        dag.expr(id).operands().into_iter().try_for_each(|operand| exists(operand, id.0 as usize))?;
    }
    if let Some(Written { target, dtype, .. }) = kernel.unwritable() {
        return Err(EmitError::ReadOnly { output: target.into(), dtype });
    }
    if let Kernel::Custom(kernel) = kernel {
        let count = kernel.body.operands.len();
        let missing = kernel.operands.iter().find(|position| usize::from(**position) >= count);
        return missing
            .map_or(Ok(()), |&position| Err(EmitError::Missing { what: "operand", index: position.into(), count }));
    }
    let roots = kernel.nest().map_or_else(Vec::new, |nest| nest.roots());
    roots.into_iter().try_for_each(|root| exists(root, dag.len()))
}
