//! Checks of a tuning's values against the target and the schedule.

use crate::EmitError;
use rewire_graph_rewrite::device::{Target, ThreadTile, Tile, Tuning};
use std::ops::RangeInclusive;

/// Valid numbers of groups, and of rows, per thread of a map or a segmented reduction.
const SHARES: RangeInclusive<u32> = 1..=8;

/// Default invocations per workgroup for a target.
pub(crate) fn suited_threads(target: &Target) -> u32 {
    256.min(most_threads(target))
}

fn most_threads(target: &Target) -> u32 {
    1 << target.invocations.max(1).ilog2()
}

/// Checks the invocations of a workgroup.
pub(crate) fn threads(target: &Target, threads: u32) -> Result<u32, EmitError> {
    let largest = most_threads(target);
    if threads.is_power_of_two() && threads <= largest {
        return Ok(threads);
    }
    let expected = format!("a power of two up to {largest}");
    Err(EmitError::Tuning { parameter: "threads", expected, got: threads })
}

/// Checks the numbers of groups and rows per thread.
pub(crate) fn of_threads(target: &Target, tile: ThreadTile) -> Result<ThreadTile, EmitError> {
    threads(target, tile.threads)?;
    let shares = [("groups_per_thread", tile.groups_per_thread), ("rows_per_thread", tile.rows_per_thread)];
    match shares.into_iter().find(|(_, share)| !SHARES.contains(share)) {
        Some((parameter, got)) => Err(EmitError::Tuning { parameter, expected: "1 to 8".to_owned(), got }),
        None => Ok(tile),
    }
}

/// The tile of a tuning, if set; it must be of the type that `pick` accepts.
pub(crate) fn tile_of<T>(
    tuning: &Tuning,
    expected: &'static str,
    pick: impl FnOnce(Tile) -> Option<T>,
) -> Result<Option<T>, EmitError> {
    let Some(tile) = tuning.tile else { return Ok(None) };
    pick(tile).map(Some).ok_or(EmitError::Tile { expected, got: tile })
}

/// The tile for cooperative matrices from `tile`, unless the tuning disables them.
pub(crate) fn cooperative<T>(
    tuning: &Tuning,
    tile: impl FnOnce() -> Result<Option<T>, EmitError>,
) -> Result<Option<T>, EmitError> {
    if tuning.matrices == Some(false) {
        return Ok(None);
    }
    let tile = tile()?;
    if tile.is_none() && tuning.matrices == Some(true) {
        let expected = "0: cooperative matrices do not fit the kernel and the target".to_owned();
        return Err(EmitError::Tuning { parameter: "matrices", expected, got: 1 });
    }
    Ok(tile)
}
