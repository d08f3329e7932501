//! Loads from operands. Elements out of range read as zero.

use super::arch::Arch;
use super::execute::Execution;
use super::lanes::{Grid, Lanes, Progression, ROWS, Row};
use super::machine::LoadPattern;
use super::operand::View;
use super::program::{Last, Load, Source, Start};
use super::storage::Elements;
use super::stream::prefetch;
use pulp::{Simd, WithSimd};
use rewire_graph::Scalar;

/// An out-of-range offset. Sums of up to eight of them are out of range, too.
pub(super) const OUTSIDE: usize = usize::MAX / 16;

/// Floats to prefetch per row; the hardware prefetcher loads the following ones.
pub(super) const FIRST: usize = 64;
/// Scattered rows of up to this many points are copied, so that functions can process them as one line.
const NARROW: usize = 32;

/// The elements of a run that one row of a tile reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// Offset of the first element.
    start: usize,
    len: usize,
    /// Number of points before the first element in range.
    skip: usize,
}

impl Execution<'_, '_> {
    /// Returns false if rows of a large tile cannot be read in place.
    pub(super) fn load(&mut self, load: &Load, kind: Scalar, target: Source) -> bool {
        let Some(view) = self.env.views.get(usize::from(load.operand)) else { return true };
        match &load.last {
            Some(Last::Run(start)) => return self.load_run(load, view, start, kind, target),
            Some(Last::At(last)) => self.load_gather(load, view, Some(*last), kind, target),
            None => self.load_gather(load, view, None, kind, target),
        }
        true
    }

    /// Loads contiguous elements. Elements beyond the last dimension are zero.
    fn load_run(&mut self, load: &Load, view: &View<'_>, start: &Start, kind: Scalar, target: Source) -> bool {
        if let Source::InPlace(slot) = target
            && let (Elements::F32(_), Some((first, stride))) = (view.elements, self.spaced(load, view, start))
            && let Some(floats) = self.registers.in_place.get_mut(usize::from(slot))
        {
            (floats.operand, floats.pattern) = (load.operand.into(), LoadPattern::Spaced(first, stride));
            return true;
        }
        let mut parts = std::mem::take(&mut self.registers.parts);
        parts.clear();
        parts.resize(self.grid.rows.min(ROWS), Part::default());
        self.parts(load, view, start, &mut parts);
        let found = match target {
            Source::InPlace(slot) => self.find_parts(load, view.elements, &parts, slot),
            _ => {
                self.load_parts(view.elements, &parts, kind, target);
                true
            }
        };
        self.registers.parts = parts;
        found
    }

    /// The offset of the first row, and the row stride. `None` if rows are not evenly spaced or are out of range.
    fn spaced(&self, load: &Load, view: &View<'_>, start: &Start) -> Option<(usize, usize)> {
        let Grid { rows, points } = self.grid;
        let mut place = Progression { first: self.start as i64 + i64::from(start.constant), step: 0 };
        for &(term, multiple) in &start.terms {
            place = place.plus(self.ints(term).progression(rows)?, multiple.into());
        }
        let width: usize = view.shape.iter().skip(load.index.len()).product();
        place = place.within(rows, (width + 1).checked_sub(points)?)?;
        for ((&index, &extent), &stride) in load.index.iter().zip(view.shape.iter()).zip(view.strides.iter()) {
            place = place.plus(self.ints(index).progression(rows)?.within(rows, extent)?, stride as i64);
        }
        place.offsets()
    }

    /// Records the positions of rows, or copies the rows.
    fn find_parts(&mut self, load: &Load, elements: Elements<'_>, parts: &[Part], slot: u16) -> bool {
        let grid = self.grid;
        let Some(floats) = self.registers.in_place.get_mut(usize::from(slot)) else { return true };
        let is_whole = matches!(elements, Elements::F32(_)) && parts.iter().all(|part| part.len == grid.points);
        let is_narrow = grid.points <= NARROW && grid.len() <= floats.copy.len();
        floats.operand = load.operand.into();
        floats.pattern = if is_whole && !is_narrow { LoadPattern::Scattered } else { LoadPattern::Copied };
        // The hardware does not predict positions of looked-up rows.
        if let (true, Elements::F32(elements)) = (is_whole, elements) {
            let row = |part: &Part| elements.get(part.start..part.start + grid.points.min(FIRST));
            parts.iter().filter_map(row).for_each(|row| prefetch(row, 0));
        }
        match floats.pattern {
            LoadPattern::Nowhere | LoadPattern::Spaced(..) | LoadPattern::Scattered => {
                floats.starts.clear();
                floats.starts.extend(parts.iter().map(|part| part.start));
            }
            LoadPattern::Copied if grid.len() > floats.copy.len() => return false,
            LoadPattern::Copied => {
                copy_parts(&mut floats.copy, grid, parts, |start, out| elements.floats(start, out));
            }
        }
        true
    }

    fn load_parts(&mut self, elements: Elements<'_>, parts: &[Part], kind: Scalar, target: Source) {
        match kind {
            Scalar::F32 => self.write_floats(target, |_, (out, grid)| {
                copy_parts(out, grid, parts, |start, out| elements.floats(start, out));
            }),
            Scalar::I64 => self.write_longs(target, |_, (out, grid)| {
                copy_parts(out, grid, parts, |start, out| elements.longs(start, out));
            }),
            _ => self.write_ints(target, |_, (out, grid)| {
                copy_parts(out, grid, parts, |start, out| elements.ints(start, out));
            }),
        }
    }

    /// Computes the elements that each row of the tile reads.
    fn parts(&self, load: &Load, view: &View<'_>, start: &Start, parts: &mut [Part]) {
        for ((&index, &extent), &stride) in load.index.iter().zip(view.shape.iter()).zip(view.strides.iter()) {
            let index = self.ints(index);
            for (row, part) in parts.iter_mut().enumerate() {
                part.start = part.start.wrapping_add(step(index.at(row, 0, 1).unwrap_or(-1), extent, stride));
            }
        }
        let width = view.shape.iter().skip(load.index.len()).product::<usize>() as i64;
        let points = self.grid.points as i64;
        let mut starts = [0; ROWS];
        let starts = &mut starts[..parts.len()];
        self.starts(start, starts);
        for (part, &mut first) in parts.iter_mut().zip(starts) {
            let first = i64::from(first);
            let (from, to) = (first.clamp(0, width), (first + points).clamp(0, width));
            if part.start < OUTSIDE && from < to {
                part.start += from as usize;
                (part.len, part.skip) = ((to - from) as usize, (from - first) as usize);
            }
        }
    }

    /// Gathers elements at arbitrary positions. Elements out of range are zero.
    fn load_gather(&mut self, load: &Load, view: &View<'_>, last: Option<Source>, kind: Scalar, target: Source) {
        let mut offsets = std::mem::take(&mut self.registers.offsets);
        let (Some(lanes), grid) = (offsets.get_mut(..self.grid.len()), self.grid) else { return };
        lanes.fill(0);
        for ((&index, &extent), &stride) in
            load.index.iter().chain(&last).zip(view.shape.iter()).zip(view.strides.iter())
        {
            add_offsets(lanes, grid, self.ints(index), (extent, stride));
        }
        let elements = view.elements;
        match kind {
            Scalar::F32 => self.write_floats(target, |_, (out, _)| elements.gather_floats(lanes, out)),
            Scalar::I64 => self.write_longs(target, |_, (out, _)| elements.gather_longs(lanes, out)),
            _ => self.write_ints(target, |_, (out, _)| elements.gather_ints(lanes, out)),
        }
        self.registers.offsets = offsets;
    }
}

/// The contribution of an index to an offset.
#[inline(always)]
pub(super) fn step(index: i32, extent: usize, stride: usize) -> usize {
    let index = index as u32 as usize;
    if index < extent { index * stride } else { OUTSIDE }
}

/// Adds the contributions of an index to the offsets of all points. Offsets become at least [`OUTSIDE`] where the index
/// is out of range.
pub(super) fn add_offsets(offsets: &mut [usize], grid: Grid, index: Lanes<'_, i32>, (extent, stride): (usize, usize)) {
    Arch::chosen().dispatch_exact(AddOffsets { offsets, grid, index, extent, stride });
}

struct AddOffsets<'a> {
    offsets: &'a mut [usize],
    grid: Grid,
    index: Lanes<'a, i32>,
    extent: usize,
    stride: usize,
}

impl WithSimd for AddOffsets<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, offsets) in self.offsets.chunks_exact_mut(self.grid.points).enumerate() {
            match self.index.row(row, self.grid.points) {
                Row::Same(index) => {
                    let step = step(index, self.extent, self.stride);
                    for offset in offsets {
                        *offset = offset.wrapping_add(step);
                    }
                }
                Row::Each(index) => {
                    for (offset, &index) in offsets.iter_mut().zip(index) {
                        *offset = offset.wrapping_add(step(index, self.extent, self.stride));
                    }
                }
            }
        }
    }
}

/// Copies the parts of all rows, and sets other elements to zero.
fn copy_parts<T: Copy + Default>(out: &mut [T], grid: Grid, parts: &[Part], copy: impl Fn(usize, &mut [T])) {
    for (part, out) in parts.iter().zip(out.chunks_exact_mut(grid.points)) {
        if part.len < out.len() {
            out.fill(T::default());
        }
        if let Some(out) = out.get_mut(part.skip..part.skip + part.len) {
            copy(part.start, out);
        }
    }
}
