//! Loop nests: the computation of a kernel, independent of its schedule.

mod text;

use crate::limits::MAX_POINTS;
use crate::op::ReduceOp;
use crate::pointwise::{Dag, Expr, ExprId};
use crate::{DType, Dim};
use serde::{Deserialize, Serialize};

/// The memory of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemorySpace {
    /// A tensor in device memory.
    Device,
    /// A small parameter. On a GPU all pooled parameters of a type share one buffer and one binding.
    Pooled,
    /// A host vector `[n]` or scalar, 64-bit on the host and `I32` in kernels.
    Host,
}

/// A tensor that expressions load from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand {
    /// Element type in memory; `I32` for host operands.
    pub dtype: DType,
    /// Logical shape.
    pub shape: Vec<Dim>,
    /// Its memory.
    pub space: MemorySpace,
}

/// The expressions of a kernel, with the operands and sizes that they refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// All expressions.
    pub dag: Dag,
    /// The operands of [`Load`](crate::pointwise::Expr::Load).
    pub operands: Vec<Operand>,
    /// The sizes of [`Size`](crate::pointwise::Expr::Size).
    pub sizes: Vec<Dim>,
}

/// The extent of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    /// The same for all points.
    Dense(Dim),
    /// The number of rows of the sample given by coordinate 0: `offsets[sample + 1] - offsets[sample]`.
    Ragged {
        /// Position among the operands of the offsets, `[B + 1]` on the host.
        offsets: u16,
    },
}

impl Extent {
    /// The extent, if it is the same for all points.
    pub fn dense(&self) -> Option<&Dim> {
        match self {
            Self::Dense(dim) => Some(dim),
            Self::Ragged { .. } => None,
        }
    }
}

/// A loop of a nest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Axis {
    /// Its extent.
    pub extent: Extent,
    /// True for a reduction loop, such as the depth of a matmul; results do not have this axis.
    pub summed: bool,
}

/// A reduction along an axis, for every point of the other axes that its factors depend on. Later accumulations and
/// outputs read it as [`Value(n)`](crate::pointwise::Expr::Value), where `n` is its position in the nest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Accumulation {
    /// The reduction.
    pub op: ReduceOp,
    /// The axis that is reduced.
    pub axis: u8,
    /// The factors of an element, `F32`: one, or two for a contraction.
    pub factors: Vec<ExprId>,
    /// The type of the accumulator: `F32`. `F16`, or `I32` with factors rounded to 8 bits, permits a device to
    /// accumulate a contraction in that type, but does not require it.
    #[serde(default = "single", skip_serializing_if = "is_single")]
    pub dtype: DType,
}

fn single() -> DType {
    DType::F32
}

fn is_single(dtype: &DType) -> bool {
    *dtype == single()
}

/// A tensor that a kernel writes, with one element for each point of the axes that are not reduced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Position among the tensors that the kernel writes. Several outputs may write disjoint parts of one tensor, such
    /// as the parts of a concatenation. They have the same dtype and shape, and a backend binds the tensor once.
    pub target: u16,
    /// Element type in memory.
    pub dtype: DType,
    /// Logical shape.
    pub shape: Vec<Dim>,
    /// The index of the element: one `I32` per dimension, a one-to-one function of the coordinates.
    pub index: Vec<ExprId>,
    /// The element.
    pub value: ExprId,
    /// The range `start..end` of the last result axis that is written; all of it if `None`.
    pub columns: Option<(usize, usize)>,
}

impl Output {
    /// The expressions evaluated for an element: its index, then its value.
    pub fn roots(&self) -> impl Iterator<Item = ExprId> + Clone {
        self.index.iter().copied().chain([self.value])
    }
}

/// A loop nest: the computation of a kernel, independent of its schedule.
///
/// Coordinate `n` of the expressions counts axis `n`. Axes of results come before reduction axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nest {
    /// The expressions.
    pub body: Body,
    /// The loops.
    pub axes: Vec<Axis>,
    /// The accumulations, each of which reads only earlier ones.
    pub accumulations: Vec<Accumulation>,
    /// The outputs.
    pub outputs: Vec<Output>,
}

impl Nest {
    /// A loop over the points of a dense space, without reductions.
    pub fn map(body: Body, extents: Vec<Dim>, outputs: Vec<Output>) -> Self {
        Self { body, axes: Axis::points(extents), accumulations: vec![], outputs }
    }

    /// The number of axes of results.
    pub fn rank(&self) -> usize {
        self.axes.iter().take_while(|axis| !axis.summed).count()
    }

    /// The number of points of the loop over results, if it is at most [`MAX_POINTS`]; a ragged axis counts as 1. Each
    /// run checks this, since bounds of coordinates with symbolic extents rely on it.
    pub fn points(&self, size: impl Fn(&Dim) -> Option<usize>) -> Option<usize> {
        let extents = self.axes.iter().filter(|axis| !axis.summed).filter_map(|axis| axis.extent.dense());
        let count = extents.map(size).try_fold(1usize, |count, extent| count.checked_mul(extent?));
        count.filter(|count| *count <= MAX_POINTS)
    }

    /// All expressions that are evaluated in the loops.
    pub fn roots(&self) -> Vec<ExprId> {
        let factors = self.accumulations.iter().flat_map(|sum| &sum.factors).copied();
        factors.chain(self.outputs.iter().flat_map(Output::roots)).collect()
    }

    /// As [`Nest::roots`].
    pub fn roots_mut(&mut self) -> Vec<&mut ExprId> {
        let factors = self.accumulations.iter_mut().flat_map(|sum| &mut sum.factors);
        let outputs = self.outputs.iter_mut().flat_map(|output| output.index.iter_mut().chain([&mut output.value]));
        factors.chain(outputs).collect()
    }

    /// Copies all expressions and replaces some: see [`Dag::graft`].
    pub fn rebuild(&mut self, replace: impl FnMut(&mut Dag, &Expr, &[ExprId]) -> Option<ExprId>) {
        let mut dag = Dag::new();
        let copies = dag.graft(&self.body.dag, &self.roots(), replace);
        self.roots_mut().into_iter().zip(copies).for_each(|(root, copy)| *root = copy);
        self.body.dag = dag;
    }

    /// Operands that hold the offsets of ragged axes.
    pub fn offsets(&self) -> Vec<u16> {
        let offsets = |axis: &Axis| match axis.extent {
            Extent::Ragged { offsets } => Some(offsets),
            Extent::Dense(_) => None,
        };
        self.axes.iter().filter_map(offsets).collect()
    }
}

impl Axis {
    /// Axes of results, of these extents.
    pub fn points(extents: impl IntoIterator<Item = Dim>) -> Vec<Self> {
        extents.into_iter().map(|dim| Self { extent: Extent::Dense(dim), summed: false }).collect()
    }

    /// A reduction axis.
    pub fn sum(extent: Extent) -> Self {
        Self { extent, summed: true }
    }
}
