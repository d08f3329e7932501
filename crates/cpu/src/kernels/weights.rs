//! Right operands of matmuls that depend only on parameters: packed once.

use super::error::CpuError;
use super::operand::Env;
use super::product::PackedRhs;
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use std::sync::Arc;

/// A matmul operand whose elements depend only on tensors that the kernel reads.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    operands: Vec<u16>,
}

impl Weights {
    /// `None` if the expression depends on anything but coordinates and elements of tensors.
    pub(super) fn of(dag: &Dag, factor: ExprId) -> Option<Self> {
        let mut operands = vec![];
        for id in dag.reachable(&[factor]) {
            match dag.expr(id) {
                Expr::Load { operand, .. } => operands.push(*operand),
                Expr::Size(_) | Expr::Value(_) | Expr::Sample { .. } | Expr::Uniform { .. } | Expr::Call { .. } => {
                    return None;
                }
                _ => {}
            }
        }
        Some(Self { operands })
    }

    /// The packed matrix for the operands' contents, created by `pack` if missing. `None` if an operand's content is not
    /// known.
    pub(super) fn panels(
        &self,
        env: &Env<'_>,
        pack: impl FnOnce() -> Result<PackedRhs, CpuError>,
    ) -> Result<Option<Arc<PackedRhs>>, CpuError> {
        let content = |operand: &u16| env.views.get(usize::from(*operand)).and_then(|view| view.content);
        let Some(contents) = self.operands.iter().map(content).collect::<Option<Vec<_>>>() else { return Ok(None) };
        env.kept.panels.get(&contents, || pack().map(Arc::new)).map(Some)
    }
}
