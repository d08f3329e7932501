//! Tracing: model code runs on symbolic values and builds a graph.
//!
//! A failed operator returns a poisoned value, and so do operators that read it, so model code needs no error handling.
//! [`Scope::finish`] returns the first error with its operator, module path and argument.

mod attention;
mod axes;
mod conv;
mod jagged;
mod linear;
mod norm;
mod operands;
mod padded;
mod pointwise;
mod require;
mod session_state;
mod shape;
mod state;
mod tensor;
mod top_k;

pub use axes::{Axis, Shape};
pub use jagged::Ragged;
pub use pointwise::Operand;
pub use tensor::Tensor;

use crate::op::{Constant, HostOp, Identity, Input, Iota, Op, Parameter, Role};
use crate::scope_tags::ScopeId;
use crate::{DType, Dim, Graph, GraphError, HostTensor, Layout, Number, SizeSource, Type, TypeError, Value};
use state::{State, Trace};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// Whether a model is traced for inference or for training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Inference.
    #[default]
    Eval,
    /// Training: dropout is active.
    Train,
}

/// A position in the module tree of a model that is being traced.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// let scope = Scope::new();
/// let tokens = scope.size("tokens");
/// let x = scope.input("x", DType::F32, &[tokens, 4.into()]);
/// let y = scope.module("mlp", |mlp| {
///     let weight = mlp.parameter("weight", DType::F32, &[4.into(), 8.into()]);
///     x.matmul(&weight).silu()
/// });
/// let graph = scope.finish(&[("y", y)])?;
/// assert_eq!(graph.len(), 4);
/// # Ok::<(), rewire_graph::GraphError>(())
/// ```
#[derive(Clone)]
pub struct Scope {
    state: Trace,
    path: String,
    weights: DType,
    mode: Mode,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scope").field(&self.path).finish()
    }
}

impl Default for Scope {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl Scope {
    /// The top level of a new model.
    pub fn new() -> Self {
        Self::of(State { id: Some(ScopeId::new()), ..State::default() })
    }

    fn of(state: State) -> Self {
        Self { state: Trace::new(state), path: String::new(), weights: DType::F32, mode: Mode::Eval }
    }

    /// The same trace; its errors do not name lines of the source. For models that are traced from configurations.
    pub fn without_places(self) -> Self {
        self.state.lock().has_no_places = true;
        self
    }

    /// The same position, with weights stored as `dtype`.
    pub fn with_weights(&self, dtype: DType) -> Self {
        Self { weights: dtype, ..self.clone() }
    }

    /// The same position, traced for inference or training.
    pub fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// Whether the model is traced for inference or training; [`Mode::Eval`] by default.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// [`Tensor::dropout`] of `x` in training, `x` in inference.
    ///
    /// The seed is the input `seed` of a run, an `I64` scalar. The `n`-th dropout of a graph adds `n 2^32` to it, so
    /// that each draws different numbers.
    #[track_caller]
    pub fn dropout(&self, x: impl AsRef<Tensor>, ratio: f32) -> Tensor {
        let x = x.as_ref();
        if self.mode == Mode::Eval || ratio == 0.0 {
            return x.clone();
        }
        let number = {
            let dropouts = &mut self.state.lock().dropouts;
            *dropouts += 1;
            *dropouts - 1
        };
        let seed = &self.input("seed", DType::I64, &[]) + f64::from(number) * 2f64.powi(32);
        x.dropout(ratio, &seed)
    }

    /// Runs `body` in the module `name` of this scope. A name may contain dots.
    pub fn module<T>(&self, name: &str, body: impl FnOnce(&Self) -> T) -> T {
        let path = self.join(name);
        let outer = std::mem::replace(&mut self.state.lock().path, path.clone());
        let result = body(&Self { path, ..self.clone() });
        self.state.lock().path = outer;
        result
    }

    /// The module path, empty at top level.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A size that a run determines. It must be a whole extent of some input. Repeated calls return the same size. It
    /// is valid only in this scope.
    pub fn size(&self, name: &str) -> Dim {
        let mut state = self.state.lock();
        if let Some(known) = state.sizes.get(name) {
            return known.clone();
        }
        let size = Dim::of_scope(state.graph.add_size(name, SizeSource::Unbound), state.id, name);
        state.sizes.insert(name.to_owned(), size.clone());
        size
    }

    /// A tensor bound by name for each run.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, shape: impl Shape) -> Tensor {
        self.named_input(name, Type::device(dtype, shape.dims()))
    }

    /// An integer vector on the host, bound by name for each run.
    #[track_caller]
    pub fn host_input(&self, name: &str, shape: impl Shape) -> Tensor {
        self.named_input(name, Type::host(shape.dims()))
    }

    #[track_caller]
    fn named_input(&self, name: &str, ty: Type) -> Tensor {
        self.state.lock().graph.bind_sizes(name, &ty.shape);
        let op = Input { name: name.to_owned(), ty: ty.clone() };
        self.named("input", name.to_owned(), ty, Arc::new(op))
    }

    /// A value bound by its module path and name when a plan is loaded. Repeated calls return the same value.
    #[track_caller]
    pub fn parameter(&self, name: &str, dtype: DType, shape: impl Shape) -> Tensor {
        let ty = Type::device(dtype, shape.dims());
        let name = self.join(name);
        let op = Parameter { name: name.clone(), ty: ty.clone() };
        self.named("parameter", name, ty, Arc::new(op))
    }

    /// A parameter of floats in the scope's storage type of weights, `F32` by default.
    #[track_caller]
    pub fn weight(&self, name: &str, shape: impl Shape) -> Tensor {
        self.parameter(name, self.weights, shape)
    }

    /// A tensor that is part of the graph.
    #[track_caller]
    pub fn constant(&self, tensor: HostTensor) -> Tensor {
        self.shared(Constant { tensor }, &[])
    }

    /// A scalar that is part of the graph.
    #[track_caller]
    pub fn scalar(&self, dtype: DType, value: impl Into<Number>) -> Tensor {
        match Constant::scalar(dtype, value) {
            Ok(constant) => self.shared(constant, &[]),
            Err(error) => self.fail("constant", error),
        }
    }

    /// A size as a host value.
    #[track_caller]
    pub fn host_size(&self, dim: impl Into<Dim>) -> Tensor {
        self.shared(HostOp::Size(dim.into()), &[])
    }

    /// `len` equal entries, as a host vector.
    #[track_caller]
    pub fn host_fill(&self, len: impl Into<Dim>, value: impl AsRef<Tensor>) -> Tensor {
        let value = value.as_ref();
        self.shared(HostOp::Fill(len.into()), &[value])
    }

    /// `0, 1, 2, ...`, as a host vector.
    ///
    /// ```
    /// use rewire_graph::{Scope, interpret};
    /// let scope = Scope::new();
    /// let n = scope.host_iota(3);
    /// let graph = scope.finish(&[("n", n)])?;
    /// let outputs = interpret(&graph, &Default::default(), &Default::default())?;
    /// assert_eq!(outputs["n"].to_i64(), [0, 1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn host_iota(&self, len: impl Into<Dim>) -> Tensor {
        self.shared(HostOp::Iota(len.into()), &[])
    }

    /// `0, 1, 2, ...`, an `I64[len]` on the device.
    ///
    /// ```
    /// use rewire_graph::{Scope, interpret};
    /// let scope = Scope::new();
    /// let n = scope.iota(3);
    /// let graph = scope.finish(&[("n", n)])?;
    /// let outputs = interpret(&graph, &Default::default(), &Default::default())?;
    /// assert_eq!(outputs["n"].to_i64(), [0, 1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn iota(&self, len: impl Into<Dim>) -> Tensor {
        self.shared(Iota { len: len.into() }, &[])
    }

    /// Adds any operator, including custom ones.
    #[track_caller]
    pub fn apply(&self, op: impl Op, operands: &[&Tensor]) -> Tensor {
        apply(&self.state, Arc::new(op), operands)
    }

    /// A value that reports an error at [`Scope::finish`].
    #[track_caller]
    pub fn fail(&self, op: &str, source: TypeError) -> Tensor {
        let path = self.state.lock().path.clone();
        poison(&self.state, GraphError::of_type(op, &path, source))
    }

    /// The traced graph with its outputs, verified, or the first error.
    ///
    /// # Errors
    /// The first [`GraphError`] of the trace, with operator, module path and argument; a size that is not an extent of
    /// an input; two outputs with the same name; an output of another scope; scores as an output; a scope that is
    /// finished already.
    pub fn finish(self, outputs: &[(&str, Tensor)]) -> Result<Graph, GraphError> {
        let mut graph = self.finish_within(outputs)?;
        graph.verify().map_err(|error| error.with_names(graph.sizes()))?;
        graph.find_id_inputs()?;
        for (name, value) in graph.outputs() {
            if let Some(ty) = graph.ty(*value).filter(|ty| ty.layout == Layout::Scores) {
                return Err(GraphError::ScoreOutput { name: name.clone(), ty: ty.to_string() });
            }
        }
        Ok(graph)
    }

    /// A scope for a part of another graph, such as a pattern. It has that graph's sizes, but not their sources.
    pub fn within(graph: &Graph) -> Self {
        let mut part = Graph::of_model(graph);
        part.map_size_sources(|_| SizeSource::Unbound);
        Self::of(State { graph: part, ..State::default() })
    }

    /// An input of any type, for scopes within another graph.
    #[track_caller]
    pub fn capture(&self, name: &str, ty: &Type) -> Tensor {
        self.named_input(name, ty.clone())
    }

    /// The traced part with its outputs, or the first error. Its sizes come from the graph around it.
    ///
    /// # Errors
    /// As [`Scope::finish`], except for sizes.
    pub fn finish_within(self, outputs: &[(&str, Tensor)]) -> Result<Graph, GraphError> {
        for (name, tensor) in outputs {
            operands::one_scope(&self.state, &format!("the output `{name}`"), &[tensor])?;
        }
        let mut state = self.state.lock();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let State { mut graph, updates, .. } = std::mem::take(&mut *state);
        state.error = Some(GraphError::Finished);
        for (name, tensor) in outputs {
            if let Some(value) = tensor.value {
                graph.add_output(name, value)?;
            }
        }
        for (name, value) in updates {
            graph.add_output(&name, value)?;
        }
        Ok(graph)
    }

    /// A scope that continues `graph`, and the outputs of that graph by name. They are not outputs of the new graph
    /// unless passed to [`Scope::finish`]. Requested sizes are new ones.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, [3]);
    /// let graph = scope.finish(&[("y", x.exp())])?;
    ///
    /// let (scope, outputs) = Scope::resume(&graph);
    /// let graph = scope.finish(&[("z", &outputs["y"] + 1.0)])?;
    /// assert_eq!(graph.outputs()[0].0, "z");
    /// # Ok::<(), rewire_graph::GraphError>(())
    /// ```
    pub fn resume(graph: &Graph) -> (Self, BTreeMap<String, Tensor>) {
        let scope = Self::over(graph);
        let outputs = graph.outputs().iter().map(|(name, value)| (name.clone(), scope.value(*value)));
        let outputs = outputs.collect();
        (scope, outputs)
    }

    /// A scope that continues `graph`, without its outputs.
    pub(crate) fn over(graph: &Graph) -> Self {
        let mut graph = graph.clone();
        graph.retain_outputs(|_| false);
        let (mut named, mut shared) = (HashMap::new(), HashMap::new());
        for id in graph.ids() {
            let (Some(node), value) = (graph.node(id), Value { node: id, port: 0 }) else { continue };
            match (node.op.role(), node.op.role().name()) {
                (_, Some(name)) => {
                    let kind = if node.is_root() { "input" } else { "parameter" };
                    named.insert((kind, name.to_owned()), value);
                }
                (Role::Host(_) | Role::Constant(_), None) => {
                    shared.insert((Identity(node.op.clone()), graph.inputs(id)), value);
                }
                _ => {}
            }
        }
        Self::of(State { graph, named, shared, ..State::default() })
    }

    /// The graph so far, without outputs.
    pub(crate) fn graph(&self) -> Graph {
        self.state.lock().graph.clone()
    }

    /// A value of the graph that this scope continues; a poisoned value if it does not exist.
    pub fn value(&self, value: Value) -> Tensor {
        let ty = self.state.lock().graph.ty(value).cloned();
        ty.map_or_else(|| poisoned(&self.state), |ty| Tensor { state: self.state.clone(), value: Some(value), ty })
    }

    /// Runs `body` in a module, by its path from the top level.
    pub(crate) fn at<T>(&self, path: &str, body: impl FnOnce() -> T) -> T {
        let outer = std::mem::replace(&mut self.state.lock().path, path.to_owned());
        let result = body();
        self.state.lock().path = outer;
        result
    }

    #[track_caller]
    fn shared(&self, op: impl Op, operands: &[&Tensor]) -> Tensor {
        shared(&self.state, op, operands)
    }

    #[track_caller]
    fn named(&self, kind: &'static str, name: String, ty: Type, op: Arc<dyn Op>) -> Tensor {
        if operands::own_sizes(&self.state, &format!("the {kind} `{name}`"), &[], &ty.shape).is_err() {
            return poisoned(&self.state);
        }
        let known = self.state.lock().named.get(&(kind, name.clone())).copied();
        let Some(value) = known else {
            let tensor = apply(&self.state, op, &[]);
            if let Some(value) = tensor.value {
                self.state.lock().named.insert((kind, name), value);
            }
            return tensor;
        };
        if self.state.lock().graph.ty(value) != Some(&ty) {
            return poison(&self.state, GraphError::Duplicate { kind, name });
        }
        Tensor { state: self.state.clone(), value: Some(value), ty }
    }

    fn join(&self, name: &str) -> String {
        match (self.path.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (_, true) => self.path.clone(),
            _ => format!("{}.{name}", self.path),
        }
    }
}

#[track_caller]
fn apply(state: &Trace, op: Arc<dyn Op>, operands: &[&Tensor]) -> Tensor {
    let values = match operands::values(state, op.as_ref(), operands) {
        Ok(values) => values,
        Err(poisoned) => return poisoned,
    };
    let mut inner = state.lock();
    let path = inner.path.clone();
    match inner.graph.add(op, &values, &path) {
        Ok(node) => {
            let value = Value { node, port: 0 };
            let is_recomputed = inner.is_recomputed;
            inner.graph.set_recomputed(node, is_recomputed);
            let ty = inner.graph.ty(value).cloned();
            drop(inner);
            ty.map_or_else(|| poisoned(state), |ty| Tensor { state: state.clone(), value: Some(value), ty })
        }
        Err(error) => {
            drop(inner);
            poison(state, error)
        }
    }
}

#[track_caller]
fn shared(state: &Trace, op: impl Op, operands: &[&Tensor]) -> Tensor {
    let values = match operands::values(state, &op, operands) {
        Ok(values) => values,
        Err(poisoned) => return poisoned,
    };
    let op: Arc<dyn Op> = Arc::new(op);
    let key = (Identity(Arc::clone(&op)), values);
    let known = state.lock().shared.get(&key).copied();
    if let Some(value) = known
        && let Some(ty) = state.lock().graph.ty(value).cloned()
    {
        return Tensor { state: state.clone(), value: Some(value), ty };
    }
    let outer = std::mem::take(&mut state.lock().path);
    let tensor = apply(state, op, operands);
    state.lock().path = outer;
    if let Some(value) = tensor.value {
        state.lock().shared.insert(key, value);
    }
    tensor
}

#[track_caller]
fn poison(state: &Trace, error: GraphError) -> Tensor {
    let mut inner = state.lock();
    if inner.error.is_none() {
        let caller = Location::caller();
        let place = (!inner.has_no_places).then_some(caller);
        inner.error = Some(error.with_names(inner.graph.sizes()).at(place));
    }
    drop(inner);
    poisoned(state)
}

#[track_caller]
fn poisoned(state: &Trace) -> Tensor {
    Tensor { state: state.clone(), value: None, ty: Type::device(DType::F32, vec![]) }
}
