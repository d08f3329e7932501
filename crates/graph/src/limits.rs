//! Limits on graphs and the kernels made from them.
//!
//! Tracing, fusion and lowering respect these limits, and a plan read from a file is checked against them: every graph
//! that can be traced can be stored, read and run.

use crate::{DType, Dim};
use thiserror::Error;

/// Dimensions of a value.
pub const MAX_RANK: usize = 16;

/// The constant of an extent, and the multiple of every symbol in it: kernels count in 32 bits.
pub const MAX_EXTENT: i64 = i32::MAX as i64;

/// Points of a loop over results, in every run; the flat index is an `I32`.
pub const MAX_POINTS: usize = i32::MAX as usize;

/// Arguments of a user-defined function.
pub const MAX_ARGUMENTS: usize = 8;

/// Tensors and host values that a kernel reads.
pub const MAX_OPERANDS: usize = 1 << 10;

/// Longest chain of dependent operators in a kernel.
pub const MAX_CHAIN: usize = 512;

/// Expressions of a kernel, few enough for shader compilers.
pub const MAX_EXPRESSIONS: usize = 1 << 12;

/// Expressions of a kernel that load an element.
pub const MAX_LOADS: usize = 1 << 7;

/// Nesting depth of choices; WGSL limits braces to a nesting depth of 127.
pub const MAX_CHOICES: usize = 96;

/// Statements in a choice, if only the selected side may run.
pub const MAX_STATEMENTS: usize = 1 << 11;

/// Coordinates of a loop and accumulators that expressions refer to; each is one bit.
pub const MAX_VALUES: usize = 32;

/// Axes of a loop: one less than the coordinates, so that emitters have a coordinate that no loop uses.
pub const MAX_AXES: usize = MAX_VALUES - 1;

/// Statistics of a product's rows, which share the workgroup memory of the WebGPU baseline with its tiles.
pub const MAX_STATISTICS: usize = 24;

/// Heads of attention, and columns of a head.
pub const MAX_WIDTH: usize = 1 << 20;

/// A limit that is exceeded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A count is too large.
    #[error("has {count} {what}, more than {limit}")]
    Count {
        /// The counted things.
        what: &'static str,
        /// The count.
        count: usize,
        /// The largest count.
        limit: usize,
    },
    /// An extent is too large.
    #[error("has a size of {size}, beyond the limit of kernels: constants and multiples must be at most {MAX_EXTENT}")]
    Extent {
        /// The extent.
        size: Dim,
    },
    /// A storage type does not support the row width.
    #[error("has rows of {width} elements: rows of {dtype} must have a multiple of {}", dtype.format().multiple)]
    Width {
        /// The storage type.
        dtype: DType,
        /// Elements of a row.
        width: usize,
    },
}

/// Checks a count against one of the limits.
///
/// ```
/// use rewire_graph::limits::{MAX_LOADS, check_count};
/// assert_eq!(check_count("loads", 3, MAX_LOADS), Ok(()));
/// let error = check_count("loads", 1000, MAX_LOADS).unwrap_err();
/// assert_eq!(error.to_string(), "has 1000 loads, more than 128");
/// ```
///
/// # Errors
/// [`LimitError::Count`] if `count` exceeds `limit`.
pub fn check_count(what: &'static str, count: usize, limit: usize) -> Result<(), LimitError> {
    if count > limit { Err(LimitError::Count { what, count, limit }) } else { Ok(()) }
}

/// Checks the rank of a value and its extents.
///
/// # Errors
/// [`LimitError`] if there are more than [`MAX_RANK`] dimensions, or an extent exceeds [`MAX_EXTENT`].
pub fn check_shape(shape: &[Dim]) -> Result<(), LimitError> {
    check_count("dimensions", shape.len(), MAX_RANK)?;
    shape.iter().try_for_each(check_extent)
}

/// Checks one extent.
///
/// # Errors
/// [`LimitError::Extent`] if a constant or a multiple exceeds [`MAX_EXTENT`].
pub fn check_extent(dim: &Dim) -> Result<(), LimitError> {
    let is_counted = |n: i64| n.unsigned_abs() <= MAX_EXTENT.unsigned_abs();
    let fits = is_counted(dim.constant()) && dim.terms().all(|(_, factor)| is_counted(factor));
    if fits { Ok(()) } else { Err(LimitError::Extent { size: dim.clone() }) }
}

/// Checks that a storage type supports the row width of a value, if the width is a constant.
///
/// # Errors
/// [`LimitError::Width`].
pub fn check_rows(dtype: DType, shape: &[Dim]) -> Result<(), LimitError> {
    match shape.last().map_or(Some(1), Dim::as_const) {
        Some(width) if !dtype.format().has_rows_of(width) => Err(LimitError::Width { dtype, width }),
        _ => Ok(()),
    }
}
