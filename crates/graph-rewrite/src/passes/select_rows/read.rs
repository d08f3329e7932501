use super::Selection;
use super::moved::{Moved, Operand, moved};
use rewire_graph::op::MatMul;
use rewire_graph::{Graph, GraphError, Layout, NodeId, Ordered, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The parts of a graph's values that are read.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Selections by their nodes, with their sources.
    pub selections: HashMap<NodeId, (Value, Selection)>,
    /// By value, the selections through which its rows are read; missing if all rows are read.
    pub rows: HashMap<Value, Vec<Selection>>,
    /// Operators that compute only selected rows, by node and selection.
    pub moved: HashMap<(NodeId, Selection), Moved>,
    /// Values that are computed whole.
    pub whole: HashSet<Value>,
    /// Prologues of matmuls, which each matmul computes for its own rows.
    prologues: HashSet<(Value, Selection)>,
    /// Epilogues: functions of a matmul or weighted sum that its kernel computes too.
    epilogues: HashSet<NodeId>,
}

impl Read {
    /// The parts of a graph that are read if the selections in `chosen` are moved.
    pub fn of(graph: &Graph, chosen: &BTreeSet<NodeId>) -> Result<Self, GraphError> {
        let (live, order) = (graph.live(), graph.order()?);
        let mut read = Self::default();
        let selections = chosen.iter().filter(|id| live.contains(id));
        read.selections = selections.filter_map(|&id| Some((id, Selection::of(graph, id)?))).collect();
        read.whole.extend(graph.outputs().iter().map(|(_, value)| *value));
        let scores = read.scores(graph, &order);
        read.epilogues = epilogues(graph, &order, &live);
        for id in order.into_iter().rev().filter(|id| live.contains(id)) {
            read.visit(graph, id, &scores);
        }
        Ok(read)
    }

    /// The selections that reduce the number of rows of a reduction or matmul.
    pub fn paying(&self, graph: &Graph) -> BTreeSet<NodeId> {
        let sums = |id: NodeId| graph.node(id).is_some_and(|node| node.op.accumulated().is_some());
        let paying: HashSet<&Selection> =
            self.moved.keys().filter(|(id, _)| sums(*id)).map(|(_, selection)| selection).collect();
        let is_moved = |(x, selection): &(Value, Selection)| {
            paying.contains(selection) && self.moved.contains_key(&(x.node, selection.clone()))
        };
        self.selections.iter().filter(|(_, selection)| is_moved(selection)).map(|(id, _)| *id).ordered_set()
    }

    /// The rows of a value that are read, if not all are.
    pub fn some_rows(&self, value: Value) -> Option<&Selection> {
        match self.rows.get(&value).map(Vec::as_slice) {
            Some([selection]) if !self.whole.contains(&value) => Some(selection),
            _ => None,
        }
    }

    /// The operators on pairs that can be computed for the selected queries only.
    fn scores(&self, graph: &Graph, order: &[NodeId]) -> HashSet<(NodeId, Selection)> {
        let mut movable = HashSet::new();
        let selections: HashSet<&Selection> = self.selections.values().map(|(_, selection)| selection).collect();
        for selection in selections {
            for &id in order.iter().filter(|&&id| is_scores(graph, id)) {
                if moved(graph, id, selection).is_some_and(|moved| reads(graph, &moved, selection, &movable)) {
                    movable.insert((id, selection.clone()));
                }
            }
        }
        movable
    }

    /// Propagates the needed rows of a node to its operands.
    fn visit(&mut self, graph: &Graph, id: NodeId, scores: &HashSet<(NodeId, Selection)>) {
        let value = Value { node: id, port: 0 };
        for selection in self.rows.get(&value).cloned().unwrap_or_default() {
            let is_light = is_light(graph, id) && !self.epilogues.contains(&id);
            let is_prologue = is_light && self.prologues.contains(&(value, selection.clone()));
            // Pairs are recomputed by every reader.
            let is_free = is_scores(graph, id) || is_prologue || self.some_rows(value).is_some();
            let moved = moved(graph, id, &selection).filter(|moved| is_free && reads(graph, moved, &selection, scores));
            match moved {
                Some(moved) => {
                    for operand in &moved.operands {
                        self.need(operand, &selection);
                        if let (true, Operand::Rows(x)) = (is_prologue || graph.op::<MatMul>(id).is_some(), operand) {
                            self.prologues.insert((*x, selection.clone()));
                        }
                    }
                    self.moved.insert((id, selection), moved);
                }
                None => drop(self.whole.insert(value)),
            }
        }
        if let Some((x, selection)) = self.selections.get(&id).cloned() {
            self.need(&Operand::Rows(x), &selection);
            return;
        }
        let is_root = graph.users(id).is_empty() || graph.node(id).is_some_and(|node| node.is_root());
        let is_read = is_root || graph.node(id).is_none_or(|node| node.types.len() != 1) || self.whole.contains(&value);
        if is_read {
            self.whole.extend(graph.inputs(id));
        }
    }

    fn need(&mut self, operand: &Operand, selection: &Selection) {
        match operand {
            Operand::Whole(x) => drop(self.whole.insert(*x)),
            Operand::Rows(x) => {
                let rows = self.rows.entry(*x).or_default();
                if !rows.contains(selection) {
                    rows.push(selection.clone());
                }
            }
        }
    }
}

/// True if the pairs that an operator reads exist for the rows that it computes.
fn reads(graph: &Graph, moved: &Moved, selection: &Selection, scores: &HashSet<(NodeId, Selection)>) -> bool {
    moved.operands.iter().all(|operand| match operand {
        Operand::Rows(x) if is_scores(graph, x.node) => scores.contains(&(x.node, selection.clone())),
        _ => true,
    })
}

fn is_scores(graph: &Graph, id: NodeId) -> bool {
    graph.ty(Value { node: id, port: 0 }).is_some_and(|ty| ty.layout == Layout::Scores)
}

/// True for prologues of matmuls: functions of the elements of a row.
fn is_light(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).is_some_and(|node| node.op.is_pointwise() || node.op.reduced_axis().is_some())
}

fn epilogues(graph: &Graph, order: &[NodeId], live: &HashSet<NodeId>) -> HashSet<NodeId> {
    let mut epilogues = HashSet::new();
    for &id in order.iter().filter(|&&id| graph.node(id).is_some_and(|node| node.op.is_pointwise())) {
        let readers = |id: NodeId| graph.users(id).iter().filter(|user| live.contains(user)).count();
        let sums = |id: NodeId| {
            graph.node(id).is_some_and(|node| node.op.accumulated().is_some() && node.op.reduced_axis().is_none())
        };
        if graph
            .producers(id)
            .any(|producer| readers(producer) == 1 && (sums(producer) || epilogues.contains(&producer)))
        {
            epilogues.insert(id);
        }
    }
    epilogues
}
