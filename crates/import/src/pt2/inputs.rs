//! The inputs of a program: parameters, buffers, constants and tensors that are bound for each run.

use super::archive::{Archive, StoredTensor, element_type};
use super::expr::parse;
use super::frame::{Parameter, Slot};
use super::schema::{Argument, Graph, InputSpec, OutputSpec, Payload, Program, SymInt, TensorMeta};
use super::target::Target;
use crate::array::Array;
use crate::context::Context;
use crate::size::Size;
use crate::value::Value;
use crate::{ImportError, ScalarType, TensorSpec};
use rewire_graph::{Dim, HostTensor};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of elements of a constant that becomes part of the graph.
const SMALL: usize = 64;

/// The inputs of a program.
pub(super) struct Inputs {
    pub slots: HashMap<String, Slot>,
    pub specs: Vec<TensorSpec>,
    pub states: HashMap<String, HostTensor>,
    /// Buffers that are states: name in the graph to name of the buffer.
    pub state_names: BTreeMap<String, String>,
}

/// The sizes of a tensor, or why they are unknown.
pub(super) fn shape_of(cx: &Context, meta: &TensorMeta) -> Result<Vec<Size>, String> {
    let mut sizes = cx.sizes.borrow_mut();
    let size = |size: &SymInt| match size {
        SymInt::AsInt(size) => Ok(Size::from(*size)),
        SymInt::AsExpr(expr) => parse(&expr.expr_str, &mut sizes),
    };
    meta.sizes.iter().map(size).collect()
}

impl Inputs {
    pub fn bind(cx: &Context, archive: &mut Archive<'_>, name: &str, program: &Program) -> Result<Self, ImportError> {
        let (graph, signature) = (&program.graph_module.graph, &program.graph_module.signature);
        if graph.inputs.len() != signature.input_specs.len() {
            return Err(ImportError::program("inputs", "their number differs from the signature"));
        }
        let stored =
            Stored { weights: archive.payloads("weights", name)?, constants: archive.payloads("constants", name)? };
        let mut inputs =
            Self { slots: HashMap::new(), specs: vec![], states: HashMap::new(), state_names: BTreeMap::new() };
        let changed = changed_buffers(graph, &signature.output_specs, &signature.input_specs);
        let users = signature.input_specs.iter().filter_map(|spec| match spec {
            InputSpec::UserInput { arg } => Some(arg),
            _ => None,
        });
        inputs.bind_users(cx, graph, &users.collect::<Vec<_>>())?;
        for spec in &signature.input_specs {
            let (arg, fqn) = match spec {
                InputSpec::Parameter { arg, parameter_name } => (arg, parameter_name),
                InputSpec::Buffer { arg, buffer_name, .. } => (arg, buffer_name),
                InputSpec::TensorConstant { arg, tensor_constant_name } => (arg, tensor_constant_name),
                InputSpec::CustomObj { custom_obj_name } => {
                    return Err(ImportError::Pickle { name: custom_obj_name.clone() });
                }
                InputSpec::Token { arg } => {
                    inputs.slots.insert(arg.name.clone(), Slot::of(Value::None));
                    continue;
                }
                InputSpec::UserInput { .. } | InputSpec::ConstantInput(_) => continue,
            };
            let is_constant = match spec {
                InputSpec::Buffer { persistent, .. } => !persistent,
                InputSpec::TensorConstant { .. } => true,
                _ => false,
            };
            let tensor = stored.tensor(archive, fqn, is_constant)?;
            inputs.bind_stored(cx, &arg.name, fqn, tensor, changed.contains(&arg.name));
        }
        Ok(inputs)
    }

    fn bind_stored(&mut self, cx: &Context, name: &str, fqn: &str, stored: StoredTensor, is_state: bool) {
        let StoredTensor { tensor, ty } = stored;
        let shape: Vec<Dim> = tensor.shape().iter().map(|&extent| Dim::from(extent)).collect();
        let slot = if is_state {
            let value = cx.scope.state(fqn, tensor.dtype(), shape);
            self.states.insert(fqn.to_owned(), tensor);
            self.state_names.insert(name.to_owned(), fqn.to_owned());
            Slot::of(Array { tensor: value, ty }.into())
        } else if tensor.len() <= SMALL && name.starts_with("c_") {
            Slot::of(Array { tensor: cx.scope.constant(tensor), ty }.into())
        } else {
            Slot::parameter(Parameter { name: fqn.to_owned(), tensor, ty })
        };
        self.slots.insert(name.to_owned(), slot);
    }

    /// Binds the inputs of a run. Extents that are a single symbol define symbols before extents that are sums.
    fn bind_users(&mut self, cx: &Context, graph: &Graph, users: &[&Argument]) -> Result<(), ImportError> {
        let mut tensors = vec![];
        for argument in users {
            match argument {
                Argument::AsTensor(name) => {
                    let meta = graph.tensor_values.get(&name.name);
                    let meta = meta.ok_or_else(|| ImportError::program(&name.name, "an input without a type"))?;
                    let shape = shape_of(cx, meta).map_err(|reason| ImportError::program(&name.name, reason))?;
                    let ty = element_type(&name.name, meta)?;
                    if ty == ScalarType::C64 {
                        return Err(ImportError::program(&name.name, "an input of complex numbers"));
                    }
                    tensors.push((&name.name, ty, shape));
                }
                Argument::AsNone(_) | Argument::AsInt(_) | Argument::AsFloat(_) | Argument::AsBool(_) => {}
                Argument::AsString(_) => {}
                other => {
                    return Err(ImportError::program("inputs", format!("an input that is not a tensor: {other:?}")));
                }
            }
        }
        let is_symbol = |size: &Size| size.terms().count() == 1 && size.terms().all(|(_, factor)| factor == 1);
        for size in tensors.iter().flat_map(|(_, _, shape)| shape).filter(|size| is_symbol(size)) {
            cx.sizes.borrow_mut().bind(size);
        }
        let hosts = offset_inputs(graph);
        for (name, ty, shape) in tensors {
            let dims = shape.iter().map(|size| cx.sizes.borrow_mut().bind(size)).collect::<Option<Vec<Dim>>>();
            let dims = dims.ok_or_else(|| ImportError::program(name, "a size that does not determine its symbols"))?;
            self.specs.push(TensorSpec { name: name.clone(), ty, shape: dims.clone() });
            let tensor = if hosts.contains(name) && dims.len() == 1 && ty.is_integer() {
                let host = cx.scope.host_input(name, dims);
                let device = host.cast(ty.dtype());
                if let Some(value) = device.value() {
                    cx.hosts.borrow_mut().insert(value, host);
                }
                device
            } else {
                cx.scope.input(name, ty.dtype(), dims)
            };
            self.slots.insert(name.clone(), Slot::of(Value::Tensor(Array { tensor, ty })));
        }
        Ok(())
    }
}

/// Configurations of stored tensors.
struct Stored {
    weights: BTreeMap<String, Payload>,
    constants: BTreeMap<String, Payload>,
}

impl Stored {
    fn tensor(&self, archive: &mut Archive<'_>, name: &str, is_constant: bool) -> Result<StoredTensor, ImportError> {
        let (kind, config) = if is_constant { ("constants", &self.constants) } else { ("weights", &self.weights) };
        let payload = config.get(name).ok_or_else(|| ImportError::program(name, format!("not among the {kind}")))?;
        archive.tensor(kind, name, payload)
    }
}

/// Names of inputs that are offsets of jagged operators.
fn offset_inputs(graph: &Graph) -> HashSet<String> {
    let jagged = graph.nodes.iter().filter(|node| node.target.starts_with("torch.ops.fbgemm."));
    let arguments = jagged.flat_map(|node| &node.inputs).filter(|argument| argument.name.ends_with("offsets"));
    let names = arguments.flat_map(|argument| match &argument.arg {
        Argument::AsTensor(name) => vec![name.name.clone()],
        Argument::AsTensors(names) => names.iter().map(|name| name.name.clone()).collect(),
        _ => vec![],
    });
    names.collect()
}

/// Buffers that the program changes, as stated in its signature or in place through views.
fn changed_buffers(graph: &Graph, outputs: &[OutputSpec], inputs: &[InputSpec]) -> HashSet<String> {
    let buffers: HashMap<&str, &str> = inputs
        .iter()
        .filter_map(|spec| match spec {
            InputSpec::Buffer { arg, buffer_name, .. } => Some((buffer_name.as_str(), arg.name.as_str())),
            _ => None,
        })
        .collect();
    let mut changed = HashSet::new();
    for spec in outputs {
        if let OutputSpec::BufferMutation { buffer_name, .. } = spec
            && let Some(name) = buffers.get(buffer_name.as_str())
        {
            changed.insert((*name).to_owned());
        }
    }
    // Following first arguments from any node leads to the buffer that it may be a view of.
    let mut roots: HashMap<&str, &str> = buffers.values().map(|&name| (name, name)).collect();
    for node in &graph.nodes {
        let Some(Argument::AsTensor(first)) = node.inputs.first().map(|argument| &argument.arg) else { continue };
        let Some(root) = roots.get(first.name.as_str()).copied() else { continue };
        let target = Target::of(&node.target);
        if target.is_in_place && target.base != "aten.detach" {
            changed.insert(root.to_owned());
        }
        if !super::alias::is_view(&target.base) && !target.is_in_place {
            continue;
        }
        for output in &node.outputs {
            match output {
                Argument::AsTensor(name) => roots.extend([(name.name.as_str(), root)]),
                Argument::AsTensors(names) => roots.extend(names.iter().map(|name| (name.name.as_str(), root))),
                _ => {}
            }
        }
    }
    changed
}
