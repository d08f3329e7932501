//! Random numbers.

use super::arch::Arch;
use super::lanes::{Grid, LANES, Lanes, Row, copy};
use super::philox;
use pulp::{Simd, WithSimd};

/// Uniform floats for arbitrary elements.
pub(super) fn uniform((out, grid): (&mut [f32], Grid), seeds: Lanes<'_, i64>, index: Lanes<'_, i32>) {
    for (row, out) in out.chunks_exact_mut(grid.points).take(grid.rows).enumerate() {
        for (point, out) in out.iter_mut().enumerate() {
            let (seed, index) = (seeds.at(row, point, grid.points), index.at(row, point, grid.points));
            if let (Some(seed), Some(index)) = (seed, index) {
                *out = philox::uniform(seed, index as u32);
            }
        }
    }
}

/// Uniform floats for adjacent elements, from index `first` of each row on. A generator block yields four floats.
pub(super) fn uniform_runs(arch: Arch, (out, grid): (&mut [f32], Grid), seeds: Lanes<'_, i64>, first: &[i32]) {
    for ((row, out), &first) in out.chunks_exact_mut(grid.points).enumerate().zip(first) {
        let first = first as u32;
        match seeds.row(row, grid.points) {
            Row::Same(seed) if first.checked_add(LANES as u32).is_some() => {
                arch.dispatch(Draw { seed, first, out });
            }
            _ => {
                for (point, out) in out.iter_mut().enumerate() {
                    if let Some(seed) = seeds.at(row, point, grid.points) {
                        *out = philox::uniform(seed, first.wrapping_add(point as u32));
                    }
                }
            }
        }
    }
}

struct Draw<'a> {
    seed: i64,
    first: u32,
    out: &'a mut [f32],
}

impl WithSimd for Draw<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { seed, first, out } = self;
        let skip = first as usize % 4;
        let (head, rest) = out.split_at_mut(out.len().min((4 - skip) % 4));
        let (blocks, tail) = rest.as_chunks_mut::<4>();
        if !head.is_empty() {
            copy(head, &philox::uniform_block(seed, first / 4)[skip..]);
        }
        let first = first.div_ceil(4);
        for (n, block) in blocks.iter_mut().enumerate() {
            *block = philox::uniform_block(seed, first.wrapping_add(n as u32));
        }
        if !tail.is_empty() {
            copy(tail, &philox::uniform_block(seed, first.wrapping_add(blocks.len() as u32)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_elements_of_the_stream(seed: i64, starts in proptest::collection::vec(any::<u32>(), 1..4), points in 1..400_usize) {
            let first: Vec<i32> = starts.iter().map(|&start| start as i32).collect();
            let grid = Grid { rows: first.len(), points };
            let mut out = vec![2.0; grid.len()];
            for &arch in Arch::all() {
                uniform_runs(arch, (&mut out, grid), Lanes::Same(seed), &first);
                for (n, &value) in out.iter().enumerate() {
                    let index = starts[n / points].wrapping_add((n % points) as u32);
                    prop_assert_eq!(value, philox::uniform(seed, index), "element {}, {}", index, arch.name());
                }
            }
        }
    }
}
