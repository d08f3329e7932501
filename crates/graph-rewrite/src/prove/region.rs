//! The loops of a kernel, with the expressions evaluated in them.

use crate::plan::{Axis, Computation, Extent, Nest, Output};
use rewire_graph::Dim;
use rewire_graph::pointwise::ExprId;

/// The values of a coordinate.
#[derive(Clone, Debug)]
pub(super) enum Values {
    /// From 0 to below a size that counts towards the [points](Nest::points) of the loop.
    Dim(Dim),
    /// From 0 to below a size that does not count towards them.
    Depth(Dim),
    /// The rows of the sample at coordinate 0, from the offsets in this operand.
    Ragged(u16),
    /// A constant range, both ends inclusive, of a constant size.
    Part(usize, usize, usize),
    /// Nothing depends on it.
    Unread,
}

/// Expressions that are evaluated at every point of a loop.
#[derive(Clone, Debug)]
pub(super) struct Region<'a> {
    pub roots: Vec<ExprId>,
    /// By coordinate.
    pub coords: Vec<Values>,
    /// The output, with its position among the outputs of the kernel.
    pub output: Option<(usize, &'a Output)>,
}

impl From<&Axis> for Values {
    fn from(axis: &Axis) -> Self {
        match &axis.extent {
            Extent::Dense(dim) if axis.summed => Self::Depth(dim.clone()),
            Extent::Dense(dim) => Self::Dim(dim.clone()),
            Extent::Ragged { offsets } => Self::Ragged(*offsets),
        }
    }
}

impl<'a> Region<'a> {
    /// The loops of a kernel. A custom kernel has none.
    pub fn of(computation: &'a Computation) -> Vec<Self> {
        let Some(nest) = computation.nest() else { return vec![] };
        let factors = nest.accumulations.iter().flat_map(|sum| &sum.factors).map(|&factor| value(nest, factor));
        let outputs = nest.outputs.iter().enumerate().map(|output| written(nest, output));
        factors.chain(outputs).collect()
    }
}

/// The loop over the coordinates that an expression depends on. Rows of a sample include the sample.
fn value(nest: &Nest, root: ExprId) -> Region<'_> {
    let mut read = nest.body.dag.coords(root);
    let is_read = |read: u32, axis: usize| read >> axis & 1 == 1;
    let ragged = |(axis, of): (usize, &Axis)| is_read(read, axis) && of.extent.dense().is_none();
    if nest.axes.iter().enumerate().any(ragged) {
        read |= 1;
    }
    let values = |(axis, of): (usize, &Axis)| if is_read(read, axis) { of.into() } else { Values::Unread };
    Region { roots: vec![root], coords: nest.axes.iter().enumerate().map(values).collect(), output: None }
}

/// The loop of an output: over the result axes, except the last one if it is reduced before.
fn written<'a>(nest: &'a Nest, (position, output): (usize, &'a Output)) -> Region<'a> {
    let roots: Vec<ExprId> = output.roots().collect();
    let mut coords: Vec<Values> = nest.axes.iter().take(nest.rank()).map(Values::from).collect();
    if let Some(last) = coords.len().checked_sub(1) {
        let reduced = nest.accumulations.iter().any(|sum| usize::from(sum.axis) == last);
        let read = roots.iter().any(|&id| nest.body.dag.coords(id) >> last & 1 == 1);
        // A part that ends beyond the loop may have no columns; expressions that do not depend on them are still
        // evaluated.
        let part = output.columns.zip(nest.axes[last].extent.dense().and_then(Dim::as_const));
        match part.filter(|((start, end), extent)| start < end && end <= extent) {
            Some(((start, end), extent)) => coords[last] = Values::Part(start, end - 1, extent),
            None if reduced && !read => drop(coords.pop()),
            None => {}
        }
    }
    Region { roots, coords, output: Some((position, output)) }
}
