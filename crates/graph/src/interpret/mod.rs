//! The interpreter: every operator by its definition, in f64 with the range of f32, without fusion. It is the oracle of
//! the tests.

mod array;
mod custom;
mod elements;

pub use array::Array;

use crate::Coded;
use crate::op::{EvaluateError, Fused, Input, Op, Role};
use crate::shape::{HostProgram, ShapeError, ShapeProgram};
use crate::{DType, Dim, Graph, GraphError, HostTensor, Layout, NodeId, Scalar, Symbol, TensorSizeError, Type, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a graph cannot be interpreted.
#[derive(Clone, Debug, Error, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "interpret.")]
#[non_exhaustive]
pub enum InterpretError {
    /// The graph is invalid.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An input or parameter is missing.
    #[error("{kind} `{name}` has no value")]
    Missing {
        /// Input or parameter.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A tensor does not have the shape the graph declares.
    #[error("{kind} `{name}`: expected shape {expected}, got {actual:?}")]
    Shape {
        /// Input or parameter.
        kind: &'static str,
        /// The name.
        name: String,
        /// The declared shape.
        expected: String,
        /// The shape of the tensor.
        actual: Vec<usize>,
    },
    /// Host inputs do not have their declared values or sizes.
    #[error(transparent)]
    Host(#[from] ShapeError),
    /// A host input is not a tensor of integers.
    #[error("`{name}` must be of integers, got {actual}")]
    Type {
        /// The input.
        name: String,
        /// The type of its elements.
        actual: DType,
    },
    /// An operator failed.
    #[error("{op}: {reason}")]
    Op {
        /// The operator.
        op: String,
        /// Why.
        reason: EvaluateError,
    },
}

impl Coded for InterpretError {
    fn code(&self) -> &'static str {
        match self {
            Self::Graph(source) => source.code(),
            Self::Host(source) => source.code(),
            other => other.into(),
        }
    }
}

/// The largest number of elements of a materialised value.
const LIMIT: usize = 1 << 27;

/// Computes the outputs of a graph, by name, from named inputs and parameters.
///
/// It computes every operator by its definition, in f64 with the range of f32, element by element. That is slow and
/// exact: kernels are tested against it. It runs traced and rewritten graphs.
///
/// States are bound like inputs and default to zeros. A state that the graph sets is returned among the outputs.
///
/// Lengths and offsets are bound as integer tensors. Results are rounded to their storage types; host values are
/// returned as `I64`. Scores are returned as `[samples, heads, rows, keys]`, padded to the longest sample. Padding is
/// zero before pointwise operators are applied to it.
///
/// ```
/// use rewire_graph::{DType, HostTensor, Scope, interpret};
/// use std::collections::HashMap;
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[scope.size("rows"), 3.into()]);
/// let graph = scope.finish(&[("y", x.softmax(1))])?;
///
/// let x = HostTensor::f32(vec![1, 3], &[0.0, 0.0, 0.0])?;
/// let outputs = interpret(&graph, &HashMap::from([("x".to_owned(), x)]), &HashMap::new())?;
/// assert_eq!(outputs["y"].shape(), [1, 3]);
/// assert!(outputs["y"].to_f64().iter().all(|y| (y - 1.0 / 3.0).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`InterpretError`] if the graph does not verify, a tensor is missing or has another shape than declared, lengths,
/// offsets or counts violate their declarations, an input of ids has an id beyond its table, an operator has no
/// definition, or a value would have more than 2^27 elements.
pub fn interpret(
    graph: &Graph,
    inputs: &HashMap<String, HostTensor>,
    parameters: &HashMap<String, HostTensor>,
) -> Result<BTreeMap<String, HostTensor>, InterpretError> {
    graph.verify()?;
    let inputs = &with_states(graph, inputs)?;
    let mut run = Run::new(graph, inputs)?;
    for input in graph.ids().filter_map(|id| graph.op::<Input>(id)) {
        run.bound("input", &input.name, &input.ty, inputs)?;
    }
    run.program.check_ids(&run.symbols, |name| inputs.get(name))?;
    for id in graph.order()? {
        run.node(id, inputs, parameters)?;
    }
    let mut results = BTreeMap::new();
    for (name, value) in graph.outputs() {
        let ty = graph.ty(*value).cloned().unwrap_or_else(|| Type::host(vec![]));
        let tensor = run.read(*value)?.to_tensor(&ty);
        let failed =
            |error: TensorSizeError| InterpretError::Op { op: format!("output `{name}`"), reason: error.into() };
        results.insert(name.clone(), tensor.map_err(failed)?);
    }
    Ok(results)
}

/// The inputs, with zeros for states without a value.
fn with_states(
    graph: &Graph,
    inputs: &HashMap<String, HostTensor>,
) -> Result<HashMap<String, HostTensor>, InterpretError> {
    let mut all = inputs.clone();
    for input in graph.ids().filter_map(|id| graph.op::<Input>(id)) {
        if graph.states().contains(&input.name) && !inputs.contains_key(&input.name) {
            let shape: Vec<usize> = input.ty.shape.iter().filter_map(Dim::as_const).collect();
            let zeros = HostTensor::zeros(input.ty.dtype, shape);
            let failed = |error: TensorSizeError| InterpretError::Op { op: input.name.clone(), reason: error.into() };
            all.insert(input.name.clone(), zeros.map_err(failed)?);
        }
    }
    Ok(all)
}

struct Run<'a> {
    graph: &'a Graph,
    program: Arc<ShapeProgram>,
    symbols: BTreeMap<Symbol, i64>,
    values: HashMap<Value, Array>,
}

impl<'a> Run<'a> {
    /// Computes and checks the host values.
    fn new(graph: &'a Graph, inputs: &HashMap<String, HostTensor>) -> Result<Self, InterpretError> {
        let HostProgram { shapes: program, inputs: host, slots } = HostProgram::of(graph)?;
        let extent = |name: &str, axis: usize| inputs.get(name)?.shape().get(axis).copied();
        let given = graph.ids().filter_map(|id| graph.op::<Input>(id));
        if let Some(missing) = given.into_iter().find(|input| !inputs.contains_key(&input.name)) {
            return Err(InterpretError::Missing { kind: "input", name: missing.name.clone() });
        }
        let extents = program.extents(extent)?;
        let mut vectors = Vec::with_capacity(host.len());
        for input in &host {
            let Some(tensor) = inputs.get(&input.name) else { continue };
            if tensor.dtype().scalar() != Scalar::I32 && tensor.dtype().scalar() != Scalar::I64 {
                return Err(InterpretError::Type { name: input.name.clone(), actual: tensor.dtype() });
            }
            let declared = input.shape.iter().map(|dim| dim.evaluate(|symbol| extents.get(&symbol).copied()));
            let fits = |(declared, actual): (Option<usize>, &usize)| declared.is_none_or(|extent| extent == *actual);
            if input.shape.len() != tensor.shape().len() || !declared.zip(tensor.shape()).all(fits) {
                let (kind, expected) = ("input", program.expected(&input.shape, &extents));
                let (name, actual) = (input.name.clone(), tensor.shape().to_vec());
                return Err(InterpretError::Shape { kind, name, expected, actual });
            }
            vectors.push((input, tensor.to_i64()));
        }
        let computed = program.run(vectors, extent)?;
        let mut values = HashMap::new();
        for (value, slot) in slots {
            let vector = computed.slots[slot.0 as usize].clone();
            let scalar = graph.ty(value).is_some_and(|ty| ty.rank() == 0);
            let shape = if scalar { vec![] } else { vec![vector.len()] };
            values.insert(value, Array::from_integers(shape, vector));
        }
        Ok(Self { graph, program: Arc::new(program), symbols: computed.symbols, values })
    }

    fn node(
        &mut self,
        id: NodeId,
        inputs: &HashMap<String, HostTensor>,
        parameters: &HashMap<String, HostTensor>,
    ) -> Result<(), InterpretError> {
        let Some(node) = self.graph.node(id) else { return Ok(()) };
        let op = node.op.as_ref();
        let ty = node.types.first().cloned().unwrap_or_else(|| Type::host(vec![]));
        let array = match op.role() {
            Role::Host(_) => return Ok(()),
            Role::Fused(fused) => return self.fused(id, fused),
            Role::Input(input) => self.bound("input", &input.name, &ty, inputs)?,
            Role::Parameter(parameter) => self.bound("parameter", &parameter.name, &ty, parameters)?,
            Role::Constant(constant) => Array::from_tensor(&constant.tensor),
            Role::Computed => {
                let operands = self.graph.inputs(id).into_iter().map(|value| self.read(value));
                self.compute(id, op, &ty, &operands.collect::<Result<Vec<_>, _>>()?)?
            }
        };
        self.store(Value { node: id, port: 0 }, array);
        Ok(())
    }

    fn compute(&self, id: NodeId, op: &dyn Op, ty: &Type, operands: &[&Array]) -> Result<Array, InterpretError> {
        let failed = |reason: EvaluateError| InterpretError::Op { op: op.name().to_owned(), reason };
        let shape = self.shape(ty, id).map_err(failed)?;
        if let Some(elementwise) = op.elementwise() {
            let types: Vec<Type> =
                self.graph.inputs(id).into_iter().filter_map(|value| self.graph.ty(value).cloned()).collect();
            return Ok(elements::evaluate(elementwise, &types, operands, shape, ty, |dim| self.size(dim)));
        }
        if let Some(forms) = op.custom() {
            let inputs = self.graph.inputs(id);
            let types: Vec<Type> = inputs.into_iter().filter_map(|value| self.graph.ty(value).cloned()).collect();
            return custom::evaluate(forms, &types, operands, shape, ty).map_err(failed);
        }
        op.evaluate(operands, shape).map_err(failed)
    }

    fn fused(&mut self, id: NodeId, fused: &Fused) -> Result<(), InterpretError> {
        let operands: Vec<Array> =
            self.graph.inputs(id).into_iter().map(|value| self.read(value).cloned()).collect::<Result<_, _>>()?;
        let (program, symbols) = (self.program.clone(), self.symbols.clone());
        let mut body = Run { graph: &fused.body, program, symbols, values: HashMap::new() };
        let none = HashMap::new();
        for inner in fused.body.order()? {
            let position = fused.body.node(inner).and_then(|node| Fused::operand(node.op.as_ref()));
            match position.and_then(|position| operands.get(position)) {
                Some(array) => body.store(Value { node: inner, port: 0 }, array.clone()),
                None => body.node(inner, &none, &none)?,
            }
        }
        for (port, (_, value)) in fused.body.outputs().iter().enumerate() {
            let array = body.read(*value)?.clone();
            self.store(Value { node: id, port: port as u32 }, array);
        }
        Ok(())
    }

    fn store(&mut self, value: Value, array: Array) {
        self.values.insert(value, array);
    }

    fn read(&self, value: Value) -> Result<&Array, InterpretError> {
        self.values
            .get(&value)
            .ok_or_else(|| InterpretError::Missing { kind: "value", name: format!("node {}", value.node.number()) })
    }

    fn bound(
        &self,
        kind: &'static str,
        name: &str,
        ty: &Type,
        tensors: &HashMap<String, HostTensor>,
    ) -> Result<Array, InterpretError> {
        let tensor = tensors.get(name).ok_or_else(|| InterpretError::Missing { kind, name: name.to_owned() })?;
        let expected: Option<Vec<usize>> = ty.shape.iter().map(|dim| self.size(dim)).collect();
        if expected.as_deref() != Some(tensor.shape()) {
            let (name, expected) = (name.to_owned(), self.program.expected(&ty.shape, &self.symbols));
            return Err(InterpretError::Shape { kind, name, expected, actual: tensor.shape().to_vec() });
        }
        Ok(Array::from_tensor(tensor))
    }

    fn size(&self, dim: &Dim) -> Option<usize> {
        dim.evaluate(|symbol| self.symbols.get(&symbol).copied())
    }

    /// The concrete shape; a ragged axis of scores has the length of the longest sample.
    fn shape(&self, ty: &Type, id: NodeId) -> Result<Vec<usize>, EvaluateError> {
        let mut shape = ty
            .shape
            .iter()
            .map(|dim| {
                let unknown = || EvaluateError::Size { size: self.program.display(dim).to_string() };
                self.size(dim).ok_or_else(unknown)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if ty.layout == Layout::Scores {
            let longest = self.graph.inputs(id).into_iter().rev().filter_map(|value| {
                let array = self.values.get(&value)?;
                match self.graph.ty(value)?.layout {
                    Layout::Scores => Some(array.shape[2..].to_vec()),
                    _ => None,
                }
            });
            let offsets: Vec<usize> = self
                .graph
                .inputs(id)
                .into_iter()
                .filter(|value| self.graph.ty(*value).is_some_and(|ty| ty.layout == Layout::Host && ty.rank() == 1))
                .filter_map(|value| self.values.get(&value))
                .map(|array| {
                    array.integers().windows(2).map(|w| w[1].saturating_sub(w[0]).max(0) as usize).max().unwrap_or(0)
                })
                .collect();
            let extents =
                longest.into_iter().next().unwrap_or_else(|| offsets[offsets.len().saturating_sub(2)..].to_vec());
            shape.truncate(2);
            shape.extend(extents);
        }
        let size = shape.iter().try_fold(1usize, |size, &n| size.checked_mul(n)).unwrap_or(usize::MAX);
        if size > LIMIT { Err(EvaluateError::TooLarge { elements: size, limit: LIMIT }) } else { Ok(shape) }
    }
}
