//! Tiles of attention that follow the sizes of a run.

use super::cooperative_tile;
use super::plain::PlainTile;
use super::tile::CooperativeTile;
use rewire_graph::Dim;
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::schedule::{Bound, Pairs};

/// Workgroups below which a GPU is not occupied.
const FEW_WORKGROUPS: u64 = 96;

/// Workgroups from which on it runs some after others.
const MANY_WORKGROUPS: u64 = 512;

/// Rows and samples of a run, and what tunings are chosen for.
struct Run<'k> {
    kernel: &'k Bound<'k, Pairs>,
    target: &'k Target,
    tuning: Tuning,
    rows: u64,
    samples: u64,
}

/// Fewer owners a workgroup, and a subgroup or thread, where there are few. Of cooperative matrices, more others a tile.
pub(super) fn suited(
    kernel: &Bound<'_, Pairs>,
    tuning: Tuning,
    target: &Target,
    size: &dyn Fn(&Dim) -> Option<u64>,
) -> Tuning {
    if tuning.rows.is_some() || tuning.rows_per_thread.is_some() {
        return tuning;
    }
    let rows = kernel.nest.outputs.first().and_then(|output| size(output.shape.first()?));
    let samples = kernel.samples.iter().map(size).try_fold(1u64, |all, count| Some(all.saturating_mul(count?)));
    let (Some(rows), Some(samples)) = (rows, samples) else { return tuning };
    let run = Run { kernel, target, tuning, rows, samples };
    let fewer = Tuning { rows_per_thread: Some(1), ..tuning };
    let choices = match cooperative_tile(kernel, target, &tuning) {
        Ok(Some(tile)) => run.cooperative(&tile),
        Ok(None) => match PlainTile::new(kernel, target, &tuning) {
            Ok(tile) => vec![(tile.rows(), tuning), (tile.rows(), fewer)],
            Err(_) => return tuning,
        },
        Err(_) => return tuning,
    };
    choices.iter().find(|(tile, _)| run.occupies(*tile)).or(choices.last()).map_or(tuning, |(_, choice)| *choice)
}

impl Run<'_> {
    /// Owners of a workgroup with the tuning that has them, the most first.
    fn cooperative(&self, tile: &CooperativeTile) -> Vec<(u32, Tuning)> {
        let of = |rows: u32, keys: u32| {
            let columns = self.tuning.columns.or(Some(keys * self.target.matrix));
            (rows, Tuning { rows: Some(rows), columns, rows_per_thread: Some(1), ..self.tuning })
        };
        let is_short = tile.in_registers && self.rows <= self.samples.saturating_mul(u64::from(tile.fewer_rows() / 2));
        let is_many = self.samples.saturating_mul(self.kernel.heads as u64) >= MANY_WORKGROUPS;
        let whole = match is_short {
            true if is_many => of(tile.fewer_rows() / 2, 1),
            // Subgroups without owners load others for the rest.
            true => of(tile.fewer_rows(), 2),
            false => (tile.rows, self.tuning),
        };
        let smaller = [of(tile.rows / 2, 2), of(tile.fewer_rows() / 2, 2), of(2 * self.target.matrix, 4)];
        // More others a tile take more workgroup memory.
        let fits =
            |(_, choice): &(u32, Tuning)| matches!(cooperative_tile(self.kernel, self.target, choice), Ok(Some(_)));
        [whole].into_iter().chain(smaller).filter(fits).collect()
    }

    /// True if a GPU has enough workgroups of so many owners.
    fn occupies(&self, tile: u32) -> bool {
        let tiles = (self.rows / u64::from(tile)).saturating_add(self.samples);
        tiles.saturating_mul(self.kernel.heads as u64) >= FEW_WORKGROUPS
    }
}
