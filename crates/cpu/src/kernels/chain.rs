//! Chains of float functions, pass by pass over blocks of a tile, which stay in the cache.

use super::affine::{Constants, Shift, Spaced};
use super::error::CpuError;
use super::lanes::{Grid, Lanes, Row};
use super::machine::Register;
use super::passes::Rows;
use super::scratch::zeros;
use super::spread::{OPERANDS, SPREAD, is_narrow, spread};
use super::step::{ChainStep, Pass};
use super::stream::{Stream, prefetch};
use super::totals::{Owners, Totals, sums};
use pulp::{Simd, WithSimd};
use rewire_graph::pointwise::BinaryOp;

/// Largest number of floats in a block.
const BLOCK: usize = 2048;

/// Memory of chains.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    /// Values between passes.
    values: [Register<f32, BLOCK>; 2],
    /// Operands of narrow rows, [`SPREAD`] floats each.
    operands: Vec<f32>,
}

impl Scratch {
    /// For chains of at most so many operands.
    pub(super) fn new(operands: u16) -> Result<Self, CpuError> {
        let operands = zeros(SPREAD * OPERANDS.min(operands.into()))?;
        Ok(Self { values: [const { Register([0.0; BLOCK]) }; 2], operands })
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.operands.capacity() * size_of::<f32>()
    }
}

/// Adjacent points of adjacent rows of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub row: usize,
    pub rows: usize,
    start: usize,
    pub points: usize,
    /// Points per row of the tile.
    width: usize,
}

impl Block {
    /// The values of the block's row `n`.
    #[inline(always)]
    pub(super) fn row<T: Copy>(self, lanes: Lanes<'_, T>, n: usize) -> Row<'_, T> {
        lanes.part(self.row + n, self.width, (self.start, self.points))
    }

    /// The values of all rows, if they are evenly spaced.
    #[inline(always)]
    pub(super) fn spaced(self, lanes: Lanes<'_, f32>) -> Option<Spaced<'_>> {
        let (values, pitch) = match lanes {
            Lanes::Each(values) => (values, self.width),
            Lanes::Strided(values, pitch) => (values, pitch),
            Lanes::Same(_) | Lanes::Rows(_) | Lanes::Scattered(..) => return None,
        };
        Some(Spaced { values, first: self.row * pitch + self.start, pitch, points: self.points })
    }

    /// The first point within the row.
    #[inline(always)]
    pub(super) fn start(self) -> usize {
        self.start
    }

    /// True if the block begins at the first point of the tile's rows.
    #[inline(always)]
    pub(super) fn begins(self) -> bool {
        self.start == 0
    }

    /// True if the block ends at the last point of the tile's rows.
    #[inline(always)]
    pub(super) fn ends(self) -> bool {
        self.start + self.points == self.width
    }

    /// The slice of a tile's rows, which are `stride` apart, from the block's first element on.
    #[inline(always)]
    fn of(self, rows: &mut [f32], stride: usize) -> &mut [f32] {
        rows.get_mut(self.row * stride + self.start..).unwrap_or(&mut [])
    }

    /// The same points as a range of one long row, if the block has whole rows.
    #[inline(always)]
    pub(super) fn flat(self) -> Option<Self> {
        let (start, points) = (self.row * self.width, self.rows * self.points);
        let is_whole = self.begins() && self.ends();
        is_whole.then_some(Self { row: 0, rows: 1, start, points, width: start + points })
    }

    /// The whole tile as a block.
    pub(super) fn whole(rows: usize, points: usize) -> Self {
        Self { row: 0, rows, start: 0, points, width: points }
    }
}

/// The destination of results.
#[derive(Debug)]
pub(super) enum Destination<'s> {
    /// Rows that are `stride` apart, written through `stream` if set.
    Rows { out: &'s mut [f32], stride: usize, stream: Option<&'s Stream<'s>> },
    /// Reductions of each row, and optionally of the squares.
    Totals(Totals<'s>, Option<Totals<'s>>),
    /// Reductions of rows into other rows.
    Owners(Owners<'s>),
}

/// A chain bound to a tile.
pub(super) struct Chain<'a, 's> {
    pub grid: Grid,
    /// The initial value of the chain, then the operands of its passes.
    pub operands: &'a [Lanes<'a, f32>],
    pub passes: &'a [Pass],
    /// The steps of the passes, one by one.
    pub steps: &'a [Pass],
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
        if self.sums(simd, Block::whole(rows, width)) {
            return;
        }
        let mut room = std::mem::take(&mut self.scratch.operands);
        let is_spread = self.is_spread(&room);
        let (size, most) = match is_spread {
            true => (SPREAD / width, BLOCK),
            false if self.is_direct() => (rows.max(1), width.max(1)),
            false => ((BLOCK / width.max(1)).clamp(1, rows.max(1)), BLOCK),
        };
        for row in (0..rows).step_by(size) {
            for start in (0..width).step_by(most) {
                let (rows, points) = (size.min(rows - row), most.min(width - start));
                let block = Block { row, rows, start, points, width };
                let mut bound = [Lanes::Same(0.0); OPERANDS];
                let (operands, at, passes) = if is_spread {
                    spread(simd, self.operands, block, &mut room, &mut bound);
                    (&bound[..], Block::whole(rows, points), self.steps)
                } else {
                    (self.operands, block, self.passes)
                };
                self.block(simd, block, (operands, at), passes);
            }
        }
        self.scratch.operands = room;
    }
}

impl Chain<'_, '_> {
    /// True if operands are to be spread in `room` over the points of the rows, so that a pass processes a block as one row.
    #[inline(always)]
    fn is_spread(&self, room: &[f32]) -> bool {
        let Grid { rows, points } = self.grid;
        rows > 1 && is_narrow(points) && !self.steps.is_empty() && self.operands.len() * SPREAD <= room.len()
    }

    /// True if results go straight from operands to their rows, so that a block may have any size.
    #[inline(always)]
    fn is_direct(&self) -> bool {
        self.passes.len() <= 1 && matches!(self.to, Destination::Rows { stream: None, .. })
    }

    /// Computes a block. `operands` has it at `at`.
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, block: Block, (operands, at): (&[Lanes<'_, f32>], Block), passes: &[Pass]) {
        if let Destination::Rows { stream: Some(_), .. } = self.to {
            self.prefetch(block);
        }
        let Self { scratch, to, .. } = self;
        let [a, b] = &mut scratch.values;
        let size = (block.rows * block.points).min(BLOCK);
        let (mut held, mut spare) = (&mut a.0[..size], &mut b.0[..size]);
        let whole = Block::whole(block.rows, block.points);
        let first = operands.first().copied().unwrap_or(Lanes::Each(&[]));
        let count = passes.len();
        for (n, &pass) in passes.iter().enumerate() {
            let (value, from) = if n == 0 { (first, at) } else { (Lanes::Each(&*held), whole) };
            let (out, stride) = match to {
                Destination::Rows { out, stride, stream: Some(stream) } if n + 1 == count => {
                    let rows = Rows { out: block.of(out, *stride), stride: *stride, value, from, block: at, operands };
                    if rows.stream(simd, pass, stream) {
                        return;
                    }
                    (&mut *spare, block.points)
                }
                Destination::Rows { out, stride, stream: None } if n + 1 == count => (block.of(out, *stride), *stride),
                _ => (&mut *spare, block.points),
            };
            Rows { out, stride, value, from, block: at, operands }.flat(pass).advance(simd, pass);
            std::mem::swap(&mut held, &mut spare);
        }
        let (value, from) = if count == 0 { (first, at) } else { (Lanes::Each(&*held), whole) };
        match to {
            Destination::Totals(totals, squares) => {
                totals.add(simd, value, from, block);
                if let Some(squares) = squares {
                    let rows = Rows { out: spare, stride: block.points, value, from, block: at, operands };
                    let pass = Pass::ChainStep(ChainStep::Both(BinaryOp::Mul));
                    rows.flat(pass).advance(simd, pass);
                    squares.add(simd, Lanes::Each(&*spare), whole, block);
                }
            }
            Destination::Owners(owners) => owners.add(simd, value, from, block),
            // Copies of gathered rows: non-temporal stores would wait for each load.
            Destination::Rows { out, stride, .. } if count == 0 => {
                Rows { out: block.of(out, *stride), stride: *stride, value, from, block: at, operands }.copy();
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

    /// Prefetches the operands of the next tile that correspond to this block.
    #[inline(always)]
    fn prefetch(&self, block: Block) {
        for &lanes in self.operands {
            let pitch = match lanes {
                Lanes::Each(_) => self.grid.points,
                Lanes::Strided(_, pitch) if pitch > 0 => pitch,
                _ => continue,
            };
            for n in 0..block.rows {
                if let Row::Each(values) = block.row(lanes, n) {
                    prefetch(values, self.grid.rows * pitch);
                }
            }
        }
    }

    /// Applies a single pass and sums whole rows without intermediate memory. Returns false, with no effect, if the chain
    /// does not allow it.
    #[inline(always)]
    fn sums<S: Simd>(&mut self, simd: S, block: Block) -> bool {
        let Destination::Totals(totals, squares) = &mut self.to else { return false };
        let shift = match self.passes {
            [] => None,
            [Pass::Affine(affine)] if affine.is_only_shift() => Some(*affine),
            _ => return false,
        };
        let value = match self.operands.first() {
            Some(&value) if totals.sums_whole_rows(value, block) => value,
            _ => return false,
        };
        let rows = Rows { out: &mut [], stride: 0, value, from: block, block, operands: self.operands };
        let constants = shift.map(|affine| rows.constants(affine));
        let all = block.spaced(value);
        for n in 0..block.rows {
            let values = match (all, block.row(value, n)) {
                (Some(all), _) => all.row(n),
                (None, Row::Each(values)) => values,
                (None, Row::Same(_)) => continue,
            };
            let total = totals.results.get_mut(block.row + n);
            let square = squares.as_mut().and_then(|squares| squares.results.get_mut(block.row + n));
            match constants.map(|constants| Shift::of(simd, constants.map(|constant| constant.scale(n)))) {
                None => sums(
                    simd,
                    values,
                    (total, square),
                    #[inline(always)]
                    |x| x,
                ),
                Some(shift) => sums(
                    simd,
                    values,
                    (total, square),
                    #[inline(always)]
                    |x| shift.apply(simd, x),
                ),
            }
        }
        true
    }
}
