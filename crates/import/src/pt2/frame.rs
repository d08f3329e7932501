//! Lowers the nodes of a graph in order.

use super::alias;
use super::archive::element_type;
use super::expr::parse;
use super::inputs::shape_of;
use super::schema::{Argument, Graph, Node, SymArgument, SymInt};
use super::target::{Target, module};
use crate::array::Array;
use crate::aten::{Lowering, complex};
use crate::call::{Call, Declared};
use crate::context::Context;
use crate::value::{Fault, Lowered, Value};
use crate::{ImportError, ScalarType, Unsupported};
use rewire_graph::{Dim, HostTensor};
use std::collections::{HashMap, HashSet};

/// A stored tensor, which becomes a parameter when a node reads it.
pub(super) struct Parameter {
    pub name: String,
    pub tensor: HostTensor,
    pub ty: ScalarType,
}

/// A named value.
pub(super) struct Slot {
    value: Value,
    parameter: Option<Parameter>,
    view: Option<View>,
    /// Counts the writes to the value.
    version: u64,
}

/// How a value is a view of another tensor.
struct View {
    base: String,
    /// Index of the node that created the view, and of its result.
    node: usize,
    output: usize,
    /// The version of the base that the value reflects.
    seen: u64,
    /// True if the operator may have returned a copy instead of a view.
    is_ambiguous: bool,
    /// Number of views between this tensor and its base.
    depth: usize,
}

/// Maximum depth of nested views.
const MAX_VIEWS: usize = 512;

impl Slot {
    pub fn of(value: Value) -> Self {
        Self { value, parameter: None, view: None, version: 0 }
    }

    pub fn parameter(parameter: Parameter) -> Self {
        Self { parameter: Some(parameter), ..Self::of(Value::None) }
    }

    fn depth(&self) -> usize {
        self.view.as_ref().map_or(0, |view| view.depth)
    }
}

/// A graph, and the values of the nodes lowered so far.
pub(super) struct Frame<'a> {
    pub cx: &'a Context,
    pub graph: &'a Graph,
    unsupported: &'a mut Unsupported,
    slots: HashMap<String, Slot>,
    parameters: HashMap<String, HostTensor>,
    /// Results of nodes that cannot be lowered, and of all nodes that depend on them.
    tainted: HashSet<String>,
}

/// The names of a node's results in order, with lists flattened.
fn result_names(outputs: &[Argument]) -> Vec<Option<&str>> {
    let mut names = vec![];
    for output in outputs {
        match output {
            Argument::AsTensor(name) => names.push(Some(name.name.as_str())),
            Argument::AsTensors(list) => names.extend(list.iter().map(|name| Some(name.name.as_str()))),
            Argument::AsSymInt(SymArgument::AsName(name))
            | Argument::AsSymFloat(SymArgument::AsName(name))
            | Argument::AsSymBool(SymArgument::AsName(name)) => names.push(Some(name)),
            _ => names.push(None),
        }
    }
    names
}

/// The names that an argument refers to.
fn read_names(argument: &Argument) -> Vec<&str> {
    match argument {
        Argument::AsSymInts(symbols) | Argument::AsSymFloats(symbols) => {
            let named = symbols.iter().filter_map(|symbol| match symbol {
                SymArgument::AsName(name) => Some(name.as_str()),
                _ => None,
            });
            named.collect()
        }
        Argument::AsOptionalTensors(tensors) => {
            let named = tensors.iter().filter_map(|tensor| match tensor {
                super::schema::OptionalTensor::AsTensor(name) => Some(name.name.as_str()),
                super::schema::OptionalTensor::AsNone(_) => None,
            });
            named.collect()
        }
        other => result_names(std::slice::from_ref(other)).into_iter().flatten().collect(),
    }
}

impl<'a> Frame<'a> {
    pub fn new(
        cx: &'a Context,
        graph: &'a Graph,
        unsupported: &'a mut Unsupported,
        slots: HashMap<String, Slot>,
    ) -> Self {
        Self { cx, graph, unsupported, slots, parameters: HashMap::new(), tainted: HashSet::new() }
    }

    /// The parameters that nodes have read.
    pub fn into_parameters(self) -> HashMap<String, HostTensor> {
        self.parameters
    }

    /// Lowers all nodes.
    pub fn run(&mut self) -> Result<(), ImportError> {
        let graph = self.graph;
        for (place, node) in graph.nodes.iter().enumerate() {
            let path = module(node);
            let cx = self.cx;
            cx.scope.module(path, |_| self.node(place, node))?;
        }
        Ok(())
    }

    fn node(&mut self, place: usize, node: &Node) -> Result<(), ImportError> {
        let target = Target::of(&node.target);
        let names = result_names(&node.outputs);
        let reads: Vec<&str> = node.inputs.iter().flat_map(|argument| read_names(&argument.arg)).collect();
        let was_tainted = reads.iter().any(|name| self.tainted.contains(*name));
        if reads.iter().filter_map(|name| self.slots.get(*name)).any(|slot| slot.depth() > MAX_VIEWS) {
            return Err(ImportError::program(&node.target, format!("more than {MAX_VIEWS} views of one tensor")));
        }
        let lowered = match target.is_higher_order() {
            true => self.higher_order(node)?,
            false => self.lower(node, &target)?,
        };
        let flat = lowered.and_then(|values| self.checked(flattened(values), &names));
        match flat {
            Ok(values) => {
                for (output, (name, value)) in names.iter().zip(values).enumerate() {
                    let Some(name) = name else { continue };
                    self.define(name, value, place, output, &target);
                }
                if target.is_in_place {
                    self.write_in_place(node, names.first().copied().flatten())?;
                }
            }
            Err(fault) => {
                let is_own = !was_tainted && target.lowering().is_some() || target.is_higher_order();
                if let Some(reason) = fault.reason().filter(|_| is_own) {
                    self.unsupported.add(&node.target, &reason, module(node));
                }
                self.taint(&names);
            }
        }
        Ok(())
    }

    /// Marks results as tainted and gives them their declared types, so that later errors are also found.
    fn taint(&mut self, names: &[Option<&str>]) {
        for name in names.iter().flatten() {
            self.tainted.insert((*name).to_owned());
            let declared = self.declared(name);
            let zeros = declared.and_then(|declared| {
                let zero = self.cx.scalar(0.0, declared.ty).ok()?;
                let tensor = self.cx.expand(&zero.tensor, &declared.shape.ok()?).ok()?;
                Some(Value::Tensor(Array { tensor, ty: declared.ty }))
            });
            let size = self.graph.sym_int_values.get(*name).and_then(|size| match size {
                SymInt::AsInt(value) => Some(Value::int(*value)),
                SymInt::AsExpr(expr) => parse(&expr.expr_str, &mut self.cx.sizes.borrow_mut()).ok().map(Value::int),
            });
            self.slots.insert((*name).to_owned(), Slot::of(zeros.or(size).unwrap_or(Value::None)));
        }
    }

    /// The declared type of a tensor.
    fn declared(&self, name: &str) -> Option<Declared> {
        let meta = self.graph.tensor_values.get(name)?;
        let ty = element_type(name, meta).ok()?;
        let mut shape = shape_of(self.cx, meta);
        if let (ScalarType::C64, Ok(shape)) = (ty, &mut shape) {
            shape.push(2.into());
        }
        Some(Declared { ty, shape })
    }

    fn call<'c>(&mut self, node: &Node, target: &'c Target) -> Result<Call<'c>, ImportError>
    where
        'a: 'c,
    {
        let mut arguments = HashMap::new();
        let mut order = vec![];
        for argument in &node.inputs {
            let value = self.value(&argument.arg)?;
            order.push(value.clone());
            arguments.insert(argument.name.clone(), value);
        }
        let names = result_names(&node.outputs);
        let declared = names.iter().map(|name| name.and_then(|name| self.declared(name))).collect();
        Ok(Call { cx: self.cx, base: &target.base, overload: &target.overload, arguments, order, declared })
    }

    fn lower(&mut self, node: &Node, target: &Target) -> Result<Lowered<Vec<Value>>, ImportError> {
        let Some(lowering) = target.lowering() else {
            return Ok(Fault::unsupported("no lowering"));
        };
        // A result with an unsupported element type has no value.
        for name in result_names(&node.outputs).into_iter().flatten() {
            if let Some(meta) = self.graph.tensor_values.get(name)
                && let Err(error) = element_type(name, meta)
            {
                return Ok(Fault::unsupported(error.to_string()));
            }
        }
        let call = self.call(node, target)?.autocast();
        if complex::is_complex(&call) {
            return Ok(match target.is_in_place {
                true => Fault::unsupported("complex numbers that are written in place"),
                false => complex::lower(&call, lowering),
            });
        }
        Ok(match lowering {
            Lowering::One(lower) => lower(&call).map(|array| vec![Value::Tensor(array)]),
            Lowering::Many(lower) => lower(&call),
        })
    }

    /// Checks that results have their declared types and sizes.
    fn checked(&self, values: Vec<Value>, names: &[Option<&str>]) -> Lowered<Vec<Value>> {
        if values.len() < names.iter().flatten().count() {
            return Fault::unsupported(format!("{} results of {}", values.len(), names.len()));
        }
        let mut names = names.iter();
        let checked = values.into_iter().map(|value| match (names.next().copied().flatten(), value) {
            (Some(name), Value::Tensor(array)) => self.checked_tensor(name, array).map(Value::Tensor),
            (_, value) => Ok(value),
        });
        checked.collect()
    }

    fn checked_tensor(&self, name: &str, array: Array) -> Lowered<Array> {
        if array.tensor.is_poisoned() {
            return Fault::unsupported("operands that the graph does not accept");
        }
        let Some(declared) = self.declared(name) else { return Ok(array) };
        if declared.ty != array.ty {
            return Fault::unsupported(format!("a result of type {} instead of {}", array.ty, declared.ty));
        }
        match declared.shape {
            Ok(shape) if shape != self.cx.shape(&array.tensor) => {
                let tensor = self.cx.resized(&array.tensor, &shape)?;
                Ok(Array { tensor, ty: array.ty })
            }
            _ => Ok(array),
        }
    }

    fn define(&mut self, name: &str, value: Value, node: usize, output: usize, target: &Target) {
        let base = self.graph.nodes[node].inputs.first().and_then(|argument| match &argument.arg {
            Argument::AsTensor(base) => Some(base.name.clone()),
            _ => None,
        });
        let view = base.filter(|_| alias::is_view(&target.base) && !target.is_in_place).and_then(|base| {
            let own = self.slots.get(&base)?;
            // A conversion to another type always copies.
            let same = match (&own.value, &value) {
                (Value::Tensor(a), Value::Tensor(b)) => a.ty == b.ty,
                _ => own.parameter.is_some(),
            };
            let is_ordered = self.is_ordered(&base);
            same.then(|| View {
                seen: own.version,
                is_ambiguous: alias::may_copy(&target.base) && !is_ordered,
                depth: own.depth() + 1,
                base,
                node,
                output,
            })
        });
        self.slots.insert(name.to_owned(), Slot { view, ..Slot::of(value) });
    }

    /// True if a value has all elements of its base in the same order.
    fn is_ordered(&self, name: &str) -> bool {
        let Some(view) = self.slots.get(name).and_then(|slot| slot.view.as_ref()) else { return true };
        let base = Target::of(&self.graph.nodes[view.node].target).base;
        alias::is_whole(&base) && self.is_ordered(&view.base)
    }

    /// True if a node has written to the tensor in place.
    pub fn is_written(&self, name: &str) -> bool {
        self.slots.get(name).is_some_and(|slot| slot.version > 0)
    }

    /// The current value of a name, including all writes so far.
    pub fn read(&mut self, name: &str) -> Result<Value, ImportError> {
        let unknown = || ImportError::program(name, "read before it is defined");
        let slot = self.slots.get_mut(name).ok_or_else(unknown)?;
        if let Some(Parameter { name: parameter, tensor, ty }) = slot.parameter.take() {
            let shape: Vec<Dim> = tensor.shape().iter().map(|&extent| Dim::from(extent)).collect();
            let value = self.cx.scope.parameter(&parameter, tensor.dtype(), shape);
            slot.value = Value::Tensor(Array { tensor: value, ty });
            self.parameters.insert(parameter, tensor);
        }
        let Some((base, seen)) = slot.view.as_ref().map(|view| (view.base.clone(), view.seen)) else {
            return Ok(slot.value.clone());
        };
        self.read(&base)?;
        let version = self.slots.get(&base).map_or(0, |slot| slot.version);
        if version != seen {
            self.refresh(name, version)?;
        }
        self.slots.get(name).map(|slot| slot.value.clone()).ok_or_else(|| ImportError::program(name, "no value"))
    }

    /// Recomputes a view after a write to its base.
    fn refresh(&mut self, name: &str, version: u64) -> Result<(), ImportError> {
        let Some((node, output, is_ambiguous)) = self.slots.get(name).and_then(|slot| {
            let view = slot.view.as_ref()?;
            Some((view.node, view.output, view.is_ambiguous))
        }) else {
            return Ok(());
        };
        let node = &self.graph.nodes[node];
        if is_ambiguous {
            let reason = "its tensor is written in place later, and it may be a copy or not";
            self.unsupported.add(&node.target, reason, module(node));
        }
        let target = Target::of(&node.target);
        let value = if target.is_in_place {
            // The name is an alias of the node's first argument.
            let base = self.slots.get(name).and_then(|slot| slot.view.as_ref()).map(|view| view.base.clone());
            self.read(&base.unwrap_or_default())?
        } else {
            let values = self.lower(node, &target)?.map(flattened);
            values.ok().and_then(|values| values.into_iter().nth(output)).unwrap_or(Value::None)
        };
        if let Some(slot) = self.slots.get_mut(name) {
            slot.value = value;
            slot.version += 1;
            if let Some(view) = &mut slot.view {
                view.seen = version;
            }
        }
        Ok(())
    }

    /// Writes the result of an in-place operator to its first argument. The result then becomes an alias of that argument.
    fn write_in_place(&mut self, node: &Node, result: Option<&str>) -> Result<(), ImportError> {
        let Some(Argument::AsTensor(first)) = node.inputs.first().map(|argument| &argument.arg) else {
            return Ok(());
        };
        let Some(result) = result else { return Ok(()) };
        let Value::Tensor(value) = self.read(result)? else { return Ok(()) };
        let Value::Tensor(own) = self.read(&first.name)? else { return Ok(()) };
        let value = self.cx.cast(&value, own.ty);
        let written = match self.cx.expand(&value.tensor, &self.cx.shape(&own.tensor)) {
            Ok(tensor) => self.write(&first.name, Array { tensor, ty: own.ty })?,
            Err(fault) => Err(fault),
        };
        if let Some(reason) = written.err().and_then(Fault::reason) {
            self.unsupported.add(&node.target, &reason, module(node));
        }
        // Later reads of the result must see later writes.
        let place = self.graph.nodes.iter().position(|other| std::ptr::eq(other, node)).unwrap_or(0);
        let (seen, depth) = self.slots.get(&first.name).map_or((0, 0), |slot| (slot.version, slot.depth()));
        if let Some(slot) = self.slots.get_mut(result) {
            let base = first.name.clone();
            slot.view = Some(View { base, node: place, output: 0, seen, is_ambiguous: false, depth: depth + 1 });
        }
        Ok(())
    }

    fn write(&mut self, name: &str, value: Array) -> Result<Lowered<()>, ImportError> {
        let view = self.slots.get(name).and_then(|slot| slot.view.as_ref());
        let Some((base, node, output, is_ambiguous)) =
            view.map(|view| (view.base.clone(), view.node, view.output, view.is_ambiguous))
        else {
            self.set(name, value, None);
            return Ok(Ok(()));
        };
        if is_ambiguous {
            return Ok(Fault::unsupported("a write to a tensor that may be a copy or not"));
        }
        let node = &self.graph.nodes[node];
        let target = Target::of(&node.target);
        let Value::Tensor(own) = self.read(&base)? else { return Ok(Fault::program("a view of no tensor")) };
        let tensor = if target.is_in_place {
            Ok(value.tensor.clone())
        } else {
            let call = self.call(node, &target)?;
            alias::written(&call, &own.tensor, &value.tensor, output)
        };
        match tensor {
            Ok(tensor) => {
                let written = self.write(&base, Array { tensor, ty: own.ty })?;
                let seen = self.slots.get(&base).map_or(0, |slot| slot.version);
                self.set(name, value, Some(seen));
                Ok(written)
            }
            Err(fault) => Ok(Err(fault)),
        }
    }

    fn set(&mut self, name: &str, value: Array, seen: Option<u64>) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.value = Value::Tensor(value);
            slot.version += 1;
            if let (Some(view), Some(seen)) = (&mut slot.view, seen) {
                view.seen = seen;
            }
        }
    }

    /// Lowers control flow: computes both branches, and selects results by the predicate.
    fn higher_order(&mut self, node: &Node) -> Result<Lowered<Vec<Value>>, ImportError> {
        let graphs = node.inputs.iter().filter_map(|argument| match &argument.arg {
            Argument::AsGraph(inner) => Some(&inner.graph),
            _ => None,
        });
        let graphs: Vec<&Graph> = graphs.collect();
        let first = node.inputs.iter().position(|argument| matches!(argument.arg, Argument::AsGraph(_))).unwrap_or(0);
        let (mut before, mut operands) = (vec![], vec![]);
        for (place, argument) in node.inputs.iter().enumerate() {
            match &argument.arg {
                Argument::AsGraph(_) => {}
                arg if place < first => before.push(self.value(arg)?),
                arg => operands.push(self.value(arg)?),
            }
        }
        let operands = flattened(operands);
        let mut results = vec![];
        for graph in graphs {
            results.push(self.inner(graph, &operands)?);
        }
        match results.as_slice() {
            [only] => Ok(Ok(only.clone())),
            [yes, no] => {
                let predicate = match before.first() {
                    Some(Value::Tensor(array)) => Ok(self.cx.cast(array, ScalarType::Bool)),
                    Some(Value::Number(number)) => {
                        self.cx.number(number, ScalarType::I64).map(|x| self.cx.cast(&x, ScalarType::Bool))
                    }
                    _ => Fault::program("a branch without a condition"),
                };
                Ok(predicate.and_then(|predicate| {
                    let pairs = yes.iter().zip(no).map(|(yes, no)| match (yes, no) {
                        (Value::Tensor(yes), Value::Tensor(no)) => {
                            let predicate = self.cx.reshape(&predicate.tensor, &[])?;
                            let tensor = predicate.select(&yes.tensor, &no.tensor);
                            self.cx.stored(&tensor, yes.ty).map(Value::Tensor)
                        }
                        _ => Fault::unsupported("branches that return no tensors"),
                    });
                    pairs.collect()
                }))
            }
            _ => Ok(Fault::program("control flow without a graph")),
        }
    }

    /// Lowers a nested graph, and returns its results.
    fn inner(&mut self, graph: &Graph, operands: &[Value]) -> Result<Vec<Value>, ImportError> {
        let names = result_names(&graph.inputs);
        let named = names.iter().zip(operands).filter_map(|(name, value)| Some(((*name)?.to_owned(), value.clone())));
        let slots = named.map(|(name, value)| (name, Slot::of(value))).collect();
        let mut inner = Frame::new(self.cx, graph, self.unsupported, slots);
        inner.run()?;
        graph.outputs.iter().map(|output| inner.value(output)).collect()
    }
}

/// Flattens lists of values.
fn flattened(values: Vec<Value>) -> Vec<Value> {
    let mut flat = vec![];
    for value in values {
        match value {
            Value::List(values) => flat.extend(values),
            other => flat.push(other),
        }
    }
    flat
}
