//! Operators of a user's own with kernels of their own.
//!
//! Such an operator implements [`Op`] for its name, attributes and type rule, and [`Custom`] for its kernels. It is traced
//! by [`crate::Scope::apply`], stays one node through all passes, and becomes a step of its own.

use super::Op;
use crate::{Dim, Scope, Tensor, Type};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The kernels of an operator with one result, which [`Op::custom`] returns.
///
/// Operands and result are dense tensors or values of the shape program, not scores.
pub trait Custom {
    /// The GPU form for operands and a result of these types. Floats are `F32` here, whatever they are stored as.
    fn shader(&self, operands: &[&Type], result: &Type) -> Shader;

    /// The CPU form. The result is zeros before.
    ///
    /// # Errors
    /// What is wrong with the operands; the run fails with it.
    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String>;

    /// What the operator stands for in other operators, if it can be said in them: `rewire_graph_rewrite`'s `Decompose`
    /// puts that in its place.
    fn decompose(&self, _scope: &Scope, _operands: &[Tensor]) -> Option<Tensor> {
        None
    }
}

/// A compute shader without bindings and entry point.
///
/// The WGSL declares `fn run(workgroup: i32, thread: i32)`, which every invocation calls, and whatever that uses: functions,
/// constants, workgroup variables, under any names. It may call, for a tensor that is named `x` here and has two dimensions:
///
/// - `load_x(i: i32, j: i32)`, an element of an operand: `f32`, `i32`, `bool`, or `vec2<u32>` of a 64-bit integer, low word
///   first; `load4_x`, four neighbours from a column that is a multiple of four on, as a `vec4`;
/// - `store_x(i: i32, j: i32, value)` and `store4_x`, the same for the result;
/// - `extent_x_0()` and `extent_x_1()`, the extents.
///
/// How elements lie in memory and what they are stored as is not its concern. Indices are checked: a load out of range
/// reads some element, a store out of range is dropped or overwrites some element of the result. What is not stored is 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shader {
    /// Names of the operands in the WGSL.
    pub operands: Vec<String>,
    /// Name of the result in the WGSL.
    pub result: String,
    /// The declarations.
    pub wgsl: String,
    /// Invocations of a workgroup, up to the limit of the target: 256 work everywhere.
    pub threads: u32,
    /// The number of workgroups is the product of these, divided by `tile`, rounded up.
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
    /// Floats, whatever they are stored as.
    F32(&'a [f32]),
    /// 32-bit integers, and truth values as 0 and 1.
    I32(&'a [i32]),
    /// 64-bit integers, and values of the shape program.
    I64(&'a [i64]),
}

/// Elements to write, zeros at first, by their arithmetic type.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// Floats, whatever they are stored as.
    F32(&'a mut [f32]),
    /// 32-bit integers, and truth values as 0 and 1.
    I32(&'a mut [i32]),
    /// 64-bit integers.
    I64(&'a mut [i64]),
}

impl<'a> View<'a> {
    /// The floats; none of an operand of integers.
    pub fn floats(&self) -> &'a [f32] {
        if let Data::F32(values) = self.data { values } else { &[] }
    }

    /// The 32-bit integers; none of other operands.
    pub fn integers(&self) -> &'a [i32] {
        if let Data::I32(values) = self.data { values } else { &[] }
    }

    /// The 64-bit integers, of a value of the shape program for instance; none of other operands.
    pub fn longs(&self) -> &'a [i64] {
        if let Data::I64(values) = self.data { values } else { &[] }
    }
}

impl ViewMut<'_> {
    /// The floats; none of a result of integers.
    pub fn floats(&mut self) -> &mut [f32] {
        if let DataMut::F32(values) = &mut self.data { values } else { &mut [] }
    }

    /// The 32-bit integers; none of other results.
    pub fn integers(&mut self) -> &mut [i32] {
        if let DataMut::I32(values) = &mut self.data { values } else { &mut [] }
    }

    /// The 64-bit integers; none of other results.
    pub fn longs(&mut self) -> &mut [i64] {
        if let DataMut::I64(values) = &mut self.data { values } else { &mut [] }
    }
}

/// An operator in a plan: what identifies it, which is stored with the plan, and the operator itself, which is not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operator {
    name: String,
    attributes: Value,
    #[serde(skip)]
    definition: Option<Arc<dyn Op>>,
}

impl Operator {
    /// An operator with its CPU form.
    pub fn new(definition: Arc<dyn Op>) -> Self {
        Self { name: definition.name().to_owned(), attributes: definition.attributes(), definition: Some(definition) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All attributes.
    pub fn attributes(&self) -> &Value {
        &self.attributes
    }

    /// The operator; `None` in a plan that was read from a file, until a [`super::Registry`] gives it back.
    pub fn definition(&self) -> Option<&Arc<dyn Op>> {
        self.definition.as_ref()
    }
}

impl PartialEq for Operator {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.attributes) == (&other.name, &other.attributes)
    }
}
