//! Loop nests: what a kernel computes, and nothing of how.

mod text;

use crate::limits::MAX_POINTS;
use crate::op::ReduceOp;
use crate::pointwise::{Dag, Expr, ExprId};
use crate::{DType, Dim};
use serde::{Deserialize, Serialize};

/// Which memory an operand lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemorySpace {
    /// A tensor in device memory.
    Device,
    /// A small parameter. On a GPU the pooled parameters of a type share one buffer, and so one binding.
    Pooled,
    /// A vector `[n]` or scalar of the shape program, 64-bit on the host and `I32` in kernels.
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

/// The expressions of a kernel and what they refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// All expressions.
    pub dag: Dag,
    /// What [`Load`](crate::pointwise::Expr::Load) reads.
    pub operands: Vec<Operand>,
    /// What [`Size`](crate::pointwise::Expr::Size) reads.
    pub sizes: Vec<Dim>,
}

/// How far a loop runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    /// The same everywhere.
    Dense(Dim),
    /// Over the rows of the sample that coordinate 0 counts: `offsets[sample + 1] - offsets[sample]` of them.
    Ragged {
        /// Position of the offsets, `[B + 1]` on the host, among the operands.
        offsets: u16,
    },
}

impl Extent {
    /// The extent where it is the same everywhere.
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
    /// How far it runs.
    pub extent: Extent,
    /// True for loops that are combined over and that no result has: the depth of a product.
    pub summed: bool,
}

/// A value combined over an axis, for every point of the other axes that its factors depend on. It is
/// [`Value(n)`](crate::pointwise::Expr::Value), `n` its position among those of the nest, in later ones and in outputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Accumulation {
    /// How elements are combined.
    pub op: ReduceOp,
    /// The axis that is combined.
    pub axis: u8,
    /// What is multiplied to make an element, `F32`: one, or two of a contraction.
    pub factors: Vec<ExprId>,
    /// What it is combined in: `F32`, or what a device may combine the sum of a contraction in, and need not: `F16`, or `I32` of
    /// factors rounded to 8 bits.
    #[serde(default = "single", skip_serializing_if = "is_single")]
    pub dtype: DType,
}

fn single() -> DType {
    DType::F32
}

fn is_single(dtype: &DType) -> bool {
    *dtype == single()
}

/// A tensor that a kernel writes, an element a point of the axes that no sum removes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Position among the tensors that the kernel writes. Several outputs may write disjoint parts of one tensor, as the
    /// parts of a concatenation do; they agree in dtype and shape, and a backend binds that tensor once.
    pub target: u16,
    /// Element type in memory.
    pub dtype: DType,
    /// Logical shape.
    pub shape: Vec<Dim>,
    /// Where the element goes: an `I32` a dimension, a one-to-one function of the coordinates.
    pub index: Vec<ExprId>,
    /// The element.
    pub value: ExprId,
    /// The part of the loop's last axis of results that is written, `start..end`; all of it if `None`.
    pub columns: Option<(usize, usize)>,
}

impl Output {
    /// What is evaluated for an element: where it goes, then the element.
    pub fn roots(&self) -> impl Iterator<Item = ExprId> + Clone {
        self.index.iter().copied().chain([self.value])
    }
}

/// A loop nest: what a kernel computes, and nothing of how.
///
/// Coordinate `n` of the expressions counts axis `n`. Axes of results come first, then those that are summed. How it runs
/// is for a schedule to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nest {
    /// The expressions.
    pub body: Body,
    /// The loops.
    pub axes: Vec<Axis>,
    /// What is combined, in an order in which each reads earlier ones alone.
    pub accumulations: Vec<Accumulation>,
    /// What is written.
    pub outputs: Vec<Output>,
}

impl Nest {
    /// A loop over the points of a dense space, without sums.
    pub fn map(body: Body, extents: Vec<Dim>, outputs: Vec<Output>) -> Self {
        Self { body, axes: Axis::points(extents), accumulations: vec![], outputs }
    }

    /// The number of axes of results.
    pub fn rank(&self) -> usize {
        self.axes.iter().take_while(|axis| !axis.summed).count()
    }

    /// The points of the loop over results, 1 for axes that are ragged, if they are at most [`MAX_POINTS`]. A run checks
    /// that: bounds of the coordinates of extents that are no constants rely on it.
    pub fn points(&self, size: impl Fn(&Dim) -> Option<usize>) -> Option<usize> {
        let extents = self.axes.iter().filter(|axis| !axis.summed).filter_map(|axis| axis.extent.dense());
        let count = extents.map(size).try_fold(1usize, |count, extent| count.checked_mul(extent?));
        count.filter(|count| *count <= MAX_POINTS)
    }

    /// All that is evaluated in the loops.
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

    /// Copies all expressions, with others in place of some: [`Dag::graft`].
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

    /// An axis that is summed.
    pub fn sum(extent: Extent) -> Self {
        Self { extent, summed: true }
    }
}
