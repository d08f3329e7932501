//! The ids of growing tables after training.

use super::super::Features;
use super::identified::IdentifiedRows;
use super::{growing_of, id_maps, is_of_ids, prefix};
use crate::rank::RankError;
use rewire_features::Origin;
use rewire_graph::HostTensor;
use rewire_tables::{Eviction, UNKNOWN};
use std::collections::BTreeMap;

/// Removes the tables of `dynamicemb` and their ids from the tensors of a model, and returns them.
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
