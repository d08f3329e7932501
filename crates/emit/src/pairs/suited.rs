//! Tiles of attention that depend on the sizes of a run.

use super::cooperative_tile;
use super::plain::PlainTile;
use super::tile::CooperativeTile;
use rewire_graph::Dim;
use rewire_graph_rewrite::device::{MatrixPairReductionTile, PairReductionTile, Target, Tile, Tuning};
use rewire_graph_rewrite::schedule::{Bound, PairReduction};

/// Number of workgroups below which a GPU is not occupied.
const FEW_WORKGROUPS: u64 = 96;

/// Number of workgroups from which a GPU runs them in several waves.
const MANY_WORKGROUPS: u64 = 512;

/// Rows and samples of a run, and the kernel for which tiles are chosen.
struct Run<'k> {
    kernel: &'k Bound<'k, PairReduction>,
    target: &'k Target,
    rows: u64,
    samples: u64,
}

/// Rows per workgroup, with the tile; `None` for the default.
type Choice = (u32, Option<Tile>);

/// The tile for known sizes: fewer rows per workgroup, and per subgroup or thread, if there are few workgroups; more
/// columns per tile with cooperative matrices.
pub(super) fn suited(
    kernel: &Bound<'_, PairReduction>,
    base: &Tuning,
    target: &Target,
    size: &dyn Fn(&Dim) -> Option<u64>,
) -> Option<Tile> {
    let rows = kernel.nest.outputs.first().and_then(|output| size(output.shape.first()?))?;
    let samples = kernel.samples.iter().map(size).try_fold(1u64, |all, count| Some(all.saturating_mul(count?)))?;
    let run = Run { kernel, target, rows, samples };
    let choices = match cooperative_tile(kernel, target, base).ok()? {
        Some(tile) => run.cooperative(&tile),
        None => {
            let rows = PlainTile::new(kernel, target, None).ok()?.rows();
            vec![(rows, None), (rows, Some(Tile::PairReduction(PairReductionTile { rows_per_thread: 1 })))]
        }
    };
    choices.iter().find(|(rows, _)| run.occupies(*rows)).or(choices.last())?.1
}

impl Run<'_> {
    /// The choices with cooperative matrices, with most rows first.
    fn cooperative(&self, tile: &CooperativeTile) -> Vec<Choice> {
        let of = |rows: u32, keys: u32| {
            let columns = keys * self.target.matrix;
            (rows, Some(MatrixPairReductionTile { rows, columns, rows_per_thread: 1 }))
        };
        let is_short = tile.in_registers && self.rows <= self.samples.saturating_mul(u64::from(tile.fewer_rows() / 2));
        let is_many = self.samples.saturating_mul(self.kernel.heads as u64) >= MANY_WORKGROUPS;
        let whole = match is_short {
            true if is_many => of(tile.fewer_rows() / 2, 1),
            // Subgroups without rows load columns for the others.
            true => of(tile.fewer_rows(), 2),
            false => (tile.rows, None),
        };
        // Narrow rows are loaded in less time than a tile of more columns is computed.
        let least = (!tile.is_narrow()).then(|| of(2 * self.target.matrix, 4));
        let smaller = [of(tile.rows / 2, 2), of(tile.fewer_rows() / 2, 2)].into_iter().chain(least);
        // Tiles with more columns need more workgroup memory.
        let fits = |(_, choice): &(u32, Option<MatrixPairReductionTile>)| {
            matches!(CooperativeTile::new(self.kernel, self.target, *choice), Ok(Some(_)))
        };
        let fitting = [whole].into_iter().chain(smaller).filter(fits);
        fitting.map(|(rows, choice)| (rows, choice.map(Tile::MatrixPairReduction))).collect()
    }

    /// True if there are enough workgroups with this number of rows to occupy a GPU.
    fn occupies(&self, tile: u32) -> bool {
        let tiles = (self.rows / u64::from(tile)).saturating_add(self.samples);
        tiles.saturating_mul(self.kernel.heads as u64) >= FEW_WORKGROUPS
    }
}
