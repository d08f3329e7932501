//! Serialised expressions.

use super::dag::{Dag, Expr, ExprId};
use crate::Scalar;
use crate::limits::{LimitError, MAX_ARGUMENTS, MAX_EXPRESSIONS, MAX_RANK, MAX_VALUES, check_count};
use serde::Deserialize;
use thiserror::Error;

/// The serialised form of a DAG.
#[derive(Deserialize)]
pub(super) struct Stored {
    nodes: Vec<StoredNode>,
}

/// The type is inferred from the operands, except for loads and accumulations; bounds are recomputed, except for
/// coordinates.
#[derive(Deserialize)]
struct StoredNode {
    expr: Expr,
    scalar: Scalar,
    range: Option<(i64, i64)>,
}

/// Why serialised expressions are invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredError {
    /// There are too many.
    #[error("a kernel {0}")]
    Limit(#[from] LimitError),
    /// An expression is invalid.
    #[error("expression {position} {reason}")]
    Expression {
        /// Its position.
        position: usize,
        /// The problem.
        reason: &'static str,
    },
}

impl TryFrom<Stored> for Dag {
    type Error = StoredError;

    fn try_from(stored: Stored) -> Result<Self, StoredError> {
        check_count("expressions", stored.nodes.len(), MAX_EXPRESSIONS)?;
        let mut dag = Self::new();
        for (position, node) in stored.nodes.into_iter().enumerate() {
            let wrong = |reason| StoredError::Expression { position, reason };
            if node.expr.operands().iter().any(|operand| operand.0 as usize >= position) {
                return Err(wrong("reads one that does not come before it"));
            }
            let (scalar, range) = dag.typed(&node).map_err(wrong)?;
            dag.append(node.expr, scalar, range);
        }
        dag.check_limits()?;
        Ok(dag)
    }
}

type Typed = (Scalar, Option<(i64, i64)>);

impl Dag {
    /// The type and the bounds of an expression with known operands.
    fn typed(&self, node: &StoredNode) -> Result<Typed, &'static str> {
        const NATURAL: Option<(i64, i64)> = Some((0, i32::MAX as i64));
        let all = |operands: &[ExprId], scalar| operands.iter().all(|&operand| self.scalar(operand) == scalar);
        let typed = match node.expr {
            Expr::Float(_) => (Scalar::F32, None),
            Expr::Int(scalar @ (Scalar::I32 | Scalar::I64), value) => {
                if scalar == Scalar::I32 && i32::try_from(value).is_err() {
                    return Err("is a constant beyond 32 bits");
                }
                (scalar, Some((value, value)))
            }
            Expr::Bool(_) => (Scalar::Bool, None),
            Expr::Coord(axis) if usize::from(axis) < MAX_VALUES => match node.range {
                Some((0, high)) if (-1..=i64::from(i32::MAX)).contains(&high) => (Scalar::I32, Some((0, high))),
                _ => return Err("is a coordinate without bounds"),
            },
            Expr::Size(_) => (Scalar::I32, NATURAL),
            Expr::Value(position) if usize::from(position) < MAX_VALUES => (node.scalar, None),
            Expr::Load { ref index, .. } if index.len() <= MAX_RANK && all(index, Scalar::I32) => (node.scalar, None),
            Expr::Sample { row, .. } if all(&[row], Scalar::I32) => (Scalar::I32, NATURAL),
            Expr::Uniform { seed, index } if all(&[seed], Scalar::I64) && all(&[index], Scalar::I32) => {
                (Scalar::F32, None)
            }
            Expr::Call { ref function, ref arguments } => {
                let count = arguments.len();
                let fits = (1..=MAX_ARGUMENTS).contains(&count) && count == function.arguments();
                if !fits || !all(arguments, Scalar::F32) {
                    return Err("calls a function with wrong arguments");
                }
                (Scalar::F32, None)
            }
            Expr::Unary(op, a) if op.accepts(self.scalar(a)) => (self.scalar(a), None),
            Expr::Binary(op, a, b) if op.accepts(self.scalar(a)) && self.scalar(a) == self.scalar(b) => {
                let range = if self.scalar(a) == Scalar::I32 { self.binary_range(op, a, b) } else { None };
                (op.result(self.scalar(a)), range)
            }
            Expr::Select(c, a, b) if all(&[c], Scalar::Bool) && self.scalar(a) == self.scalar(b) => {
                (self.scalar(a), self.joined_range(a, b))
            }
            Expr::Cast(scalar, a) => (scalar, self.cast_range(scalar, a)),
            _ => return Err("has operands of a wrong type or number"),
        };
        if typed.0 == node.scalar { Ok(typed) } else { Err("has a type that does not follow from its operands") }
    }
}
