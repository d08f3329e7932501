use super::EmitError;
use rewire_graph::pointwise::ExprId;
use rewire_graph_rewrite::plan::{Computation, Written};

/// Fails if a kernel refers to missing expressions, as in an invalid file.
pub(super) fn check(computation: &Computation) -> Result<(), EmitError> {
    let dag = &computation.body().dag;
    let exists = |id: ExprId, count: usize| match (id.0 as usize) < count {
        true => Ok(()),
        false => Err(EmitError::Missing { what: "expression", index: id.0 as usize, count }),
    };
    for id in dag.ids() {
        dag.expr(id).operands().into_iter().try_for_each(|operand| exists(operand, id.0 as usize))?;
    }
    if let Some(Written { target, dtype, .. }) = computation.unwritable() {
        return Err(EmitError::ReadOnly { output: target.into(), dtype });
    }
    if let Computation::Custom(custom) = computation {
        let count = custom.body.operands.len();
        let missing = custom.operands.iter().find(|position| usize::from(**position) >= count);
        return missing
            .map_or(Ok(()), |&position| Err(EmitError::Missing { what: "operand", index: position.into(), count }));
    }
    let roots = computation.nest().map_or_else(Vec::new, |nest| nest.roots());
    roots.into_iter().try_for_each(|root| exists(root, dag.len()))
}
