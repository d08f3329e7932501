//! The pointwise DAG: scalar expressions over loop coordinates.
//!
//! A kernel evaluates a [`Dag`] at each point of its loop. The index of an [`Expr::Load`] is made of expressions of the
//! coordinates. Strides, broadcasts, slices, gathers and the mapping from a row to its sample are therefore the same
//! kind of access map, and fusing a producer into a consumer is substitution of coordinates.
//!
//! See [`crate::Scalar`] for integer overflow.

mod affine;
mod algebra;
mod bounds;
mod call;
mod dag;
mod domain;
pub mod functions;
mod integer;
mod interval;
mod intervals;
mod lanes;
mod limits;
mod point;
mod simplify;
mod stored;
mod vectors;

pub use affine::{Access, Affine};
pub use algebra::{Algebra, Numbers};
pub use call::{Function, ScalarFunction};
pub use dag::{Dag, Expr, ExprId};
pub use domain::Domain;
pub use functions::{BinaryOp, UnaryOp};
pub use integer::Integer;
pub use interval::{Interval, Tri};
pub use intervals::{Intervals, ReadBounds};
pub use lanes::Lanes;
pub use point::Point;
pub(crate) use point::in_range;
pub use stored::StoredError;
pub use vectors::Vectors;
