use rewire_graph::op::{Concat, Identity, MatMul, Op, Permute, Reshape, Slice};
use rewire_graph::{DType, Dim, Graph, GraphError, NodeId, Value};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The layout of a group's members in the merged value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Members {
    /// Consecutive columns along the last axis.
    Columns,
    /// Entries of the first of three axes.
    Entries,
}

/// A formerly separate value that is now part of a merged one.
#[derive(Clone, Copy, Debug)]
struct Part {
    old: Value,
    /// Columns.
    width: usize,
}

/// Properties of the graph before merging.
pub(super) struct Known {
    /// Values that are the same in every run.
    pub fixed: HashSet<NodeId>,
    /// Nodes that no output needs.
    pub unread: HashSet<NodeId>,
}

impl Known {
    pub fn of(graph: &Graph) -> Result<Self, GraphError> {
        let live = graph.live();
        Ok(Self { fixed: graph.fixed()?, unread: graph.ids().filter(|id| !live.contains(id)).collect() })
    }
}

/// Values of equal operators that are computed together as one merged value.
pub(super) struct SiblingGroup {
    whole: Value,
    members: Members,
    parts: Vec<Part>,
}

/// The only reader of a part, with the properties that must be equal for merging.
#[derive(Debug, PartialEq)]
enum Reader {
    /// An elementwise operator with its operands besides the part.
    Elementwise { op: Identity, operands: Vec<Operand>, columns: bool },
    /// A matmul with a weight of `depth` rows.
    Product { depth: usize, width: usize, dtype: DType },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operand {
    Part,
    /// The same value for all members.
    Shared(Value),
    /// A fixed vector with one value per column.
    Column(DType),
}

impl SiblingGroup {
    /// `parts` are the old values with their widths, in order.
    pub fn new(whole: Value, members: Members, parts: Vec<(Value, usize)>) -> Self {
        Self { whole, members, parts: parts.into_iter().map(|(old, width)| Part { old, width }).collect() }
    }

    /// Merges equal readers of neighbouring parts; all other readers read slices of the whole. Returns the groups of
    /// the results.
    pub fn spread(self, graph: &mut Graph, known: &Known) -> Result<Vec<Self>, GraphError> {
        let readers: Vec<Option<(NodeId, Reader)>> =
            self.parts.iter().map(|part| self.reader(graph, known, part)).collect();
        let mut families = vec![];
        let mut start = 0;
        while start < self.parts.len() {
            let kind = |n: usize| readers.get(n).and_then(Option::as_ref).map(|(_, reader)| reader);
            let mut end = start + 1;
            while end < self.parts.len() && kind(start).is_some() && kind(start) == kind(end) {
                end += 1;
            }
            match kind(start) {
                Some(reader) if end - start > 1 => {
                    let nodes: Vec<NodeId> = readers[start..end].iter().flatten().map(|(id, _)| *id).collect();
                    families.push(self.merge(graph, start..end, &nodes, reader)?);
                }
                _ => {
                    let part = self.part(graph, start)?;
                    graph.replace_except(self.parts[start].old, part, &[]);
                }
            }
            start = end;
        }
        Ok(families)
    }

    fn reader(&self, graph: &Graph, known: &Known, part: &Part) -> Option<(NodeId, Reader)> {
        let mut users = graph.users(part.old.node);
        users.retain(|id| !known.unread.contains(id));
        let [user] = users[..] else { return None };
        if graph.outputs().iter().any(|(_, value)| *value == part.old) {
            return None;
        }
        let (node, inputs) = (graph.node(user)?, graph.inputs(user));
        let op = node.op.as_ref();
        let ty = graph.ty(part.old)?;
        if graph.op::<MatMul>(user).is_some() {
            let [left, right] = inputs[..] else { return None };
            let weight = graph.ty(right).filter(|ty| ty.rank() == 2 && known.fixed.contains(&right.node))?;
            let width = weight.width().filter(|_| left == part.old && ty.rank() == 2)?;
            return Some((user, Reader::Product { depth: part.width, width, dtype: weight.dtype }));
        }
        // A dropout mask depends on positions in the whole tensor, which merging changes.
        let movable = op.is_pointwise() && !op.is_positional();
        if !movable || node.types.first()?.shape != ty.shape {
            return None;
        }
        let operands = inputs
            .iter()
            .map(|&value| self.operand(graph, &known.fixed, part, value))
            .collect::<Option<Vec<Operand>>>()?;
        let columns = operands.iter().any(|operand| matches!(operand, Operand::Column(_)));
        let op = Identity(Arc::clone(&node.op));
        Some((user, Reader::Elementwise { op, operands, columns }))
    }

    fn operand(&self, graph: &Graph, fixed: &HashSet<NodeId>, part: &Part, value: Value) -> Option<Operand> {
        if value == part.old {
            return Some(Operand::Part);
        }
        let ty = graph.ty(value)?;
        let one: Dim = 1.into();
        let per_row = self.members == Members::Columns && ty.shape.last() == Some(&one) && part.width > 1;
        if ty.rank() == 0 || per_row {
            return Some(Operand::Shared(value));
        }
        let (last, outer) = ty.shape.split_last()?;
        let column = *last == part.width.into() && outer.iter().all(|dim| *dim == one);
        (column && fixed.contains(&value.node)).then_some(Operand::Column(ty.dtype))
    }

    /// One operator that replaces the readers `nodes` of the parts in `range`.
    fn merge(
        &self,
        graph: &mut Graph,
        range: Range<usize>,
        nodes: &[NodeId],
        reader: &Reader,
    ) -> Result<Self, GraphError> {
        let Some(first) = nodes.first().and_then(|&id| graph.node(id)).cloned() else {
            return Ok(Self { whole: self.whole, members: self.members, parts: vec![] });
        };
        let run = self.run(graph, range.clone())?;
        let inputs: Vec<Vec<Value>> = nodes.iter().map(|&id| graph.inputs(id)).collect();
        let column = |position: usize| -> Vec<Value> {
            inputs.iter().filter_map(|values| values.get(position).copied()).collect()
        };
        let mut building = Building { graph, path: first.path.clone() };
        let (whole, members, widths) = match reader {
            Reader::Product { depth, width, .. } => {
                let left = match self.members {
                    Members::Columns => building.entries(run, nodes.len(), *depth)?,
                    Members::Entries => run,
                };
                let right = building.stack(&column(1), &[1.into(), (*depth).into(), (*width).into()])?;
                (building.add(MatMul, &[left, right])?, Members::Entries, vec![*width; nodes.len()])
            }
            Reader::Elementwise { operands, .. } => {
                let mut values = vec![];
                for (position, operand) in operands.iter().enumerate() {
                    values.push(match operand {
                        Operand::Part => run,
                        Operand::Shared(value) => *value,
                        Operand::Column(_) => self.columns(&mut building, range.clone(), &column(position))?,
                    });
                }
                let node = building.graph.add(first.op, &values, &first.path)?;
                let widths = self.parts[range].iter().map(|part| part.width).collect();
                (Value { node, port: 0 }, self.members, widths)
            }
        };
        let parts = nodes.iter().zip(widths).map(|(&node, width)| (Value { node, port: 0 }, width)).collect();
        Ok(Self::new(whole, members, parts))
    }

    /// The columns or entries of the parts in `range`.
    fn run(&self, graph: &mut Graph, range: Range<usize>) -> Result<Value, GraphError> {
        if range == (0..self.parts.len()) {
            return Ok(self.whole);
        }
        let path = graph.node(self.whole.node).map_or_else(String::new, |node| node.path.clone());
        let slice = match self.members {
            Members::Entries => Slice { axis: 0, start: range.start, len: range.len() },
            Members::Columns => {
                let width = |parts: &[Part]| parts.iter().map(|part| part.width).sum();
                let axis = graph.ty(self.whole).map_or(0, |ty| ty.rank().saturating_sub(1));
                Slice { axis, start: width(&self.parts[..range.start]), len: width(&self.parts[range]) }
            }
        };
        Building { graph, path }.add(slice, &[self.whole])
    }

    /// Part `n` in its original shape.
    fn part(&self, graph: &mut Graph, n: usize) -> Result<Value, GraphError> {
        let run = self.run(graph, n..n + 1)?;
        if self.members == Members::Columns {
            return Ok(run);
        }
        let shape = graph.ty(run).map_or_else(Vec::new, |ty| ty.shape[1..].to_vec());
        let path = graph.node(self.whole.node).map_or_else(String::new, |node| node.path.clone());
        Building { graph, path }.add(Reshape { shape }, &[run])
    }

    /// Fixed per-column values of all parts in `range`.
    fn columns(&self, building: &mut Building<'_>, range: Range<usize>, values: &[Value]) -> Result<Value, GraphError> {
        let mut joined = vec![];
        for (part, &value) in self.parts[range].iter().zip(values) {
            let shape = match self.members {
                Members::Columns => vec![part.width.into()],
                Members::Entries => vec![1.into(), 1.into(), part.width.into()],
            };
            joined.push(building.reshape(value, shape)?);
        }
        building.add(Concat { axis: 0 }, &joined)
    }
}

struct Building<'a> {
    graph: &'a mut Graph,
    path: String,
}

impl Building<'_> {
    fn add(&mut self, op: impl Op, inputs: &[Value]) -> Result<Value, GraphError> {
        Ok(Value { node: self.graph.add(Arc::new(op), inputs, &self.path)?, port: 0 })
    }

    fn reshape(&mut self, value: Value, shape: Vec<Dim>) -> Result<Value, GraphError> {
        if self.graph.ty(value).is_some_and(|ty| ty.shape == shape) {
            return Ok(value);
        }
        self.add(Reshape { shape }, &[value])
    }

    /// `[R, count * width]` as `[count, R, width]`.
    fn entries(&mut self, x: Value, count: usize, width: usize) -> Result<Value, GraphError> {
        let rows = self.graph.ty(x).and_then(|ty| ty.shape.first().cloned()).unwrap_or_default();
        let split = self.add(Reshape { shape: vec![rows, count.into(), width.into()] }, &[x])?;
        self.add(Permute { axes: vec![1, 0, 2] }, &[split])
    }

    /// Reshaped values, concatenated.
    fn stack(&mut self, values: &[Value], shape: &[Dim]) -> Result<Value, GraphError> {
        let mut parts = vec![];
        for &value in values {
            parts.push(self.reshape(value, shape.to_vec())?);
        }
        self.add(Concat { axis: 0 }, &parts)
    }
}
