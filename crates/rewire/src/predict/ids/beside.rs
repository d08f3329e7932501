//! The ids of growing tables as tensors of a model.

use super::{DYNAMIC, ITERATION, SORTED_COUNTS, SORTED_IDS, SORTED_LAST, SORTED_ROWS, prefix};
use rewire_features::{Growing, Origin};
use rewire_graph::HostTensor;
use rewire_tables::{Eviction, MapState, UNKNOWN};

const SEGMENTS: &str = "_output_segments_tensor";
/// Entries of [`SEGMENTS`].
const MOST_SEGMENTS: usize = 1025;

/// The tensors of the map of a table.
pub(crate) fn ids_beside(table: &str, growing: &Growing, map: &MapState) -> Vec<(String, HostTensor)> {
    let (prefix, saved) = (prefix(table, growing.origin), map.save());
    let part = |name: &str| saved.iter().find(|(part, _)| *part == name).map_or(&[][..], |(_, values)| values);
    let named = |(name, values): (&str, Vec<i64>)| (format!("{prefix}{name}"), HostTensor::vector(&values));
    if growing.origin == Origin::Dynamic {
        return DYNAMIC.into_iter().map(|name| named((name, part(name).to_vec()))).collect();
    }
    let (ids, counts, last, rows) = (part("ids"), part("counts"), part("last"), growing.rows());
    let mut order: Vec<usize> = (0..rows).collect();
    // Free rows come last; the last of them is the default row.
    order.sort_by_key(|row| (ids.get(*row).copied().unwrap_or(UNKNOWN), *row));
    let sorted = |values: &[i64], free: i64, of_default: i64| -> Vec<i64> {
        let of_row = |row: &usize| if row + 1 == rows { of_default } else { values.get(*row).copied().unwrap_or(free) };
        order.iter().map(of_row).collect()
    };
    let iteration = part("steps").first().copied().unwrap_or(0);
    let mut segments = vec![-1; MOST_SEGMENTS];
    segments.iter_mut().zip([0, rows as i64]).for_each(|(own, value)| *own = value);
    let mut all = vec![
        (SORTED_IDS, sorted(ids, UNKNOWN, UNKNOWN)),
        (SORTED_ROWS, order.iter().map(|row| *row as i64).collect()),
        (ITERATION, vec![iteration]),
        (SEGMENTS, segments),
    ];
    let eviction = growing.options.eviction;
    all.extend((eviction != Eviction::Lru).then(|| (SORTED_COUNTS, sorted(counts, 0, i64::MAX))));
    all.extend((eviction != Eviction::Lfu).then(|| (SORTED_LAST, sorted(last, 0, iteration))));
    all.into_iter().map(named).collect()
}
