//! Operators: type rule, scalar definition and attributes.

mod accumulate;
mod attention;
mod bits;
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
mod jacobi;
mod jagged;
mod matmul;
mod movement;
mod padded;
mod pointwise;
mod recurrence;
mod reduce;
mod registry;
mod remap;
mod role;
mod score_values;
mod sort;
mod source;

pub use accumulate::{Accumulated, Accumulator, Span};
pub use attention::{ScoreKind, ScoreReduce, ScoreSoftmax, Scores, WeightedSum};
pub use bits::Bits;
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
pub use integer_product::{IntegerProduct, QuantizedProduct};
pub use jacobi::OrthogonalColumns;
pub use jagged::{JaggedBroadcast, JaggedConcat, JaggedSlice, RowIndex, RowIndexKind};
pub use matmul::{JaggedJaggedMatMul, JaggedMatMul, MatMul};
pub use movement::{Broadcast, Concat, Flip, Permute, Reshape, Slice};
pub use padded::{JaggedToPadded, PaddedToJagged};
pub use pointwise::{Cast, Dropout, Where};
pub use recurrence::{Cell, Recurrence};
pub use reduce::{Reduce, ReduceOp, SegmentReduce};
pub use registry::{Registry, RegistryError};
pub use remap::{IndexExpr, Remap};
pub use role::Role;
pub use score_values::{ScoreBroadcast, ScoreGather, ScoreIndex};
pub use sort::{MergeRuns, SortRuns};
pub use source::{Constant, Input, Iota, Parameter};

use crate::interpret::Array;
use crate::pointwise::{Dag, ExprId};
use crate::{Dim, Scope, Tensor, Type, TypeError};
use std::any::Any;
use std::fmt::Debug;

/// The types of an operator's results, checked against the limits of kernels.
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
/// Two operators compute the same if they have the same type and are equal: the type implements [`PartialEq`],
/// [`std::hash::Hash`] and [`Clone`].
pub trait Op: Compared + custom::Definition {
    /// The operator's name, `layer_norm`.
    fn name(&self) -> &str;

    /// All attributes, for drawings and to restore a custom operator: see [`Registry`].
    fn attributes(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// The types of the results for operands of the given types.
    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError>;

    /// Conditions on the host operands, checked before a run. That each holds 32-bit integers, as many as in its type,
    /// is always checked.
    ///
    /// A kernel omits the bounds check of a load if these conditions prove the index in range.
    fn requires(&self, _inputs: &[&Type]) -> Vec<Requirement> {
        vec![]
    }

    /// Calls a function for every size in the attributes, which may change it.
    fn resize(&mut self, _size: &mut dyn FnMut(&mut Dim)) {}

    /// Sizes in the attributes, in the order of [`Op::resize`].
    fn sizes(&self) -> Vec<Dim> {
        let mut sizes = vec![];
        self.boxed().resize(&mut |size| sizes.push(size.clone()));
        sizes
    }

    /// The scalar definition, for operators that compute each element of the result independently.
    fn elementwise(&self) -> Option<&dyn Elementwise> {
        None
    }

    /// The result with a shape, for operators that are neither elementwise nor custom.
    ///
    /// # Errors
    /// Why it cannot be computed.
    fn evaluate(&self, _operands: &[&Array], _shape: Vec<usize>) -> Result<Array, EvaluateError> {
        Err(EvaluateError::Undefined)
    }

    /// The scalar definition, for operators that reduce elements.
    fn accumulated(&self) -> Option<&dyn Accumulated> {
        None
    }

    /// The properties of the data movement, for operators that compute nothing.
    fn movement(&self) -> Option<ViewProps> {
        None
    }

    /// The gradients of the operands, given the gradient of the result; `None` for an operand without one.
    ///
    /// # Errors
    /// Why there are none, or how to provide them.
    fn gradient(&self, _at: &Gradient<'_>) -> Result<Vec<Option<Tensor>>, GradientError> {
        Err(GradientError::Undefined)
    }

    /// The kernels of a custom operator that is not a scalar function.
    fn custom(&self) -> Option<&dyn custom::Custom> {
        None
    }

    /// A custom operator in terms of other operators, if possible: `Decompose` in `rewire_graph_rewrite` replaces the
    /// operator by it.
    fn decompose(&self, _scope: &Scope, _operands: &[Tensor]) -> Option<Tensor> {
        None
    }

    /// True for a commutative operator of two operands.
    fn is_commutative(&self) -> bool {
        false
    }

    /// True for an operator that only converts the type of its operand's elements.
    fn is_conversion(&self) -> bool {
        false
    }

    /// True for a lookup: it reads only some rows of its first operand.
    fn is_lookup(&self) -> bool {
        false
    }

    /// True if the result is the first operand with some rows replaced, which a kernel sets in place.
    fn sets_rows(&self) -> bool {
        false
    }

    /// The number of rows that the second operand may select, for operators with an operand of row numbers.
    fn indexed_rows(&self, _first: &Type) -> Option<Dim> {
        None
    }

    /// The axis that the operator reduces, keeping it with extent 1.
    fn reduced_axis(&self) -> Option<usize> {
        None
    }

    /// True if an entry of an axis of the result depends only on the operands' entries with the same number.
    fn keeps_axis(&self, _axis: usize) -> bool {
        self.is_pointwise()
    }

    /// True if an element depends also on its position in the whole tensor.
    fn is_positional(&self) -> bool {
        false
    }

    /// The cost of an element, relative to an addition; 0 if readers read the element directly from an operand.
    fn weight(&self) -> usize {
        1
    }

    /// True if an element depends only on the elements of the broadcast operands at the same index.
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
    /// True if both operators compute the same.
    pub fn same(&self, other: &dyn Op) -> bool {
        self.equals(other)
    }
}

/// Properties of an operator that only moves data: each element of its result is an unchanged element of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewProps {
    /// The first occurrences of an operand's elements are in row-major order.
    pub is_ordered: bool,
    /// Every element of an operand occurs in the result, unless that is empty.
    pub is_complete: bool,
    /// No element of an operand occurs more than once.
    pub is_unique: bool,
}

/// An operator whose results are scalar expressions of elements of its operands.
pub trait Elementwise {
    /// The element at `coords`, which has one coordinate per result axis.
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId;
}

/// The builder to which a scalar definition is written.
pub trait Elements {
    /// The expressions so far.
    fn dag(&mut self) -> &mut Dag;

    /// Number of operands.
    fn operands(&self) -> usize;

    /// The type of an operand.
    fn ty(&self, operand: usize) -> &Type;

    /// The element of an operand at `index`, which has one entry per axis. An index out of range is clamped; an operand
    /// without elements reads as 0.
    fn load(&mut self, operand: usize, index: &[ExprId]) -> ExprId;

    /// The sample of `row`, from the host offsets in operand `operand`.
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

/// The coordinates of a result with `N` axes, the rank in its type rule.
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
