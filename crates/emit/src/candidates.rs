//! The tunings of a kernel: a default for known sizes, and candidates for measurement.

use super::{Scheduled, emit, scheduled};
use rewire_graph::Dim;
use rewire_graph_rewrite::device::{Target, ThreadTile, Tuning, dequantized};
use rewire_graph_rewrite::plan::Computation;
use std::collections::HashSet;

/// A tuning with a tile for known sizes: matmuls and attention with too few tiles to occupy a GPU use smaller tiles.
/// All tiles sum in the same order, unless [`Tuning::split_sums`] allows another.
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

/// Tunings of a kernel that are worth measuring, starting with `tuning`. If `tuning` sets a tile, it is the only one.
/// Each can be emitted, and no two have the same shader.
///
/// All of them sum in the same order, so results are identical to the bit, and a choice among them may depend on the
/// sizes of a run. This holds since
/// - a matmul sums over `k` in order regardless of its tile, and attention over the keys; skipped tiles would add 0,
/// - all use the same number of threads per row of a reduction,
/// - cooperative matrices and multiply-adds, which sum in different orders, are not mixed: [`families`] returns both.
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

/// Threads of a workgroup for each combination of column groups and rows per thread.
pub(super) fn per_thread(groups: &[u32], rows: &[u32]) -> Vec<ThreadTile> {
    let shares = groups.iter().flat_map(|groups| rows.iter().map(move |rows| (*groups, *rows)));
    let tiles = |(groups_per_thread, rows_per_thread)| {
        [64, 128, 256].map(move |threads| ThreadTile { threads, groups_per_thread, rows_per_thread })
    };
    shares.flat_map(tiles).collect()
}

/// True if results have at least this many elements.
pub(super) fn is_for_many(extents: &[Dim], many: u64, size: &dyn Fn(&Dim) -> Option<u64>) -> bool {
    let elements = extents.iter().map(size).try_fold(1u64, |all, n| Some(all.saturating_mul(n?)));
    elements.is_some_and(|elements| elements >= many)
}

/// Fixes the choice between cooperative matrices and multiply-adds in a tuning, if a kernel supports both, and removes
/// tiles of other kernels.
pub fn of_family(tuning: Tuning, computation: &Computation, target: &Target) -> Tuning {
    let open = Tuning { tile: None, ..tuning };
    let cooperative = of(computation, target, |schedule| schedule.is_cooperative(target, &open)).unwrap_or(false);
    let own = tuning.tile.filter(|tile| of(computation, target, |schedule| schedule.takes(tile)) == Some(true));
    let wanted = own.and_then(|tile| tile.matrices()).filter(|_| cooperative);
    let matrices = tuning.matrices.or(wanted).or(cooperative.then_some(true));
    let tile = own.filter(|tile| tile.matrices().is_none_or(|tile| tile == (matrices == Some(true))));
    Tuning { matrices, tile, ..tuning }
}

/// One tuning per order of summation: cooperative matrices and multiply-adds if a kernel supports both, else a single
/// one. The choice may depend on the widths of a kernel and on the target, but never on the sizes of a run.
pub fn families(computation: &Computation, target: &Target) -> Vec<Tuning> {
    let base = of_family(Tuning::default(), computation, target);
    match base.matrices {
        Some(_) => [true, false].map(|matrices| Tuning { matrices: Some(matrices), ..base }).into(),
        None => vec![base],
    }
}

/// Applies a function to the schedule of a kernel; `None` for a custom operator.
fn of<T>(computation: &Computation, target: &Target, say: impl FnOnce(&dyn Scheduled) -> T) -> Option<T> {
    let (computation, _) = dequantized(computation, target);
    match computation.as_ref() {
        Computation::Nest(kernel) => Some(scheduled(kernel, say)),
        Computation::Custom(_) => None,
    }
}
