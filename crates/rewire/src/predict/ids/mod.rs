//! The ids of growing tables, as tensors next to the tables.
//!
//! The tensors of `zch` tables have the names and the layout of the reference's modules. For `dynamicemb`, whose ids
//! the reference keeps in separate files, they are `ids`, `counts`, `last` and `steps`, next to the table's `weight`.

#[cfg(any(feature = "files", feature = "train"))]
mod beside;
mod identified;
#[cfg(feature = "files")]
mod model;
#[cfg(feature = "train")]
mod write;

#[cfg(any(feature = "files", feature = "train"))]
pub(crate) use beside::ids_beside;
pub use identified::IdentifiedRows;
#[cfg(feature = "files")]
pub(crate) use model::ModelIds;
#[cfg(feature = "train")]
pub(crate) use write::take_identified;

use super::imported::is_table;
use super::{Feature, Features};
use crate::delta::DeltaError;
use crate::rank::RankError;
use rewire_features::{Growing, Origin};
use rewire_graph::{DType, HostTensor};
use rewire_tables::{MapChanges, MapError, MapState, Rows, UNKNOWN};
use std::collections::BTreeMap;

/// The modules of the reference that manage ids.
const MANAGED: &str = "._managed_collision_collection._managed_collision_modules.";
const SORTED_IDS: &str = "_mch_sorted_raw_ids";
const SORTED_ROWS: &str = "_mch_remapped_ids_mapping";
const SORTED_COUNTS: &str = "_mch_counts";
const SORTED_LAST: &str = "_mch_last_access_iter";
const ITERATION: &str = "_current_iter_tensor";

/// The tensors of a `dynamicemb` table, as written by [`MapState::save`].
const DYNAMIC: [&str; 4] = ["ids", "counts", "last", "steps"];

/// The rows of ids in the growing tables of a model, by table name.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdRows(BTreeMap<String, (Rows, u32)>);

impl IdRows {
    /// The rows for a model with some parameters, from its tensors.
    pub fn new<'n>(
        features: &Features,
        parameters: impl IntoIterator<Item = &'n str>,
        tensor: impl Fn(&str) -> Result<Option<HostTensor>, RankError>,
    ) -> Result<Self, RankError> {
        let maps = id_maps(features, parameters, tensor)?;
        Ok(Self(maps.into_iter().map(|(name, map)| (name, (Rows::from(&map), map.options().rows))).collect()))
    }

    /// The rows after changes of maps. Maps of tables that the model does not read are skipped.
    pub fn with(&self, features: &Features, changes: &BTreeMap<String, MapChanges>) -> Result<Self, DeltaError> {
        let (mut next, known) = (self.clone(), features.growing());
        for (table, changes) in changes {
            let failed = |source| DeltaError::IdChanges { table: table.clone(), source };
            match next.0.get_mut(table) {
                Some((rows, most)) => {
                    if let Some(placed) = changes.placed.iter().find(|placed| placed.row >= *most) {
                        return Err(failed(MapError::Row { row: placed.row, rows: *most }));
                    }
                    *rows = rows.with(&changes.placed).map_err(failed)?;
                }
                None if known.contains_key(table.as_str()) => {}
                None => return Err(DeltaError::Ids { table: table.clone() }),
            }
        }
        Ok(next)
    }

    /// Replaces raw ids by row numbers; an id without a row gets the last row of the table.
    pub fn look_up(&self, features: &Features, inputs: &mut [(String, HostTensor)]) {
        for (name, tensor) in inputs.iter_mut().filter(|(_, tensor)| tensor.dtype() == DType::I64) {
            let feature = features.feature_of_input(name).filter(|feature| feature.growing.is_some());
            let Some((rows, default)) = feature.and_then(|feature| self.0.get(&feature.table)) else { continue };
            let found: Vec<u32> = tensor.to_i64().into_iter().map(|id| rows.row(id).unwrap_or(*default)).collect();
            *tensor = HostTensor::vector(&found);
        }
    }
}

/// The maps of growing tables from the tensors of a model, by table name.
pub(crate) fn id_maps<'n>(
    features: &Features,
    parameters: impl IntoIterator<Item = &'n str>,
    tensor: impl Fn(&str) -> Result<Option<HostTensor>, RankError>,
) -> Result<BTreeMap<String, MapState>, RankError> {
    let mut maps: BTreeMap<String, (&str, MapState)> = BTreeMap::new();
    for parameter in parameters {
        let Some((feature, growing)) = growing_of(features, parameter) else { continue };
        let map = read(parameter, growing, &tensor)?;
        match maps.get(&feature.table) {
            Some((_, other)) if other.save() == map.save() => {}
            Some((other, _)) => {
                return Err(RankError::UnequalIds { tables: [(*other).to_owned(), parameter.to_owned()] });
            }
            None => drop(maps.insert(feature.table.clone(), (parameter, map))),
        }
    }
    Ok(maps.into_iter().map(|(name, (_, map))| (name, map)).collect())
}

/// The feature whose growing table a parameter is.
pub(crate) fn growing_of<'f>(features: &'f Features, parameter: &str) -> Option<(&'f Feature, &'f Growing)> {
    let (feature, _) = features.feature_of_table(parameter)?;
    Some((feature, feature.growing.as_ref()?))
}

/// True for a tensor with ids of a growing table, or with their use.
pub(crate) fn is_of_ids(name: &str) -> bool {
    let (table, last) = name.rsplit_once('.').unwrap_or(("", name));
    name.contains(MANAGED) || (DYNAMIC.contains(&last) && is_table(&format!("{table}.weight")))
}

/// The name prefix of the tensors of a table's map.
fn prefix(table: &str, origin: Origin) -> String {
    let path = table.strip_suffix(".weight").unwrap_or(table);
    match (origin, path.split_once("._embedding_module."), path.rsplit_once('.')) {
        (Origin::Managed, Some((module, _)), Some((_, name))) => format!("{module}{MANAGED}{name}."),
        _ => format!("{path}."),
    }
}

/// The map of a table.
fn read(
    table: &str,
    growing: &Growing,
    tensor: &impl Fn(&str) -> Result<Option<HostTensor>, RankError>,
) -> Result<MapState, RankError> {
    let prefix = prefix(table, growing.origin);
    let failed = |source| RankError::Ids { table: table.to_owned(), source };
    let part = |name: &str| Ok::<_, RankError>(tensor(&format!("{prefix}{name}"))?.and_then(|tensor| tensor.values()));
    let mut parts: BTreeMap<&str, Vec<i64>> = BTreeMap::from([("window", vec![]), ("waiting", vec![])]);
    match growing.origin {
        Origin::Dynamic => {
            for name in DYNAMIC {
                parts.extend(part(name)?.map(|values| (name, values)));
            }
        }
        Origin::Managed => {
            let needed = |part: &'static str, values: Option<Vec<i64>>| {
                let values = values.ok_or_else(|| failed(MapError::Missing { part }))?;
                let (expected, actual) = (growing.rows().to_string(), values.len());
                if actual == growing.rows() {
                    Ok(values)
                } else {
                    Err(failed(MapError::Length { part, expected, actual }))
                }
            };
            let (ids, rows) = (needed(SORTED_IDS, part(SORTED_IDS)?)?, needed(SORTED_ROWS, part(SORTED_ROWS)?)?);
            let used = |part: &'static str, values: Option<Vec<i64>>| match values {
                Some(values) => needed(part, Some(values)),
                None => Ok(vec![0; growing.rows()]),
            };
            let (counts, last) = (used(SORTED_COUNTS, part(SORTED_COUNTS)?)?, used(SORTED_LAST, part(SORTED_LAST)?)?);
            let mut by_row = [vec![UNKNOWN; growing.rows()], vec![0; growing.rows()], vec![0; growing.rows()]];
            for (((id, row), count), last) in ids.into_iter().zip(rows).zip(counts).zip(last) {
                if id == UNKNOWN {
                    continue;
                }
                let place = usize::try_from(row).ok().filter(|row| *row + 1 < growing.rows());
                let place = place.ok_or_else(|| failed(MapError::Value { part: SORTED_ROWS, actual: row }))?;
                let words = [id, count.clamp(0, u32::MAX.into()), last.clamp(0, u32::MAX.into())];
                by_row.iter_mut().zip(words).for_each(|(values, word)| values[place] = word);
            }
            let taken = by_row[0].iter().rposition(|id| *id != UNKNOWN).map_or(0, |last| last + 1);
            for (name, mut values) in DYNAMIC.into_iter().zip(by_row) {
                values.truncate(taken);
                parts.insert(name, values);
            }
            let iteration = part(ITERATION)?.and_then(|own| own.first().copied()).unwrap_or(0);
            parts.insert("steps", vec![iteration.clamp(0, u32::MAX.into())]);
        }
    }
    MapState::load(growing.options, |name| parts.get(name).cloned()).map_err(failed)
}
