//! Skips the computation of rows that are not read.

mod columns;
mod moved;
mod read;

use super::{Context, Pass};
use crate::error::RewriteError;
use moved::{Moved, Operand, Remedy};
use read::Read;
use rewire_graph::op::{JaggedSlice, Op};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Graph, GraphError, Layout, Node, NodeId, Ordered, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Moves selections of rows towards the inputs. If only some rows of every sample of a value are read, only these rows
/// of the value and of its operands are computed, up to values that are also read as a whole.
///
/// Selections move past row-wise operators, matmuls, norms and the queries of attention; keys and values stay whole. A
/// matmul with some columns read at all rows, and others at some rows, is split in two if that is faster. Results are
/// identical to the bit.
///
/// A selection is moved only if a reduction or matmul then has fewer rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelectRows;

/// The rows of samples that are read: the operands of a [`JaggedSlice`] besides the rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Selection {
    op: JaggedSlice,
    /// Offsets of the samples in all rows.
    offsets: Value,
    /// The first selected row of each sample.
    starts: Value,
    /// Offsets of the samples in the selected rows.
    kept: Value,
}

impl Selection {
    /// The rows that a node selects, and their source.
    fn of(graph: &Graph, id: NodeId) -> Option<(Value, Self)> {
        let op = graph.op::<JaggedSlice>(id)?.clone();
        let [x, offsets, starts, kept] = graph.inputs(id).try_into().ok()?;
        Some((x, Self { op, offsets, starts, kept }))
    }
}

impl SelectRows {
    /// Moves all selections that save work, for use before [`rewire_graph::differentiate`]: the gradient of unread rows
    /// is zero, but differentiation does not detect that. Matmuls are not split, so that the gradient of a weight is
    /// one matmul.
    ///
    /// # Errors
    /// [`GraphError`] if the graph is invalid.
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
        // Matmuls are split only for permitted selections.
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

/// A graph whose operators compute only the rows that are read.
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

/// Removes nodes that compute rows which are no longer read.
fn remove_unread(before: &Graph, graph: &mut Graph) -> Result<(), GraphError> {
    let (read, live) = (before.live(), graph.live());
    let on_device =
        |id: &NodeId| before.node(*id).is_some_and(|node| node.types.iter().all(|ty| ty.layout != Layout::Host));
    for id in before.order()?.into_iter().rev() {
        // Nodes that were already unread may still read it.
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

/// An operator that replaces one that computes more rows.
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
