//! The ids of a model in files.

use super::super::imported::{is_pipeline, pipeline_of};
use super::{growing_of, id_maps, ids_beside};
use crate::delta::DeltaError;
use crate::rank::RankError;
use crate::weights::Weights;
use rewire_families::Interface;
use rewire_features::Growing;
use rewire_graph::HostTensor;
use rewire_tables::{MapChanges, MapState};
use std::collections::{BTreeMap, BTreeSet};

/// The maps of a model's growing tables; empty for a model without such tables.
#[derive(Default)]
pub(crate) struct ModelIds {
    /// The growing tables, with the names of their maps.
    tables: Vec<(String, String, Growing)>,
    maps: BTreeMap<String, MapState>,
    changed: BTreeSet<String>,
}

impl ModelIds {
    /// The maps in weights, for a model with the text of a `config.json`.
    pub fn new(config: Option<&str>, weights: &Weights<'_>) -> Result<Self, RankError> {
        let Some(config) = config.filter(|config| is_pipeline(config)) else { return Ok(Self::default()) };
        let name = "the configuration of the model";
        let interface = Interface::new(&pipeline_of(name, config)?);
        let bad = |problems| RankError::Pipeline { name: name.to_owned(), problems };
        let features = interface.map_err(bad)?.features;
        let of_table = |table: &str| {
            let (feature, growing) = growing_of(&features, table)?;
            Some((table.to_owned(), feature.table.clone(), growing.clone()))
        };
        let tables: Vec<_> = weights.names().filter_map(of_table).collect();
        let names = tables.iter().map(|(table, ..)| table.as_str());
        let maps = id_maps(&features, names, |name| Ok(weights.get(name)?))?;
        Ok(Self { tables, maps, changed: BTreeSet::new() })
    }

    /// Applies the changes of a delta.
    pub fn change(&mut self, changes: &BTreeMap<String, MapChanges>) -> Result<(), DeltaError> {
        for (table, changes) in changes {
            let map = self.maps.get_mut(table).ok_or_else(|| DeltaError::Ids { table: table.clone() })?;
            map.change(changes).map_err(|source| DeltaError::IdChanges { table: table.clone(), source })?;
            self.changed.insert(table.clone());
        }
        Ok(())
    }

    /// The tensors of maps that changed.
    pub fn tensors(&self) -> Result<BTreeMap<String, HostTensor>, DeltaError> {
        for (table, map) in self.maps.iter().filter(|(table, _)| self.changed.contains(*table)) {
            map.check().map_err(|source| DeltaError::IdChanges { table: table.clone(), source })?;
        }
        let of_table = |(table, name, growing): &(String, String, Growing)| {
            let map = self.maps.get(name).filter(|_| self.changed.contains(name))?;
            Some(ids_beside(table, growing, map))
        };
        Ok(self.tables.iter().filter_map(of_table).flatten().collect())
    }
}
