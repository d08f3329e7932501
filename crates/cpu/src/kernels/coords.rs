use super::error::CpuError;
use super::lanes::ROWS;
use super::scratch::reserve;
use std::ops::Range;

/// For each axis, the coordinates of up to [`ROWS`] rows of a loop.
#[derive(Clone, Debug)]
pub(super) struct Coords(Vec<[i32; ROWS]>);

impl Coords {
    /// Coordinates of zero.
    pub(super) fn new(axes: usize) -> Result<Self, CpuError> {
        let mut all = vec![];
        reserve(&mut all, axes)?;
        all.resize(axes, [0; ROWS]);
        Ok(Self(all))
    }

    pub(super) fn all(&self) -> &[[i32; ROWS]] {
        &self.0
    }

    /// Sets the coordinate of an axis in all rows.
    pub(super) fn set(&mut self, axis: usize, value: usize) {
        if let Some(rows) = self.0.get_mut(axis) {
            rows.fill(value as i32);
        }
    }

    /// Sets the coordinate of an axis to `first`, `first + 1`, ..
    pub(super) fn count(&mut self, axis: usize, first: usize) {
        if let Some(rows) = self.0.get_mut(axis) {
            rows.iter_mut().zip(first as i32..).for_each(|(row, value)| *row = value);
        }
    }

    /// Sets the coordinate of an axis in a range of rows.
    pub(super) fn put(&mut self, axis: u8, rows: Range<usize>, values: impl Iterator<Item = i32>) {
        if let Some(rows) = self.0.get_mut(usize::from(axis)).and_then(|list| list.get_mut(rows)) {
            rows.iter_mut().zip(values).for_each(|(row, value)| *row = value);
        }
    }

    /// Sets the leading coordinates of the loop rows `first..first + rows`. `extents` are the loop's leading extents.
    pub(super) fn unravel(&mut self, first: usize, rows: usize, extents: &[usize]) {
        self.unravel_each(rows, extents, |row| first + row);
    }

    /// Sets the leading coordinates of rows `0..rows`: row `n` is loop row `number(n)`. `extents` are the loop's leading extents.
    pub(super) fn unravel_each(&mut self, rows: usize, extents: &[usize], number: impl Fn(usize) -> usize) {
        let mut step = 1;
        for (axis, (list, &extent)) in self.0.iter_mut().zip(extents).enumerate().rev() {
            let extent = extent.max(1);
            for (row, coord) in list.iter_mut().take(rows).enumerate() {
                let rest = if step == 1 { number(row) } else { number(row) / step };
                *coord = (if axis == 0 { rest } else { rest % extent }) as i32;
            }
            step *= extent;
        }
    }

    /// Sets the leading coordinates of all rows to the coordinates of loop row `row`. `extents` are the loop's leading extents.
    pub(super) fn set_row(&mut self, row: usize, extents: &[usize]) {
        self.unravel_each(ROWS, extents, |_| row);
    }
}
