//! ONNX models: operator sets from 6 on, with external data, functions, and control flow that can be resolved while reading.
//!
//! Named sizes stay symbolic. Values that shapes depend on must be known while the model is read. Initializers, constants, and everything
//! computed from them and from sizes are known. Inputs are known after [`Options::bind`], which makes them part of the model.
//!
//! ```
//! use rewire_import::onnx;
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/onnx/test_leakyrelu_example/model.onnx");
//! let model = onnx::open(path.as_ref())?;
//! assert_eq!((&*model.inputs[0].name, &*model.outputs[0].name), ("x", "y"));
//! # Ok::<(), rewire_import::ImportError>(())
//! ```

mod control;
mod fold;
mod frame;
mod item;
mod node;
mod ops;
mod schema;
mod tensor;
mod whole;

use crate::array::Array;
use crate::context::Context;
use crate::size::Size;
use crate::{ImportError, ImportedModel, OutputKind, OutputSpec, TensorSpec, TypedTensor, Unsupported};
use frame::{Frame, Program, Slot, domain, initializers, opsets, title};
use item::{Item, Store};
use prost::Message;
use rewire_graph::op::Role;
use rewire_graph::{Dim, Graph, NodeId, Tensor};
use schema::{DimensionValue, GraphProto, ModelProto, NodeProto, TypeValue, ValueInfoProto};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Options for reading a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    bound: BTreeMap<String, TypedTensor>,
    folder: Option<PathBuf>,
}

impl Options {
    /// Binds an input to a value, which becomes part of the model. Shapes may depend on it.
    #[must_use]
    pub fn bind(mut self, name: &str, tensor: TypedTensor) -> Self {
        self.bound.insert(name.to_owned(), tensor);
        self
    }

    /// Sets the folder that contains external data.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }
}

/// Reads a model with its external data.
///
/// # Errors
/// [`ImportError`] if the file is not a valid ONNX model, has operators without a lowering, or has shapes that depend on the values of
/// inputs.
pub fn open(path: &Path) -> Result<ImportedModel, ImportError> {
    open_with(path, Options::default())
}

/// Like [`open`], with options. The folder of external data is the model's.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: &Path, options: Options) -> Result<ImportedModel, ImportError> {
    let failed = |source| ImportError::Io { path: path.display().to_string(), source };
    let bytes = std::fs::read(path).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    from_bytes_with(&bytes, &options.folder(folder))
}

/// Like [`open`], for the bytes of a model without external data.
///
/// # Errors
/// As [`open`].
pub fn from_bytes(bytes: &[u8]) -> Result<ImportedModel, ImportError> {
    from_bytes_with(bytes, &Options::default())
}

/// Like [`from_bytes`], with options.
///
/// # Errors
/// As [`open`].
pub fn from_bytes_with(bytes: &[u8], options: &Options) -> Result<ImportedModel, ImportError> {
    let model = ModelProto::decode(bytes).map_err(|error| ImportError::archive("the model", error))?;
    let graph = model.graph.as_ref().ok_or_else(|| ImportError::archive("the model", "no graph"))?;
    let opsets = opsets(&model.opset_import);
    check_version(&opsets)?;
    let functions = model
        .functions
        .iter()
        .map(|function| ((domain(function.domain.as_deref()), function.name.clone().unwrap_or_default()), function));
    let (cx, store) = (Context::new(), Store::new(false));
    let program = Program {
        cx: &cx,
        store: &store,
        options,
        functions: functions.collect(),
        unsupported: RefCell::default(),
        wanted: RefCell::default(),
        count: RefCell::default(),
    };
    let mut unsupported = Unsupported::default();
    check(&graph.node, &program, &mut unsupported);
    for value in graph.input.iter().chain(&graph.output) {
        let ty = value.r#type.as_ref().and_then(|ty| ty.value.as_ref());
        if let Some(TypeValue::Sequence(_) | TypeValue::Map(_) | TypeValue::Optional(_)) = ty {
            unsupported.add(value.name.as_deref().unwrap_or_default(), "a sequence, map or optional value", "");
        }
    }
    if !unsupported.is_empty() {
        return Err(ImportError::Unsupported(unsupported));
    }
    let mut scope = initializers(graph, options)?;
    let inputs = bind_inputs(&program, graph, &mut scope)?;
    let mut frame = Frame::new(&program, &opsets, scope);
    frame.run(&graph.node)?;
    let results = outputs(&frame, graph)?;
    let (unsupported, wanted) = (program.unsupported.take(), program.wanted.take());
    if !unsupported.is_empty() {
        return Err(ImportError::Unsupported(unsupported));
    }
    if !wanted.is_empty() {
        return Err(ImportError::Unbound { inputs: wanted.into_iter().collect() });
    }
    if results.len() != graph.output.len() {
        return Err(ImportError::program("outputs", "a result without a value"));
    }
    let named: Vec<(&str, Tensor)> =
        results.iter().map(|(name, array)| (name.as_str(), array.tensor.clone())).collect();
    let outputs = results
        .iter()
        .map(|(name, array)| OutputSpec { name: name.clone(), kind: OutputKind::Tensor(name.clone(), array.ty) });
    let outputs = outputs.collect();
    let graph = cx.scope.clone().finish(&named);
    let graph = graph.map_err(|source| ImportError::Graph { node: "output".to_owned(), source: Box::new(source) })?;
    let live = graph.live();
    let read: HashSet<&str> = live.iter().filter_map(|&id| parameter(&graph, id)).collect();
    let mut parameters = store.into_parameters();
    // Excludes parameters that are only read in another form, such as packed for integer products.
    parameters.retain(|name, _| read.contains(name.as_str()));
    let (states, mutations) = Default::default();
    Ok(ImportedModel { graph, parameters, states, inputs, outputs, mutations })
}

/// The name of the parameter that a node is; `None` for other nodes.
fn parameter(graph: &Graph, id: NodeId) -> Option<&str> {
    match graph.role(id) {
        Some(Role::Parameter(parameter)) => Some(&parameter.name),
        _ => None,
    }
}

/// The names of a model's inputs in order, without inputs that have an initializer.
///
/// # Errors
/// [`ImportError`] if the bytes are not an ONNX model.
pub fn input_names(bytes: &[u8]) -> Result<Vec<String>, ImportError> {
    let model = ModelProto::decode(bytes).map_err(|error| ImportError::archive("the model", error))?;
    let graph = model.graph.unwrap_or_default();
    let known: HashSet<&str> = graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
    let names = graph.input.iter().filter_map(|value| value.name.clone());
    Ok(names.filter(|name| !known.contains(name.as_str())).collect())
}

/// Reads a `TensorProto` message, the format of the data of backend cases.
///
/// # Errors
/// [`ImportError`] if the bytes are not such a message, or the element type is not supported.
pub fn read_tensor(bytes: &[u8]) -> Result<TypedTensor, ImportError> {
    let proto = schema::TensorProto::decode(bytes).map_err(|error| ImportError::archive("the tensor", error))?;
    tensor::read(&proto, None)
}

/// The operators with a lowering, sorted by name. Operators outside the standard's domain are named `domain.name`.
pub fn operators() -> Vec<&'static str> {
    let mut names: Vec<&str> = ops::operators().map(|(name, _)| name).chain(control::OPERATORS).collect();
    names.sort_unstable();
    names
}

/// The oldest supported operator set.
const OLDEST: i64 = 6;

fn check_version(opsets: &HashMap<String, i64>) -> Result<(), ImportError> {
    match opsets.get("") {
        Some(&version) if version < OLDEST => Err(ImportError::Version {
            what: "operator set",
            expected: format!("{OLDEST} or newer"),
            actual: version.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Collects all operators that have no lowering.
fn check(nodes: &[NodeProto], program: &Program<'_>, unsupported: &mut Unsupported) {
    let mut called: HashSet<(String, String)> = HashSet::new();
    let mut rest: Vec<&[NodeProto]> = vec![nodes];
    while let Some(nodes) = rest.pop() {
        for node in nodes {
            let key = (domain(node.domain.as_deref()), frame::op(node).to_owned());
            rest.extend(node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()).map(|graph| &*graph.node));
            if let Some(function) = program.functions.get(&key) {
                if called.insert(key) {
                    rest.push(&function.node);
                }
                continue;
            }
            let is_control = key.0.is_empty() && control::OPERATORS.contains(&key.1.as_str());
            if !is_control && ops::lowering(&key.0, &key.1).is_none() {
                unsupported.add(&title(node), "no lowering", "");
            }
        }
    }
}

/// Adds the inputs to bind for each run. Inputs with a known value become constants.
fn bind_inputs(
    program: &Program<'_>,
    graph: &GraphProto,
    scope: &mut HashMap<String, Slot>,
) -> Result<Vec<TensorSpec>, ImportError> {
    let mut specs = vec![];
    for value in &graph.input {
        let name = value.name.as_deref().unwrap_or_default();
        if scope.contains_key(name) {
            continue;
        }
        let slot = match program.options.bound.get(name) {
            Some(bound) => Slot::of(Item::constant(bound.ty, bound.tensor.clone())),
            None => {
                let spec = input_type(program.cx, name, value)?;
                let tensor = program.cx.scope.input(name, spec.ty.dtype(), spec.shape.clone());
                let item = Item::Array(Array { tensor, ty: spec.ty });
                specs.push(spec);
                Slot { sources: std::rc::Rc::new([name.to_owned()].into()), ..Slot::of(item) }
            }
        };
        scope.insert(name.to_owned(), slot);
    }
    Ok(specs)
}

fn input_type(cx: &Context, name: &str, value: &ValueInfoProto) -> Result<TensorSpec, ImportError> {
    let value = value.r#type.as_ref().and_then(|ty| ty.value.as_ref());
    let Some(TypeValue::Tensor(ty)) = value else { return Err(ImportError::program(name, "an input without a type")) };
    let shape = ty.shape.as_ref().ok_or_else(|| ImportError::program(name, "an input without a shape"))?;
    let mut dims: Vec<Dim> = vec![];
    for (axis, dim) in shape.dim.iter().enumerate() {
        let size = match &dim.value {
            Some(DimensionValue::Extent(extent)) if *extent >= 0 => Size::from(*extent),
            Some(DimensionValue::Extent(_)) => return Err(ImportError::program(name, "a negative extent")),
            Some(DimensionValue::Name(symbol)) if !symbol.is_empty() => cx.sizes.borrow_mut().symbol(symbol),
            _ => cx.sizes.borrow_mut().symbol(&format!("{name}.{axis}")),
        };
        let dim = cx.sizes.borrow_mut().bind(&size);
        dims.push(dim.ok_or_else(|| ImportError::program(name, "a size that is not defined"))?);
    }
    Ok(TensorSpec { name: name.to_owned(), ty: tensor::element_type(name, ty.elem_type)?, shape: dims })
}

/// The results of the graph, checked against their declared types; empty if one depends on a node that cannot be lowered.
fn outputs(frame: &Frame<'_>, graph: &GraphProto) -> Result<Vec<(String, Array)>, ImportError> {
    let mut results = vec![];
    for value in &graph.output {
        let name = value.name.as_deref().unwrap_or_default();
        let slot = frame.slot(name).ok_or_else(|| ImportError::program(name, "a result that is not defined"))?;
        if slot.is_tainted {
            return Ok(vec![]);
        }
        let declared = match value.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
            Some(TypeValue::Tensor(ty)) => Some(ty),
            _ => None,
        };
        let array = match frame.program.store.array(frame.program.cx, &slot.item) {
            Ok(array) => array,
            Err(fault) => {
                if let Some(reason) = fault.reason() {
                    frame.program.unsupported.borrow_mut().add("output", &reason, "");
                }
                continue;
            }
        };
        if let Some(code) = declared.and_then(|ty| ty.elem_type)
            && crate::ScalarType::of_onnx(code).is_some_and(|ty| ty != array.ty)
        {
            return Err(ImportError::program(name, format!("of type {}, declared otherwise", array.ty)));
        }
        results.push((name.to_owned(), array));
    }
    Ok(results)
}
