use super::error::CpuError;
use super::kept::{ContentId, Kept};
use super::memory::Memory;
use super::storage::Elements;
use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::plan::{Body, Extent, MemorySpace};
use std::borrow::Cow;

/// The binding of a kernel's operand in a run.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Memory),
    /// A host vector or scalar (one entry).
    Host(&'a [i64]),
}

/// The elements of an operand, with shape and strides.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub elements: Elements<'a>,
    pub shape: Cow<'a, [usize]>,
    pub strides: Cow<'a, [usize]>,
    /// The identity of the content; `None` without [`Memory::know_content`].
    pub content: Option<&'a ContentId>,
}

/// The sizes of a run.
pub(super) type Symbols<'a> = dyn Fn(Symbol) -> Option<i64> + Sync + 'a;

/// The operands and sizes of a kernel in one run.
pub(super) struct Env<'a> {
    pub views: Vec<View<'a>>,
    pub sizes: Vec<i32>,
    symbol: &'a Symbols<'a>,
    /// The kernel's caches, shared by all its runs.
    pub kept: &'a Kept,
}

/// Maximum number of samples of a kernel.
const SAMPLES: usize = 1 << 26;

/// The value of a dim, at most `i32::MAX`.
fn extent(dim: &Dim, what: &'static str, symbol: &Symbols<'_>) -> Result<usize, CpuError> {
    dim.evaluate(symbol)
        .filter(|&n| i32::try_from(n).is_ok())
        .ok_or_else(|| CpuError::Size { what, dim: dim.to_string() })
}

/// The product of a loop's extents, at most `u32::MAX`.
pub(super) fn count(extents: &[usize], what: &'static str) -> Result<usize, CpuError> {
    let product = extents.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    product.filter(|&n| u32::try_from(n).is_ok()).ok_or_else(|| CpuError::Size { what, dim: format!("{extents:?}") })
}

/// The values of several dims.
fn extents(dims: &[Dim], what: &'static str, symbol: &Symbols<'_>) -> Result<Vec<usize>, CpuError> {
    dims.iter().map(|dim| extent(dim, what, symbol)).collect()
}

/// True if a tensor with this shape has these dims.
fn is_shape(shape: &[usize], dims: &[Dim], what: &'static str, symbol: &Symbols<'_>) -> Result<bool, CpuError> {
    let mut same = shape.len() == dims.len();
    for (axis, dim) in dims.iter().enumerate() {
        let extent = extent(dim, what, symbol)?;
        same &= shape.get(axis) == Some(&extent);
    }
    Ok(same)
}

impl<'a> Env<'a> {
    /// Checks operands against their declarations.
    pub(super) fn bind(
        body: &Body,
        operands: &[Operand<'a>],
        symbol: &'a Symbols<'a>,
        kept: &'a Kept,
    ) -> Result<Self, CpuError> {
        if operands.len() != body.operands.len() {
            return Err(CpuError::Count { what: "operands", expected: body.operands.len(), actual: operands.len() });
        }
        let mut views = Vec::with_capacity(operands.len());
        for (position, (declared, &operand)) in body.operands.iter().zip(operands).enumerate() {
            let view = match (operand, declared.space) {
                (Operand::Tensor(memory), MemorySpace::Device | MemorySpace::Pooled)
                    if memory.dtype() == declared.dtype
                        && is_shape(memory.shape(), &declared.shape, "an operand", symbol)? =>
                {
                    View {
                        elements: memory.elements(),
                        shape: memory.shape().into(),
                        strides: memory.strides().into(),
                        content: memory.known_content(),
                    }
                }
                (Operand::Host(values), MemorySpace::Host)
                    if declared.shape.is_empty() && values.len() == 1
                        || is_shape(&[values.len()], &declared.shape, "an operand", symbol)? =>
                {
                    let shape = vec![values.len(); declared.shape.len()];
                    let strides = vec![1; shape.len()];
                    View {
                        elements: Elements::I64(values),
                        shape: shape.into(),
                        strides: strides.into(),
                        content: None,
                    }
                }
                _ => {
                    let shape = extents(&declared.shape, "an operand", symbol)?;
                    return Err(CpuError::Mismatch {
                        what: "operand",
                        position,
                        expected: format!("a {:?} tensor of {} {shape:?}", declared.space, declared.dtype),
                        actual: describe(operand),
                    });
                }
            };
            views.push(view);
        }
        let sizes = extents(&body.sizes, "an expression", symbol)?.into_iter().map(|n| n as i32).collect();
        Ok(Self { views, sizes, symbol, kept })
    }

    /// The same run with further operands.
    pub(super) fn extended<'b>(&'b self, more: &'b [Memory]) -> Env<'b> {
        let own = self.views.iter().map(|view| View {
            elements: view.elements,
            shape: Cow::Borrowed(&*view.shape),
            strides: Cow::Borrowed(&*view.strides),
            content: view.content,
        });
        let more = more.iter().map(|memory| View {
            elements: memory.elements(),
            shape: memory.shape().into(),
            strides: memory.strides().into(),
            content: None,
        });
        Env { views: own.chain(more).collect(), sizes: self.sizes.clone(), symbol: self.symbol, kept: self.kept }
    }

    /// The value of a dim, at most `i32::MAX`.
    pub(super) fn extent(&self, dim: &Dim, what: &'static str) -> Result<usize, CpuError> {
        extent(dim, what, self.symbol)
    }

    /// True if an output with this shape has these dims.
    pub(super) fn is_output(&self, shape: &[usize], dims: &[Dim]) -> Result<bool, CpuError> {
        is_shape(shape, dims, "an output", self.symbol)
    }

    /// The values of several dims.
    pub(super) fn extents(&self, dims: &[Dim], what: &'static str) -> Result<Vec<usize>, CpuError> {
        extents(dims, what, self.symbol)
    }

    /// Row offsets of samples, checked to be ascending. The last of `samples + 1` entries is the total.
    pub(super) fn offsets(&self, position: u16, samples: usize) -> Result<Vec<usize>, CpuError> {
        let error = |actual: String| CpuError::Offsets { position: position.into(), expected: samples + 1, actual };
        let values: Vec<i64> = match self.views.get(usize::from(position)).map(|view| view.elements) {
            Some(Elements::I64(values)) => values.to_vec(),
            Some(Elements::I32(values)) => values.iter().map(|&v| v.into()).collect(),
            other => return Err(error(format!("{other:?}"))),
        };
        let ascending = values.windows(2).all(|pair| pair[0] <= pair[1]);
        if values.len() != samples + 1 || !ascending || values[0] < 0 || values[samples] > i64::from(i32::MAX) {
            return Err(error(format!("{values:?}")));
        }
        Ok(values.into_iter().map(|v| v as usize).collect())
    }

    /// The number of rows of each sample.
    pub(super) fn rows(&self, rows: &Extent, samples: usize) -> Result<Vec<usize>, CpuError> {
        match rows {
            Extent::Dense(_) if samples > SAMPLES => {
                Err(CpuError::Size { what: "the samples", dim: samples.to_string() })
            }
            Extent::Dense(dim) => Ok(vec![self.extent(dim, "the rows")?; samples]),
            Extent::Ragged { offsets } => {
                Ok(self.offsets(*offsets, samples)?.windows(2).map(|pair| pair[1] - pair[0]).collect())
            }
        }
    }
}

fn describe(operand: Operand<'_>) -> String {
    match operand {
        Operand::Tensor(memory) => format!("a Device tensor of {} {:?}", memory.dtype(), memory.shape()),
        Operand::Host(values) => format!("a Host vector of {} entries", values.len()),
    }
}
