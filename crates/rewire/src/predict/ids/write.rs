//! The ids of growing tables after training.

use super::super::Features;
use super::identified::IdentifiedRows;
use super::{
    DYNAMIC, ITERATION, SORTED_COUNTS, SORTED_IDS, SORTED_LAST, SORTED_ROWS, growing_of, id_maps, is_of_ids, prefix,
};
use crate::rank::RankError;
use rewire_features::{Growing, Origin};
use rewire_graph::HostTensor;
use rewire_tables::{Eviction, IdMap, UNKNOWN};
use std::collections::BTreeMap;

const SEGMENTS: &str = "_output_segments_tensor";
/// Entries of [`SEGMENTS`].
const MOST_SEGMENTS: usize = 1025;

/// The tensors of a map beside a table.
pub(crate) fn ids_beside(table: &str, growing: &Growing, map: &IdMap) -> Vec<(String, HostTensor)> {
    let (prefix, saved) = (prefix(table, growing.origin), map.save());
    let part = |name: &str| saved.iter().find(|(part, _)| *part == name).map_or(&[][..], |(_, values)| values);
    let named = |(name, values): (&str, Vec<i64>)| (format!("{prefix}{name}"), HostTensor::vector(&values));
    if growing.origin == Origin::Dynamic {
        return DYNAMIC.into_iter().map(|name| named((name, part(name).to_vec()))).collect();
    }
    let (ids, counts, last, rows) = (part("ids"), part("counts"), part("last"), growing.rows());
    let mut order: Vec<usize> = (0..rows).collect();
    // Free rows, of which the last one is the default, come last.
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

/// The tables of `dynamicemb` among the tensors of a model, which lose them and their ids.
pub(crate) fn take_identified(
    features: &Features,
    tensors: &mut BTreeMap<String, HostTensor>,
) -> Result<Vec<IdentifiedRows>, RankError> {
    let is_dynamic =
        |name: &&String| growing_of(features, name).is_some_and(|(_, growing)| growing.origin == Origin::Dynamic);
    let names: Vec<String> = tensors.keys().filter(is_dynamic).cloned().collect();
    let mut all = vec![];
    for name in names {
        let maps = id_maps(features, [name.as_str()], |part| Ok(tensors.get(part).cloned()))?;
        let (Some(map), Some(mut own)) = (maps.into_values().next(), IdentifiedRows::of(&name)) else { continue };
        let saved = map.save();
        let part = |name: &str| saved.iter().find(|(part, _)| *part == name).map_or(&[][..], |(_, values)| values);
        let scores = part(if map.options().eviction == Eviction::Lfu { "counts" } else { "last" });
        let values = tensors.remove(&name).map(|table| table.to_f32()).unwrap_or_default();
        let width = values.len() / (map.options().rows as usize + 1);
        for (((id, score), row), place) in part("ids").iter().zip(scores).zip(values.chunks(width.max(1))).zip(0..) {
            if *id != UNKNOWN {
                own.places.push(place);
                own.ids.push(*id);
                own.scores.push(*score);
                own.rows.extend(row);
            }
        }
        let path = prefix(&name, Origin::Dynamic);
        tensors.retain(|name, _| !(name.starts_with(&path) && is_of_ids(name)));
        all.push(own);
    }
    Ok(all)
}

impl IdentifiedRows {
    /// The module and the name of the table of a parameter.
    fn of(parameter: &str) -> Option<Self> {
        let (module, rest) =
            parameter.split_once(".embedding_bags.").or_else(|| parameter.split_once(".embeddings."))?;
        let table = rest.strip_suffix(".weight")?;
        Some(Self { module: module.to_owned(), table: table.to_owned(), ..Self::default() })
    }
}
