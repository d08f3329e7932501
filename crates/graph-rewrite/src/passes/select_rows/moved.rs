use super::Selection;
use rewire_graph::op::{
    Broadcast, JaggedBroadcast, JaggedMatMul, MatMul, Op, Reshape, RowIndex, RowIndexKind, ScoreBroadcast, ScoreGather,
    ScoreIndex, ScoreKind, ScoreSoftmax, Scores, WeightedSum,
};
use rewire_graph::{Dim, Graph, Layout, NodeId, Type, Value};
use std::sync::Arc;

/// An operator that computes some rows of another one's result.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    pub op: Arc<dyn Op>,
    pub operands: Vec<Operand>,
    pub remedy: Option<Remedy>,
}

/// A correction of an operator that depends on the position of rows.
#[derive(Clone, Debug)]
pub(super) enum Remedy {
    /// The first selected row is added to a position among them.
    First(ScoreBroadcast),
    /// The original indices of the selected rows become an additional operand.
    Rows(RowIndex),
}

/// The part of a value that an operator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// The rows of the selection.
    Rows(Value),
    /// All of it.
    Whole(Value),
}

/// The operator that computes the selected rows of a node's result; `None` if a row may depend on other rows of the
/// operands.
pub(super) fn moved(graph: &Graph, id: NodeId, selection: &Selection) -> Option<Moved> {
    let node = graph.node(id)?;
    let [ty] = node.types.as_slice() else { return None };
    let at = At { graph, selection, ty, operands: graph.inputs(id), op: node.op.clone() };
    match ty.layout {
        Layout::Scores => at.pairs(),
        Layout::Device => at.rows(),
        Layout::Host => None,
    }
}

struct At<'a> {
    graph: &'a Graph,
    selection: &'a Selection,
    ty: &'a Type,
    operands: Vec<Value>,
    op: Arc<dyn Op>,
}

impl At<'_> {
    fn is<T: Op>(&self) -> Option<&T> {
        self.op.downcast_ref()
    }

    fn operand(&self, n: usize) -> Option<Value> {
        self.operands.get(n).copied()
    }

    /// The same operator, or another one, on these operands.
    fn reads(&self, op: Option<Arc<dyn Op>>, operands: Vec<Operand>) -> Option<Moved> {
        Some(Moved { op: op.unwrap_or_else(|| self.op.clone()), operands, remedy: None })
    }

    /// An operator on a tensor with rows.
    fn rows(&self) -> Option<Moved> {
        let rows = self.ty.shape.first()?;
        let kept = &self.selection.op.rows;
        let by_row = || self.operands.iter().map(|&x| self.by_row(x)).collect::<Option<Vec<Operand>>>();
        if rows.as_const().is_some() {
            return None;
        }
        if self.op.is_positional() && self.operands.len() == 2 {
            let remedy = Remedy::Rows(RowIndex { kind: RowIndexKind::Row, rows: rows.clone() });
            return Some(Moved { remedy: Some(remedy), ..self.reads(None, by_row()?)? });
        }
        if self.op.keeps_axis(0) || self.is::<MatMul>().is_some_and(|_| self.ty.rank() > 2) {
            return self.reads(None, by_row()?);
        }
        if self.is::<MatMul>().is_some() {
            return self.reads(None, vec![self.by_row(self.operand(0)?)?, Operand::Whole(self.operand(1)?)]);
        }
        let shape = |shape: &[Dim]| std::iter::once(kept.clone()).chain(shape.iter().skip(1).cloned()).collect();
        if let Some(op) = self.is::<Reshape>() {
            let x = self.graph.ty(self.operand(0)?)?;
            let keeps = x.shape.first() == Some(rows)
                && x.shape.iter().chain(&op.shape).filter(|dim| dim.as_const().is_none()).count() == 2;
            let op: Arc<dyn Op> = Arc::new(Reshape { shape: shape(&op.shape) });
            return if keeps { self.reads(Some(op), vec![Operand::Rows(self.operand(0)?)]) } else { None };
        }
        if let Some(op) = self.is::<Broadcast>() {
            let op: Arc<dyn Op> = Arc::new(Broadcast { shape: shape(&op.shape) });
            return self.reads(Some(op), by_row()?);
        }
        self.jagged()
    }

    /// An operator on rows that are divided among samples.
    fn jagged(&self) -> Option<Moved> {
        let kept = Operand::Whole(self.selection.kept);
        if self.is::<JaggedBroadcast>().is_some() && self.operand(1)? == self.selection.offsets {
            let op: Arc<dyn Op> = Arc::new(JaggedBroadcast { rows: self.selection.op.rows.clone() });
            return self.reads(Some(op), vec![Operand::Whole(self.operand(0)?), kept]);
        }
        if self.is::<JaggedMatMul>().is_some() && self.operand(2)? == self.selection.offsets {
            let operands = vec![Operand::Rows(self.operand(0)?), Operand::Whole(self.operand(1)?), kept];
            return self.reads(None, operands);
        }
        let by_row = self.is::<WeightedSum>().is_some_and(|op| op.kind == ScoreKind::Row);
        if by_row && self.operand(2)? == self.selection.offsets {
            let [scores, v, keys] = [0, 1, 3].map(|n| self.operand(n));
            return self.reads(None, vec![Operand::Rows(scores?), Operand::Whole(v?), kept, Operand::Whole(keys?)]);
        }
        None
    }

    /// An operator on pairs of queries and keys.
    fn pairs(&self) -> Option<Moved> {
        let kept = Operand::Whole(self.selection.kept);
        if self.op.is_pointwise() {
            let operand = |&x: &Value| match self.graph.ty(x)? {
                ty if ty.layout == Layout::Scores => Some(Operand::Rows(x)),
                ty if ty.rank() == 0 => Some(Operand::Whole(x)),
                _ => None,
            };
            return self.reads(None, self.operands.iter().map(operand).collect::<Option<_>>()?);
        }
        if self.is::<ScoreGather>().is_some() {
            return self.reads(None, vec![Operand::Whole(self.operand(0)?), Operand::Rows(self.operand(1)?)]);
        }
        let offsets = self.operands.len().checked_sub(2)?;
        if self.operand(offsets)? != self.selection.offsets {
            return None;
        }
        let keys = Operand::Whole(self.operand(offsets + 1)?);
        if let Some(op) = self.is::<ScoreIndex>() {
            let op = ScoreIndex { rows: self.selection.op.rows.clone(), ..op.clone() };
            let first = ScoreBroadcast {
                kind: ScoreKind::Sample,
                heads: op.heads,
                rows: op.rows.clone(),
                keys: op.keys.clone(),
            };
            let remedy = (op.kind == ScoreKind::Row).then_some(Remedy::First(first));
            return Some(Moved { op: Arc::new(op), operands: vec![kept, keys], remedy });
        }
        if let Some(op) = self.is::<ScoreBroadcast>() {
            let (values, kind) = (self.operand(0)?, op.kind);
            let op: Arc<dyn Op> = Arc::new(ScoreBroadcast { rows: self.selection.op.rows.clone(), ..op.clone() });
            let values = match (kind, self.graph.ty(values)?.rank()) {
                (ScoreKind::Row, 1) => Operand::Rows(values),
                (ScoreKind::Row, _) => return None,
                _ => Operand::Whole(values),
            };
            return self.reads(Some(op), vec![values, kept, keys]);
        }
        let other = self.operand(1)?;
        if self.is::<Scores>().is_some() {
            return self.reads(None, vec![Operand::Rows(self.operand(0)?), Operand::Whole(other), kept, keys]);
        }
        if self.is::<ScoreSoftmax>().is_some() {
            let keep = if self.graph.ty(other)?.rank() == 0 { Operand::Whole(other) } else { Operand::Rows(other) };
            return self.reads(None, vec![Operand::Rows(self.operand(0)?), keep, kept, keys]);
        }
        None
    }

    /// The operand for the selected rows, if `x` is broadcast to the result.
    fn by_row(&self, x: Value) -> Option<Operand> {
        let ty = self.graph.ty(x)?;
        match ty.shape.first() {
            Some(rows) if ty.rank() == self.ty.rank() && *rows != 1.into() => {
                let is_row = ty.layout == Layout::Device && Some(rows) == self.ty.shape.first();
                is_row.then_some(Operand::Rows(x))
            }
            _ => Some(Operand::Whole(x)),
        }
    }
}
