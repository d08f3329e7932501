use super::{Computation, Output};
use crate::error::NotLowerable;
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Expr, ExprId};

/// An expression with its required type and its role in the kernel.
type Taken = (ExprId, Scalar, &'static str);

impl Computation {
    /// Checks that expressions have the types that loops require, and that operands are loaded in their types.
    pub(super) fn check_types(&self) -> Result<(), NotLowerable> {
        let body = self.body();
        for (id, expected, what) in self.taken() {
            if id.0 as usize >= body.dag.len() {
                return Err(format!("refers to expression {}, which does not exist", id.0).into());
            }
            let actual = body.dag.scalar(id);
            if actual != expected {
                return Err(format!("uses expression {} as {what}: expected {expected:?}, got {actual:?}", id.0).into());
            }
        }
        if let Some(written) = self.unwritable()
            && !self.copies_rows()
        {
            return Err(
                format!("writes result {} as {}, which kernels only read", written.target, written.dtype).into()
            );
        }
        for id in body.dag.ids() {
            if let Expr::Load { operand, .. } = body.dag.expr(id)
                && let Some(declared) = body.operands.get(usize::from(*operand))
                && declared.dtype.scalar() != body.dag.scalar(id)
            {
                let (dtype, scalar) = (declared.dtype, body.dag.scalar(id));
                return Err(format!("reads operand {operand}, which holds {dtype}, as {scalar:?}").into());
            }
        }
        Ok(())
    }

    /// True if all outputs are rows of operands in their storage type, which the host copies.
    fn copies_rows(&self) -> bool {
        let dag = &self.body().dag;
        let is_copy = |output: &Output| match dag.expr(output.value) {
            Expr::Load { operand, index } => {
                let read = self.body().operands.get(usize::from(*operand));
                let is_alike =
                    read.is_some_and(|read| read.dtype == output.dtype && read.shape.last() == output.shape.last());
                is_alike && index.last() == output.index.last()
            }
            _ => false,
        };
        !self.outputs().is_empty() && self.outputs().iter().all(is_copy)
    }

    fn taken(&self) -> Vec<Taken> {
        let sums = self.nest().map_or(&[][..], |nest| &nest.accumulations);
        let factors = sums.iter().flat_map(|sum| &sum.factors);
        let mut taken: Vec<Taken> = factors.map(|&id| (id, Scalar::F32, "an element of a sum")).collect();
        for output in self.outputs() {
            taken.extend(output.index.iter().map(|&id| (id, Scalar::I32, "an index")));
            taken.push((output.value, output.dtype.scalar(), "an element of a result"));
        }
        taken
    }
}
