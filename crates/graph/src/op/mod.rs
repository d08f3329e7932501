//! Operators: their meaning as type rule, scalar definition and attributes.

mod accumulate;
mod attention;
mod call;
mod conv;
pub mod custom;
mod detach;
mod error;
mod fused;
mod gather;
mod gradient;
mod host;
mod identity;
mod integer_product;
mod jagged;
mod matmul;
mod movement;
mod padded;
mod pointwise;
mod reduce;
mod registry;
mod remap;
mod role;
mod score_values;
mod source;

pub use accumulate::{Accumulated, Accumulator, Span};
pub use attention::{ScoreKind, ScoreReduce, ScoreSoftmax, Scores, WeightedSum};
pub use call::Call;
pub use conv::{Unfold, Window};
pub use detach::Detach;
pub use error::{EvaluateError, GradientError};
pub use fused::Fused;
pub use gather::{Gather, IndexAdd, SetRows};
pub use gradient::Gradient;
pub(crate) use host::total;
pub use host::{Check, HostError, HostOp, Requirement};
pub use identity::{Compared, Identity};
pub use integer_product::IntegerProduct;
pub use jagged::{JaggedBroadcast, JaggedConcat, JaggedSlice, RowIndex, RowIndexKind};
pub use matmul::{JaggedJaggedMatMul, JaggedMatMul, MatMul};
pub use movement::{Broadcast, Concat, Flip, Permute, Reshape, Slice};
pub use padded::{JaggedToPadded, PaddedToJagged};
pub use pointwise::{Cast, Dropout, Where};
pub use reduce::{Reduce, ReduceOp, SegmentReduce};
pub use registry::{Registry, RegistryError};
pub use remap::{IndexExpr, Remap};
pub use role::Role;
pub use score_values::{ScoreBroadcast, ScoreGather, ScoreIndex};
pub use source::{Constant, Input, Parameter};

use crate::interpret::Array;
use crate::pointwise::{Dag, ExprId};
use crate::{Dim, Tensor, Type, TypeError};
use std::any::Any;
use std::fmt::Debug;

/// The types of an operator's results, which kernels can write.
pub(crate) fn result_types(op: &dyn Op, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
    let results = op.infer(inputs)?;
    let unwritten = results.iter().find(|ty| !inputs.is_empty() && !ty.dtype.format().is_written());
    match unwritten {
        Some(ty) => Err(TypeError::new("the result", "a type that kernels write: cast the operands", ty)),
        None => Ok(results),
    }
}

/// An operator with its attributes.
///
/// Operators compute the same where they are of one type and equal: the type implements [`PartialEq`],
/// [`std::hash::Hash`] and [`Clone`].
pub trait Op: Compared + Any + Debug + Send + Sync {
    /// The operator's name, `layer_norm`.
    fn name(&self) -> &str;

    /// All attributes, for drawings and for what makes an operator of a user's own again: see [`Registry`].
    fn attributes(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// The types of the results for operands of the given types.
    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError>;

    /// What must hold of the operands on the host before a run. That each holds 32-bit integers, as many as its type says,
    /// goes without saying.
    ///
    /// A kernel loads without a check where these facts prove that it may.
    fn requires(&self, _inputs: &[&Type]) -> Vec<Requirement> {
        vec![]
    }

    /// Calls a function for every size among the attributes, which may change it.
    fn resize(&mut self, _size: &mut dyn FnMut(&mut Dim)) {}

    /// Sizes among the attributes, in the order of [`Op::resize`].
    fn sizes(&self) -> Vec<Dim> {
        let mut sizes = vec![];
        self.boxed().resize(&mut |size| sizes.push(size.clone()));
        sizes
    }

    /// The scalar definition, for operators whose results are computed element by element.
    fn elementwise(&self) -> Option<&dyn Elementwise> {
        None
    }

    /// The result of a shape, for operators that are neither defined by element nor a user's own.
    ///
    /// # Errors
    /// Why there is none.
    fn evaluate(&self, _operands: &[&Array], _shape: Vec<usize>) -> Result<Array, EvaluateError> {
        Err(EvaluateError::Undefined)
    }

    /// The scalar definition, for operators whose results combine elements.
    fn accumulated(&self) -> Option<&dyn Accumulated> {
        None
    }

    /// How it moves elements, for operators that compute nothing.
    fn movement(&self) -> Option<Movement> {
        None
    }

    /// The gradients of the operands, given that of the result; `None` for an operand that has none.
    ///
    /// # Errors
    /// Why there are none, or what would give it some.
    fn gradient(&self, _at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Err(GradientError::Undefined)
    }

    /// The kernels of an operator of a user's own that is no function of elements.
    fn custom(&self) -> Option<&dyn custom::Custom> {
        None
    }

    /// True for an operator of two operands that may be exchanged.
    fn is_commutative(&self) -> bool {
        false
    }

    /// True if an element depends on the elements of the operands at the same place, broadcast to the result.
    fn is_pointwise(&self) -> bool {
        false
    }
}

impl dyn Op {
    /// The operator as a concrete type.
    pub fn downcast_ref<T: Op>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl dyn Op {
    /// True if both compute the same.
    pub fn same(&self, other: &dyn Op) -> bool {
        self.equals(other)
    }
}

/// How an operator moves elements: each element of its result is one of an operand, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// The elements of an operand come in its row-major order, where each comes for the first time.
    pub is_ordered: bool,
    /// No element of an operand is left out of a result that has elements.
    pub is_complete: bool,
    /// No element of an operand is repeated.
    pub is_unique: bool,
}

/// An operator whose result at some coordinates is a scalar expression of elements of its operands.
pub trait Elementwise {
    /// The element at `coords`, one an axis of the result.
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId;
}

/// Where a scalar definition is written to.
pub trait Elements {
    /// The expressions so far.
    fn dag(&mut self) -> &mut Dag;

    /// Number of operands.
    fn operands(&self) -> usize;

    /// The type of an operand.
    fn ty(&self, operand: usize) -> &Type;

    /// The element of an operand at `index`, one an axis. Outside of the operand it is the nearest one, of an operand
    /// without elements 0.
    fn load(&mut self, operand: usize, index: &[ExprId]) -> ExprId;

    /// The sample that `row` belongs to by the host offsets that are operand `operand`.
    fn sample(&mut self, operand: usize, row: ExprId) -> ExprId;

    /// A size.
    fn size(&mut self, dim: &Dim) -> ExprId;
}

/// Checks the number of operands.
pub(crate) fn arity<const N: usize>(inputs: &[&Type]) -> Result<[Type; N], TypeError> {
    let count = inputs.len();
    let owned: Vec<Type> = inputs.iter().map(|ty| (*ty).clone()).collect();
    owned.try_into().map_err(|_| TypeError::new("operands", format!("{N} values"), format!("{count}")))
}

/// The coordinates of a result of `N` axes, as its type rule has them.
pub(crate) fn axes<const N: usize>(coords: &[ExprId]) -> [ExprId; N] {
    debug_assert_eq!(coords.len(), N, "a result has as many coordinates as axes");
    std::array::from_fn(|axis| coords[axis])
}

/// Checks a rank.
pub(crate) fn rank(argument: &str, ty: &Type, rank: usize) -> Result<(), TypeError> {
    if ty.rank() == rank { Ok(()) } else { Err(TypeError::new(argument, format!("of {rank} dimensions"), ty)) }
}

/// Checks that two sizes are equal.
pub(crate) fn same_size(argument: &str, what: &str, actual: &Dim, expected: &Dim) -> Result<(), TypeError> {
    if actual == expected { Ok(()) } else { Err(TypeError::new(argument, format!("of {what} {expected}"), actual)) }
}

/// Sizes as attributes.
pub(crate) fn texts(dims: &[Dim]) -> Vec<String> {
    dims.iter().map(Dim::to_string).collect()
}
