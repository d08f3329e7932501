//! The loops of a kernel: which expressions are evaluated at which coordinates.

use crate::plan::{Attention, Kernel, Matmul, Output, Reduction, RowRange};
use rewire_graph::Dim;
use rewire_graph::pointwise::ExprId;

/// The values that a coordinate has.
#[derive(Clone, Debug)]
pub(super) enum Extent {
    /// From 0 up to a size, one of those that make up the [points](Kernel::points) of the loop.
    Dim(Dim),
    /// From 0 up to a size that is not one of those.
    Depth(Dim),
    /// The rows of the sample that is coordinate 0, by the offsets that are this operand.
    Ragged(u16),
    /// From a first to a last one, both included, of a constant size.
    Part(usize, usize, usize),
}

/// Expressions that are evaluated at every point of a loop.
#[derive(Clone, Debug)]
pub(super) struct Region<'a> {
    pub roots: Vec<ExprId>,
    /// By coordinate.
    pub coords: Vec<Extent>,
    /// What is written there, by its position among the outputs of the kernel.
    pub output: Option<(usize, &'a Output)>,
}

impl From<&RowRange> for Extent {
    fn from(range: &RowRange) -> Self {
        match range {
            RowRange::Dense(dim) => Self::Dim(dim.clone()),
            RowRange::Ragged { offsets } => Self::Ragged(*offsets),
        }
    }
}

fn dense(dims: &[Dim]) -> Vec<Extent> {
    dims.iter().cloned().map(Extent::Dim).collect()
}

impl<'a> Region<'a> {
    /// The loops of a kernel. A kernel of a user's own has none.
    pub fn of(kernel: &'a Kernel) -> Vec<Self> {
        match kernel {
            Kernel::Map(kernel) => outputs(&kernel.outputs, &dense(&kernel.extents), 0),
            Kernel::Reduce(kernel) => {
                let coords = dense(&kernel.extents);
                let rows = coords.split_last().map_or(&[][..], |(_, rows)| rows);
                let reduced = kernel.reductions.iter().map(|reduction| value(reduction.value, coords.clone()));
                let mut regions: Vec<Self> = reduced.collect();
                regions.extend(outputs(&kernel.outputs, &coords, 0));
                regions.extend(outputs(&kernel.row_outputs, rows, kernel.outputs.len()));
                regions
            }
            Kernel::Matmul(kernel) => matmul(kernel),
            Kernel::Attention(kernel) => attention(kernel),
            Kernel::Custom(_) => vec![],
        }
    }
}

fn matmul(kernel: &Matmul) -> Vec<Region<'_>> {
    let batch = dense(&kernel.batch);
    let (n, k) = (Extent::Dim(kernel.n.clone()), Extent::Depth(kernel.k.clone()));
    let rows = [batch.clone(), vec![Extent::from(&kernel.m)]].concat();
    let with = |coords: &[Extent], last: &Extent| [coords, std::slice::from_ref(last)].concat();
    let statistic = |stat: &Reduction| value(stat.value, with(&rows, &Extent::Depth(stat.extent.clone())));
    let mut regions: Vec<Region> = kernel.stats.iter().map(statistic).collect();
    regions.push(value(kernel.a, with(&rows, &k)));
    regions.push(value(kernel.b, with(&with(&batch, &k), &n)));
    regions.extend(outputs(&kernel.outputs, &with(&rows, &n), 0));
    regions
}

fn attention(kernel: &Attention) -> Vec<Region<'_>> {
    let entry = [Extent::Dim(kernel.samples.clone()), Extent::Dim(kernel.heads.into())];
    let rows = Extent::from(&kernel.rows);
    let keys = match &kernel.keys {
        RowRange::Dense(keys) => Extent::Depth(keys.clone()),
        ragged => Extent::from(ragged),
    };
    let at = |row: &Extent, last: Extent| [&entry[..], &[row.clone(), last]].concat();
    let [qk, v] = [kernel.qk_width, kernel.v_width].map(|width| Extent::Dim(width.into()));
    let pairs = at(&rows, keys.clone());
    let mut regions = vec![
        value(kernel.q, at(&rows, qk.clone())),
        value(kernel.k, at(&keys, qk)),
        value(kernel.v, at(&keys, v.clone())),
        value(kernel.score, pairs.clone()),
    ];
    regions.extend(kernel.mask.map(|mask| value(mask, pairs)));
    regions.extend(outputs(&kernel.outputs, &at(&rows, v), 0));
    regions
}

fn value<'a>(root: ExprId, coords: Vec<Extent>) -> Region<'a> {
    Region { roots: vec![root], coords, output: None }
}

/// The loops of outputs, the first of which is output `first` of the kernel.
fn outputs<'a>(outputs: &'a [Output], coords: &[Extent], first: usize) -> Vec<Region<'a>> {
    let place = |(position, output): (usize, &'a Output)| {
        let mut coords = coords.to_vec();
        // A part that ends beyond the loop may have no columns, where what does not depend on them is evaluated still.
        if let (Some((start, end)), Some(Extent::Dim(dim))) = (output.columns, coords.last())
            && let Some(extent) = dim.as_const().filter(|&extent| start < end && end <= extent)
        {
            coords.pop();
            coords.push(Extent::Part(start, end - 1, extent));
        }
        let roots = output.index.iter().copied().chain([output.value]).collect();
        Region { roots, coords, output: Some((first + position, output)) }
    };
    outputs.iter().enumerate().map(place).collect()
}
