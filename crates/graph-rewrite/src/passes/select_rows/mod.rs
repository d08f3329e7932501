//! Rows that nobody reads are not computed.

mod columns;
mod moved;
mod read;

use super::{Context, Pass};
use crate::lower::RewriteError;
use moved::{Moved, Operand, Remedy};
use read::Read;
use rewire_graph::op::{JaggedSlice, Op};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Graph, GraphError, Layout, Node, NodeId, Ordered, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Moves selections of rows towards the inputs: where of a value nothing is read but some rows of every sample, these alone are
/// computed, and what they are computed from is treated alike, up to values that others read whole.
///
/// Selections pass what works row by row, products, norms and the queries of attention, whose keys and values stay whole. A product of which
/// some columns are read at all rows, and others at some, becomes two where that pays. Every element is computed as before, to the bit.
///
/// A selection is moved where an operator that sums is left with fewer rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelectRows;

/// Which rows of samples are read: the operands of a [`JaggedSlice`] besides the rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Selection {
    op: JaggedSlice,
    /// How all rows are divided among samples.
    offsets: Value,
    /// The first row of each sample that is read.
    starts: Value,
    /// How the rows that are read are divided among samples.
    kept: Value,
}

impl Selection {
    /// The rows that a node selects, and from what.
    fn of(graph: &Graph, id: NodeId) -> Option<(Value, Self)> {
        let op = graph.op::<JaggedSlice>(id)?.clone();
        let [x, offsets, starts, kept] = graph.inputs(id).try_into().ok()?;
        Some((x, Self { op, offsets, starts, kept }))
    }
}

impl SelectRows {
    /// The graph with all selections moved that pay, as before [`rewire_graph::differentiate`]: the gradient of rows that nobody reads is
    /// zero, and is not known to be. Products stay whole, so that the gradient of a weight is one product.
    ///
    /// # Errors
    /// [`GraphError`] if the graph is not well formed.
    pub fn select(&self, graph: &Graph) -> Result<Graph, GraphError> {
        let chosen = Read::of(graph, &selections(graph))?.paying(graph);
        rewritten(graph, &Read::of(graph, &chosen)?)
    }
}

impl Pass for SelectRows {
    fn name(&self) -> &str {
        "select_rows"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let all = selections(graph);
        if all.is_empty() {
            return Ok(graph.clone());
        }
        let split = columns::split(graph, &all, context.machine()).map_err(failed)?;
        let mut chosen = Read::of(&split, &all).map_err(failed)?.paying(&split);
        chosen.retain(|&id| context.permits(self.name(), graph, id));
        // Products are split for what is permitted alone.
        let split = columns::split(graph, &chosen, context.machine()).map_err(failed)?;
        let read = Read::of(&split, &chosen).map_err(failed)?;
        context.note(format!("{} operators compute fewer rows", read.moved.len()));
        rewritten(&split, &read).map_err(failed)
    }
}

/// All selections of rows.
fn selections(graph: &Graph) -> BTreeSet<NodeId> {
    graph.ids().filter(|id| Selection::of(graph, *id).is_some()).ordered_set()
}

/// The graph in which operators compute what is read.
fn rewritten(graph: &Graph, read: &Read) -> Result<Graph, GraphError> {
    let mut result = graph.clone();
    let mut selected: HashMap<(Value, &Selection), Value> = HashMap::new();
    let mut replaced: HashMap<Value, Value> = HashMap::new();
    for id in graph.order()? {
        let (value, Some(node)) = (Value { node: id, port: 0 }, graph.node(id)) else { continue };
        let current = |value: &Value| replaced.get(value).copied().unwrap_or(*value);
        for selection in read.rows.get(&value).into_iter().flatten() {
            let rows = match read.moved.get(&(id, selection.clone())) {
                Some(moved) => {
                    let operand = |operand: &Operand| match operand {
                        Operand::Rows(x) => selected.get(&(*x, selection)).copied().unwrap_or(*x),
                        Operand::Whole(x) => current(x),
                    };
                    let operands: Vec<Value> = moved.operands.iter().map(operand).collect();
                    add(&mut result, node, moved, &operands, selection)?
                }
                None => slice(&mut result, node, current(&value), selection)?,
            };
            selected.insert((value, selection), rows);
        }
        if let Some((x, selection)) = read.selections.get(&id)
            && let Some(&rows) = selected.get(&(*x, selection))
        {
            result.replace_except(value, rows, &[]);
            replaced.insert(value, rows);
        }
    }
    remove_unread(graph, &mut result)?;
    Ok(result)
}

/// Removes what computes rows that nobody reads any more.
fn remove_unread(before: &Graph, graph: &mut Graph) -> Result<(), GraphError> {
    let (read, live) = (before.live(), graph.live());
    let on_device =
        |id: &NodeId| before.node(*id).is_some_and(|node| node.types.iter().all(|ty| ty.layout != Layout::Host));
    for id in before.order()?.into_iter().rev() {
        // What nobody read before may still read it.
        if read.contains(&id) && !live.contains(&id) && on_device(&id) && graph.users(id).is_empty() {
            graph.remove(id);
        }
    }
    Ok(())
}

/// The rows of a value that is computed whole.
fn slice(graph: &mut Graph, from: &Node, value: Value, selection: &Selection) -> Result<Value, GraphError> {
    let operands = [value, selection.offsets, selection.starts, selection.kept];
    Ok(Value { node: graph.add(Arc::new(selection.op.clone()), &operands, &from.path)?, port: 0 })
}

/// An operator in place of one that computes more rows.
fn add(
    graph: &mut Graph,
    from: &Node,
    moved: &Moved,
    operands: &[Value],
    selection: &Selection,
) -> Result<Value, GraphError> {
    let mut add = |op: Arc<dyn Op>, operands: &[Value]| -> Result<Value, GraphError> {
        Ok(Value { node: graph.add_instead(from, op, operands)?, port: 0 })
    };
    match &moved.remedy {
        None => add(moved.op.clone(), operands),
        Some(Remedy::First(first)) => {
            let position = add(moved.op.clone(), operands)?;
            let first = add(Arc::new(first.clone()), &[&[selection.starts], operands].concat())?;
            add(Arc::new(BinaryOp::Add), &[position, first])
        }
        Some(Remedy::Rows(all)) => {
            let all = add(Arc::new(all.clone()), &[selection.offsets])?;
            let read = [all, selection.offsets, selection.starts, selection.kept];
            let rows = add(Arc::new(selection.op.clone()), &read)?;
            add(moved.op.clone(), &[operands, &[rows]].concat())
        }
    }
}
