//! Chains of functions over blocks of a tile, which stay in the cache between passes.

use super::lanes::{Grid, Lanes, Row};
use super::machine::Register;
use super::passes::Rows;
use super::step::Pass;
use super::stream::Stream;
use super::totals::Totals;
use pulp::{Simd, WithSimd};

/// Floats of a block, at most.
const BLOCK: usize = 1024;

/// Two blocks for values on their way.
pub(super) type Scratch = [Register<f32, BLOCK>; 2];

pub(super) const SCRATCH: Scratch = [const { Register([0.0; BLOCK]) }; 2];

/// Neighbouring points of some rows of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub row: usize,
    pub rows: usize,
    start: usize,
    pub points: usize,
    /// Points of a row of the tile.
    width: usize,
}

impl Block {
    /// The values of the block's row `n`.
    #[inline(always)]
    pub(super) fn row<T: Copy>(self, lanes: Lanes<'_, T>, n: usize) -> Row<'_, T> {
        lanes.part(self.row + n, self.width, (self.start, self.points))
    }

    /// True if the tile's rows begin with it.
    #[inline(always)]
    pub(super) fn begins(self) -> bool {
        self.start == 0
    }

    /// True if the tile's rows end with it.
    #[inline(always)]
    pub(super) fn ends(self) -> bool {
        self.start + self.points == self.width
    }

    /// The part of a tile's rows, `stride` apart, that begins with the block.
    #[inline(always)]
    fn of(self, rows: &mut [f32], stride: usize) -> &mut [f32] {
        rows.get_mut(self.row * stride + self.start..).unwrap_or(&mut [])
    }

    /// All of a tile.
    fn whole(rows: usize, points: usize) -> Self {
        Self { row: 0, rows, start: 0, points, width: points }
    }
}

/// Where results go.
#[derive(Debug)]
pub(super) enum Destination<'s> {
    /// To rows that are `stride` apart, by `stream` if there is one.
    Rows {
        out: &'s mut [f32],
        stride: usize,
        stream: Option<&'s Stream<'s>>,
    },
    Totals(Totals<'s>),
}

/// A chain bound to a tile.
pub(super) struct Chain<'a, 's> {
    pub grid: Grid,
    /// What the chain begins with, and what its passes read.
    pub operands: &'a [Lanes<'a, f32>],
    pub passes: &'a [Pass],
    pub scratch: &'s mut Scratch,
    pub to: Destination<'s>,
}

impl WithSimd for Chain<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if let Destination::Rows { stride, .. } = &mut self.to
            && *stride == self.grid.points
            && self.operands.iter().all(|lanes| lanes.is_flat())
        {
            self.grid = self.grid.flat();
            *stride = self.grid.points;
        }
        let Grid { rows, points: width } = self.grid;
        let size = (BLOCK / width.max(1)).clamp(1, rows.max(1));
        for row in (0..rows).step_by(size) {
            for start in (0..width).step_by(BLOCK) {
                let (rows, points) = (size.min(rows - row), BLOCK.min(width - start));
                self.block(simd, Block { row, rows, start, points, width });
            }
        }
    }
}

impl Chain<'_, '_> {
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, block: Block) {
        let Self { operands, passes, scratch, to, .. } = self;
        let (operands, passes) = (*operands, *passes);
        let [a, b] = &mut **scratch;
        let size = block.rows * block.points;
        let (mut held, mut spare) = (&mut a.0[..size], &mut b.0[..size]);
        let whole = Block::whole(block.rows, block.points);
        let first = operands.first().copied().unwrap_or(Lanes::Each(&[]));
        let count = passes.len();
        for (n, &pass) in passes.iter().enumerate() {
            let (value, from) = if n == 0 { (first, block) } else { (Lanes::Each(&*held), whole) };
            let (out, stride) = match to {
                Destination::Rows { out, stride, stream: None } if n + 1 == count => (block.of(out, *stride), *stride),
                _ => (&mut *spare, block.points),
            };
            Rows { out, stride, value, from, block, operands }.advance(simd, pass);
            std::mem::swap(&mut held, &mut spare);
        }
        let (value, from) = if count == 0 { (first, block) } else { (Lanes::Each(&*held), whole) };
        match to {
            Destination::Totals(totals) => totals.add(simd, value, from, block),
            // Rows that are only copied may come from anywhere, and stores past the caches would wait for each.
            Destination::Rows { out, stride, .. } if count == 0 => {
                Rows { out: block.of(out, *stride), stride: *stride, value, from, block, operands }.copy();
            }
            Destination::Rows { out, stride, stream: Some(stream) } => {
                let lines = block.of(out, *stride).chunks_mut((*stride).max(1)).take(block.rows);
                for (line, values) in lines.zip(held.chunks(block.points.max(1))) {
                    if let Some(line) = line.get_mut(..values.len()) {
                        stream.copy(line, values);
                    }
                }
            }
            Destination::Rows { .. } => {}
        }
    }
}
