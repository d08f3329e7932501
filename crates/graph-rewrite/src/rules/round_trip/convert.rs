use super::axes::{Axes, AxisId, View, is_one};
use crate::rules::Replacement;
use rewire_graph::op::{
    Broadcast, Cast, JaggedToPadded, MatMul, Op, PaddedToJagged, Permute, Reduce, Reshape, RowIndex, RowIndexKind,
    Where,
};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, Dim, Graph, NodeId, Tensor, Type, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Why a value cannot be computed without padding; `None` if there is nothing to gain.
pub(super) type Failure = Option<String>;

pub(super) type Converted<T = Tensor> = Result<T, Failure>;

pub(super) fn failed<T>(reason: impl Into<String>) -> Converted<T> {
    Err(Some(reason.into()))
}

/// The name of the capture of a value.
pub(super) fn name(value: Value) -> String {
    format!("%{}.{}", value.node.number(), value.port)
}

/// A removal of padding (padded to jagged) and the padded tensor.
#[derive(Clone, Debug)]
pub(super) struct Trip {
    /// The padded tensor.
    pub(super) padded: Value,
    /// Offsets of the kept rows.
    pub(super) offsets: Value,
    /// The number of kept rows.
    pub(super) total: Dim,
    /// Samples and rows of the padded tensor.
    pub(super) extents: [Dim; 2],
    result: Type,
}

impl Trip {
    pub(super) fn of(graph: &Graph, root: NodeId) -> Option<Self> {
        let total = graph.op::<PaddedToJagged>(root)?.rows.clone();
        let [padded, offsets] = graph.inputs(root).try_into().ok()?;
        let shape = &graph.ty(padded)?.shape;
        let extents = [shape.first()?.clone(), shape.get(1)?.clone()];
        let result = graph.ty(Value { node: root, port: 0 })?.clone();
        // Extents of 1 have no axis to follow.
        (!extents.iter().any(is_one)).then_some(Self { padded, offsets, total, extents, result })
    }
}

/// The rows of a padded tensor: the axes of samples and rows, and the offsets that divide the unpadded rows into
/// samples.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) sample: AxisId,
    pub(super) row: AxisId,
    pub(super) offsets: Value,
    pub(super) total: Dim,
    /// The other axes, in order. A converted value has the shape `[total, ..]` with these extents, each full or 1.
    pub(super) columns: Vec<AxisId>,
}

impl Rows {
    pub(super) fn with(&self, columns: Vec<AxisId>) -> Self {
        Self { columns, ..self.clone() }
    }
}

/// Converts the values that a removal of padding depends on.
pub(super) struct Conversion<'a, 'r, 'g> {
    pub(super) r: &'a Replacement<'r, 'g>,
    pub(super) graph: &'g Graph,
    pub(super) axes: RefCell<Axes>,
    trip: &'a Trip,
    /// True once padding was avoided.
    pub(super) is_trip: Cell<bool>,
    /// All converted operators.
    visited: RefCell<BTreeSet<NodeId>>,
}

/// An elementwise operator.
pub(super) enum Pointwise {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Where,
    Cast(DType),
}

impl<'a, 'r, 'g> Conversion<'a, 'r, 'g> {
    pub(super) fn new(r: &'a Replacement<'r, 'g>, trip: &'a Trip) -> Self {
        let graph = r.matched().graph();
        let visited = RefCell::new(r.matched().results().iter().map(|value| value.node).collect());
        Self { r, graph, axes: RefCell::default(), trip, is_trip: Cell::new(false), visited }
    }

    /// The kept rows, computed without padding.
    pub(super) fn result(&self) -> Converted {
        let Trip { padded, offsets, total, extents: [samples, longest], result } = self.trip;
        let (rows, view) = {
            let mut axes = self.axes.borrow_mut();
            let [sample, row] = [samples, longest].map(|extent| axes.add(extent.clone()));
            let rest: View = self.ty(*padded)?.shape.iter().skip(2).map(|dim| axes.group(dim)).collect();
            let columns = rest.concat();
            let view = [vec![sample], vec![row]].into_iter().chain(rest).collect();
            (Rows { sample, row, offsets: *offsets, total: total.clone(), columns }, view)
        };
        let y = self.whole(&self.row(*padded, &view, &rows)?, &rows);
        self.require_unshared()?;
        if !self.is_trip.get() {
            return Err(None);
        }
        // Rows beyond the padded extent are 0.
        let position = self.position(&rows);
        let is_kept = position.lt(&self.r.scope().host_size(longest.clone()));
        let is_kept = is_kept.reshape(ones_after(total, rows.columns.len()));
        let zero = self.r.scope().scalar(y.dtype(), 0.0);
        let y = is_kept.select(&y, &zero).reshape(result.shape.clone());
        if y.ty() == result { Ok(y) } else { failed(format!("the rows are {}, not {result}", y.ty())) }
    }

    /// Fails if an operator that was not converted reads a converted matmul or reduction, which would then be computed
    /// twice.
    fn require_unshared(&self) -> Converted<()> {
        let visited = self.visited.borrow();
        for &id in visited.iter() {
            let is_costly = self.graph.op::<MatMul>(id).is_some() || self.graph.op::<Reduce>(id).is_some();
            let is_result = self.graph.outputs().iter().any(|(_, value)| value.node == id);
            if is_costly && (is_result || self.graph.users(id).iter().any(|user| !visited.contains(user))) {
                return failed("a padded result is read elsewhere");
            }
        }
        Ok(())
    }

    pub(super) fn ty(&self, value: Value) -> Converted<&'g Type> {
        self.graph.ty(value).ok_or_else(|| Some("a value has no type".to_owned()))
    }

    /// Notes that a value is converted, and returns its operands.
    pub(super) fn visit(&self, value: Value) -> Vec<Value> {
        self.visited.borrow_mut().insert(value.node);
        self.graph.inputs(value.node)
    }

    pub(super) fn capture(&self, value: Value) -> Tensor {
        self.r.tensor(&name(value))
    }

    pub(super) fn pointwise(&self, id: NodeId) -> Option<Pointwise> {
        let unary = self.graph.op::<UnaryOp>(id).map(|&op| Pointwise::Unary(op));
        let binary = || self.graph.op::<BinaryOp>(id).map(|&op| Pointwise::Binary(op));
        let choice = || self.graph.op::<Where>(id).map(|_| Pointwise::Where);
        unary.or_else(binary).or_else(choice).or_else(|| self.graph.op::<Cast>(id).map(|op| Pointwise::Cast(op.dtype)))
    }

    pub(super) fn apply(&self, op: &Pointwise, operands: &[Tensor]) -> Tensor {
        let operands: Vec<&Tensor> = operands.iter().collect();
        match *op {
            Pointwise::Unary(op) => self.r.scope().apply(op, &operands),
            Pointwise::Binary(op) => self.r.scope().apply(op, &operands),
            Pointwise::Where => self.r.scope().apply(Where, &operands),
            Pointwise::Cast(dtype) => self.r.scope().apply(Cast { dtype }, &operands),
        }
    }

    /// The view of an operand that is broadcast to a view.
    pub(super) fn broadcast(&self, operand: Value, view: &View) -> Converted<View> {
        let shape = &self.ty(operand)?.shape;
        let Some(skipped) = view.len().checked_sub(shape.len()) else {
            return failed("an operand has more axes than the result");
        };
        Ok(shape.iter().zip(&view[skipped..]).map(|(dim, of)| if is_one(dim) { vec![] } else { of.clone() }).collect())
    }

    /// The operand of a permutation or a broadcast, with its view.
    pub(super) fn moved(&self, value: Value, view: &View) -> Converted<Option<(Value, View)>> {
        let (node, operand) = (value.node, self.graph.inputs(value.node).first().copied());
        let Some(operand) = operand else { return Ok(None) };
        if let Some(permute) = self.graph.op::<Permute>(node) {
            let mut moved: View = vec![vec![]; view.len()];
            for (axis, of) in permute.axes.iter().zip(view) {
                if let Some(place) = moved.get_mut(*axis) {
                    place.clone_from(of);
                }
            }
            return Ok(Some((operand, moved)));
        }
        if self.graph.op::<Broadcast>(node).is_some() {
            return Ok(Some((operand, self.broadcast(operand, view)?)));
        }
        Ok(None)
    }

    /// The operand of a reshape, with its view and the axes that the view splits.
    pub(super) fn reshaped(
        &self,
        value: Value,
        view: &View,
    ) -> Converted<Option<(Value, View, Vec<super::axes::Divided>)>> {
        let inputs = self.graph.inputs(value.node);
        let Some(&operand) = self.graph.op::<Reshape>(value.node).and(inputs.first()) else { return Ok(None) };
        let shape = &self.ty(operand)?.shape;
        match self.axes.borrow_mut().regroup(&view.concat(), shape) {
            Some((view, divided)) => Ok(Some((operand, view, divided))),
            None => failed("a reshape merges samples and rows with other axes"),
        }
    }

    /// A value with one axis per entry of `order`: its extent, or 1 if the value does not depend on it.
    pub(super) fn arranged(&self, x: &Tensor, view: &View, order: &[AxisId]) -> Converted {
        let flat = view.concat();
        let mut kept = vec![];
        for axis in order {
            kept.extend(flat.iter().position(|of| of == axis));
        }
        if kept.len() != flat.len() {
            return failed("a value depends on other axes");
        }
        let axes = self.axes.borrow();
        let shape: Vec<Dim> =
            order.iter().map(|axis| if flat.contains(axis) { axes.extent(*axis) } else { 1.into() }).collect();
        let x = x.reshape(axes.shape(&flat));
        let x = if kept.is_sorted() { x } else { x.permute(&kept) };
        Ok(x.reshape(shape))
    }

    /// A converted value, broadcast to its full extents.
    pub(super) fn whole(&self, x: &Tensor, rows: &Rows) -> Tensor {
        let columns = self.axes.borrow().shape(&rows.columns);
        let shape: Vec<Dim> = std::iter::once(rows.total.clone()).chain(columns).collect();
        if x.shape() == shape { x.clone() } else { x.broadcast(shape) }
    }

    /// The position of every row in its sample.
    pub(super) fn position(&self, rows: &Rows) -> Tensor {
        let op = RowIndex { kind: RowIndexKind::Position, rows: rows.total.clone() };
        self.r.scope().apply(op, &[&self.capture(rows.offsets)])
    }

    pub(super) fn padding(&self, value: Value) -> Option<(Value, Value, Value)> {
        self.graph.op::<JaggedToPadded>(value.node)?;
        let [x, fill, offsets] = self.graph.inputs(value.node).try_into().ok()?;
        Some((x, fill, offsets))
    }

    /// Adds any operator.
    pub(super) fn op(&self, op: impl Op, operands: &[&Tensor]) -> Tensor {
        self.r.scope().apply(op, operands)
    }
}

/// The shape of one value per row, followed by `columns` more axes.
pub(super) fn ones_after(rows: &Dim, columns: usize) -> Vec<Dim> {
    std::iter::once(rows.clone()).chain(std::iter::repeat_n(1.into(), columns)).collect()
}
