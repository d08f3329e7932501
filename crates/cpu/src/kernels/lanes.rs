//! Values of a tile, and vectorised functions with identical results on all processors.

use super::arch::Arch;
use pulp::{Simd, WithSimd};

/// Maximum number of points in a tile.
pub(super) const LANES: usize = 2048;
/// Maximum number of rows in a tile.
pub(super) const ROWS: usize = 64;

/// `0, 1, 2, ..`
pub(super) const POINTS: [i32; LANES] = {
    let mut points = [0; LANES];
    let mut n = 0;
    while n < LANES {
        points[n] = n as i32;
        n += 1;
    }
    points
};

/// Extents of a tile: rows of a loop, and adjacent points of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub rows: usize,
    pub points: usize,
}

/// A value for every point of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lanes<'a, T> {
    /// One value for all points.
    Same(T),
    /// One value per row.
    Rows(&'a [T]),
    /// One value per point, row after row.
    Each(&'a [T]),
    /// One value per point, with this row stride.
    Strided(&'a [T], usize),
    /// One value per point, with the start of each row.
    Scattered(&'a [T], &'a [usize]),
}

/// A value for every point of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Row<'a, T> {
    Same(T),
    Each(&'a [T]),
}

impl<T: Copy> Row<'_, T> {
    /// The value at a point.
    pub(super) fn at(self, point: usize) -> Option<T> {
        match self {
            Self::Same(value) => Some(value),
            Self::Each(values) => values.get(point).copied(),
        }
    }
}

/// Number of rows in a tile with `points` points per row.
pub(super) fn tile_rows(points: usize) -> usize {
    (LANES / points.max(1)).clamp(1, ROWS)
}

impl Grid {
    /// All points as one row.
    pub(super) fn flat(self) -> Self {
        Self { rows: 1, points: self.rows * self.points }
    }

    pub(super) fn len(self) -> usize {
        self.rows * self.points
    }
}

impl<'a, T: Copy> Lanes<'a, T> {
    /// The first `grid.rows` rows of `values`, which are `stride` apart.
    pub(super) fn strided(values: &'a [T], stride: usize, grid: Grid) -> Self {
        if grid.rows == 1 || stride == grid.points {
            Self::Each(values.get(..grid.len()).unwrap_or(&[]))
        } else {
            Self::Strided(values, stride)
        }
    }

    /// One value per row.
    pub(super) fn rows(values: &'a [T], rows: usize) -> Self {
        match values {
            &[value, ..] if rows == 1 => Self::Same(value),
            _ => Self::Rows(values.get(..rows).unwrap_or(&[])),
        }
    }

    #[inline(always)]
    pub(super) fn is_flat(self) -> bool {
        matches!(self, Self::Same(_) | Self::Each(_))
    }

    /// The values of a row; rows have `points` points.
    #[inline(always)]
    pub(super) fn row(self, row: usize, points: usize) -> Row<'a, T> {
        self.part(row, points, (0, points))
    }

    /// The values of points `start..start + points` of a row; rows have `width` points.
    #[inline(always)]
    pub(super) fn part(self, row: usize, width: usize, (start, points): (usize, usize)) -> Row<'a, T> {
        let (values, first) = match self {
            Self::Same(value) => return Row::Same(value),
            Self::Rows(values) => return values.get(row).map_or(Row::Each(&[]), |&value| Row::Same(value)),
            Self::Each(values) => (values, row * width),
            Self::Strided(values, stride) => (values, row * stride),
            Self::Scattered(values, starts) => (values, starts.get(row).copied().unwrap_or(values.len())),
        };
        Row::Each(values.get(first + start..first + start + points).unwrap_or(&[]))
    }

    /// All values, row after row.
    pub(super) fn to_vec(self, grid: Grid) -> Vec<T>
    where
        T: Default,
    {
        let mut values = Vec::with_capacity(grid.len());
        for row in 0..grid.rows {
            match self.row(row, grid.points) {
                Row::Same(value) => values.resize(values.len() + grid.points, value),
                Row::Each(row) => values.extend_from_slice(row),
            }
            values.resize((row + 1) * grid.points, T::default());
        }
        values
    }

    /// The value at a point of a row; rows have `points` points.
    pub(super) fn at(self, row: usize, point: usize, points: usize) -> Option<T> {
        match self {
            Self::Same(value) => Some(value),
            Self::Rows(values) => values.get(row).copied(),
            Self::Each(values) => values.get(row * points + point).copied(),
            Self::Strided(values, stride) => values.get(row * stride + point).copied(),
            Self::Scattered(values, starts) => values.get(starts.get(row)? + point).copied(),
        }
    }
}

/// An arithmetic progression of integers over rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progression {
    pub first: i64,
    pub step: i64,
}

impl Progression {
    /// `self + factor * other`
    pub(super) fn plus(self, other: Self, factor: i64) -> Self {
        Self { first: self.first + other.first * factor, step: self.step + other.step * factor }
    }

    /// `self` if its first `rows` integers are in `0..extent`.
    pub(super) fn within(self, rows: usize, extent: usize) -> Option<Self> {
        let last = self.first + self.step * (rows as i64 - 1);
        (self.first.min(last) >= 0 && self.first.max(last) < extent as i64).then_some(self)
    }

    /// The first and the step, if neither is negative.
    pub(super) fn offsets(self) -> Option<(usize, usize)> {
        Some((usize::try_from(self.first).ok()?, usize::try_from(self.step).ok()?))
    }
}

impl Lanes<'_, i32> {
    /// The per-row integers as a progression; `None` if they are not one.
    pub(super) fn progression(self, rows: usize) -> Option<Progression> {
        match self {
            Self::Same(value) => Some(Progression { first: value.into(), step: 0 }),
            Self::Rows(values) if values.len() == rows => {
                let (&first, rest) = values.split_first()?;
                let step = rest.first().map_or(0, |second| second.wrapping_sub(first));
                let pairs = values.iter().zip(rest);
                let even = pairs.fold(true, |even, (value, next)| even & (next.wrapping_sub(*value) == step));
                let (first, step) = (first.into(), step.into());
                (even && i64::abs(step) < 1 << 24).then_some(Progression { first, step })
            }
            _ => None,
        }
    }
}

struct Unary<'a, T, R, F> {
    out: &'a mut [R],
    grid: Grid,
    a: Lanes<'a, T>,
    function: F,
}

impl<T: Copy, R: Copy, F: Fn(T) -> R> WithSimd for Unary<'_, T, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, out) in self.out.chunks_exact_mut(self.grid.points).take(self.grid.rows).enumerate() {
            match self.a.row(row, self.grid.points) {
                Row::Same(a) => out.fill((self.function)(a)),
                Row::Each(a) => {
                    for (out, &a) in out.iter_mut().zip(a) {
                        *out = (self.function)(a);
                    }
                }
            }
        }
    }
}

struct Binary<'a, A, B, R, F> {
    out: &'a mut [R],
    grid: Grid,
    a: Lanes<'a, A>,
    b: Lanes<'a, B>,
    function: F,
}

impl<A: Copy, B: Copy, R: Copy, F: Fn(A, B) -> R> WithSimd for Binary<'_, A, B, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let points = self.grid.points;
        for (row, out) in self.out.chunks_exact_mut(points).take(self.grid.rows).enumerate() {
            match (self.a.row(row, points), self.b.row(row, points)) {
                (Row::Same(a), Row::Same(b)) => out.fill((self.function)(a, b)),
                (Row::Same(a), Row::Each(b)) => {
                    for (out, &b) in out.iter_mut().zip(b) {
                        *out = (self.function)(a, b);
                    }
                }
                (Row::Each(a), Row::Same(b)) => {
                    for (out, &a) in out.iter_mut().zip(a) {
                        *out = (self.function)(a, b);
                    }
                }
                (Row::Each(a), Row::Each(b)) => {
                    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                        *out = (self.function)(a, b);
                    }
                }
            }
        }
    }
}

/// A function of every value.
pub(super) fn unary<T: Copy, R: Copy>(
    arch: Arch,
    (out, grid): (&mut [R], Grid),
    a: Lanes<'_, T>,
    function: impl Fn(T) -> R,
) {
    let grid = if a.is_flat() { grid.flat() } else { grid };
    arch.dispatch_exact(Unary { out, grid, a, function });
}

/// A function of every pair of values.
pub(super) fn binary<A: Copy, B: Copy, R: Copy>(
    arch: Arch,
    (out, grid): (&mut [R], Grid),
    a: Lanes<'_, A>,
    b: Lanes<'_, B>,
    function: impl Fn(A, B) -> R,
) {
    let grid = if a.is_flat() && b.is_flat() { grid.flat() } else { grid };
    arch.dispatch_exact(Binary { out, grid, a, b, function });
}

struct Select<'a, T> {
    out: &'a mut [T],
    grid: Grid,
    condition: Lanes<'a, i32>,
    a: Lanes<'a, T>,
    b: Lanes<'a, T>,
}

impl<T: Copy> WithSimd for Select<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let points = self.grid.points;
        for (row, out) in self.out.chunks_exact_mut(points).take(self.grid.rows).enumerate() {
            let (a, b) = (self.a.row(row, points), self.b.row(row, points));
            let condition = match self.condition.row(row, points) {
                Row::Each(condition) => condition,
                Row::Same(condition) => {
                    match if condition != 0 { a } else { b } {
                        Row::Same(value) => out.fill(value),
                        Row::Each(values) => copy(out, values),
                    }
                    continue;
                }
            };
            // If `out` already had one of the operands, the compiler would use masked stores, which are slow on some
            // processors.
            let choices = out.iter_mut().zip(condition);
            match (a, b) {
                (Row::Same(a), Row::Same(b)) => choices.for_each(|(out, &c)| *out = if c != 0 { a } else { b }),
                (Row::Same(a), Row::Each(b)) => {
                    choices.zip(b).for_each(|((out, &c), &b)| *out = if c != 0 { a } else { b });
                }
                (Row::Each(a), Row::Same(b)) => {
                    choices.zip(a).for_each(|((out, &c), &a)| *out = if c != 0 { a } else { b });
                }
                (Row::Each(a), Row::Each(b)) => {
                    choices.zip(a).zip(b).for_each(|(((out, &c), &a), &b)| *out = if c != 0 { a } else { b });
                }
            }
        }
    }
}

/// Copies values up to the shorter length.
#[inline(always)]
pub(super) fn copy<T: Copy>(out: &mut [T], values: &[T]) {
    for (out, &value) in out.iter_mut().zip(values) {
        *out = value;
    }
}

/// `a` where the condition is true and `b` elsewhere.
pub(super) fn select<T: Copy>(
    arch: Arch,
    (out, grid): (&mut [T], Grid),
    condition: Lanes<'_, i32>,
    a: Lanes<'_, T>,
    b: Lanes<'_, T>,
) {
    let grid = if condition.is_flat() && a.is_flat() && b.is_flat() { grid.flat() } else { grid };
    arch.dispatch_exact(Select { out, grid, condition, a, b });
}
