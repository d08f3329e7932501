use super::{Attempt, Context, PatchError, Rule};
use crate::error::RewriteError;
use rewire_graph::op::Role;
use rewire_graph::{Graph, Layout, NodeId, Ordered, SizeSource, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// Applies rules wherever they match, oldest node first, until none matches. Returns the applied rules in order.
///
/// Nodes that no output needs stay unchanged. Every patch is checked before it is applied, and the graph is verified at
/// the end.
///
/// # Errors
/// [`RewriteError`] names the rule that failed, whose patch was rejected, or that does not terminate, and the operator
/// with its module path.
pub fn rewrite(graph: &Graph, rules: &[&dyn Rule]) -> Result<(Graph, Vec<String>), RewriteError> {
    let mut context = Context::new();
    let graph = rewrite_within(graph, rules, &mut context)?;
    graph.verify().map_err(|source| RewriteError::graph("rules", source))?;
    Ok((graph, context.fired().map(str::to_owned).collect()))
}

/// Like [`rewrite`], for passes, which their pipeline verifies.
///
/// # Errors
/// As [`rewrite`].
pub fn rewrite_within(graph: &Graph, rules: &[&dyn Rule], context: &mut Context) -> Result<Graph, RewriteError> {
    let (mut graph, unread) = rewritten(graph, rules, context)?;
    unread.into_keys().for_each(|id| graph.remove(id));
    Ok(graph)
}

/// Like [`rewrite_within`], but leaves replaced nodes to dead code removal. Otherwise new nodes would reuse their
/// numbers and thus their positions in the order.
///
/// # Errors
/// As [`rewrite`].
pub(crate) fn rewrite_beside(graph: &Graph, rules: &[&dyn Rule], context: &mut Context) -> Result<Graph, RewriteError> {
    let (mut graph, unread) = rewritten(graph, rules, context)?;
    unread.into_iter().for_each(|(id, inputs)| graph.attach(id, &inputs));
    Ok(graph)
}

/// Detached nodes, with their operands.
type Unread = BTreeMap<NodeId, Vec<Value>>;

/// The rewritten graph, in which nodes that are no longer read are detached.
fn rewritten(graph: &Graph, rules: &[&dyn Rule], context: &mut Context) -> Result<(Graph, Unread), RewriteError> {
    let index = Index::new(rules);
    let mut graph = graph.clone();
    let mut queue = Queue::default();
    queue.extend(graph.order().map_err(|source| RewriteError::graph("rules", source))?);
    let limit = graph.len().saturating_mul(4) + 16;
    let mut fired = 0;
    // Nodes are removed at the end, so that no new node reuses the number of an old one and thus its position in the
    // order.
    let live = graph.live();
    let dead: HashSet<NodeId> = graph.ids().filter(|id| !live.contains(id)).collect();
    let mut unread = Unread::new();
    while let Some(root) = queue.pop() {
        let Some(node) = graph.node(root).filter(|_| !unread.contains_key(&root) && !dead.contains(&root)) else {
            continue;
        };
        for &position in index.at(node.op.name()) {
            let Some(&rule) = rules.get(position) else { continue };
            let failed = |graph: &Graph, source| RewriteError::rule(rule.name(), graph, root, source);
            let patch = match rule.apply(&graph, root).map_err(|error| failed(&graph, PatchError::Graph(error)))? {
                Attempt::Found(patch) if patch.waits_for_itself(&graph) => {
                    context.missed(rule.name(), &graph, root, || PatchError::Cycle.to_string());
                    continue;
                }
                Attempt::Found(patch) if context.permits(rule.name(), &graph, root) => patch,
                Attempt::Near(reason) => {
                    context.missed(rule.name(), &graph, root, || reason);
                    continue;
                }
                Attempt::Found(_) | Attempt::Nothing => continue,
            };
            if fired > limit {
                return Err(RewriteError::Endless { rule: rule.name().to_owned(), rewrites: fired });
            }
            let replaced: Vec<NodeId> = patch.replaced().iter().map(|value| value.node).collect();
            let readers: Vec<NodeId> = replaced.iter().flat_map(|&id| graph.users(id)).collect();
            let added = patch.land(&mut graph).map_err(|error| failed(&graph, error))?;
            fired += 1;
            detach_unread(&mut graph, replaced, &mut unread);
            queue.extend(added.iter().copied());
            queue.extend(above(&graph, added.into_iter().chain(readers).collect(), index.reach));
            break;
        }
    }
    Ok((graph, unread))
}

/// Detaches unread nodes, then nodes that only detached nodes read. Inputs, checks and parameters stay.
fn detach_unread(graph: &mut Graph, nodes: Vec<NodeId>, unread: &mut Unread) {
    let mut stack = nodes;
    while let Some(id) = stack.pop() {
        if !is_needed(graph, id) && !unread.contains_key(&id) {
            let inputs = graph.inputs(id);
            stack.extend(inputs.iter().map(|value| value.node));
            unread.insert(id, inputs);
            graph.detach(id);
        }
    }
}

fn is_needed(graph: &Graph, id: NodeId) -> bool {
    let Some(node) = graph.node(id) else { return true };
    let sizes = || {
        graph.sizes().iter().any(|size| match size.source {
            SizeSource::Total(value) | SizeSource::Scalar(value) => value.node == id,
            SizeSource::Extent { .. } | SizeSource::Unbound => false,
        })
    };
    node.is_root()
        || matches!(node.op.role(), Role::Parameter(_))
        || !graph.users(id).is_empty()
        || graph.outputs().iter().any(|(_, value)| value.node == id)
        || (node.types.iter().any(|ty| ty.layout == Layout::Host) && sizes())
}

/// The nodes and their readers up to a distance.
fn above(graph: &Graph, nodes: Vec<NodeId>, reach: usize) -> BTreeSet<NodeId> {
    let mut found: BTreeSet<NodeId> = nodes.into_iter().filter(|&id| graph.node(id).is_some()).ordered_set();
    let mut edge: Vec<NodeId> = found.iter().copied().collect();
    for _ in 1..reach {
        edge = edge.iter().flat_map(|&id| graph.users(id)).filter(|&id| found.insert(id)).collect();
    }
    found
}

/// Rules by the operators at which they may match, in their given order.
struct Index {
    named: HashMap<String, Vec<usize>>,
    others: Vec<usize>,
    reach: usize,
}

impl Index {
    fn new(rules: &[&dyn Rule]) -> Self {
        let roots: Vec<Option<Vec<String>>> = rules.iter().map(|rule| rule.roots()).collect();
        let others = roots.iter().enumerate().filter(|(_, roots)| roots.is_none()).map(|(n, _)| n).collect();
        let names: HashSet<&String> = roots.iter().flatten().flatten().collect();
        let at = |name: &String| {
            let fits = |roots: &Option<Vec<String>>| roots.as_ref().is_none_or(|roots| roots.contains(name));
            roots.iter().enumerate().filter(|(_, roots)| fits(roots)).map(|(n, _)| n).collect()
        };
        let named = names.iter().map(|&name| (name.clone(), at(name))).collect();
        let reach = rules.iter().map(|rule| rule.reach()).max().unwrap_or(1);
        Self { named, others, reach }
    }

    fn at(&self, op: &str) -> &[usize] {
        self.named.get(op).unwrap_or(&self.others)
    }
}

/// Nodes to examine, each queued at most once.
#[derive(Default)]
struct Queue {
    order: VecDeque<NodeId>,
    waiting: HashSet<NodeId>,
}

impl Queue {
    fn extend(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        for id in nodes {
            if self.waiting.insert(id) {
                self.order.push_back(id);
            }
        }
    }

    fn pop(&mut self) -> Option<NodeId> {
        let id = self.order.pop_front()?;
        self.waiting.remove(&id);
        Some(id)
    }
}
