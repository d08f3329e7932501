use super::{Context, Pass};
use crate::error::RewriteError;
use crate::rules::{Attempt, Rule, SpreadSoftmax, rewrite_within};
use rewire_graph::op::{Concat, Scores};
use rewire_graph::{Arrange, Graph, GraphError, Layout, NodeId, Value, reached};
use std::collections::{HashMap, HashSet};

/// Gives every pair reduction a separate copy of its scores, including scores from [`SpreadSoftmax`], since scores are
/// never stored. Splits concatenations with more operands than a kernel can read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Separate;

impl Pass for Separate {
    fn name(&self) -> &str {
        "separate"
    }

    fn rules(&self) -> Vec<String> {
        vec![Rule::name(&SpreadSoftmax).to_owned(), SPLIT.to_owned()]
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph("separate", source);
        let graph = &rewrite_within(graph, &[&SpreadSoftmax, &SplitConcat { most: context.bindings() - 1 }], context)?;
        let mut separated = graph.clone();
        let mut taken = HashSet::new();
        let order = graph.order().map_err(failed)?;
        let places: HashMap<NodeId, usize> = order.iter().enumerate().map(|(place, &id)| (id, place)).collect();
        for id in order {
            let Some(node) = graph.node(id) else { continue };
            if node.op.accumulated().is_some_and(|sum| sum.pairs().is_some()) {
                let own = scores(&separated, &places, id);
                if own.iter().any(|id| taken.contains(id)) && context.permits(self.name(), graph, id) {
                    copy_scores(&mut separated, id, &own).map_err(failed)?;
                }
                taken.extend(own);
            }
        }
        Ok(separated)
    }
}

/// The scores of a pair reduction and the values computed from them, in order.
fn scores(graph: &Graph, places: &HashMap<NodeId, usize>, sum: NodeId) -> Vec<NodeId> {
    let is_scores = |value: &Value| graph.ty(*value).is_some_and(|ty| ty.layout == Layout::Scores);
    let made_of = |id| graph.inputs(id).into_iter().filter(is_scores).map(|value| value.node);
    let mut pairs = reached(made_of(sum), made_of);
    pairs.arrange_by_key(|id| places.get(id));
    let is_made = |id: NodeId| graph.op::<Scores>(id).is_some();
    let mut made = HashSet::new();
    for &id in &pairs {
        if is_made(id) || graph.inputs(id).iter().any(|value| made.contains(&value.node)) {
            made.insert(id);
        }
    }
    pairs.retain(|id| made.contains(id));
    pairs
}

fn copy_scores(graph: &mut Graph, sum: NodeId, own: &[NodeId]) -> Result<(), GraphError> {
    let mut copies: HashMap<Value, Value> = HashMap::new();
    for id in own.iter().copied().chain([sum]) {
        let Some(node) = graph.node(id).cloned() else { continue };
        let inputs: Vec<Value> =
            graph.inputs(id).into_iter().map(|value| copies.get(&value).copied().unwrap_or(value)).collect();
        let copy = graph.add(node.op, &inputs, &node.path)?;
        copies.insert(Value { node: id, port: 0 }, Value { node: copy, port: 0 });
    }
    let old = Value { node: sum, port: 0 };
    if let Some(&copy) = copies.get(&old) {
        graph.replace_except(old, copy, &[]);
        graph.remove(sum);
    }
    Ok(())
}

/// The name of [`SplitConcat`].
const SPLIT: &str = "split concatenation";

/// Splits concatenations with more operands than a kernel can bind in addition to its result.
struct SplitConcat {
    most: usize,
}

impl Rule for SplitConcat {
    fn name(&self) -> &str {
        SPLIT
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["concat".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let parts = graph.inputs(root);
        let Some(concat) = graph.op::<Concat>(root).filter(|_| parts.len() > self.most) else {
            return Ok(Attempt::Nothing);
        };
        Attempt::replace(graph, root, &parts, |scope, parts| {
            let mut parts = parts.to_vec();
            while parts.len() > 1 {
                let joined =
                    parts.chunks(self.most).map(|chunk| scope.concat(&chunk.iter().collect::<Vec<_>>(), concat.axis));
                parts = joined.collect();
            }
            parts.pop()
        })
    }
}
