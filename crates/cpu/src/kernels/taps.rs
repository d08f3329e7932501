//! Windows of a tensor without a copy of each window, for direct convolutions.
//!
//! The part of the tensor that a batch entry reaches is copied once, with what lies outside. Elements of windows at
//! adjacent positions are adjacent in the copy, also if windows are several elements apart, so that every row of the
//! matrix of windows is a range of it.

use super::coords::Coords;
use super::error::CpuError;
use super::machine::{RowInputs, Vm};
use super::operand::Env;
use super::panel::is_in_place;
use super::product::{Matrix, PackedRhs};
use super::scratch::room;
use super::slide::{self, SLACK};
use super::storage::Elements;
use super::window::BindingChunks;
use rewire_graph::pointwise::ExprId;
use rewire_graph_rewrite::plan::Body;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Maximum number of floats of a copy, which a core's private cache holds.
const MOST: usize = 1 << 18;

/// A matrix of windows: rows are elements of windows, columns are windows.
#[derive(Clone, Debug)]
pub(super) struct Taps {
    windows: BindingChunks,
    rows: usize,
    columns: usize,
    /// Computed by the first run. `None` if windows do not lie on a grid.
    layout: OnceLock<Option<Arc<Layout>>>,
}

/// [`Taps`] bound to a run.
pub(super) struct TapsMachine<'a> {
    taps: &'a Taps,
    start: Vm<'a>,
    layout: Option<Arc<Layout>>,
    /// The first index along each axis for which `copy` was made.
    origin: Vec<i32>,
    copy: Vec<f32>,
    /// The left factor of a block.
    left: PackedRhs,
    sums: Vec<f32>,
}

/// Where windows lie in the copy.
#[derive(Debug)]
struct Layout {
    axes: Vec<Axis>,
    /// Axes by increasing stride in the copy.
    order: Vec<usize>,
    /// The place of each element of the first window.
    taps: Vec<usize>,
    /// The place of the first window of each line: windows that are adjacent in the copy, and next to each other in the
    /// matrix.
    lines: Vec<usize>,
    /// Number of windows per line.
    width: usize,
    floats: usize,
}

/// An axis of the tensor.
#[derive(Clone, Copy, Debug)]
struct Axis {
    /// The smallest index that a window reaches, relative to the first element of the first window.
    low: i32,
    /// Number of indices that windows reach.
    reach: usize,
    /// Step between adjacent windows. Indices with the same remainder are adjacent in the copy.
    step: usize,
    /// Number of windows along this axis.
    extent: usize,
    /// Strides of quotients and remainders in the copy.
    strides: (usize, usize),
}

impl Axis {
    /// The place of the element `n` of the reach.
    fn place(&self, n: usize) -> usize {
        n / self.step * self.strides.0 + n % self.step * self.strides.1
    }
}

impl Taps {
    /// `None` if the matrix has other elements, can be read in place or has no windows, or if windows depend on more than
    /// their position.
    pub(super) fn new(
        body: &Body,
        id: ExprId,
        coords: (u8, u8),
        (rows, columns): (usize, usize),
    ) -> Result<Option<Self>, CpuError> {
        if is_in_place(body, id, coords)? {
            return Ok(None);
        }
        let windows = BindingChunks::new(body, id, coords, false)?;
        let is_grid = |windows: &BindingChunks| windows.has_grid() && windows.start().is_some();
        let windows = windows.filter(|windows| is_grid(windows) && rows > 0 && columns > 0);
        Ok(windows.map(|windows| Self { windows, rows, columns, layout: OnceLock::new() }))
    }

    pub(super) fn machine<'a>(&'a self, env: &'a Env<'a>, axes: usize) -> Result<Option<TapsMachine<'a>>, CpuError> {
        let Some(start) = self.windows.start() else { return Ok(None) };
        if self.layout.get().is_none() {
            let mut machine = self.windows.machine(env)?;
            let mut coords = Coords::new(axes)?;
            let found = match machine.read(&mut coords, (0, self.rows), (0, self.columns))? {
                true => Layout::new(machine.tables(), self.rows, self.columns).map(Arc::new),
                false => None,
            };
            self.layout.get_or_init(|| found);
        }
        let layout = self.layout.get().cloned().flatten();
        Ok(Some(TapsMachine {
            taps: self,
            start: Vm::new(start, env)?,
            layout,
            origin: vec![],
            copy: vec![],
            left: PackedRhs::default(),
            sums: vec![],
        }))
    }
}

impl TapsMachine<'_> {
    /// Copies what the windows at `coords` reach. False if the matrix has to be computed in another way.
    pub(super) fn load(&mut self, env: &Env<'_>, coords: &mut Coords) -> Result<bool, CpuError> {
        let Some(layout) = &self.layout else { return Ok(false) };
        let windows = &self.taps.windows;
        for coord in windows.coords() {
            coords.set(usize::from(coord), 0);
        }
        let Some(view) = env.views.get(windows.operand()) else { return Ok(false) };
        let Elements::F32(data) = view.elements else { return Ok(false) };
        self.start.rows(RowInputs { rows: 1, coords: coords.all(), ..RowInputs::default() });
        let known = self.origin.len() == layout.axes.len();
        let origin = room(&mut self.origin, layout.axes.len())?;
        let mut is_same = known;
        for (axis, origin) in origin.iter_mut().enumerate() {
            let Some(first) = self.start.ints(axis).at(0, 0, 1) else { return Ok(false) };
            is_same &= *origin == first;
            *origin = first;
        }
        if is_same {
            return Ok(true);
        }
        let copy = room(&mut self.copy, layout.floats + SLACK)?;
        let is_copied = layout.copy(data, (&view.shape, &view.strides), origin, windows, copy);
        if !is_copied {
            self.origin.clear();
        }
        Ok(is_copied)
    }

    /// Packs the left factor of a block, for [`TapsMachine::multiply`].
    pub(super) fn pack(&mut self, left: Matrix<'_>) -> Result<(), CpuError> {
        self.left.pack(left.transposed())
    }

    /// `out = a b` for some rows of `a` and a range of columns of the matrix loaded last. `a` is packed transposed, or was
    /// packed last. Rows of `out` are `stride` apart.
    pub(super) fn multiply(
        &mut self,
        out: &mut [f32],
        stride: usize,
        (a, rows): (Option<&PackedRhs>, Range<usize>),
        (column, columns): (usize, usize),
    ) -> Result<(), CpuError> {
        let Some(layout) = &self.layout else {
            debug_assert!(false, "windows were multiplied before they were loaded");
            return Ok(());
        };
        let (end, width) = (column + columns, layout.width);
        let lines = column / width..end.div_ceil(width);
        let places = layout.lines.get(lines.clone()).unwrap_or(&[]);
        debug_assert_eq!(places.len(), lines.len(), "columns {column} to {end} of {}", self.taps.columns);
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else { return Ok(()) };
        let data = self.copy.get(first..).unwrap_or(&[]);
        let a = (a.unwrap_or(&self.left), rows);
        slide::multiply(&mut self.sums, a, (data, &layout.taps), last - first + width, |row, sums| {
            let Some(out) = out.get_mut(row * stride..) else { return };
            for (line, place) in lines.clone().zip(places) {
                let start = line * width;
                let part = start.max(column)..(start + width).min(end);
                let from = place - first + part.start - start;
                let Some(out) = out.get_mut(part.start - column..part.end - column) else { return };
                out.iter_mut().zip(&sums[from..]).for_each(|(to, &from)| *to = from);
            }
        })
    }
}

impl Layout {
    /// `elements` has the indices of the first window's elements, axis by axis, `windows` those of the first element of
    /// all windows.
    fn new((elements, windows): (&[i32], &[i32]), rows: usize, columns: usize) -> Option<Self> {
        let mut axes = elements.chunks_exact(rows).map(Axis::of).collect::<Option<Vec<_>>>()?;
        let digits = digits(windows, columns, &mut axes)?;
        let order = digits.iter().copied().chain((0..axes.len()).rev().filter(|axis| !digits.contains(axis)));
        let order: Vec<usize> = order.collect();
        let mut floats = 1usize;
        for &axis in &order {
            let axis = &mut axes[axis];
            axis.reach += (axis.extent - 1).checked_mul(axis.step)?;
            axis.strides.0 = floats;
            floats = floats.checked_mul(axis.reach.div_ceil(axis.step)).filter(|&floats| floats <= MOST)?;
        }
        for &axis in &digits {
            let axis = &mut axes[axis];
            axis.strides.1 = floats;
            floats = floats.checked_mul(axis.step).filter(|&floats| floats <= MOST)?;
        }
        let tap = |row: usize| {
            let mut table = axes.iter().zip(elements.chunks_exact(rows));
            table.try_fold(0, |place, (axis, of_axis)| {
                let n = of_axis[row].wrapping_sub(of_axis[0]).wrapping_sub(axis.low);
                Some(place + axis.place(usize::try_from(n).ok()?))
            })
        };
        let taps = (0..rows).map(tap).collect::<Option<Vec<_>>>()?;
        let (width, outer) = match digits.split_first() {
            Some((&inner, outer)) => (axes[inner].extent, outer),
            None => (1, &[][..]),
        };
        let line = |mut line: usize| {
            outer.iter().fold(0, |place, &axis| {
                let Axis { extent, strides, .. } = axes[axis];
                let digit = line % extent;
                line /= extent;
                place + digit * strides.0
            })
        };
        let lines = (0..columns / width).map(line).collect();
        Some(Self { axes, order, taps, lines, width, floats })
    }

    /// Copies the windows whose first element is at `origin`. False if they reach beyond an axis that they must not leave.
    fn copy(
        &self,
        data: &[f32],
        (shape, strides): (&[usize], &[usize]),
        origin: &[i32],
        windows: &BindingChunks,
        out: &mut [f32],
    ) -> bool {
        let mut spans = Vec::with_capacity(self.axes.len());
        let mut leaves = false;
        for &axis in &self.order {
            let (Axis { low, reach, .. }, extent) = (self.axes[axis], shape[axis] as i64);
            let start = i64::from(origin[axis]) + i64::from(low);
            let valid = (-start).clamp(0, reach as i64)..(extent - start).clamp(0, reach as i64);
            let is_inside = start >= 0 && start + reach as i64 <= extent;
            if !is_inside && !windows.may_leave(axis) {
                return false;
            }
            leaves |= !is_inside;
            let valid = valid.start as usize..valid.end.max(valid.start) as usize;
            spans.push(Span { axis: self.axes[axis], valid, start, stride: strides[axis] });
        }
        if leaves {
            out.fill(windows.outside());
        }
        spans.split_first().is_none_or(|(inner, outer)| copy(data, out, inner, outer, (0, 0)).is_some())
    }
}

impl Axis {
    /// An axis along which windows have elements at these indices.
    fn of(indices: &[i32]) -> Option<Self> {
        let first = *indices.first()?;
        let relative = || indices.iter().map(|index| index.wrapping_sub(first));
        let (low, high) = (relative().min()?, relative().max()?);
        let reach = usize::try_from(i64::from(high) - i64::from(low) + 1).ok()?;
        Some(Self { low, reach, step: 1, extent: 1, strides: (0, 0) })
    }
}

/// Finds the axes along which windows move, innermost first, and their steps and extents. `None` if windows do not lie on
/// a grid.
fn digits(windows: &[i32], columns: usize, axes: &mut [Axis]) -> Option<Vec<usize>> {
    let moved = |axis: usize, n: usize| {
        let of_axis = &windows[axis * columns..];
        usize::try_from(i64::from(of_axis[n]) - i64::from(of_axis[0])).ok()
    };
    let (mut digits, mut period) = (vec![], 1);
    while period < columns {
        let axis = (0..axes.len()).find(|&axis| moved(axis, period) != Some(0))?;
        let step = moved(axis, period).filter(|_| !digits.contains(&axis))?;
        let steps = (1..columns.div_ceil(period)).take_while(|n| moved(axis, n * period) == Some(n * step));
        axes[axis].step = step;
        axes[axis].extent = steps.count() + 1;
        period = period.checked_mul(axes[axis].extent)?;
        digits.push(axis);
    }
    let mut period = 1;
    let mut expected = vec![None; axes.len()];
    for &axis in &digits {
        expected[axis] = Some(period);
        period *= axes[axis].extent;
    }
    let is_grid = |(axis, period): (usize, &Option<usize>)| {
        let Axis { step, extent, .. } = axes[axis];
        (0..columns).all(|n| moved(axis, n) == Some(period.map_or(0, |period| n / period % extent * step)))
    };
    (period == columns && expected.iter().enumerate().all(is_grid)).then_some(digits)
}

/// What windows reach along an axis.
struct Span {
    axis: Axis,
    /// The part of the reach that lies in the tensor.
    valid: Range<usize>,
    /// The index of the first element of the reach.
    start: i64,
    stride: usize,
}

impl Span {
    /// The offset in the tensor of element `n` of the reach, which is valid.
    fn offset(&self, n: usize) -> usize {
        (self.start + n as i64) as usize * self.stride
    }
}

/// Copies the valid elements. `None` if an element is missing.
fn copy(data: &[f32], out: &mut [f32], inner: &Span, outer: &[Span], (from, to): (usize, usize)) -> Option<()> {
    if let Some((span, outer)) = outer.split_last() {
        let mut all = span.valid.clone();
        return all.try_for_each(|n| copy(data, out, inner, outer, (from + span.offset(n), to + span.axis.place(n))));
    }
    let (valid, step) = (&inner.valid, inner.axis.step);
    for first in valid.clone().take(step) {
        let count = (valid.end - first).div_ceil(step);
        let out = out.get_mut(to + inner.axis.place(first)..)?.get_mut(..count)?;
        let data = data.get(from + inner.offset(first)..)?;
        match step * inner.stride {
            1 => out.iter_mut().zip(data.get(..count)?).for_each(|(to, &from)| *to = from),
            stride => {
                let data = data.get(..(count - 1) * stride + 1)?;
                out.iter_mut().zip(data.iter().step_by(stride.max(1))).for_each(|(to, &from)| *to = from);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_on_a_grid_are_ranges_of_the_copy() {
        // Windows of 2 x 2 elements, 3 rows of 2 windows; windows of a row are two columns apart.
        let (elements, windows) = ([0, 0, 1, 1, 5, 6, 5, 6], [0, 0, 1, 1, 2, 2, 5, 7, 5, 7, 5, 7]);
        let layout = Layout::new((&elements, &windows), 4, 6).unwrap();
        // Odd columns come after all even ones.
        assert_eq!(layout.taps, [0, 8, 2, 10]);
        assert_eq!((layout.width, layout.lines, layout.floats), (2, vec![0, 2, 4], 16));
    }

    #[test]
    fn other_windows_have_no_layout() {
        for windows in [[0, 1, 3], [0, 0, 1], [2, 1, 0]] {
            assert!(Layout::new((&[0], &windows), 1, 3).is_none(), "{windows:?}");
        }
        assert!(Layout::new((&[0], &[0, 1, 2]), 1, 3).is_some());
        // Larger than a core's cache.
        assert!(Layout::new((&[0], &[0, 1 << 20]), 1, 2).is_none());
    }
}
