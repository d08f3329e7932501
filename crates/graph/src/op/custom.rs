//! Custom operators with custom kernels.
//!
//! A custom operator implements [`Op`] for its name, attributes and type rule, and [`Custom`] for its kernels.
//! [`crate::Scope::apply`] traces it. It stays one node through all passes and becomes one step of the plan.

use super::Op;
use crate::{Dim, Type, TypeError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// The kernels of an operator with one result, which [`Op::custom`] returns.
///
/// Operands and result are dense tensors or values of the shape program, not scores.
pub trait Custom {
    /// The GPU form for operands and a result of these types. Floats are `F32` here, regardless of their storage type.
    fn shader(&self, operands: &[&Type], result: &Type) -> Shader;

    /// The CPU form. `result` is initialised with zeros.
    ///
    /// # Errors
    /// The problem with the operands, with which the run fails.
    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String>;
}

/// What a plan needs of an [`Op`]. Libraries that only run plans do not contain the rest, which traces and
/// differentiates.
pub trait Definition: Any + Debug + Send + Sync {
    /// [`Op::infer`].
    fn types(&self, operands: &[&Type]) -> Result<Vec<Type>, TypeError>;

    /// [`Op::custom`].
    fn kernels(&self) -> Option<&dyn Custom>;
}

impl<O: Op> Definition for O {
    fn types(&self, operands: &[&Type]) -> Result<Vec<Type>, TypeError> {
        self.infer(operands)
    }

    fn kernels(&self) -> Option<&dyn Custom> {
        self.custom()
    }
}

impl dyn Definition {
    /// The operator, if it has this type.
    pub fn downcast_ref<O: Op>(&self) -> Option<&O> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// A compute shader without bindings and entry point.
///
/// The WGSL declares `fn run(workgroup: i32, thread: i32)`, which every invocation calls, and everything that `run`
/// uses: functions, constants and workgroup variables, under any names. For a tensor with two dimensions and the name
/// `x`, it may call:
///
/// - `load_x(i: i32, j: i32)`: an element of an operand, as `f32`, `i32`, `bool`, or `vec2<u32>` for a 64-bit integer,
///   low word first; `load4_x`: four neighbours as a `vec4`, starting at a column that is a multiple of four;
/// - `store_x(i: i32, j: i32, value)` and `store4_x`: the same for the result;
/// - `extent_x_0()` and `extent_x_1()`: the extents.
///
/// These functions hide the layout and the storage types. Indices are checked: a load out of range returns some
/// element; a store out of range is dropped or overwrites some element of the result. Elements that are not stored are
/// 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shader {
    /// Names of the operands in the WGSL.
    pub operands: Vec<String>,
    /// Name of the result in the WGSL.
    pub result: String,
    /// The declarations.
    pub wgsl: String,
    /// Invocations per workgroup, up to the limit of the target; 256 work everywhere.
    pub threads: u32,
    /// The number of workgroups is the product of these extents, divided by `tile` and rounded up.
    pub extents: Vec<Dim>,
    /// See `extents`.
    pub tile: u32,
}

/// An operand of a CPU form.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Extents.
    pub shape: &'a [usize],
    /// Elements, row major.
    pub data: Data<'a>,
}

/// The result of a CPU form.
#[derive(Debug)]
pub struct ViewMut<'a> {
    /// Extents.
    pub shape: &'a [usize],
    /// Elements, row major.
    pub data: DataMut<'a>,
}

/// Elements by their arithmetic type.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Floats of any storage type.
    F32(&'a [f32]),
    /// 32-bit integers, and bools as 0 and 1.
    I32(&'a [i32]),
    /// 64-bit integers, and host values.
    I64(&'a [i64]),
}

/// Elements to write, initialised with zeros, by their arithmetic type.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// Floats of any storage type.
    F32(&'a mut [f32]),
    /// 32-bit integers, and bools as 0 and 1.
    I32(&'a mut [i32]),
    /// 64-bit integers.
    I64(&'a mut [i64]),
}

impl<'a> View<'a> {
    /// The floats; empty for other operands.
    pub fn floats(&self) -> &'a [f32] {
        if let Data::F32(values) = self.data { values } else { &[] }
    }

    /// The 32-bit integers; empty for other operands.
    pub fn integers(&self) -> &'a [i32] {
        if let Data::I32(values) = self.data { values } else { &[] }
    }

    /// The 64-bit integers, for instance of a host value; empty for other operands.
    pub fn longs(&self) -> &'a [i64] {
        if let Data::I64(values) = self.data { values } else { &[] }
    }
}

impl ViewMut<'_> {
    /// The floats; empty for other results.
    pub fn floats(&mut self) -> &mut [f32] {
        if let DataMut::F32(values) = &mut self.data { values } else { &mut [] }
    }

    /// The 32-bit integers; empty for other results.
    pub fn integers(&mut self) -> &mut [i32] {
        if let DataMut::I32(values) = &mut self.data { values } else { &mut [] }
    }

    /// The 64-bit integers; empty for other results.
    pub fn longs(&mut self) -> &mut [i64] {
        if let DataMut::I64(values) = &mut self.data { values } else { &mut [] }
    }
}

/// An operator in a plan. Its name and attributes are stored with the plan; the operator itself is not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operator {
    name: String,
    attributes: Value,
    #[serde(skip)]
    definition: Option<Arc<dyn Definition>>,
}

impl Operator {
    /// An operator with its CPU form.
    pub fn new(definition: Arc<dyn Op>) -> Self {
        Self { name: definition.name().to_owned(), attributes: definition.attributes(), definition: Some(definition) }
    }

    /// [`Operator::new`] for a known type, whose tracing and gradients stay unused.
    pub(super) fn of<O: Op>(op: O) -> Self {
        Self { name: op.name().to_owned(), attributes: op.attributes(), definition: Some(Arc::new(op)) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All attributes.
    pub fn attributes(&self) -> &Value {
        &self.attributes
    }

    /// The operator; `None` in a plan read from a file, until a [`super::Registry`] restores it.
    pub fn definition(&self) -> Option<&Arc<dyn Definition>> {
        self.definition.as_ref()
    }
}

impl PartialEq for Operator {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.attributes) == (&other.name, &other.attributes)
    }
}
