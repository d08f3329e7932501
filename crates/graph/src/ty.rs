use crate::{DType, Dim};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The memory of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// A dense tensor on the device.
    Device,
    /// An integer or a vector of integers of the shape program, on the host. `I32` in device arithmetic.
    Host,
    /// One number for every sample, head, query row and key of that sample. The shape is
    /// `[samples, heads, all rows, all keys]`, ragged in the last two axes. Scores are never stored in memory.
    Scores,
}

/// Type of a value: element type, shape and layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<Dim>,
    /// Layout.
    pub layout: Layout,
}

impl Type {
    /// A dense tensor.
    pub fn device(dtype: DType, shape: Vec<Dim>) -> Self {
        Self { dtype, shape, layout: Layout::Device }
    }

    /// A host value.
    pub fn host(shape: Vec<Dim>) -> Self {
        Self { dtype: DType::I32, shape, layout: Layout::Host }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The extent of an axis, if it is a constant.
    pub fn extent(&self, axis: usize) -> Option<usize> {
        self.shape.get(axis).and_then(Dim::as_const)
    }

    /// The extent of an axis that the operator's type rule requires to be constant.
    pub fn constant_extent(&self, axis: usize) -> usize {
        let extent = self.extent(axis);
        debug_assert!(extent.is_some(), "axis {axis} of {self} has no constant extent");
        extent.unwrap_or(0)
    }

    /// The last extent, if it is a constant.
    pub fn width(&self) -> Option<usize> {
        self.shape.last().and_then(Dim::as_const)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match self.layout {
            Layout::Device => "",
            Layout::Host => "host ",
            Layout::Scores => "scores ",
        };
        write!(f, "{layout}{}[", self.dtype)?;
        for (n, dim) in self.shape.iter().enumerate() {
            write!(f, "{}{dim}", if n == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}
