use super::EmitError;
use crate::plan::{Kernel, Reduction, Written};
use rewire_graph::pointwise::ExprId;

/// Dimensions of a loop that a kernel may have.
const DIMENSIONS: usize = 16;

/// Expressions of an anchor: as many results of reductions as expressions can tell apart, and the operands of a product.
const EXPRESSIONS: usize = 34;

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
    for output in kernel.outputs() {
        output.index.iter().chain([&output.value]).try_for_each(|&id| exists(id, dag.len()))?;
    }
    let values = |reductions: &[Reduction]| reductions.iter().map(|r| r.value).collect::<Vec<_>>();
    let (roots, dimensions) = match kernel {
        Kernel::Map(kernel) => (vec![], kernel.extents.len()),
        Kernel::Reduce(kernel) => (values(&kernel.reductions), kernel.extents.len()),
        Kernel::Matmul(kernel) => ([values(&kernel.stats), vec![kernel.a, kernel.b]].concat(), kernel.batch.len()),
        Kernel::Attention(kernel) => {
            let pair = [kernel.q, kernel.k, kernel.v, kernel.score];
            (pair.into_iter().chain(kernel.mask).collect(), 0)
        }
        Kernel::Custom(_) => (vec![], 0),
    };
    for (what, needed, limit) in
        [("dimensions", dimensions, DIMENSIONS), ("expressions of the anchor", roots.len(), EXPRESSIONS)]
    {
        if needed > limit {
            return Err(EmitError::Limit { what, needed: needed as u64, limit: limit as u64 });
        }
    }
    roots.into_iter().try_for_each(|root| exists(root, dag.len()))
}
