use super::dag::{Dag, Expr, ExprId};
use super::domain::Domain;
use super::functions::BinaryOp;

/// The variation of an expression over four neighbouring values of one coordinate, the first a multiple of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// The same in all lanes.
    Uniform {
        /// True for an integer that is known to be a multiple of four.
        aligned: bool,
    },
    /// An integer that increases by one per lane.
    Consecutive {
        /// True if the first lane is known to be a multiple of four.
        aligned: bool,
    },
    /// Any other variation.
    Varying,
}

impl Lanes {
    /// The lanes of every expression of `dag` along `coord`, by id.
    ///
    /// A load reads four neighbouring elements if its last index is consecutive and aligned, and its other indices are
    /// uniform: [`Lanes::is_vector_load`].
    pub fn along(dag: &Dag, coord: u8) -> Vec<Self> {
        Self::with_uniform_values(dag, coord, 0)
    }

    /// [`Lanes::along`], where the accumulations in the bit mask `uniform` are the same in all lanes.
    pub fn with_uniform_values(dag: &Dag, coord: u8, uniform: u32) -> Vec<Self> {
        Along { coord, uniform }.all(dag)
    }

    /// True if all lanes are the same.
    pub fn is_uniform(self) -> bool {
        matches!(self, Self::Uniform { .. })
    }

    /// True if `indices` address four neighbouring elements, the first at a multiple of four.
    pub fn is_vector_load(indices: &[Self]) -> bool {
        match indices.split_last() {
            Some((last, outer)) => {
                *last == Self::Consecutive { aligned: true } && outer.iter().all(|index| index.is_uniform())
            }
            None => false,
        }
    }

    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Uniform { aligned: a }, Self::Uniform { aligned: b }) => Self::Uniform { aligned: a && b },
            (Self::Consecutive { aligned: a }, Self::Consecutive { aligned: b }) => {
                Self::Consecutive { aligned: a && b }
            }
            _ => Self::Varying,
        }
    }

    fn binary(op: BinaryOp, a: Self, b: Self) -> Self {
        use Lanes::{Consecutive, Uniform};
        match (op, a, b) {
            (BinaryOp::Mul, Uniform { aligned: a }, Uniform { aligned: b }) => Uniform { aligned: a || b },
            (BinaryOp::Add | BinaryOp::Sub, Uniform { aligned: a }, Uniform { aligned: b }) => {
                Uniform { aligned: a && b }
            }
            (BinaryOp::Add, Uniform { aligned: a }, Consecutive { aligned: b })
            | (BinaryOp::Add | BinaryOp::Sub, Consecutive { aligned: a }, Uniform { aligned: b }) => {
                Consecutive { aligned: a && b }
            }
            (BinaryOp::Div, Consecutive { aligned: true }, Uniform { aligned: true }) => Uniform { aligned: false },
            (BinaryOp::Mod, Consecutive { aligned: true }, Uniform { aligned: true }) => Consecutive { aligned: true },
            (BinaryOp::Lt | BinaryOp::Ge, Consecutive { aligned: true }, Uniform { aligned: true })
            | (BinaryOp::Gt | BinaryOp::Le, Uniform { aligned: true }, Consecutive { aligned: true }) => {
                Uniform { aligned: false }
            }
            (_, Uniform { .. }, Uniform { .. }) => Uniform { aligned: false },
            _ => Self::Varying,
        }
    }
}

/// Lanes along a coordinate.
struct Along {
    coord: u8,
    /// A bit mask of the accumulations that are the same in all lanes.
    uniform: u32,
}

impl Domain for Along {
    type Value = Lanes;

    const UNKNOWN: Lanes = Lanes::Varying;

    fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> Lanes) -> Lanes {
        let expr = dag.expr(id);
        match *expr {
            Expr::Int(_, value) => Lanes::Uniform { aligned: value % 4 == 0 },
            Expr::Coord(axis) if axis == self.coord => Lanes::Consecutive { aligned: true },
            Expr::Binary(BinaryOp::Div | BinaryOp::Mod, a, b)
                if dag.range(b).is_none_or(|(low, _)| low <= 0) && !(of(a).is_uniform() && of(b).is_uniform()) =>
            {
                Lanes::Varying
            }
            Expr::Binary(op, a, b) => Lanes::binary(op, of(a), of(b)),
            Expr::Select(c, a, b) if of(c).is_uniform() => of(a).join(of(b)),
            Expr::Select(..) => Lanes::Varying,
            Expr::Value(position) if self.uniform >> position & 1 == 0 => Lanes::Varying,
            _ if expr.operands().into_iter().all(|operand| of(operand).is_uniform()) => {
                Lanes::Uniform { aligned: false }
            }
            _ => Lanes::Varying,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_concatenation_at_a_multiple_of_four_keeps_vector_loads() {
        let mut dag = Dag::new();
        let column = dag.coord(1, Some(48));
        let split = dag.int(32);
        let first = dag.binary(BinaryOp::Lt, column, split);
        let rest = dag.binary(BinaryOp::Sub, column, split);
        let lanes = Lanes::along(&dag, 1);
        assert!(lanes[first.0 as usize].is_uniform());
        assert_eq!(lanes[rest.0 as usize], Lanes::Consecutive { aligned: true });
    }

    #[test]
    fn heads_of_width_25_do_not_align() {
        let mut dag = Dag::new();
        let column = dag.coord(1, Some(100));
        let width = dag.int(25);
        let within = dag.binary(BinaryOp::Mod, column, width);
        assert_eq!(Lanes::along(&dag, 1)[within.0 as usize], Lanes::Varying);
    }
}
