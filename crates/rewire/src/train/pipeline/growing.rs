//! Growing tables of a pipeline.

use super::initial::{of_parameter, of_row};
use super::{Begin, PipelineTask, Tensors};
use crate::predict::{IdentifiedRows, growing_of, id_maps, ids_beside, is_of_ids, take_identified};
use crate::rank::RankError;
use crate::train::initial::Draw;
use crate::train::{GrowingTables, InitialRows, RankTrainError, Trainer};
use rewire_features::{DefaultRow, Origin};
use rewire_tables::MapState;
use std::collections::BTreeMap;

impl PipelineTask {
    /// The growing tables of the configuration, by table name.
    pub(super) fn growing(&self) -> Vec<GrowingTables> {
        let (features, seed) = (&self.traced.features, self.config.shuffle_seed.unwrap_or(0));
        let shapes = self.tensors.values().map(|known| (known.name.clone(), known.shape.clone())).collect();
        let mut draws: BTreeMap<&str, BTreeMap<String, (Draw, usize)>> = BTreeMap::new();
        for (name, known) in &self.tensors {
            let Some((feature, _)) = growing_of(features, name) else { continue };
            let draw = of_parameter(features, self.wide_init_fn.as_deref(), name, &known.shape, &shapes);
            let width = known.shape.iter().skip(1).product();
            draws.entry(&feature.table).or_default().insert(name.clone(), (draw, width));
        }
        let growing = features.growing();
        let tables = draws.into_iter().filter_map(|(name, draws)| Some((name, growing.get(name)?.0, draws)));
        let tables = tables.map(|(name, growing, draws)| {
            let of_map = |input: &&String| features.feature_of_input(input).is_some_and(|own| own.table == name);
            GrowingTables {
                name: name.to_owned(),
                options: growing.options,
                tables: draws.keys().filter(|table| self.tables().any(|own| own == *table)).cloned().collect(),
                inputs: self.inputs.iter().filter(of_map).cloned().collect(),
                trains_default: growing.default == DefaultRow::Trained,
                initial: InitialRows::new(move |table, row| {
                    // Without values, the step that asks for another table ends with an error.
                    draws
                        .get(table)
                        .into_iter()
                        .flat_map(|(draw, width)| of_row(*draw, table, seed, row, *width))
                        .collect()
                }),
            }
        });
        tables.collect()
    }

    /// The initial maps of a training; empty for a new one.
    pub(super) fn id_maps(&self, begin: &Begin) -> Result<BTreeMap<String, MapState>, RankError> {
        let Begin::Tensors(tensors) = begin else { return Ok(BTreeMap::new()) };
        let tables = self.tensors.keys().filter(|name| growing_of(&self.traced.features, name).is_some());
        let tables: Vec<&str> = tables.map(String::as_str).collect();
        if !tensors.keys().any(|name| is_of_ids(name)) {
            return Ok(BTreeMap::new());
        }
        id_maps(&self.traced.features, tables, |name| Ok(tensors.get(name).cloned()))
    }

    /// The current ids of growing tables, as tensors of the model.
    pub(super) fn ids(&self, trainer: &Trainer) -> Tensors {
        let mut all = Tensors::new();
        for (name, map) in trainer.id_maps() {
            for table in self.tensors.keys() {
                if let Some((_, growing)) =
                    growing_of(&self.traced.features, table).filter(|(own, _)| own.table == name)
                {
                    all.extend(ids_beside(table, growing, map));
                }
            }
        }
        all
    }

    /// True for the tables of `dynamicemb`, which [`PipelineTask::take_identified`] needs as a whole.
    pub fn is_identified(&self, name: &str) -> bool {
        growing_of(&self.traced.features, name).is_some_and(|(_, growing)| growing.origin == Origin::Dynamic)
    }

    /// Moves the tables of `dynamicemb` out of [`PipelineTask::tensors`], as ids with their rows.
    ///
    /// # Errors
    /// [`RankTrainError::Rank`] for tensors without valid ids.
    pub fn take_identified(&self, tensors: &mut Tensors) -> Result<Vec<IdentifiedRows>, RankTrainError> {
        Ok(take_identified(&self.traced.features, tensors)?)
    }
}
