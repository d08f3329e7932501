use super::body::Body;
use super::pairs;
use super::partition::Partition;
use crate::error::RewriteError;
use crate::lower::LoweringResult;
use crate::passes::Context;
use rewire_graph::nest::Nest;
use rewire_graph::op::{Fused, ScoreKind};
use rewire_graph::{Copies, Graph, GraphError, Node, NodeId, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The graph with one fused operator for every group that `context` permits.
pub(super) fn outline(partition: &Partition, context: &mut Context) -> Result<Graph, RewriteError> {
    let failed = |source: GraphError| RewriteError::graph("fuse", source);
    let graph = partition.graph;
    let mut fused = Graph::of_model(graph);
    let mut copies = Copies::default();
    for &id in partition.order.iter().filter(|&&id| partition.is_leaf(id)) {
        copies.add(graph, id, &mut fused).map_err(failed)?;
    }
    let mut left = partition.groups.iter().filter(|nodes| !nodes.is_empty()).count();
    let mut kernels = Kernels::new(partition).map_err(failed)?;
    while let Some(Outline { nodes, body, kernel, operands, results }) = kernels.next() {
        left -= 1;
        let inputs = copies.find(&operands).map_err(failed)?;
        let Some(main_operator) = main_operator(graph, nodes) else { continue };
        let values: Vec<Value> = if context.permits("fuse", graph, main_operator) {
            let path = graph.node(main_operator).map_or("", |node| node.path.as_str());
            let ports = 0..results.len() as u32;
            let copy = fused
                .add(Arc::new(Fused { name: name(&body), nest: nest(&kernel), body }), &inputs, path)
                .map_err(failed)?;
            ports.map(|port| Value { node: copy, port }).collect()
        } else {
            inline(&mut fused, &body, &inputs).map_err(failed)?
        };
        for (&node, value) in results.iter().zip(values) {
            copies.insert(Value { node, port: 0 }, value);
        }
        kernels.done(&results);
    }
    if left > 0 {
        return Err(failed(GraphError::Cycle { node: "a fused operator".to_owned() }));
    }
    for (name, value) in graph.outputs() {
        for value in copies.find(&[*value]).map_err(failed)? {
            fused.add_output(name, value).map_err(failed)?;
        }
    }
    fused.rebind_sizes(|value| copies.get(value));
    Ok(fused)
}

/// A kernel to be created: its body, the values of its operands, and the nodes that are its results.
struct Outline<'a> {
    nodes: &'a BTreeSet<NodeId>,
    body: Graph,
    kernel: LoweringResult,
    operands: Vec<Value>,
    results: Vec<NodeId>,
}

/// Orders kernels so that each follows the producers of its operands.
struct Kernels<'a> {
    waiting: Vec<Option<Outline<'a>>>,
    /// The number of operands that are not computed yet, by kernel.
    missing: Vec<usize>,
    readers: HashMap<NodeId, Vec<usize>>,
    ready: BTreeSet<usize>,
}

impl<'a> Kernels<'a> {
    fn new(partition: &'a Partition) -> Result<Self, GraphError> {
        let mut kernels = Self { waiting: vec![], missing: vec![], readers: HashMap::new(), ready: BTreeSet::new() };
        for nodes in partition.groups.iter().filter(|nodes| !nodes.is_empty()) {
            let number = kernels.waiting.len();
            let results = partition.results(nodes);
            let body = Body::new(partition, nodes, &results, 0);
            let kernel = partition.kernel(&body);
            let (operands, body) = (body.operands(), body.graph(partition.graph)?);
            let awaited: BTreeSet<NodeId> =
                operands.iter().map(|value| value.node).filter(|&id| !partition.is_leaf(id)).collect();
            for &id in &awaited {
                kernels.readers.entry(id).or_default().push(number);
            }
            kernels.missing.push(awaited.len());
            if awaited.is_empty() {
                kernels.ready.insert(number);
            }
            kernels.waiting.push(Some(Outline { nodes, body, kernel, operands, results }));
        }
        Ok(kernels)
    }

    fn next(&mut self) -> Option<Outline<'a>> {
        let number = self.ready.pop_first()?;
        self.waiting.get_mut(number)?.take()
    }

    fn done(&mut self, results: &[NodeId]) {
        for number in results.iter().filter_map(|id| self.readers.remove(id)).flatten() {
            if let Some(missing) = self.missing.get_mut(number) {
                *missing -= 1;
                if *missing == 0 {
                    self.ready.insert(number);
                }
            }
        }
    }
}

/// The nest of a kernel that is not custom.
fn nest(kernel: &LoweringResult) -> Option<Arc<Nest>> {
    Some(Arc::new(kernel.as_ref().as_ref().ok()?.nest()?.clone()))
}

/// The name of a kernel, after its main operator.
fn name(body: &Graph) -> String {
    let has_own = |node: &&Node| node.op.custom().is_some() || node.op.sets_rows();
    let own = body.ids().filter_map(|id| body.node(id)).find(has_own);
    if let Some(node) = own {
        return node.op.name().to_owned();
    }
    let counts = body.counts();
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let has = |name: &str| count(name) > 0;
    let norm = match (count("reduce_sum"), has("rsqrt")) {
        _ if has("reduce_max") && has("exp") => Some("softmax"),
        (2.., true) => Some("layer_norm"),
        (1, true) => Some("rms_norm"),
        _ if has("reduce_sum") || has("reduce_max") || has("reduce_min") => Some("reduce"),
        _ => None,
    };
    let combined = || body.ids().filter_map(|id| body.node(id)).find(|node| node.op.accumulated().is_some());
    match (norm, anchor_name(body, &count).or_else(|| combined().filter(|_| norm.is_none()).map(|node| node.op.name())))
    {
        (Some(norm), Some(main_operator)) => format!("{norm}_{main_operator}"),
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (None, None) => "pointwise".to_owned(),
    }
}

/// The common name of a combination of matmuls and pair reductions.
fn anchor_name(body: &Graph, count: &dyn Fn(&str) -> usize) -> Option<&'static str> {
    let has = |name: &str| count(name) > 0;
    let sides: Vec<ScoreKind> = body.ids().filter_map(|id| pairs::side(body.node(id)?.op.as_ref())).collect();
    let weighted = has("weighted_sum") || has("weighted_sum_by_key");
    Some(match (count("matmul"), weighted) {
        _ if sides.contains(&ScoreKind::Key) && weighted => "attention_by_key",
        _ if sides.contains(&ScoreKind::Key) => "score_reduce_by_key",
        (_, true) if count("scores") > 1 => "attention_by_row",
        (_, false) if sides.contains(&ScoreKind::Row) => "score_reduce_by_row",
        _ if sides.contains(&ScoreKind::Sample) => "score_reduce",
        _ if has("score_softmax") => "softmax_attention",
        (2.., _) | (_, true) => "attention",
        _ if has("jagged_matmul") => "jagged_addmm",
        (1, _) if has("add") => "addmm",
        (1, _) => "matmul",
        (0, _) => return None,
    })
}

/// The first operator that is not elementwise, or the first of all.
pub(super) fn main_operator(graph: &Graph, nodes: &BTreeSet<NodeId>) -> Option<NodeId> {
    let main_operator = nodes.iter().find(|&&id| graph.node(id).is_some_and(|node| node.op.elementwise().is_none()));
    main_operator.or_else(|| nodes.first()).copied()
}

/// Adds the operators of a body as they are and returns its results.
fn inline(graph: &mut Graph, body: &Graph, operands: &[Value]) -> Result<Vec<Value>, GraphError> {
    let mut copies = Copies::default();
    for id in body.order()? {
        let operand = body.node(id).and_then(|node| Fused::operand(node.op.as_ref()));
        match operand.and_then(|position| operands.get(position)) {
            Some(&operand) => copies.insert(Value { node: id, port: 0 }, operand),
            None => copies.add(body, id, graph)?,
        }
    }
    copies.find(&body.outputs().iter().map(|(_, value)| *value).collect::<Vec<_>>())
}
