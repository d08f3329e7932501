//! Reductions of rows of floats, in a fixed order.

use super::chain::Block;
use super::lanes::{Lanes, Row};
use pulp::{Simd, WithSimd};
use rewire_graph_rewrite::plan::ReduceOp;

/// Partial results per row. Point `x` is reduced into partial `x % PARTIALS`, for any position of the row in a tile.
const PARTIALS: usize = 64;

/// Partial results of a row.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Partials([f32; PARTIALS]);

/// Reduces each row of a tile to one value.
#[derive(Debug)]
pub(super) struct Totals<'s> {
    pub op: ReduceOp,
    /// The partial results of a row that spans several tiles.
    pub partials: &'s mut Partials,
    /// One result per row of the tile.
    pub results: &'s mut [f32],
    /// True if the tile has the first points of its rows.
    pub begins: bool,
    /// True if the tile has the last points of its rows.
    pub ends: bool,
}

impl Partials {
    /// The initial partial results.
    pub(super) fn of(op: ReduceOp) -> Self {
        Self([neutral(op); PARTIALS])
    }
}

/// The result for no points.
pub(super) fn neutral(op: ReduceOp) -> f32 {
    op.start()
}

/// Reduces rows of values, one after another, into rows of totals.
#[derive(Debug)]
pub(super) struct Owners<'s> {
    pub op: ReduceOp,
    /// The rows of totals, `pitch` apart.
    pub totals: &'s mut [f32],
    pub pitch: usize,
    /// For each row of values, its row of `totals`.
    pub owners: &'s [usize],
}

impl Owners<'_> {
    /// The owners from row `row` of the values on, with totals from `column` on.
    pub(super) fn part(&mut self, row: usize, column: usize) -> Owners<'_> {
        Owners {
            op: self.op,
            totals: self.totals.get_mut(column..).unwrap_or(&mut []),
            pitch: self.pitch,
            owners: self.owners.get(row..).unwrap_or(&[]),
        }
    }

    /// Reduces the values of `block`, which are at `from` in `value`.
    #[inline(always)]
    pub(super) fn add<S: Simd>(&mut self, simd: S, value: Lanes<'_, f32>, from: Block, block: Block) {
        match self.op {
            ReduceOp::Sum => self.by(
                value,
                from,
                block,
                #[inline(always)]
                |totals, row| add_row(simd, totals, row),
            ),
            ReduceOp::Max => self.by(value, from, block, |totals, row| combine_row(totals, row, larger)),
            ReduceOp::Min => self.by(value, from, block, |totals, row| combine_row(totals, row, smaller)),
        }
    }

    #[inline(always)]
    fn by(&mut self, value: Lanes<'_, f32>, from: Block, block: Block, combine: impl Fn(&mut [f32], Row<'_, f32>)) {
        let owners = self.owners.get(block.row..block.row + block.rows).unwrap_or(&[]);
        for (n, &owner) in owners.iter().enumerate() {
            let start = owner * self.pitch + block.start();
            if let Some(totals) = self.totals.get_mut(start..start + block.points) {
                combine(totals, from.row(value, n));
            }
        }
    }
}

/// Rows of values, of length `width` and `stride` apart, with their owners.
pub(super) struct CombineRows<'a, 's> {
    pub values: &'a [f32],
    pub stride: usize,
    pub width: usize,
    pub owners: Owners<'s>,
}

impl WithSimd for CombineRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let block = Block::whole(self.owners.owners.len(), self.width);
        self.owners.add(simd, Lanes::Strided(self.values, self.stride), block, block);
    }
}

#[inline(always)]
fn add_row<S: Simd>(simd: S, totals: &mut [f32], row: Row<'_, f32>) {
    match row {
        Row::Same(value) => totals.iter_mut().for_each(|total| *total += value),
        Row::Each(values) => {
            let ((totals, last), (values, rest)) = (S::as_mut_simd_f32s(totals), S::as_simd_f32s(values));
            for (total, &value) in totals.iter_mut().zip(values) {
                *total = simd.add_f32s(*total, value);
            }
            last.iter_mut().zip(rest).for_each(|(total, value)| *total += value);
        }
    }
}

#[inline(always)]
fn combine_row(totals: &mut [f32], row: Row<'_, f32>, combine: impl Fn(f32, f32) -> f32) {
    match row {
        Row::Same(value) => totals.iter_mut().for_each(|total| *total = combine(*total, value)),
        Row::Each(values) => {
            totals.iter_mut().zip(values).for_each(|(total, &value)| *total = combine(*total, value));
        }
    }
}

/// Reduces values of a row into the earlier result `before`. `first` is the point of the first value, which selects the
/// partial that each value is reduced into.
pub(super) fn combined(op: ReduceOp, before: f32, first: usize, values: &[f32]) -> f32 {
    let join = |combine: fn(f32, f32) -> f32| {
        let mut partials = [neutral(op); PARTIALS];
        let (head, rest) = values.split_at(values.len().min(first.next_multiple_of(PARTIALS) - first));
        let own = partials.iter_mut().skip(first % PARTIALS);
        own.zip(head).for_each(|(partial, &value)| *partial = combine(*partial, value));
        accumulate(&mut partials, rest, combine);
        combine(before, fold(partials, combine))
    };
    match op {
        ReduceOp::Sum => join(add),
        ReduceOp::Max => join(larger),
        ReduceOp::Min => join(smaller),
    }
}

impl Totals<'_> {
    /// True if a block has whole rows to sum, vector by vector.
    #[inline(always)]
    pub(super) fn sums_whole_rows(&self, value: Lanes<'_, f32>, block: Block) -> bool {
        let is_whole = self.begins && self.ends && block.begins() && block.ends();
        let is_each = !matches!(value, Lanes::Same(_) | Lanes::Rows(_));
        self.op == ReduceOp::Sum && is_whole && is_each
    }

    /// Reduces the values of `block`, which are at `from` in `value`.
    #[inline(always)]
    pub(super) fn add<S: Simd>(&mut self, simd: S, value: Lanes<'_, f32>, from: Block, block: Block) {
        let (op, begins, ends) = (self.op, self.begins && block.begins(), self.ends && block.ends());
        let Some(results) = self.results.get_mut(block.row..block.row + block.rows) else { return };
        for (n, result) in results.iter_mut().enumerate() {
            if let (ReduceOp::Sum, true, true, Row::Each(values)) = (op, begins, ends, from.row(value, n)) {
                *result = sum(
                    simd,
                    values,
                    #[inline(always)]
                    |x| x,
                );
                continue;
            }
            if begins {
                *self.partials = Partials::of(op);
            }
            let partials = &mut self.partials.0;
            match from.row(value, n) {
                Row::Each(values) => combine(simd, op, partials, values),
                Row::Same(value) => {
                    let values = [value; PARTIALS];
                    for start in (0..block.points).step_by(PARTIALS) {
                        combine(simd, op, partials, &values[..PARTIALS.min(block.points - start)]);
                    }
                }
            }
            if ends {
                *result = match op {
                    ReduceOp::Sum => fold(*partials, add),
                    ReduceOp::Max => fold(*partials, larger),
                    ReduceOp::Min => fold(*partials, smaller),
                };
            }
        }
    }
}

#[inline(always)]
fn combine<S: Simd>(simd: S, op: ReduceOp, partials: &mut [f32; PARTIALS], values: &[f32]) {
    match op {
        ReduceOp::Sum => accumulate_sums(simd, partials, values),
        ReduceOp::Max => accumulate(partials, values, larger),
        ReduceOp::Min => accumulate(partials, values, smaller),
    }
}

#[inline(always)]
fn add(a: f32, b: f32) -> f32 {
    a + b
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if (b > a) | b.is_nan() { b } else { a }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if (b < a) | b.is_nan() { b } else { a }
}

#[inline(always)]
fn fold(mut lanes: [f32; PARTIALS], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = PARTIALS / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn accumulate(lanes: &mut [f32; PARTIALS], values: &[f32], combine: impl Fn(f32, f32) -> f32) {
    for block in values.chunks(PARTIALS) {
        for (partial, &value) in lanes.iter_mut().zip(block) {
            *partial = combine(*partial, value);
        }
    }
}

/// Sums of a function of a whole row's values: of the results, and of their squares.
#[inline(always)]
pub(super) fn sums<S: Simd>(
    simd: S,
    values: &[f32],
    (total, square): (Option<&mut f32>, Option<&mut f32>),
    function: impl Fn(S::f32s) -> S::f32s,
) {
    match (total, square) {
        // Registers for both sums.
        (Some(total), Some(square)) if S::F32_LANES == 16 => {
            [*total, *square] = sum_blocks::<S, 4, 2>(
                simd,
                values,
                #[inline(always)]
                |x| {
                    let x = function(x);
                    [x, simd.mul_f32s(x, x)]
                },
            );
        }
        (total, square) => {
            if let Some(total) = total {
                *total = sum(simd, values, &function);
            }
            if let Some(square) = square {
                *square = sum(
                    simd,
                    values,
                    #[inline(always)]
                    |x| {
                        let x = function(x);
                        simd.mul_f32s(x, x)
                    },
                );
            }
        }
    }
}

/// The sum of a function of a whole row's values, with all partial sums in registers.
#[inline(always)]
fn sum<S: Simd>(simd: S, values: &[f32], function: impl Fn(S::f32s) -> S::f32s) -> f32 {
    match S::F32_LANES {
        16 => one_sum::<S, 4>(simd, values, function),
        8 => one_sum::<S, 8>(simd, values, function),
        4 => one_sum::<S, 16>(simd, values, function),
        _ => one_sum::<S, PARTIALS>(simd, values, function),
    }
}

#[inline(always)]
fn one_sum<S: Simd, const N: usize>(simd: S, values: &[f32], function: impl Fn(S::f32s) -> S::f32s) -> f32 {
    let [sum] = sum_blocks::<S, N, 1>(
        simd,
        values,
        #[inline(always)]
        |x| [function(x)],
    );
    sum
}

/// Adds one value to each of some sums.
#[inline(always)]
fn add_each<S: Simd, const K: usize>(simd: S, sums: &mut [S::f32s; K], values: [S::f32s; K]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = simd.add_f32s(*sum, value);
    }
}

/// The sums of `K` functions of a row's values, by `N` vectors of partial sums each.
#[inline(always)]
fn sum_blocks<S: Simd, const N: usize, const K: usize>(
    simd: S,
    values: &[f32],
    functions: impl Fn(S::f32s) -> [S::f32s; K],
) -> [f32; K] {
    let mut sums = [[simd.splat_f32s(0.0); K]; N];
    let (blocks, rest) = values.as_chunks::<PARTIALS>();
    for block in blocks {
        for (sums, &value) in sums.iter_mut().zip(S::as_simd_f32s(block).0) {
            add_each(simd, sums, functions(value));
        }
    }
    let (values, last) = S::as_simd_f32s(rest);
    if !rest.is_empty() {
        for (n, sums) in sums.iter_mut().enumerate() {
            match values.get(n) {
                Some(&value) => add_each(simd, sums, functions(value)),
                None if n == values.len() && !last.is_empty() => {
                    // The functions of the padding may not be zero.
                    let kept = simd.mask_between_m32s(0, last.len() as u32).mask();
                    let mut values = functions(simd.partial_load_f32s(last));
                    for value in &mut values {
                        *value = simd.select_f32s(kept, *value, simd.splat_f32s(0.0));
                    }
                    add_each(simd, sums, values);
                }
                None => {}
            }
        }
    }
    let mut half = N / 2;
    while half > 0 {
        for n in 0..half {
            let other = sums[n + half];
            add_each(simd, &mut sums[n], other);
        }
        half /= 2;
    }
    let mut totals = [0.0; K];
    for (total, &sum) in totals.iter_mut().zip(&sums[0]) {
        *total = simd.reduce_sum_f32s(sum);
    }
    totals
}

#[inline(always)]
fn accumulate_sums<S: Simd>(simd: S, lanes: &mut [f32; PARTIALS], values: &[f32]) {
    let (blocks, rest) = values.as_chunks::<PARTIALS>();
    match S::F32_LANES {
        16 => add_blocks::<S, 4>(simd, lanes, blocks),
        8 => add_blocks::<S, 8>(simd, lanes, blocks),
        4 => add_blocks::<S, 16>(simd, lanes, blocks),
        _ => accumulate(lanes, blocks.as_flattened(), add),
    }
    accumulate(lanes, rest, add);
}

/// Adds blocks with all `N` vectors of partial sums in registers.
#[inline(always)]
fn add_blocks<S: Simd, const N: usize>(simd: S, lanes: &mut [f32; PARTIALS], blocks: &[[f32; PARTIALS]]) {
    let (vectors, _) = S::as_mut_simd_f32s(lanes);
    let Some(vectors) = vectors.first_chunk_mut::<N>() else { return };
    let mut sums = *vectors;
    for block in blocks {
        let (values, _) = S::as_simd_f32s(block);
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum = simd.add_f32s(*sum, value);
        }
    }
    *vectors = sums;
}
