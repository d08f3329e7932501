use super::Custom;
use rewire_graph::limits::MAX_POINTS;
pub use rewire_graph::op::ReduceOp;
use rewire_graph::pointwise::{Dag, ExprId};
use rewire_graph::{DType, Dim};
use serde::{Deserialize, Serialize};

/// Which memory an operand lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// A tensor in device memory.
    Device,
    /// A small parameter. On a GPU the packed parameters of a type share one buffer, and so one binding.
    Packed,
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
    pub place: Place,
}

/// The expressions of a kernel and what they refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// All expressions.
    pub dag: Dag,
    /// What [`rewire_graph::pointwise::Expr::Load`] reads.
    pub operands: Vec<Operand>,
    /// What [`rewire_graph::pointwise::Expr::Size`] reads.
    pub sizes: Vec<Dim>,
}

/// A tensor that a kernel writes, an element a loop point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Position among [`super::Step::writes`]. Several outputs may write disjoint parts of one tensor, as the
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
    /// The part of the last coordinate that is written, `start..end`; all of it if `None`.
    pub columns: Option<(usize, usize)>,
}

/// A value combined over the last coordinate. Its result is `Value(position)` for later ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduction {
    /// How elements are combined.
    pub op: ReduceOp,
    /// Number of elements: the last coordinate runs over `0..extent`. In a [`Reduce`] it is the last extent of
    /// the loop; a statistic of a [`Matmul`] may be shorter than `k`.
    pub extent: Dim,
    /// The element, an `F32` expression of all coordinates and of earlier reductions.
    pub value: ExprId,
}

/// A loop over points without an anchor. Coordinate `n` is dimension `n` of `extents`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// The expressions.
    pub body: Body,
    /// The loop; at least one dimension.
    pub extents: Vec<Dim>,
    /// What is written.
    pub outputs: Vec<Output>,
}

/// Reductions over the last coordinate, each a whole pass, and what is made of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    /// The expressions.
    pub body: Body,
    /// The loop; the last dimension is reduced.
    pub extents: Vec<Dim>,
    /// In order; later ones may read earlier ones through `Value`.
    pub reductions: Vec<Reduction>,
    /// Written for every point, after the reductions.
    pub outputs: Vec<Output>,
    /// Written once a row: index and value do not depend on the last coordinate.
    pub row_outputs: Vec<Output>,
}

/// The rows of a matrix in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RowRange {
    /// The same number in every batch entry.
    Dense(Dim),
    /// Sample `b` has `offsets[b + 1] - offsets[b]` rows; the position is an operand on the host.
    Ragged {
        /// Position of the offsets, `[B + 1]`, among the operands.
        offsets: u16,
    },
}

/// `sum over k of a(m, k) * b(k, n)` for every batch entry, with a prologue on each side and an epilogue.
///
/// With `B = batch.len()`: coordinates `0..B` are the batch entry, `m` is coordinate `B`, and coordinate
/// `B + 1` is `k` in `a` and the statistics, and `n` in the outputs. In `b`, coordinate `B` is `k` and
/// `B + 1` is `n`. A ragged `m` counts within the sample, and the batch is the one dimension of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matmul {
    /// The expressions.
    pub body: Body,
    /// Batch dimensions.
    pub batch: Vec<Dim>,
    /// Rows.
    pub m: RowRange,
    /// Columns.
    pub n: Dim,
    /// Length of the sum.
    pub k: Dim,
    /// Statistics of a row of `a`, over `k`: `Value(position)` in `a` and in later statistics.
    pub stats: Vec<Reduction>,
    /// The left element.
    pub a: ExprId,
    /// The right element.
    pub b: ExprId,
    /// What is written; `Value(0)` is the sum.
    pub outputs: Vec<Output>,
}

/// Two ragged matmuls with a pointwise DAG between them, for every sample and head:
/// `out(i, d) = sum over j of [mask(i, j)] * score(i, j, <q_i, k_j>) * v(j, d)`.
///
/// Coordinates are `(sample, head, i, x)`: `x` is the key `j` in `score` and `mask`, and the column `d` in
/// `q`, `k`, `v` and the outputs. In `k` and `v`, coordinate 2 is the key. `i` and `j` count within the sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// The expressions.
    pub body: Body,
    /// Number of samples.
    pub samples: Dim,
    /// Number of heads.
    pub heads: usize,
    /// Width of `q` and `k`.
    pub qk_width: usize,
    /// Width of `v` and of the result.
    pub v_width: usize,
    /// Queries of a sample.
    pub rows: RowRange,
    /// Keys of a sample.
    pub keys: RowRange,
    /// Element of a query.
    pub q: ExprId,
    /// Element of a key.
    pub k: ExprId,
    /// Element of a value.
    pub v: ExprId,
    /// The weight of a pair; `Value(0)` is the dot product.
    pub score: ExprId,
    /// Which pairs count; all if `None`. Others weigh 0, and tiles without any are skipped.
    pub mask: Option<ExprId>,
    /// Weights are `exp(score - max) / sum` over the keys that count, instead of `score`.
    pub softmax: bool,
    /// What is written; `Value(0)` is the sum.
    pub outputs: Vec<Output>,
}

/// What a step computes: an anchor with a prologue and an epilogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kernel {
    /// No anchor.
    Map(Map),
    /// Row reductions: norms, softmax, sums.
    Reduce(Reduce),
    /// A dense, batched or ragged matrix product.
    Matmul(Matmul),
    /// Jagged attention.
    Attention(Attention),
    /// An operator of a user's own.
    Custom(Custom),
}

/// A tensor that a kernel writes, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written<'a> {
    /// Position among [`super::Step::writes`].
    pub target: u16,
    /// Element type in memory.
    pub dtype: DType,
    /// Logical shape.
    pub shape: &'a [Dim],
}

impl Kernel {
    /// The expressions.
    pub fn body(&self) -> &Body {
        match self {
            Self::Map(kernel) => &kernel.body,
            Self::Reduce(kernel) => &kernel.body,
            Self::Matmul(kernel) => &kernel.body,
            Self::Attention(kernel) => &kernel.body,
            Self::Custom(kernel) => &kernel.body,
        }
    }

    pub(crate) fn body_mut(&mut self) -> &mut Body {
        match self {
            Self::Map(kernel) => &mut kernel.body,
            Self::Reduce(kernel) => &mut kernel.body,
            Self::Matmul(kernel) => &mut kernel.body,
            Self::Attention(kernel) => &mut kernel.body,
            Self::Custom(kernel) => &mut kernel.body,
        }
    }

    /// The points of the loop over results, 1 where rows are ragged, if they are at most [`MAX_POINTS`]. A run checks
    /// that: bounds of the coordinates of extents that are no constants rely on it.
    pub fn points(&self, size: impl Fn(&Dim) -> Option<usize>) -> Option<usize> {
        let product =
            |count: usize, dims: &[Dim]| dims.iter().try_fold(count, |count, dim| count.checked_mul(size(dim)?));
        let count = match self {
            Self::Map(kernel) => product(1, &kernel.extents),
            Self::Reduce(kernel) => product(1, &kernel.extents),
            Self::Matmul(Matmul { batch, m: RowRange::Dense(m), n, .. }) => {
                product(size(m)?.checked_mul(size(n)?)?, batch)
            }
            Self::Attention(Attention { samples, heads, rows: RowRange::Dense(rows), v_width, .. }) => {
                let widths = heads.checked_mul(*v_width);
                widths.and_then(|widths| widths.checked_mul(size(samples)?)?.checked_mul(size(rows)?))
            }
            Self::Matmul(_) | Self::Attention(_) | Self::Custom(_) => Some(1),
        };
        count.filter(|count| *count <= MAX_POINTS)
    }

    /// As [`Kernel::outputs`].
    pub(crate) fn outputs_mut(&mut self) -> Vec<&mut Output> {
        match self {
            Self::Map(kernel) => kernel.outputs.iter_mut().collect(),
            Self::Reduce(kernel) => kernel.outputs.iter_mut().chain(&mut kernel.row_outputs).collect(),
            Self::Matmul(kernel) => kernel.outputs.iter_mut().collect(),
            Self::Attention(kernel) => kernel.outputs.iter_mut().collect(),
            Self::Custom(_) => vec![],
        }
    }

    /// All that is evaluated in the loops.
    pub(crate) fn roots_mut(&mut self) -> Vec<&mut ExprId> {
        fn written(outputs: &mut [Output]) -> impl Iterator<Item = &mut ExprId> {
            outputs.iter_mut().flat_map(|output| output.index.iter_mut().chain([&mut output.value]))
        }
        fn reduced(reductions: &mut [Reduction]) -> impl Iterator<Item = &mut ExprId> {
            reductions.iter_mut().map(|reduction| &mut reduction.value)
        }
        match self {
            Self::Map(kernel) => written(&mut kernel.outputs).collect(),
            Self::Reduce(kernel) => {
                let written = written(&mut kernel.outputs).chain(written(&mut kernel.row_outputs));
                reduced(&mut kernel.reductions).chain(written).collect()
            }
            Self::Matmul(Matmul { stats, a, b, outputs, .. }) => {
                reduced(stats).chain([a, b]).chain(written(outputs)).collect()
            }
            Self::Attention(Attention { q, k, v, score, mask, outputs, .. }) => {
                [q, k, v, score].into_iter().chain(mask).chain(written(outputs)).collect()
            }
            Self::Custom(_) => vec![],
        }
    }

    /// The tensors that are written.
    pub fn written(&self) -> Vec<Written<'_>> {
        if let Self::Custom(kernel) = self {
            return vec![Written { target: 0, dtype: kernel.dtype, shape: &kernel.shape }];
        }
        let outputs = self.outputs().into_iter();
        outputs.map(|o| Written { target: o.target, dtype: o.dtype, shape: &o.shape }).collect()
    }

    /// A tensor that is written in a type that kernels only read.
    pub fn unwritable(&self) -> Option<Written<'_>> {
        self.written().into_iter().find(|written| !written.dtype.format().is_written())
    }

    /// What is written as expressions of a loop, in the order of [`super::Step::writes`].
    pub fn outputs(&self) -> Vec<&Output> {
        match self {
            Self::Map(kernel) => kernel.outputs.iter().collect(),
            Self::Reduce(kernel) => kernel.outputs.iter().chain(&kernel.row_outputs).collect(),
            Self::Matmul(kernel) => kernel.outputs.iter().collect(),
            Self::Attention(kernel) => kernel.outputs.iter().collect(),
            Self::Custom(_) => vec![],
        }
    }
}
