//! How large a graph, and the kernels that are made of it, may be.
//!
//! Tracing, fusion and lowering make nothing larger, and a plan that is read from a file holds nothing larger: what is made
//! can be stored, read and run.

use crate::{DType, Dim};
use thiserror::Error;

/// Dimensions of a value.
pub const MAX_RANK: usize = 16;

/// The constant of an extent, and the multiple of every symbol in it: kernels count in 32 bits.
pub const MAX_EXTENT: i64 = i32::MAX as i64;

/// Points of a loop over results, in every run: their flat index is an `I32`.
pub const MAX_POINTS: usize = i32::MAX as usize;

/// Arguments of a function of a user's own.
pub const MAX_ARGUMENTS: usize = 8;

/// Tensors and values of the shape program that a kernel reads.
pub const MAX_OPERANDS: usize = 1 << 10;

/// Operators of a kernel, each of which reads the one before it.
pub const MAX_CHAIN: usize = 512;

/// Expressions of a kernel: few enough for compilers of shaders.
pub const MAX_EXPRESSIONS: usize = 1 << 12;

/// Expressions of a kernel that load an element.
pub const MAX_LOADS: usize = 1 << 7;

/// Choices within one another: they nest in shaders, in which braces nest 127 deep at most.
pub const MAX_CHOICES: usize = 96;

/// Statements of a choice whose sides may not run in vain.
pub const MAX_STATEMENTS: usize = 1 << 11;

/// Coordinates of a loop, and values of its anchor, that expressions refer to: a bit each.
pub const MAX_VALUES: usize = 32;

/// Axes of a loop: one coordinate less than there may be, so that emitters have one that no loop has.
pub const MAX_AXES: usize = MAX_VALUES - 1;

/// Statistics of a product's rows, which lie in the workgroup memory of the WebGPU baseline beside its tiles.
pub const MAX_STATISTICS: usize = 24;

/// Heads of attention, and columns of a head.
pub const MAX_WIDTH: usize = 1 << 20;

/// What is larger than it may be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// There are too many of something.
    #[error("has {count} {what}, more than {limit}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// An extent is too large.
    #[error("has a size of {size}, which no kernel can count: constants and multiples are at most {MAX_EXTENT}")]
    Extent {
        /// The extent.
        size: Dim,
    },
    /// A storage type has no rows of a width.
    #[error("has rows of {width} elements: those of {dtype} have a multiple of {}", dtype.format().multiple)]
    Width {
        /// The storage type.
        dtype: DType,
        /// Elements of a row.
        width: usize,
    },
}

/// Checks a number of things against one of the limits.
///
/// ```
/// use rewire_graph::limits::{MAX_LOADS, check_count};
/// assert_eq!(check_count("loads", 3, MAX_LOADS), Ok(()));
/// let error = check_count("loads", 1000, MAX_LOADS).unwrap_err();
/// assert_eq!(error.to_string(), "has 1000 loads, more than 128");
/// ```
///
/// # Errors
/// [`LimitError::Count`] if there are more than `limit`.
pub fn check_count(what: &'static str, count: usize, limit: usize) -> Result<(), LimitError> {
    if count > limit { Err(LimitError::Count { what, count, limit }) } else { Ok(()) }
}

/// Checks the rank of a value and its extents.
///
/// # Errors
/// [`LimitError`] if there are more than [`MAX_RANK`], or one goes beyond [`MAX_EXTENT`].
pub fn check_shape(shape: &[Dim]) -> Result<(), LimitError> {
    check_count("dimensions", shape.len(), MAX_RANK)?;
    shape.iter().try_for_each(check_extent)
}

/// Checks one extent.
///
/// # Errors
/// [`LimitError::Extent`] if a constant or a multiple goes beyond [`MAX_EXTENT`].
pub fn check_extent(dim: &Dim) -> Result<(), LimitError> {
    let is_counted = |n: i64| n.unsigned_abs() <= MAX_EXTENT.unsigned_abs();
    let fits = is_counted(dim.constant()) && dim.terms().all(|(_, factor)| is_counted(factor));
    if fits { Ok(()) } else { Err(LimitError::Extent { size: dim.clone() }) }
}

/// Checks that a storage type has rows as wide as those of a value, where the width is a constant.
///
/// # Errors
/// [`LimitError::Width`].
pub fn check_rows(dtype: DType, shape: &[Dim]) -> Result<(), LimitError> {
    match shape.last().map_or(Some(1), Dim::as_const) {
        Some(width) if !dtype.format().has_rows_of(width) => Err(LimitError::Width { dtype, width }),
        _ => Ok(()),
    }
}
