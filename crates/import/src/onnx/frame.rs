//! Lowers the nodes of a graph in order.

use super::fold::folded;
use super::item::{Item, Store};
use super::node::Node;
use super::schema::{AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto};
use super::{Options, control, ops, tensor, whole};
use crate::context::Context;
use crate::value::{Fault, Lowered};
use crate::{ImportError, Unsupported};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Maximum number of lowered nodes. Nodes in loops and functions count each time they are lowered.
const MAX_NODES: usize = 1 << 17;

/// Maximum nesting depth of functions and bodies.
const MAX_DEPTH: usize = 64;

/// A named value.
#[derive(Clone)]
pub(super) struct Slot {
    pub item: Item,
    /// Model inputs that the value depends on.
    pub sources: Rc<BTreeSet<String>>,
    /// True if the value depends on a node that cannot be lowered.
    pub is_tainted: bool,
}

impl Slot {
    pub fn of(item: Item) -> Self {
        Self { item, sources: Rc::default(), is_tainted: false }
    }
}

type Scope = HashMap<String, Slot>;

/// State shared by all nodes of a model.
pub(super) struct Program<'a> {
    pub cx: &'a Context,
    pub store: &'a Store,
    pub options: &'a Options,
    pub functions: HashMap<(String, String), &'a FunctionProto>,
    pub unsupported: RefCell<Unsupported>,
    /// Model inputs whose values must be known.
    pub wanted: RefCell<BTreeSet<String>>,
    pub count: RefCell<usize>,
}

/// Versions of operator sets, by domain.
pub(super) fn opsets(imports: &[OperatorSetIdProto]) -> HashMap<String, i64> {
    let one = |import: &OperatorSetIdProto| (domain(import.domain.as_deref()), import.version.unwrap_or(1));
    imports.iter().map(one).collect()
}

/// Normalizes a domain; the standard's domain becomes an empty string.
pub(super) fn domain(name: Option<&str>) -> String {
    name.filter(|name| *name != "ai.onnx").unwrap_or_default().to_owned()
}

/// A graph, body or function, and the values of the nodes lowered so far.
pub(super) struct Frame<'a> {
    pub program: &'a Program<'a>,
    pub opsets: &'a HashMap<String, i64>,
    /// Values by name, from the outermost graph to the innermost one.
    pub scopes: Vec<Scope>,
    /// Attributes of a function call, which nodes in the function may refer to.
    attributes: HashMap<String, AttributeProto>,
    depth: usize,
    module: String,
}

impl<'a> Frame<'a> {
    pub fn new(program: &'a Program<'a>, opsets: &'a HashMap<String, i64>, scope: Scope) -> Self {
        let (attributes, module) = Default::default();
        Self { program, opsets, scopes: vec![scope], attributes, depth: 0, module }
    }

    pub fn slot(&self, name: &str) -> Option<&Slot> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    pub fn define(&mut self, name: &str, slot: Slot) {
        if let Some(scope) = self.scopes.last_mut().filter(|_| !name.is_empty()) {
            scope.insert(name.to_owned(), slot);
        }
    }

    /// Lowers all nodes.
    pub fn run(&mut self, nodes: &[NodeProto]) -> Result<(), ImportError> {
        for node in nodes {
            {
                let mut count = self.program.count.borrow_mut();
                *count += 1;
                if *count > MAX_NODES {
                    return Err(ImportError::program(op(node), format!("more than {MAX_NODES} nodes")));
                }
            }
            let path = module(node.name.as_deref().unwrap_or_default());
            let outer = std::mem::replace(&mut self.module, path.clone());
            let done = self.program.cx.scope.module(&path, |_| self.node(node));
            self.module = outer;
            done?;
        }
        Ok(())
    }

    fn node(&mut self, node: &NodeProto) -> Result<(), ImportError> {
        let slots = node.input.iter().map(|name| self.input(node, name)).collect::<Result<Vec<Slot>, _>>()?;
        if slots.iter().any(|slot| slot.is_tainted) {
            self.taint(node);
            return Ok(());
        }
        let mut wanted = BTreeSet::new();
        let lowered = self.lower(node, &slots, &mut wanted)?;
        let checked = lowered.and_then(|items| checked(node, items));
        if let Ok(items) = &checked
            && items.iter().any(is_poisoned)
        {
            // A second call of `finish` would not return the reason.
            let finished = self.program.cx.scope.clone().finish(&[]);
            let reason = finished
                .err()
                .map_or_else(|| "operands that the graph does not accept".to_owned(), |error| error.to_string());
            let mut unsupported = self.program.unsupported.take();
            unsupported.add(&title(node), &reason, &self.module);
            return Err(ImportError::Unsupported(unsupported));
        }
        match checked {
            Ok(items) => {
                let known: Rc<BTreeSet<String>> = Rc::default();
                let captured = captured(node).into_iter().filter_map(|name| self.slot(name));
                let all = slots.iter().chain(captured).flat_map(|slot| slot.sources.iter().cloned());
                let sources = Rc::new(all.collect::<BTreeSet<_>>());
                for (name, item) in node.output.iter().zip(items) {
                    let depends = matches!(item, Item::Array(_) | Item::List(_));
                    let sources = if depends { sources.clone() } else { known.clone() };
                    self.define(name, Slot { item, sources, is_tainted: false });
                }
            }
            Err(fault) => {
                let inputs = wanted.iter().filter_map(|&place| slots.get(place));
                let inputs: BTreeSet<String> = inputs.flat_map(|slot| slot.sources.iter().cloned()).collect();
                match fault.reason().filter(|_| inputs.is_empty()) {
                    Some(reason) => self.program.unsupported.borrow_mut().add(&title(node), &reason, &self.module),
                    None => self.program.wanted.borrow_mut().extend(inputs),
                }
                self.taint(node);
            }
        }
        Ok(())
    }

    fn input(&self, node: &NodeProto, name: &str) -> Result<Slot, ImportError> {
        if name.is_empty() {
            return Ok(Slot::of(Item::Absent));
        }
        let found = self.slot(name).cloned();
        found.ok_or_else(|| ImportError::program(op(node), format!("`{name}` is read before it is defined")))
    }

    fn taint(&mut self, node: &NodeProto) {
        for name in &node.output {
            self.define(name, Slot { is_tainted: true, ..Slot::of(Item::Absent) });
        }
    }

    /// The attributes of a node. In a function, they may refer to attributes of the call.
    pub fn attributes<'n>(&'n self, node: &'n NodeProto) -> HashMap<&'n str, &'n AttributeProto> {
        let mut attributes = HashMap::new();
        for attribute in &node.attribute {
            let name = attribute.name.as_deref().unwrap_or_default();
            match attribute.ref_attr_name.as_deref().filter(|other| !other.is_empty()) {
                Some(other) => attributes.extend(self.attributes.get(other).map(|given| (name, given))),
                None => drop(attributes.insert(name, attribute)),
            }
        }
        attributes
    }

    fn lower(
        &mut self,
        node: &NodeProto,
        slots: &[Slot],
        wanted: &mut BTreeSet<usize>,
    ) -> Result<Lowered<Vec<Item>>, ImportError> {
        let space = domain(node.domain.as_deref());
        let key = (space.clone(), op(node).to_owned());
        let inputs: Vec<Item> = slots.iter().map(|slot| slot.item.clone()).collect();
        if let Some(function) = self.program.functions.get(&key).copied() {
            return self.call(function, node, slots);
        }
        let version = self.opsets.get(&space).copied().unwrap_or(1);
        if space.is_empty() && control::OPERATORS.contains(&op(node)) {
            return control::lower(self, node, slots, wanted);
        }
        let Some(lowering) = ops::lowering(&space, op(node)) else {
            return Ok(Fault::unsupported("no lowering"));
        };
        let this = Node {
            cx: self.program.cx,
            store: self.program.store,
            op: op(node),
            version,
            inputs,
            attributes: self.attributes(node),
            results: node.output.iter().map(|name| !name.is_empty()).collect(),
            wanted: RefCell::default(),
        };
        let lowered = constant(&this, self.program.options.folder.as_deref())?
            .or_else(|| folded(&this, lowering))
            .or_else(|| {
                let is_whole = this.inputs.iter().any(|item| matches!(item, Item::Whole(_)));
                is_whole.then(|| whole::evaluate(&this)).flatten()
            })
            .unwrap_or_else(|| lowering.run(&this));
        wanted.extend(this.wanted.take());
        Ok(lowered)
    }

    /// Lowers the call of a function of the model.
    fn call(
        &mut self,
        function: &'a FunctionProto,
        node: &NodeProto,
        slots: &[Slot],
    ) -> Result<Lowered<Vec<Item>>, ImportError> {
        self.deeper(node)?;
        let mut given: HashMap<String, AttributeProto> = HashMap::new();
        for attribute in &function.attribute_proto {
            given.insert(attribute.name.clone().unwrap_or_default(), attribute.clone());
        }
        for (name, attribute) in self.attributes(node) {
            given.insert(name.to_owned(), attribute.clone());
        }
        let names = function.input.iter();
        let absent = Slot::of(Item::Absent);
        let scope = names.enumerate().map(|(n, name)| (name.clone(), slots.get(n).unwrap_or(&absent).clone()));
        let opsets = opsets(&function.opset_import);
        let mut inner = Frame {
            program: self.program,
            opsets: &opsets,
            scopes: vec![scope.collect()],
            attributes: given,
            depth: self.depth + 1,
            module: self.module.clone(),
        };
        inner.run(&function.node)?;
        let results = function.output.iter().map(|name| inner.result(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(results.into_iter().collect())
    }

    /// The value of a named result of a body or function.
    pub fn result(&self, name: &str) -> Result<Lowered<Item>, ImportError> {
        let slot = self.slot(name).ok_or_else(|| ImportError::program(name, "a result that is not defined"))?;
        Ok(if slot.is_tainted { Err(Fault::Reported) } else { Ok(slot.item.clone()) })
    }

    pub fn deeper(&self, node: &NodeProto) -> Result<(), ImportError> {
        let is_deep = self.depth >= MAX_DEPTH;
        if is_deep {
            Err(ImportError::program(op(node), format!("more than {MAX_DEPTH} bodies within each other")))
        } else {
            Ok(())
        }
    }

    /// Lowers a body with the given inputs, and returns its results.
    pub fn body(&mut self, graph: &GraphProto, inputs: Vec<Slot>) -> Result<Lowered<Vec<Slot>>, ImportError> {
        let mut scope = initializers(graph, self.program.options)?;
        for (value, slot) in graph.input.iter().zip(inputs) {
            scope.insert(value.name.clone().unwrap_or_default(), slot);
        }
        self.scopes.push(scope);
        self.depth += 1;
        let done = self.run(&graph.node);
        let results = done.and_then(|()| {
            let names = graph.output.iter().map(|value| value.name.as_deref().unwrap_or_default());
            let slots = names.map(|name| {
                self.result(name).map(|item| {
                    item.map(|item| Slot { item, ..self.slot(name).cloned().unwrap_or_else(|| Slot::of(Item::Absent)) })
                })
            });
            slots.collect::<Result<Lowered<Vec<Slot>>, _>>()
        });
        self.depth -= 1;
        self.scopes.pop();
        results
    }
}

/// The initializers of a graph by name.
pub(super) fn initializers(graph: &GraphProto, options: &Options) -> Result<Scope, ImportError> {
    if let Some(sparse) = graph.sparse_initializer.first() {
        let name = sparse.values.as_ref().and_then(|values| values.name.as_deref()).unwrap_or_default();
        return Err(ImportError::program(name, "sparse tensors are not supported"));
    }
    let one = |proto| {
        let data = tensor::read(proto, options.folder.as_deref())?;
        let constant = super::item::Constant { name: proto.name.clone(), data };
        Ok((proto.name.clone().unwrap_or_default(), Slot::of(Item::Constant(Rc::new(constant)))))
    };
    graph.initializer.iter().map(one).collect()
}

/// The value of a `Constant` node; `None` for other nodes.
fn constant(node: &Node<'_>, folder: Option<&std::path::Path>) -> Result<Option<Lowered<Vec<Item>>>, ImportError> {
    if node.op != "Constant" {
        return Ok(None);
    }
    let Some(proto) = node.attribute("value").and_then(|attribute| attribute.t.as_ref()) else { return Ok(None) };
    let read = tensor::read(proto, folder)?;
    Ok(Some(Ok(vec![Item::constant(read.ty, read.tensor)])))
}

/// The names that the bodies of a node refer to.
fn captured(node: &NodeProto) -> Vec<&str> {
    let bodies = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
    let nodes = bodies.clone().flat_map(|body| &body.node);
    let results = bodies.flat_map(|body| &body.output).filter_map(|value| value.name.as_deref());
    let read = nodes.flat_map(|node| node.input.iter().map(String::as_str).chain(captured(node)));
    read.chain(results).collect()
}

/// Checks that there is a value for each named result of the node.
fn checked(node: &NodeProto, items: Vec<Item>) -> Lowered<Vec<Item>> {
    let named = node.output.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    if items.len() < named {
        return Fault::unsupported(format!("{} results of {named}", items.len()));
    }
    Ok(items)
}

fn is_poisoned(item: &Item) -> bool {
    match item {
        Item::Array(array) => array.tensor.is_poisoned(),
        Item::List(items) => items.iter().any(is_poisoned),
        _ => false,
    }
}

pub(super) fn op(node: &NodeProto) -> &str {
    node.op_type.as_deref().unwrap_or_default()
}

/// The operator's name, with its domain if it is not the standard's.
pub(super) fn title(node: &NodeProto) -> String {
    let space = domain(node.domain.as_deref());
    if space.is_empty() { op(node).to_owned() } else { format!("{space}.{}", op(node)) }
}

/// The module of a node with a name such as `/layers.0/attention/MatMul`.
fn module(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
    parts.split_last().map_or_else(String::new, |(_, path)| path.join("."))
}
