//! The pointwise DAG: scalar expressions over loop coordinates.
//!
//! A kernel evaluates a [`Dag`] at each point of its loop. A [`Expr::Load`] carries its index as
//! expressions of the coordinates, so strides, broadcasts, slices, gathers and the step from a row
//! to its sample are all access maps of the same kind, and fusing a producer into a consumer is
//! substitution of coordinates.
//!
//! What integers do at the ends of their range is said at [`crate::Scalar`].

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
pub use stored::StoredError;
pub use vectors::Vectors;
