//! The tunings of a kernel: what suits it, and what is worth a measurement.

use super::{Scheduled, emit, scheduled};
use rewire_graph::Dim;
use rewire_graph_rewrite::device::{Target, ThreadTile, Tuning, dequantized};
use rewire_graph_rewrite::plan::Computation;
use std::collections::HashSet;

/// A tuning, and what suits sizes that are known: products and attention with too few tiles to occupy a GPU take
/// smaller ones. Sums run in the same order whatever the tile, unless [`Tuning::split_sums`] allows another.
pub fn suited(
    tuning: Tuning,
    computation: &Computation,
    target: &Target,
    size: impl Fn(&Dim) -> Option<u64>,
) -> Tuning {
    let suits = |schedule: &dyn Scheduled| schedule.suited(&tuning, target, &size);
    let tile = tuning.tile.or_else(|| of(computation, target, suits).flatten());
    Tuning { tile, ..tuning }
}

/// Tunings of a kernel that are worth a measurement, the given one first, which is alone if it sets a tile. Each is emitted, and no
/// two have the same shader.
///
/// All of them add in the order of the given one: every element of a result is the same sum, to the bit, whichever is
/// taken. So a choice among them may follow the sizes of a run. That holds since
/// - a product runs over `k` in order whatever its tile, and attention over the keys; tiles that are skipped would add 0,
/// - as many threads share a row of a reduction,
/// - cooperative matrices and multiply-adds, which add in different orders, do not mix: [`families`] has both.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_graph_rewrite::device::{Target, Tuning};
/// use rewire_graph_rewrite::{lower, optimize};
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[scope.size("rows"), 64.into()]);
/// let weight = scope.parameter("weight", DType::F32, &[64.into(), 96.into()]);
/// let plan = lower(&optimize(scope.finish(&[("y", x.matmul(&weight))])?)?.0)?;
/// let candidates = rewire_emit::candidates(&Tuning::default(), &plan.steps[0].computation, &Target::BASELINE);
/// assert_eq!(candidates[0], Tuning::default());
/// assert!(candidates.len() > 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn candidates(tuning: &Tuning, computation: &Computation, target: &Target) -> Vec<Tuning> {
    let base = of_family(*tuning, computation, target);
    let tiles = match base.tile {
        Some(_) => vec![],
        None => of(computation, target, |schedule| schedule.tiles(target, &base)).unwrap_or_default(),
    };
    let tiles = tiles.into_iter().filter(|tile| !target.software || tile.is_short());
    let mut shaders = HashSet::new();
    let mut differs =
        |tuning: &Tuning| emit(computation, target, tuning).is_ok_and(|emitted| shaders.insert(emitted.wgsl));
    let tunings = std::iter::once(base).chain(tiles.map(|tile| Tuning { tile: Some(tile), ..base }));
    tunings.filter(|tuning| differs(tuning)).collect()
}

/// Threads of a workgroup with so many groups of columns and rows each.
pub(super) fn per_thread(groups: &[u32], rows: &[u32]) -> Vec<ThreadTile> {
    let shares = groups.iter().flat_map(|groups| rows.iter().map(move |rows| (*groups, *rows)));
    let tiles = |(groups_per_thread, rows_per_thread)| {
        [64, 128, 256].map(move |threads| ThreadTile { threads, groups_per_thread, rows_per_thread })
    };
    shares.flat_map(tiles).collect()
}

/// True where results have so many elements.
pub(super) fn is_for_many(extents: &[Dim], many: u64, size: &dyn Fn(&Dim) -> Option<u64>) -> bool {
    let elements = extents.iter().map(size).try_fold(1u64, |all, n| Some(all.saturating_mul(n?)));
    elements.is_some_and(|elements| elements >= many)
}

/// A tuning with the choice between cooperative matrices and multiply-adds made, where a kernel has both, and without a tile of
/// other kernels.
pub fn of_family(tuning: Tuning, computation: &Computation, target: &Target) -> Tuning {
    let open = Tuning { tile: None, ..tuning };
    let cooperative = of(computation, target, |schedule| schedule.is_cooperative(target, &open)).unwrap_or(false);
    let own = tuning.tile.filter(|tile| of(computation, target, |schedule| schedule.takes(tile)) == Some(true));
    let wanted = own.and_then(|tile| tile.matrices()).filter(|_| cooperative);
    let matrices = tuning.matrices.or(wanted).or(cooperative.then_some(true));
    let tile = own.filter(|tile| tile.matrices().is_none_or(|tile| tile == (matrices == Some(true))));
    Tuning { matrices, tile, ..tuning }
}

/// The tunings that add in orders of their own: cooperative matrices and multiply-adds where a kernel has both, else one.
/// Which is taken may follow the widths of a kernel and the target, and never the sizes of a run.
pub fn families(computation: &Computation, target: &Target) -> Vec<Tuning> {
    let base = of_family(Tuning::default(), computation, target);
    match base.matrices {
        Some(_) => [true, false].map(|matrices| Tuning { matrices: Some(matrices), ..base }).into(),
        None => vec![base],
    }
}

/// What the schedule of a kernel says of a target; `None` for an operator of a user's own.
fn of<T>(computation: &Computation, target: &Target, say: impl FnOnce(&dyn Scheduled) -> T) -> Option<T> {
    let (computation, _) = dequantized(computation, target);
    match computation.as_ref() {
        Computation::Nest(kernel) => Some(scheduled(kernel, say)),
        Computation::Custom(_) => None,
    }
}
