use super::builder::{Builder, Placed};
use super::custom::custom;
use super::narrow::widened;
use crate::error::NotLowerable;
use crate::plan::{Computation, Nest, Output};
use crate::schedule::{Bound, SegmentedReduce};
use rewire_graph::limits::{MAX_OPERANDS, check_count};
use rewire_graph::op::{Accumulated, Concat, Fused, SetRows};
use rewire_graph::pointwise::{BinaryOp, ExprId};
use rewire_graph::{Dim, Graph, NodeId, Type, Value, reached};
use std::collections::{HashMap, HashSet};

/// The kernel that computes the outputs of a fused operator's body. It stores output `n` to write `n`.
///
/// # Errors
/// [`NotLowerable`] if no schedule supports the body, or it exceeds a limit.
pub fn computation(body: &Graph) -> Result<Computation, NotLowerable> {
    let computation = formed(body)?;
    computation.check_limits()?;
    Ok(computation)
}

/// The kernel of a fused operator, from its stored nest or its body.
///
/// # Errors
/// As [`computation`].
pub fn of(fused: &Fused) -> Result<Computation, NotLowerable> {
    match &fused.nest {
        Some(nest) => Computation::of(Nest::clone(nest)),
        None => computation(&fused.body),
    }
}

fn formed(body: &Graph) -> Result<Computation, NotLowerable> {
    let order = body.order().map_err(|error| error.to_string())?;
    let is_operand = |id: &&NodeId| body.node(**id).is_some_and(|node| Fused::operand(node.op.as_ref()).is_some());
    check_count("operands", order.iter().filter(is_operand).count(), MAX_OPERANDS)?;
    let having = |test: fn(&dyn rewire_graph::op::Op) -> bool| -> Vec<NodeId> {
        order.iter().copied().filter(|&id| body.node(id).is_some_and(|node| test(node.op.as_ref()))).collect()
    };
    match having(|op| op.custom().is_some()).as_slice() {
        [] => {}
        &[node] => return custom(body, node),
        _ => return Err("it has more than one operator with a custom kernel".into()),
    }
    let sums = having(|op| op.accumulated().is_some());
    let nest = match sums.as_slice() {
        [] => map(body)?,
        sums if sums.iter().all(|&id| reduced(body, id).is_some()) => reduction(body, sums)?,
        sums => widened(products(body, &results(body, sums))?),
    };
    Computation::of(nest)
}

fn accumulated(body: &Graph, id: NodeId) -> Option<&dyn Accumulated> {
    body.node(id)?.op.accumulated()
}

/// The axis of a reduction.
fn reduced(body: &Graph, id: NodeId) -> Option<usize> {
    accumulated(body, id)?.reduced()
}

/// The matmuls and pair reductions among `sums` that no other one depends on, or that are outputs with one entry per
/// sample.
fn results(body: &Graph, sums: &[NodeId]) -> Vec<NodeId> {
    let products: Vec<NodeId> = sums.iter().copied().filter(|&id| reduced(body, id).is_none()).collect();
    let producers = |id| body.producers(id);
    let read: HashSet<NodeId> = reached(products.iter().copied().flat_map(producers), producers).into_iter().collect();
    let is_output = |id: NodeId| body.outputs().iter().any(|(_, value)| *value == result(id));
    let by_sample = |id: NodeId| accumulated(body, id).is_some_and(|sum| sum.samples().is_some());
    products.into_iter().filter(|&id| !read.contains(&id) || (is_output(id) && by_sample(id))).collect()
}

pub(super) fn ty(graph: &Graph, value: Value) -> Result<Type, NotLowerable> {
    graph.ty(value).cloned().ok_or_else(|| "a value of the body does not exist".into())
}

pub(super) fn result(node: NodeId) -> Value {
    Value { node, port: 0 }
}

pub(super) fn operands<const N: usize>(graph: &Graph, node: NodeId) -> Result<[Value; N], NotLowerable> {
    graph.inputs(node).try_into().map_err(|_| format!("an operator of the body does not have {N} operands").into())
}

fn map(body: &Graph) -> Result<Nest, NotLowerable> {
    let mut at = Builder::new(body);
    let (_, first) = body.outputs().first().ok_or("it has no outputs")?;
    let shape = ty(body, rows_set(body, *first).map_or(*first, |(_, [.., rows])| rows))?.shape;
    let coords = if shape.is_empty() { at.walk(&[1.into()]) } else { at.walk(&shape) };
    let coords = if shape.is_empty() { vec![] } else { coords };
    for (target, (_, value)) in body.outputs().iter().enumerate() {
        let own = ty(body, *value)?;
        let (element, index) = match rows_set(body, *value) {
            Some((set, inputs)) => (inputs[2], at.row_place(set, &inputs, &coords)?),
            None => (*value, coords.clone()),
        };
        if ty(body, element)?.shape != shape {
            return Err("its outputs differ in shape".into());
        }
        let value = at.element(element, &coords)?;
        at.nest.outputs.push(output(target, &own, Placed::all(index), value));
    }
    Ok(at.nest)
}

/// The operator that sets rows of a table, with its operands, if it computes `value`.
pub(super) fn rows_set(body: &Graph, value: Value) -> Option<(&SetRows, [Value; 3])> {
    Some((body.op(value.node)?, operands(body, value.node).ok()?))
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

/// An output of a loop. A concatenation, also with pointwise operators behind it, is one output per part.
fn followed(
    at: &mut Builder,
    bases: &HashMap<Value, Vec<ExprId>>,
    target: usize,
    value: Value,
) -> Result<Vec<Output>, NotLowerable> {
    let ty = ty(at.graph, value)?;
    if let Some(placed) = at.place(value, bases) {
        let element = at.placed(value, &placed)?;
        return Ok(vec![output(target, &ty, placed, element)]);
    }
    let placed = concatenations(at.graph, value).into_iter().find_map(|joined| {
        let parts = at.graph.inputs(joined.node);
        Some((joined, parts.into_iter().find_map(|part| at.place(part, bases))?))
    });
    let (joined, place) = placed.ok_or("an output does not follow the loop")?;
    concatenated(at, (joined, &place), target, value, &ty)
}

/// The concatenations of parts of one shape from which only pointwise operators lead to `value`.
fn concatenations(graph: &Graph, value: Value) -> Vec<Value> {
    let shape = |id: NodeId| graph.ty(result(id)).map(|ty| &ty.shape);
    let behind = |id: NodeId| {
        let is_pointwise = graph.node(id).is_some_and(|node| node.op.is_pointwise());
        graph.producers(id).filter(move |&producer| is_pointwise && shape(producer) == shape(value.node))
    };
    let mut all = reached([value.node], behind);
    all.retain(|&id| {
        let mut parts = graph.inputs(id).into_iter().map(|part| graph.ty(part).map(|ty| &ty.shape));
        let first = parts.next();
        graph.op::<Concat>(id).is_some() && parts.all(|part| Some(part) == first)
    });
    all.into_iter().map(result).collect()
}

/// The outputs of `value`, one per part of the concatenation `joined`. `place` is the place of a part.
fn concatenated(
    at: &mut Builder,
    (joined, place): (Value, &Placed),
    target: usize,
    value: Value,
    whole: &Type,
) -> Result<Vec<Output>, NotLowerable> {
    let graph = at.graph;
    let axis = graph.op::<Concat>(joined.node).map(|concat| concat.axis).ok_or("it is no concatenation")?;
    let mut start = at.nest.body.dag.int(0);
    let mut outputs = vec![];
    for part in graph.inputs(joined.node) {
        let element = at.placed(part, place)?;
        let mut placed = place.clone();
        placed.index[axis] = at.nest.body.dag.binary(BinaryOp::Add, placed.index[axis], start);
        let element = at.element_with(value, &placed.index, (joined, element))?;
        outputs.push(output(target, whole, placed, element));
        let extent = at.size(&ty(graph, part)?.shape[axis]);
        start = at.nest.body.dag.binary(BinaryOp::Add, start, extent);
    }
    Ok(outputs)
}

fn reduction(body: &Graph, nodes: &[NodeId]) -> Result<Nest, NotLowerable> {
    let nest = reduction_over(body, nodes, false)?;
    // A matrix is not read column by column: a reduction over columns loops over rows.
    let mut folded = nest.clone();
    folded.axes.iter_mut().next_back().into_iter().for_each(|axis| axis.summed = true);
    match SegmentedReduce::of(&folded).is_ok_and(|fold| Bound { nest: &folded, schedule: &fold }.goes_down_columns()) {
        true => reduction_over(body, nodes, true),
        false => Ok(nest),
    }
}

/// The reductions of a loop over their last axis, or over rows that are not an axis of it.
fn reduction_over(body: &Graph, nodes: &[NodeId], rows: bool) -> Result<Nest, NotLowerable> {
    let mut at = Builder::new(body);
    let mut form: Option<(Vec<Dim>, usize)> = None;
    for &id in nodes {
        let [x] = operands(body, id)?;
        let this = (ty(body, x)?.shape, reduced(body, id).ok_or("one of its operators reduces no axis")?);
        if *form.get_or_insert_with(|| this.clone()) != this {
            return Err("its reductions differ in shape or axis".into());
        }
    }
    let (shape, axis) = form.ok_or("it has no reductions")?;
    let mut extents = shape.clone();
    let extent = extents.remove(axis);
    if !rows {
        extents.push(extent.clone());
    }
    let mut coords = at.walk(&extents);
    if rows {
        coords.push(at.walk_rows(&extent));
    }
    at.combine_over(coords.len() - 1);
    let last = coords.pop().ok_or("it has no axis")?;
    coords.insert(axis, last);
    let mut row = coords.clone();
    row[axis] = at.nest.body.dag.int(0);
    let mut rows: HashMap<Value, Vec<ExprId>> = HashMap::new();
    for &id in nodes {
        at.base(result(id), &row)?;
        rows.insert(result(id), row.clone());
    }
    let full = body.ids().map(result).filter(|value| body.ty(*value).is_some_and(|ty| ty.shape == shape));
    let full: HashMap<Value, Vec<ExprId>> = full.map(|value| (value, coords.clone())).collect();
    for (target, (_, value)) in body.outputs().iter().enumerate() {
        let on_row = if extent == 1.into() { None } else { at.place(*value, &rows) };
        let bases = if on_row.is_some_and(|placed| placed.columns.is_none()) { &rows } else { &full };
        let outputs = followed(&mut at, bases, target, *value)?;
        at.nest.outputs.extend(outputs);
    }
    Ok(at.nest)
}

/// The loop over the results of matmuls, `sums`, which differ only in their last axis.
fn products(body: &Graph, sums: &[NodeId]) -> Result<Nest, NotLowerable> {
    let mut at = Builder::new(body);
    let mut bases: HashMap<Value, Vec<ExprId>> = HashMap::new();
    for &id in sums {
        let shape = ty(body, result(id))?.shape;
        let samples = accumulated(body, id).and_then(|sum| sum.samples());
        let samples = samples.and_then(|(axis, operand)| Some((axis, body.inputs(id).get(operand).copied()?)));
        bases.insert(result(id), at.walk_result(&shape, samples)?);
    }
    for id in sums {
        at.base(result(*id), &bases[&result(*id)])?;
    }
    for (target, (_, value)) in body.outputs().iter().enumerate() {
        let outputs = followed(&mut at, &bases, target, *value)?;
        at.nest.outputs.extend(outputs);
    }
    Ok(at.nest)
}
