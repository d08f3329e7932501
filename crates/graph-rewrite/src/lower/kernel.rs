use super::attention::{dense_attention, jagged_attention};
use super::custom::custom;
use super::error::Refusal;
use super::inline::{Inliner, Placed};
use crate::plan::{Kernel, Map, Matmul, Output, Reduce, Reduction, RowRange};
use rewire_graph::limits::{MAX_OPERANDS, MAX_STATISTICS, MAX_VALUES, check_count};
use rewire_graph::op::{Concat, Fused, JaggedMatMul, MatMul, Reduce as ReduceNode, ScoreKind, WeightedSum};
use rewire_graph::pointwise::{BinaryOp, ExprId};
use rewire_graph::{Dim, Graph, NodeId, Scalar, Type, Value};
use std::collections::HashMap;

/// The kernel that computes the outputs of a fused operator's body, output `n` into write `n`.
///
/// # Errors
/// Why the body has no form as a kernel, or is larger than one may be.
pub fn kernel(body: &Graph) -> Result<Kernel, Refusal> {
    let kernel = formed(body)?;
    kernel.check_limits()?;
    Ok(kernel)
}

fn formed(body: &Graph) -> Result<Kernel, Refusal> {
    let order = body.order().map_err(|error| error.to_string())?;
    let is_operand = |id: &&NodeId| body.node(**id).is_some_and(|node| Fused::operand(node.op.as_ref()).is_some());
    check_count("operands", order.iter().filter(is_operand).count(), MAX_OPERANDS)?;
    let having = |test: fn(&dyn rewire_graph::op::Op) -> bool| -> Vec<NodeId> {
        order.iter().copied().filter(|&id| body.node(id).is_some_and(|node| test(node.op.as_ref()))).collect()
    };
    match having(|op| op.custom().is_some()).as_slice() {
        [] => {}
        &[node] => return custom(body, node),
        _ => return Err("it has more than one operator with a kernel of its own".into()),
    }
    let sums = having(|op| op.downcast_ref() == Some(&WeightedSum { kind: ScoreKind::Row }));
    let products = having(|op| op.downcast_ref::<MatMul>().is_some());
    let jagged = having(|op| op.downcast_ref::<JaggedMatMul>().is_some());
    let reductions = having(|op| op.downcast_ref::<ReduceNode>().is_some());
    match (sums.as_slice(), products.as_slice(), jagged.as_slice(), reductions.as_slice()) {
        ([], [], [], []) => map(body),
        ([], [], [], reductions) => reduce(body, reductions),
        ([], [product], [], reductions) => matmul(body, *product, reductions),
        ([], [], [product], []) => jagged_matmul(body, *product),
        ([sum], [], [], []) => jagged_attention(body, *sum),
        ([], &[scores, sum], [], reductions) => dense_attention(body, scores, sum, reductions),
        _ => Err("it has more than one anchor".into()),
    }
}

pub(super) fn ty(graph: &Graph, value: Value) -> Result<Type, Refusal> {
    graph.ty(value).cloned().ok_or_else(|| "a value of the body does not exist".into())
}

pub(super) fn result(node: NodeId) -> Value {
    Value { node, port: 0 }
}

pub(super) fn operands<const N: usize>(graph: &Graph, node: NodeId) -> Result<[Value; N], Refusal> {
    graph.inputs(node).try_into().map_err(|_| format!("an operator of the body does not have {N} operands").into())
}

pub(super) fn host_operand(at: &Inliner, value: Value) -> Result<u16, Refusal> {
    at.operand(value.node).map(|position| position as u16).ok_or_else(|| "offsets must be an operand".into())
}

fn map(body: &Graph) -> Result<Kernel, Refusal> {
    let mut at = Inliner::new(body);
    let (_, first) = body.outputs().first().ok_or("it has no outputs")?;
    let shape = ty(body, *first)?.shape;
    let extents = if shape.is_empty() { vec![1.into()] } else { shape.clone() };
    let coords = at.coords(&extents);
    let index = if shape.is_empty() { vec![] } else { coords };
    let mut outputs = vec![];
    for (target, (_, value)) in body.outputs().iter().enumerate() {
        let ty = ty(body, *value)?;
        if ty.shape != shape {
            return Err("its outputs differ in shape".into());
        }
        let value = at.element(*value, &index)?;
        outputs.push(output(target, &ty, Placed::all(index.clone()), value));
    }
    Ok(Kernel::Map(Map { body: at.body, extents, outputs }))
}

fn output(target: usize, ty: &Type, placed: Placed, value: ExprId) -> Output {
    Output {
        target: target as u16,
        dtype: ty.dtype,
        shape: ty.shape.clone(),
        index: placed.index,
        value,
        columns: placed.columns,
    }
}

/// All outputs of an anchored loop.
pub(super) fn outputs(at: &mut Inliner, bases: &HashMap<Value, Vec<ExprId>>) -> Result<Vec<Output>, Refusal> {
    let mut outputs = vec![];
    for (target, (_, value)) in at.graph.outputs().iter().enumerate() {
        outputs.extend(followed(at, bases, target, *value)?);
    }
    Ok(outputs)
}

/// An output of an anchored loop; a concatenation is one a part.
fn followed(
    at: &mut Inliner,
    bases: &HashMap<Value, Vec<ExprId>>,
    target: usize,
    value: Value,
) -> Result<Vec<Output>, Refusal> {
    let ty = ty(at.graph, value)?;
    if let Some(placed) = at.place(value, bases) {
        let element = at.placed(value, &placed)?;
        return Ok(vec![output(target, &ty, placed, element)]);
    }
    let node = at.graph.node(value.node).ok_or("an output does not exist")?;
    let concat = node.op.downcast_ref::<Concat>().ok_or("an output does not follow the loop")?;
    concatenated(at, bases, concat, target, value, &ty)
}

fn concatenated(
    at: &mut Inliner,
    bases: &HashMap<Value, Vec<ExprId>>,
    concat: &Concat,
    target: usize,
    value: Value,
    ty: &Type,
) -> Result<Vec<Output>, Refusal> {
    let graph = at.graph;
    let parts = graph.inputs(value.node);
    let placed = parts
        .iter()
        .find_map(|&part| Some((part, at.place(part, bases)?)))
        .ok_or("no part of a concatenation follows the loop")?;
    let shape = graph.ty(placed.0).map(|ty| ty.shape.clone()).unwrap_or_default();
    let mut start = at.body.dag.int(0);
    let mut outputs = vec![];
    for part in parts {
        if graph.ty(part).is_none_or(|ty| ty.shape != shape) {
            return Err("the parts of a concatenation differ in shape".into());
        }
        let element = at.placed(part, &placed.1)?;
        let mut index = placed.1.index.clone();
        index[concat.axis] = at.body.dag.binary(BinaryOp::Add, index[concat.axis], start);
        outputs.push(output(target, ty, Placed { index, ..placed.1.clone() }, element));
        let extent = at.size(&shape[concat.axis]);
        start = at.body.dag.binary(BinaryOp::Add, start, extent);
    }
    Ok(outputs)
}

fn reduce(body: &Graph, nodes: &[NodeId]) -> Result<Kernel, Refusal> {
    let mut at = Inliner::new(body);
    let mut form: Option<(Vec<Dim>, usize)> = None;
    for &id in nodes {
        let (node, [x]) = (body.node(id).ok_or("a reduction does not exist")?, operands(body, id)?);
        let axis = node.op.downcast_ref::<ReduceNode>().map_or(0, |reduce| reduce.axis);
        let this = (ty(body, x)?.shape, axis);
        if *form.get_or_insert_with(|| this.clone()) != this {
            return Err("its reductions differ in shape or axis".into());
        }
    }
    let (shape, axis) = form.ok_or("it has no reductions")?;
    let mut extents = shape.clone();
    let extent = extents.remove(axis);
    extents.push(extent.clone());
    let mut coords = at.coords(&extents);
    let last = coords.pop().ok_or("it has no axis")?;
    coords.insert(axis, last);
    let mut row = coords.clone();
    row[axis] = at.body.dag.int(0);
    let mut reductions = vec![];
    let mut bases: HashMap<Value, Vec<ExprId>> = HashMap::new();
    let mut rows: HashMap<Value, Vec<ExprId>> = HashMap::new();
    for (position, &id) in nodes.iter().enumerate() {
        let [x] = operands(body, id)?;
        let value = at.element(x, &coords)?;
        let op = body.node(id).and_then(|node| node.op.downcast_ref::<ReduceNode>()).ok_or("no reduction")?.op;
        reductions.push(Reduction { op, extent: extent.clone(), value });
        let statistic = supplied(&mut at, position, MAX_VALUES)?;
        at.anchor(result(id), row.clone(), statistic);
        rows.insert(result(id), row.clone());
    }
    for id in body.ids() {
        if body.ty(result(id)).is_some_and(|ty| ty.shape == shape) {
            bases.insert(result(id), coords.clone());
        }
    }
    let (mut full, mut per_row) = (vec![], vec![]);
    for (target, (_, value)) in body.outputs().iter().enumerate() {
        let ty = ty(body, *value)?;
        let on_row = if extent == 1.into() { None } else { at.place(*value, &rows) };
        if let Some(placed) = on_row.filter(|placed| placed.columns.is_none()) {
            let element = at.element(*value, &placed.index)?;
            per_row.push(output(target, &ty, placed, element));
            continue;
        }
        full.extend(followed(&mut at, &bases, target, *value)?);
    }
    if full.iter().any(|output| output.columns.is_some()) {
        return Err("an output is a part of the reduced axis".into());
    }
    Ok(Kernel::Reduce(Reduce { body: at.body, extents, reductions, outputs: full, row_outputs: per_row }))
}

fn matmul(body: &Graph, node: NodeId, reductions: &[NodeId]) -> Result<Kernel, Refusal> {
    let mut at = Inliner::new(body);
    let [a, b] = operands(body, node)?;
    let shape = ty(body, result(node))?.shape;
    let (left, right) = (ty(body, a)?.shape, ty(body, b)?.shape);
    let k = left.last().cloned().unwrap_or_default();
    let (batch, tail) = shape.split_at(shape.len().saturating_sub(2));
    let [m, n] = tail else { return Err("a product has less than two axes".into()) };
    let (first, second) = (batch.len() as u8, batch.len() as u8 + 1);
    let mut entry = at.coords(&shape);
    let [row, column] = entry.split_off(batch.len())[..] else {
        return Err("a product has less than two axes".into());
    };
    let [a_inner, b_inner] = [second, first].map(|axis| at.body.dag.coord(axis, k.as_const()));
    let zero = at.body.dag.int(0);
    let stats = statistics(&mut at, reductions, &left, (&matrix(&entry, &left, [row, zero]), second))?;
    let a = at.element(a, &matrix(&entry, &left, [row, a_inner]))?;
    // Only the left operand is computed where the statistics of its row are known.
    at.release(reductions);
    let b = at.element(b, &matrix(&entry, &right, [b_inner, column]))?;
    let sum = at.body.dag.value(0, Scalar::F32);
    let point: Vec<ExprId> = entry.iter().copied().chain([row, column]).collect();
    at.anchor(result(node), point.clone(), sum);
    let outputs = outputs(&mut at, &HashMap::from([(result(node), point)]))?;
    let (batch, m, n) = (batch.to_vec(), RowRange::Dense(m.clone()), n.clone());
    Ok(Kernel::Matmul(Matmul { body: at.body, batch, m, n, k, stats, a, b, outputs }))
}

/// The index of an element of a matrix in the batch entry of a product, to which its leading axes are broadcast.
pub(super) fn matrix(entry: &[ExprId], shape: &[Dim], element: [ExprId; 2]) -> Vec<ExprId> {
    let leading = shape.len().saturating_sub(2).min(entry.len());
    entry[entry.len() - leading..].iter().copied().chain(element).collect()
}

/// Reductions over the last axis of tensors with the rows of the left operand, each cut into groups or not; `row` is the
/// row's first element, `inner` the coordinate along the row.
fn statistics(
    at: &mut Inliner,
    nodes: &[NodeId],
    left: &[Dim],
    (row, inner): (&[ExprId], u8),
) -> Result<Vec<Reduction>, Refusal> {
    let graph = at.graph;
    let mut stats = vec![];
    let rows = left.len().saturating_sub(1);
    for &id in nodes {
        let [x] = operands(graph, id)?;
        let shape = ty(graph, x)?.shape;
        let reduce = graph.node(id).and_then(|node| node.op.downcast_ref::<ReduceNode>()).ok_or("no reduction")?;
        let groups = match shape.get(rows..) {
            Some([_]) => Some(None),
            Some([groups, _]) => groups.as_const().map(Some),
            _ => None,
        };
        let groups = groups.filter(|_| reduce.axis + 1 == shape.len() && shape[..rows] == left[..rows]);
        let groups = groups.ok_or("a reduction is not over the rows of the left operand")?;
        let extent = shape.last().cloned().unwrap_or_default();
        let column = at.body.dag.coord(inner, extent.as_const());
        let zero = at.body.dag.int(0);
        let mut results = vec![];
        for group in 0..groups.unwrap_or(1) {
            let group = groups.map(|_| at.body.dag.int(group as i64));
            let point: Vec<ExprId> = row[..rows].iter().copied().chain(group).chain([column]).collect();
            let value = at.element(x, &point)?;
            results.push(supplied(at, stats.len(), MAX_STATISTICS)?);
            stats.push(Reduction { op: reduce.op, extent: extent.clone(), value });
        }
        let first: Vec<ExprId> = row[..rows].iter().copied().chain(groups.map(|_| zero)).chain([zero]).collect();
        match (groups, results.as_slice()) {
            (None, &[statistic]) => at.anchor(result(id), first, statistic),
            _ => at.anchor_entries(result(id), first, rows, results),
        }
    }
    Ok(stats)
}

/// The result of a reduction by position.
fn supplied(at: &mut Inliner, position: usize, most: usize) -> Result<ExprId, Refusal> {
    check_count("results of reductions", position + 1, most)?;
    Ok(at.body.dag.value(position as u8, Scalar::F32))
}

/// A coordinate that stands for axes of different extents.
pub(super) fn unbounded(at: &mut Inliner, axis: usize) -> ExprId {
    at.body.dag.coord(axis as u8, None)
}

fn jagged_matmul(body: &Graph, node: NodeId) -> Result<Kernel, Refusal> {
    let mut at = Inliner::new(body);
    let [x, dense, offsets] = operands(body, node)?;
    let shape = ty(body, dense)?.shape;
    let [batch, k, n] = shape.as_slice() else { return Err("a jagged product needs [B, K, N]".into()) };
    let position = host_operand(&at, offsets)?;
    let (sample, row, column) = (unbounded(&mut at, 0), unbounded(&mut at, 1), at.body.dag.coord(2, n.as_const()));
    let [a_inner, b_inner] = [2, 1].map(|axis| at.body.dag.coord(axis, k.as_const()));
    let global = at.jagged_row(offsets, sample, row)?;
    let a = at.element(x, &[global, a_inner])?;
    let b = at.element(dense, &[sample, b_inner, column])?;
    let sum = at.body.dag.value(0, Scalar::F32);
    let point = vec![global, column];
    at.anchor(result(node), point.clone(), sum);
    let outputs = outputs(&mut at, &HashMap::from([(result(node), point)]))?;
    Ok(Kernel::Matmul(Matmul {
        body: at.body,
        batch: vec![batch.clone()],
        m: RowRange::Ragged { offsets: position },
        n: n.clone(),
        k: k.clone(),
        stats: vec![],
        a,
        b,
        outputs,
    }))
}
