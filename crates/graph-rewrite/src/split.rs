//! Splitting a graph in two and joining it again.
//!
//! A ranking model has a sparse part, lookups in large tables, and a dense part. Each becomes a separate graph that is
//! optimized, lowered, stored and placed independently: the tables on the hosts that hold them, the rest on a GPU.

use rewire_graph::op::{Input, Role};
use rewire_graph::{Arrange, Copies, Graph, GraphError, Layout, Node, NodeId, SizeSource, Symbol, Value, reached};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use thiserror::Error;

/// A graph split in two.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The marked operators and their dependencies. Its outputs are the boundary and the outputs of the whole graph
    /// that it computes.
    pub first: Graph,
    /// All other operators. The boundary is among its inputs.
    pub second: Graph,
    /// The names of the values that the first part passes to the second.
    pub boundary: Vec<String>,
    /// The names of the outputs of the whole graph, in order.
    pub outputs: Vec<String>,
}

/// Why two graphs cannot be joined.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum JoinError {
    /// The symbols of the graphs differ, so they are not parts of one graph.
    #[error("the parts have different sizes, {first} and {second}: join the parts of one graph")]
    Sizes {
        /// Sizes of the first part.
        first: usize,
        /// Sizes of the second part.
        second: usize,
    },
    /// A value of the boundary has different types in the parts.
    #[error("`{name}` is {first} in the first part and {second} in the second")]
    Boundary {
        /// The value.
        name: String,
        /// Its type as an output of the first part; `nothing` if it does not exist there.
        first: String,
        /// Its type as an input of the second part; `nothing` if it does not exist there.
        second: String,
    },
    /// The joined graph is invalid.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Marks only lookups in tables that are parameters.
pub fn lookups(graph: &Graph, id: NodeId) -> bool {
    let is_table = |value: &Value| matches!(graph.role(value.node), Some(Role::Parameter(_)));
    graph.node(id).is_some_and(|node| node.op.is_lookup()) && graph.inputs(id).first().is_some_and(is_table)
}

/// Marks the operators of the module at a path, such as `embeddings` or `model.embeddings`.
pub fn module(path: &str) -> impl Fn(&Graph, NodeId) -> bool {
    let path = path.to_owned();
    move |graph, id| {
        let rest = graph.node(id).and_then(|node| node.path.strip_prefix(&path));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Splits a graph into the nodes for which `marked` is true, with all their dependencies, and the rest.
///
/// Each part computes the host values that it needs. Parameters that both parts read belong to both.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_graph_rewrite::split::{join, lookups, split};
/// let scope = Scope::new();
/// let ids = scope.input("ids", DType::I64, &[scope.size("rows")]);
/// let rows = scope.parameter("table", DType::F32, &[1000.into(), 16.into()]).gather(&ids);
/// let graph = scope.finish(&[("y", rows.silu())])?;
///
/// let parts = split(&graph, lookups)?;
/// assert_eq!(parts.first.counts().get("gather"), Some(&1));
/// assert_eq!(parts.second.counts().get("parameter"), None);
/// let whole = join(&parts)?;
/// assert_eq!(whole.counts(), graph.counts());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`GraphError`] if the graph is invalid.
pub fn split(graph: &Graph, marked: impl Fn(&Graph, NodeId) -> bool) -> Result<Parts, GraphError> {
    graph.verify()?;
    let order = graph.order()?;
    let chosen = order.iter().copied().filter(|&id| marked(graph, id));
    let first: HashSet<NodeId> = reached(chosen, |id| graph.producers(id)).into_iter().collect();
    let computed = |id: &NodeId| first.contains(id) && graph.node(*id).is_some_and(is_computed);
    let inputs = graph.ids().filter_map(|id| input_name(graph, id));
    let ids = graph.id_inputs().iter().map(|ids| &ids.input);
    let taken: HashSet<&String> = graph.outputs().iter().map(|(name, _)| name).chain(inputs).chain(ids).collect();
    let mut free = (0..).map(|number| format!("boundary.{number}")).filter(|name| !taken.contains(name));
    let mut boundary: BTreeMap<Value, String> = BTreeMap::new();
    for &id in order.iter().filter(|id| !first.contains(id)) {
        for value in graph.inputs(id).into_iter().filter(|value| computed(&value.node)) {
            if let Entry::Vacant(entry) = boundary.entry(value)
                && let Some(name) = free.next()
            {
                entry.insert(name);
            }
        }
    }
    let roots = |in_first: bool| -> Vec<(String, Value)> {
        let own = graph.outputs().iter().filter(|(_, value)| computed(&value.node) == in_first).cloned();
        own.collect()
    };
    let mut handed = roots(true);
    handed.extend(boundary.iter().map(|(value, name)| (name.clone(), *value)));
    Ok(Parts {
        first: part(graph, &handed, &BTreeMap::new())?,
        second: part(graph, &roots(false), &boundary)?,
        boundary: boundary.into_values().collect(),
        outputs: graph.outputs().iter().map(|(name, _)| name.clone()).collect(),
    })
}

/// Joins the parts into the original graph: the second part reads the results of the first.
///
/// # Errors
/// [`JoinError`] if the parts do not come from one graph, or differ in the types of the boundary.
pub fn join(parts: &Parts) -> Result<Graph, JoinError> {
    let Parts { first, second, boundary, outputs } = parts;
    let names = |graph: &Graph| graph.sizes().iter().map(|size| size.name.clone()).collect::<Vec<_>>();
    if names(first) != names(second) {
        return Err(JoinError::Sizes { first: first.sizes().len(), second: second.sizes().len() });
    }
    let mut joined = Joined::new(first);
    for name in boundary {
        let output = first.outputs().iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let input = second.ids().find(|&id| input_name(second, id) == Some(name));
        let ty = |graph: &Graph, value: Option<Value>| {
            value.and_then(|value| graph.ty(value)).map_or_else(|| "nothing".to_owned(), ToString::to_string)
        };
        let (given, wanted) = (ty(first, output), ty(second, input.map(|node| Value { node, port: 0 })));
        if given != wanted || output.is_none() {
            return Err(JoinError::Boundary { name: name.clone(), first: given, second: wanted });
        }
    }
    joined.append(first, &HashMap::new())?;
    let given: HashMap<String, Value> = first
        .outputs()
        .iter()
        .filter(|(name, _)| boundary.contains(name))
        .filter_map(|(name, value)| Some((name.clone(), joined.copies.get(*value)?)))
        .collect();
    let mut computed = joined.outputs(first, |name| !boundary.iter().any(|known| known == name));
    joined.append(second, &given)?;
    computed.extend(joined.outputs(second, |_| true));
    // Outputs that the whole graph did not have come last.
    let place = |name: &String| outputs.iter().position(|known| known == name).unwrap_or(outputs.len());
    computed.arrange_by_key(|(name, _)| place(name));
    computed.iter().try_for_each(|(name, value)| joined.graph.add_output(name, *value))?;
    joined.graph.verify()?;
    Ok(joined.graph)
}

/// True for operators that compute something on the device.
fn is_computed(node: &Node) -> bool {
    matches!(node.op.role(), Role::Fused(_) | Role::Computed) && node.types.iter().all(|ty| ty.layout == Layout::Device)
}

fn input_name(graph: &Graph, id: NodeId) -> Option<&String> {
    graph.op::<Input>(id).map(|input| &input.name)
}

/// The subgraph that computes `outputs`, with the values in `given` as inputs.
fn part(graph: &Graph, outputs: &[(String, Value)], given: &BTreeMap<Value, String>) -> Result<Graph, GraphError> {
    let needed = needed(graph, outputs, given);
    let mut part = Joined::new(graph);
    for (value, name) in given.iter().filter(|(value, _)| needed.values.contains(value)) {
        let Some(ty) = graph.ty(*value).cloned() else { continue };
        let path = graph.node(value.node).map_or_else(String::new, |node| node.path.clone());
        let node = part.graph.add(Arc::new(Input { name: name.clone(), ty }), &[], &path)?;
        part.copies.insert(*value, Value { node, port: 0 });
    }
    for id in graph.order()?.into_iter().filter(|id| needed.nodes.contains(id)) {
        part.copies.add(graph, id, &mut part.graph)?;
    }
    part.rebind(graph);
    for (name, value) in outputs {
        if let Some(copy) = part.copies.get(*value) {
            part.graph.add_output(name, copy)?;
        }
    }
    part.graph.verify()?;
    Ok(part.graph)
}

struct Needed {
    nodes: HashSet<NodeId>,
    values: BTreeSet<Value>,
}

/// The dependencies of `outputs` up to the values in `given`, and the sources of their sizes.
fn needed(graph: &Graph, outputs: &[(String, Value)], given: &BTreeMap<Value, String>) -> Needed {
    let mut needed = Needed { nodes: HashSet::new(), values: BTreeSet::new() };
    let mut stack: Vec<Value> = outputs.iter().map(|(_, value)| *value).collect();
    while let Some(value) = stack.pop() {
        if given.contains_key(&value) {
            needed.values.insert(value);
            let symbols = graph.ty(value).into_iter().flat_map(|ty| ty.shape.iter()).flat_map(symbols);
            stack.extend(size_sources(graph, symbols));
        } else if needed.nodes.insert(value.node) {
            stack.extend(graph.inputs(value.node));
            let Some(node) = graph.node(value.node) else { continue };
            let dims: Vec<_> = node.types.iter().flat_map(|ty| ty.shape.clone()).chain(node.op.sizes()).collect();
            stack.extend(size_sources(graph, dims.iter().flat_map(symbols)));
        }
    }
    needed
}

fn symbols(dim: &rewire_graph::Dim) -> Vec<Symbol> {
    dim.terms().map(|(symbol, _)| symbol).collect()
}

/// The sources of symbols: host values, and inputs that have the symbols as extents.
fn size_sources(graph: &Graph, symbols: impl Iterator<Item = Symbol>) -> Vec<Value> {
    let sources = symbols.filter_map(|symbol| match &graph.sizes().get(symbol.0 as usize)?.source {
        SizeSource::Total(value) | SizeSource::Scalar(value) => Some(*value),
        SizeSource::Extent { input, .. } => {
            let node = graph.ids().find(|&id| input_name(graph, id) == Some(input))?;
            Some(Value { node, port: 0 })
        }
        SizeSource::Unbound => None,
    });
    sources.collect()
}

/// A graph under construction from copies of nodes of other graphs with the same sizes.
struct Joined {
    graph: Graph,
    copies: Copies,
    sources: HashMap<(bool, String), Value>,
}

impl Joined {
    fn new(like: &Graph) -> Self {
        let mut graph = Graph::of_model(like);
        graph.map_size_sources(|_| SizeSource::Unbound);
        Self { graph, copies: Copies::default(), sources: HashMap::new() }
    }

    /// Copies all nodes of a graph. Inputs in `given`, and inputs and parameters with known names, map to existing
    /// values.
    fn append(&mut self, from: &Graph, given: &HashMap<String, Value>) -> Result<(), GraphError> {
        self.copies = Copies::default();
        for id in from.order()? {
            let Some(node) = from.node(id) else { continue };
            let role = node.op.role();
            let source = role.name().map(|name| (matches!(role, Role::Input(_)), name.to_owned()));
            let known = source.as_ref().and_then(|(is_input, name)| match given.get(name) {
                Some(&value) if *is_input => Some(value),
                _ => self.sources.get(&(*is_input, name.clone())).copied(),
            });
            let own = Value { node: id, port: 0 };
            match known {
                Some(value) => self.copies.insert(own, value),
                None => self.copies.add(from, id, &mut self.graph)?,
            }
            if let (Some(source), Some(copy)) = (source, self.copies.get(own)) {
                self.sources.insert(source, copy);
            }
        }
        self.rebind(from);
        Ok(())
    }

    /// Adopts missing sources of sizes from a graph whose nodes were copied.
    fn rebind(&mut self, from: &Graph) {
        let inputs: HashSet<&String> = self.graph.ids().filter_map(|id| input_name(&self.graph, id)).collect();
        let found: Vec<SizeSource> = from
            .sizes()
            .iter()
            .map(|size| match &size.source {
                SizeSource::Total(value) => self.copies.get(*value).map_or(SizeSource::Unbound, SizeSource::Total),
                SizeSource::Scalar(value) => self.copies.get(*value).map_or(SizeSource::Unbound, SizeSource::Scalar),
                SizeSource::Extent { input, .. } if !inputs.contains(input) => SizeSource::Unbound,
                other => other.clone(),
            })
            .collect();
        let mut found = found.into_iter();
        self.graph.map_size_sources(|known| {
            let source = found.next().unwrap_or(SizeSource::Unbound);
            if known == SizeSource::Unbound { source } else { known }
        });
    }

    /// The outputs of a graph whose nodes were copied, in the new graph.
    fn outputs(&self, from: &Graph, keep: impl Fn(&str) -> bool) -> Vec<(String, Value)> {
        let kept = from.outputs().iter().filter(|(name, _)| keep(name));
        kept.filter_map(|(name, value)| Some((name.clone(), self.copies.get(*value)?))).collect()
    }
}
