//! Division of a loop and its outputs among tasks.

use super::{Store, Target};
use crate::kernels::error::CpuError;
use crate::kernels::lanes::LANES;
use crate::kernels::memory::{Memory, Sink};
use crate::kernels::storage::SharedElements;
use crate::kernels::stream::Stream;
use std::ops::Range;

/// Outputs that several tasks write.
#[derive(Debug)]
pub(in crate::kernels) struct SharedOutputs<'a>(Vec<(SharedElements<'a>, [&'a [usize]; 2])>);

impl<'a> SharedOutputs<'a> {
    pub(in crate::kernels) fn new(outputs: &'a mut [&mut Memory]) -> Result<Self, CpuError> {
        let shared = |output: &'a mut &mut Memory| {
            let (elements, extents) = output.parts_mut()?;
            Ok((elements.share(), extents))
        };
        outputs.iter_mut().map(shared).collect::<Result<_, _>>().map(Self)
    }

    /// The targets for one task.
    pub(in crate::kernels) fn targets(&self) -> Vec<Target<'a>> {
        let target = |&(elements, [shape, strides]): &(SharedElements<'a>, [&'a [usize]; 2])| Target {
            sink: Sink::Shared(elements),
            strides,
            shape,
            stream: None,
        };
        self.0.iter().map(target).collect()
    }
}

/// The division of a loop's points into tasks.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Blocks {
    /// Rows of the loop.
    pub rows: usize,
    /// Points per row.
    pub width: usize,
    /// Rows per block, or points per block if `across`.
    pub size: usize,
    /// True if the loop has a single row, which is divided.
    pub across: bool,
}

/// Maximum number of blocks. Larger loops have larger blocks.
const MOST: usize = 128;

impl Blocks {
    /// Blocks of whole rows with at least `points` points.
    pub(in crate::kernels) fn of_rows(rows: usize, width: usize, points: usize) -> Self {
        let size = (points / width.max(1)).max(rows.div_ceil(MOST)).max(1);
        Self { rows, width, size, across: false }
    }

    /// Blocks of at least `points` points; a single row is divided.
    pub(in crate::kernels) fn of_points(rows: usize, width: usize, points: usize) -> Self {
        if rows == 1 {
            Self { rows, width, size: points.max(width.div_ceil(MOST)).next_multiple_of(LANES), across: true }
        } else {
            Self::of_rows(rows, width, points)
        }
    }

    /// Number of blocks.
    pub(in crate::kernels) fn count(self) -> usize {
        if self.across { self.width.div_ceil(self.size) } else { self.rows.div_ceil(self.size) }
    }

    /// Rows and columns of block `n`.
    pub(in crate::kernels) fn block(self, n: usize) -> (Range<usize>, Range<usize>) {
        let within = |all: usize| n * self.size..((n + 1) * self.size).min(all);
        if self.across { (0..1, within(self.width)) } else { (within(self.rows), 0..self.width) }
    }
}

/// Divides outputs among the blocks of a loop: as separate slices if the loop's rows are the output's rows, otherwise
/// shared.
pub(in crate::kernels) fn deal<'a, 's>(
    stores: impl Iterator<Item = &'s Store> + Clone,
    outputs: &'a mut [&mut Memory],
    blocks: Blocks,
) -> Result<Vec<Vec<Target<'a>>>, CpuError> {
    let mut dealt: Vec<Vec<Target<'a>>> = (0..blocks.count()).map(|_| vec![]).collect();
    for (position, output) in outputs.iter_mut().enumerate() {
        let (elements, [shape, strides]) = output.parts_mut()?;
        let writers = stores.clone().filter(|store| store.target == position);
        let pitches = writers.map(|store| store.pitch(strides, blocks)).collect::<Vec<_>>();
        let pitch = pitches.first().copied().flatten().filter(|_| pitches.windows(2).all(|pair| pair[0] == pair[1]));
        let sinks: Box<dyn Iterator<Item = Sink<'a>>> = if let Some(pitch) = pitch {
            let pieces = elements.pieces((blocks.size * pitch).max(1)).into_iter().enumerate();
            Box::new(pieces.map(move |(n, piece)| Sink::Own(piece, n * blocks.size * pitch)))
        } else if blocks.count() == 1 {
            Box::new(std::iter::once(Sink::Own(elements, 0)))
        } else {
            let shared = elements.share();
            Box::new(std::iter::repeat_with(move || Sink::Shared(shared)))
        };
        for (targets, sink) in dealt.iter_mut().zip(sinks) {
            let bytes = shape.iter().product::<usize>() * size_of::<f32>();
            let stream = pitch.and_then(|_| Stream::of(bytes));
            targets.push(Target { sink, shape, strides, stream });
        }
    }
    Ok(dealt)
}
