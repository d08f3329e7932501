use super::call::Function;
use super::functions::{BinaryOp, UnaryOp};
use super::stored::Stored;
use crate::op::{Registry, RegistryError};
use crate::{DType, Dim, Scalar};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// A node of a [`Dag`]. Operands have lower ids than their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExprId(pub u32);

/// A scalar expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Expr {
    /// A float constant, as its bits.
    Float(u32),
    /// An integer constant.
    Int(Scalar, i64),
    /// A boolean constant.
    Bool(bool),
    /// A coordinate of the loop, an `I32`.
    Coord(u8),
    /// An extent that a run determines, from the sizes of the body; an `I32`.
    Size(u16),
    /// A value of an accumulation: an accumulator, a score, a statistic of the row.
    Value(u8),
    /// An element of an operand, with one index per dimension. It is evaluated only if its branch is selected. An index
    /// out of range is clamped; an operand without elements reads as 0.
    Load {
        /// Position among the body's operands.
        operand: u16,
        /// One `I32` per dimension of the operand; empty for a scalar.
        index: Vec<ExprId>,
    },
    /// The sample of a row: the largest `b` with `offsets[b] <= row`.
    Sample {
        /// Position of the offsets, `[B + 1]`, among the body's operands.
        offsets: u16,
        /// A row index, an `I32`.
        row: ExprId,
    },
    /// A uniform float in `[0, 1)`: word `index % 4` of Philox4x32-10 with counter
    /// `(index / 4, 0, 0, 0)` and the key made of the halves of `seed`, its upper 24 bits.
    Uniform {
        /// The key, an `I64`.
        seed: ExprId,
        /// The element, an `I32` read as unsigned.
        index: ExprId,
    },
    /// A user-defined function of floats.
    Call {
        /// The function.
        function: Arc<Function>,
        /// One per argument of the function.
        arguments: Vec<ExprId>,
    },
    /// A function of one scalar.
    Unary(UnaryOp, ExprId),
    /// A function of two scalars.
    Binary(BinaryOp, ExprId, ExprId),
    /// `condition ? a : b`; only the selected branch is evaluated.
    Select(ExprId, ExprId, ExprId),
    /// Conversion; integer to float rounds to nearest, see [`Scalar`] for the others.
    Cast(Scalar, ExprId),
}

impl Expr {
    /// The operands of this expression.
    pub fn operands(&self) -> Vec<ExprId> {
        match self {
            Self::Load { index, .. } => index.clone(),
            Self::Call { arguments, .. } => arguments.clone(),
            Self::Sample { row, .. } => vec![*row],
            Self::Uniform { seed, index } => vec![*seed, *index],
            Self::Unary(_, a) | Self::Cast(_, a) => vec![*a],
            Self::Binary(_, a, b) => vec![*a, *b],
            Self::Select(c, a, b) => vec![*c, *a, *b],
            _ => vec![],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Node {
    expr: Expr,
    scalar: Scalar,
    range: Option<(i64, i64)>,
    #[serde(skip)]
    coords: u32,
    #[serde(skip)]
    values: u32,
}

/// A hash-consed set of scalar expressions, simplified during construction.
///
/// Integer sums have one canonical order, so two indices are equal exactly if their ids are. Reading a DAG from a file
/// checks the types and recomputes the bounds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Dag {
    nodes: Vec<Node>,
    #[serde(skip)]
    known: HashMap<Expr, ExprId>,
}

impl PartialEq for Dag {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

impl Dag {
    /// An empty DAG.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of expressions.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if the DAG holds nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All ids, operands before users.
    pub fn ids(&self) -> impl Iterator<Item = ExprId> + use<> {
        (0..self.nodes.len() as u32).map(ExprId)
    }

    /// The expression of an id of this DAG.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.node(id).expr
    }

    /// The type of an expression.
    pub fn scalar(&self, id: ExprId) -> Scalar {
        self.node(id).scalar
    }

    /// Inclusive bounds of an integer expression, if known. A sum or product with bounds does not wrap around.
    pub fn range(&self, id: ExprId) -> Option<(i64, i64)> {
        self.node(id).range
    }

    /// The coordinates that an expression depends on, as a bit mask.
    pub fn coords(&self, id: ExprId) -> u32 {
        self.node(id).coords
    }

    /// The accumulations that an expression depends on, as a bit mask.
    pub fn values(&self, id: ExprId) -> u32 {
        self.node(id).values
    }

    /// The expressions that `roots` depend on, operands before users.
    pub fn reachable(&self, roots: &[ExprId]) -> Vec<ExprId> {
        let mut seen = vec![false; self.nodes.len()];
        let mut stack = roots.to_vec();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut seen[id.0 as usize], true) {
                stack.extend(self.expr(id).operands());
            }
        }
        self.ids().filter(|id| seen[id.0 as usize]).collect()
    }

    /// The expressions that `roots` depend on, each after its operands as given by `reads`.
    pub fn ordered(&self, roots: &[ExprId], reads: impl Fn(ExprId) -> Vec<ExprId>) -> Vec<ExprId> {
        let mut order = vec![];
        let mut seen = vec![false; self.nodes.len()];
        let mut stack: Vec<(ExprId, bool)> = roots.iter().rev().map(|&root| (root, false)).collect();
        while let Some((id, complete)) = stack.pop() {
            if complete {
                order.push(id);
            } else if let Some(seen) = seen.get_mut(id.0 as usize)
                && !std::mem::replace(seen, true)
            {
                stack.push((id, true));
                stack.extend(reads(id).into_iter().rev().map(|read| (read, false)));
            }
        }
        order
    }

    /// A float constant.
    pub fn float(&mut self, value: f32) -> ExprId {
        self.push(Expr::Float(value.to_bits()), Scalar::F32, None)
    }

    /// An `I32` constant.
    pub fn int(&mut self, value: i64) -> ExprId {
        self.constant(Scalar::I32, value)
    }

    /// An integer or boolean constant of the given type.
    pub fn constant(&mut self, scalar: Scalar, value: i64) -> ExprId {
        match scalar {
            Scalar::Bool => self.push(Expr::Bool(value != 0), Scalar::Bool, None),
            Scalar::F32 => self.float(value as f32),
            _ => {
                let value = scalar.wrap(value);
                self.push(Expr::Int(scalar, value), scalar, Some((value, value)))
            }
        }
    }

    /// A coordinate; `extent` is its exclusive bound, if constant.
    ///
    /// A coordinate that counts axes of different extents is a different expression for each.
    pub fn coord(&mut self, axis: u8, extent: Option<usize>) -> ExprId {
        let most = extent.and_then(|extent| i32::try_from(extent).ok()).map_or(i32::MAX, |extent| extent - 1);
        let range = Some((0, i64::from(most)));
        let known = self.ids().find(|&id| *self.expr(id) == Expr::Coord(axis) && self.range(id) == range);
        known.unwrap_or_else(|| self.append(Expr::Coord(axis), Scalar::I32, range))
    }

    /// An entry of the body's sizes.
    pub fn size(&mut self, position: u16) -> ExprId {
        self.push(Expr::Size(position), Scalar::I32, Some((0, i64::from(i32::MAX))))
    }

    /// The value of an extent: a constant, or an entry of the body's `sizes`, which is added if missing.
    pub fn extent(&mut self, sizes: &mut Vec<Dim>, dim: &Dim) -> ExprId {
        if let Some(value) = dim.as_const() {
            return self.int(value as i64);
        }
        let position = sizes.iter().position(|known| known == dim).unwrap_or_else(|| {
            sizes.push(dim.clone());
            sizes.len() - 1
        });
        self.size(position as u16)
    }

    /// The value of an accumulation.
    pub fn value(&mut self, position: u8, scalar: Scalar) -> ExprId {
        self.push(Expr::Value(position), scalar, None)
    }

    /// An element of operand `operand`, stored as `dtype`.
    pub fn load(&mut self, operand: u16, dtype: DType, index: Vec<ExprId>) -> ExprId {
        self.push(Expr::Load { operand, index }, dtype.scalar(), None)
    }

    /// The sample of `row`.
    pub fn sample(&mut self, offsets: u16, row: ExprId) -> ExprId {
        self.push(Expr::Sample { offsets, row }, Scalar::I32, Some((0, i64::from(i32::MAX))))
    }

    /// A uniform random float; see [`Expr::Uniform`].
    pub fn uniform(&mut self, seed: ExprId, index: ExprId) -> ExprId {
        self.push(Expr::Uniform { seed, index }, Scalar::F32, None)
    }

    /// A user-defined function of floats.
    pub fn call(&mut self, function: &Arc<Function>, arguments: Vec<ExprId>) -> ExprId {
        self.push(Expr::Call { function: Arc::clone(function), arguments }, Scalar::F32, None)
    }

    /// A function of one scalar.
    pub fn unary(&mut self, op: UnaryOp, a: ExprId) -> ExprId {
        match *self.expr(a) {
            Expr::Bool(value) => return self.constant(Scalar::Bool, op.evaluate_int(Scalar::Bool, value.into())),
            Expr::Int(scalar, value) => return self.constant(scalar, op.evaluate_int(scalar, value)),
            _ => {}
        }
        if op == UnaryOp::Neg && self.scalar(a) == Scalar::I32 {
            let zero = self.int(0);
            return self.binary(BinaryOp::Sub, zero, a);
        }
        let scalar = self.scalar(a);
        self.push(Expr::Unary(op, a), scalar, None)
    }

    /// A function of two scalars of one type.
    pub fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        let scalar = self.scalar(a);
        if let (&Expr::Int(kind, x), &Expr::Int(_, y)) = (self.expr(a), self.expr(b)) {
            return self.constant(op.result(kind), op.evaluate_int(kind, x, y));
        }
        let simpler = match scalar {
            Scalar::I32 => self.simplify_int(op, a, b),
            Scalar::Bool => self.simplify_bool(op, a, b),
            _ => None,
        };
        simpler.unwrap_or_else(|| {
            let (a, b) = if op.is_commutative() && b < a { (b, a) } else { (a, b) };
            let range = if scalar == Scalar::I32 { self.binary_range(op, a, b) } else { None };
            self.push(Expr::Binary(op, a, b), op.result(scalar), range)
        })
    }

    /// `condition ? a : b`.
    pub fn select(&mut self, condition: ExprId, a: ExprId, b: ExprId) -> ExprId {
        match self.expr(condition) {
            Expr::Bool(true) => return a,
            Expr::Bool(false) => return b,
            _ if a == b => return a,
            _ => {}
        }
        let (scalar, range) = (self.scalar(a), self.joined_range(a, b));
        self.push(Expr::Select(condition, a, b), scalar, range)
    }

    /// Conversion to another type.
    pub fn cast(&mut self, scalar: Scalar, a: ExprId) -> ExprId {
        match *self.expr(a) {
            _ if self.scalar(a) == scalar => a,
            Expr::Bool(value) => self.constant(scalar, value.into()),
            Expr::Int(_, value) if scalar != Scalar::F32 => self.constant(scalar, scalar.wrap(value)),
            _ => {
                let range = self.cast_range(scalar, a);
                self.push(Expr::Cast(scalar, a), scalar, range)
            }
        }
    }

    /// Restores the CPU forms of functions from a registry.
    ///
    /// # Errors
    /// [`RegistryError`] names the first function that is missing.
    pub fn bind(&mut self, registry: &Registry) -> Result<(), RegistryError> {
        for node in &mut self.nodes {
            if let Expr::Call { function, .. } = &mut node.expr
                && function.definition().is_none()
            {
                *function = registry.function(function)?;
            }
        }
        Ok(())
    }

    /// Swaps the last two indices of all loads from operands whose last two dimensions are swapped in memory.
    pub fn transpose(&mut self, is_transposed: impl Fn(u16) -> bool) {
        for node in &mut self.nodes {
            if let Expr::Load { operand, index } = &mut node.expr
                && let [.., row, column] = index.as_mut_slice()
                && is_transposed(*operand)
            {
                std::mem::swap(row, column);
            }
        }
        self.known.clear();
    }

    /// Copies `roots` of `source` into this DAG. `replace` is passed this DAG, an expression and its copied operands,
    /// and may return a replacement; if it returns `None`, the expression is copied.
    pub fn graft(
        &mut self,
        source: &Dag,
        roots: &[ExprId],
        mut replace: impl FnMut(&mut Self, &Expr, &[ExprId]) -> Option<ExprId>,
    ) -> Vec<ExprId> {
        let mut copies: HashMap<ExprId, ExprId> = HashMap::new();
        for id in source.reachable(roots) {
            let expr = source.expr(id);
            let operands: Vec<ExprId> = expr.operands().iter().map(|o| copies[o]).collect();
            let copy = replace(self, expr, &operands).unwrap_or_else(|| self.rebuild(source, id, &operands));
            copies.insert(id, copy);
        }
        roots.iter().map(|root| copies[root]).collect()
    }

    fn rebuild(&mut self, source: &Dag, id: ExprId, operands: &[ExprId]) -> ExprId {
        let node = source.node(id);
        match (&node.expr, operands) {
            (&Expr::Unary(op, _), &[a]) => self.unary(op, a),
            (&Expr::Binary(op, ..), &[a, b]) => self.binary(op, a, b),
            (Expr::Select(..), &[c, a, b]) => self.select(c, a, b),
            (&Expr::Cast(scalar, _), &[a]) => self.cast(scalar, a),
            (&Expr::Load { operand, .. }, index) => {
                self.push(Expr::Load { operand, index: index.to_vec() }, node.scalar, node.range)
            }
            (&Expr::Sample { offsets, .. }, &[row]) => self.sample(offsets, row),
            (Expr::Uniform { .. }, &[seed, index]) => self.uniform(seed, index),
            (Expr::Call { function, .. }, arguments) => self.call(function, arguments.to_vec()),
            (&Expr::Coord(axis), _) => {
                let extent = node.range.map(|(_, high)| high).filter(|&high| high < i64::from(i32::MAX));
                self.coord(axis, extent.and_then(|high| usize::try_from(high + 1).ok()))
            }
            (other, _) => self.push(other.clone(), node.scalar, node.range),
        }
    }

    fn node(&self, id: ExprId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(super) fn push(&mut self, expr: Expr, scalar: Scalar, range: Option<(i64, i64)>) -> ExprId {
        if self.known.is_empty() {
            self.known = self.hashed().map(|id| (self.expr(id).clone(), id)).collect();
        }
        if let Some(&id) = self.known.get(&expr) {
            return id;
        }
        let id = self.append(expr.clone(), scalar, range);
        self.known.insert(expr, id);
        id
    }

    /// The id of an expression other than a coordinate, if it exists.
    pub(super) fn find(&self, expr: &Expr) -> Option<ExprId> {
        if self.known.is_empty() {
            self.hashed().find(|&id| self.expr(id) == expr)
        } else {
            self.known.get(expr).copied()
        }
    }

    /// Expressions that are hash-consed: all but coordinates, which also differ by their bounds.
    fn hashed(&self) -> impl Iterator<Item = ExprId> {
        self.ids().filter(|&id| !matches!(self.expr(id), Expr::Coord(_)))
    }

    pub(super) fn append(&mut self, expr: Expr, scalar: Scalar, range: Option<(i64, i64)>) -> ExprId {
        let (mut coords, mut values) = match expr {
            Expr::Coord(axis) => (1 << axis, 0),
            Expr::Value(position) => (0, 1 << position),
            _ => (0, 0),
        };
        for operand in expr.operands() {
            coords |= self.coords(operand);
            values |= self.values(operand);
        }
        let id = ExprId(self.nodes.len() as u32);
        self.nodes.push(Node { expr, scalar, range, coords, values });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_and_joining_an_axis_cancels() {
        let mut dag = Dag::new();
        let column = dag.coord(1, Some(100));
        let width = dag.int(25);
        let (head, within) = (dag.binary(BinaryOp::Div, column, width), dag.binary(BinaryOp::Mod, column, width));
        let _ = (head, within);
        let (h, d) = (dag.coord(2, Some(4)), dag.coord(3, Some(25)));
        let scaled = dag.binary(BinaryOp::Mul, h, width);
        let flat = dag.binary(BinaryOp::Add, scaled, d);
        assert_eq!(dag.binary(BinaryOp::Div, flat, width), h);
        assert_eq!(dag.binary(BinaryOp::Mod, flat, width), d);
    }

    #[test]
    fn a_quotient_and_its_rest_join() {
        let mut dag = Dag::new();
        let n = dag.coord(0, Some(300));
        let (start, width) = (dag.int(50), dag.int(25));
        let shifted = dag.binary(BinaryOp::Sub, n, start);
        let (h, d) = (dag.binary(BinaryOp::Div, shifted, width), dag.binary(BinaryOp::Mod, shifted, width));
        let scaled = dag.binary(BinaryOp::Mul, h, width);
        assert_eq!(dag.binary(BinaryOp::Add, scaled, d), shifted);
    }

    #[test]
    fn offsets_cancel_and_comparisons_fold() {
        let mut dag = Dag::new();
        let n = dag.coord(0, Some(64));
        let start = dag.int(32);
        let shifted = dag.binary(BinaryOp::Sub, n, start);
        assert_eq!(dag.binary(BinaryOp::Add, shifted, start), n);
        let bound = dag.int(64);
        let inside = dag.binary(BinaryOp::Lt, n, bound);
        assert_eq!(dag.expr(inside), &Expr::Bool(true));
    }
}
