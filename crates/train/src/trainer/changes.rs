//! Changes of parameters over several steps.

use super::{Prepared, TrainError, Trainer};
use rewire_distributed::{CollectiveError, Collectives, all_gather_of};
use rewire_graph::HostTensor;
use rewire_tables::{MapChanges, MapRecorder, RowSet};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Changes of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Dense parameters, and states that the model sets, by name: whole tensors.
    pub whole: BTreeMap<String, HostTensor>,
    /// Changed rows of tables, ascending, and their values.
    pub rows: BTreeMap<String, (Vec<u32>, HostTensor)>,
    /// Changes of the maps of growing tables, by name of the map.
    pub ids: BTreeMap<String, MapChanges>,
}

/// The rows changed since the last call of [`Trainer::changes`].
#[derive(Debug, Default)]
pub(super) struct Recorded(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    /// The updated rows of each table.
    rows: BTreeMap<String, RowSet>,
    /// The changes of each map.
    maps: BTreeMap<String, MapRecorder>,
}

impl Recorded {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn insert(&mut self, table: &str, rows: impl IntoIterator<Item = u32>) {
        let set = self.rows.entry(table.to_owned()).or_default();
        rows.into_iter().for_each(|row| set.insert(row));
    }
}

impl Trainer {
    /// Starts to record the rows of tables that steps update, for [`Trainer::changes`].
    pub fn record_changes(&mut self) {
        self.recorded = Some(Recorded::default());
    }

    /// Records the changes of a step: the rows that it looks up, and the rows assigned to new ids, which the step may not
    /// look up.
    pub(super) fn record(&self, step: &Prepared) {
        let Some(mut recorded) = self.recorded.as_ref().map(Recorded::lock) else { return };
        for (table, lookup) in &self.tables {
            recorded.insert(table, step.rows(self.lookups.get(*lookup)));
        }
        for (growing, step) in self.grown.tables.iter().zip(&step.grown) {
            recorded.maps.entry(growing.name.clone()).or_default().record(step);
            for table in &growing.tables {
                recorded.insert(table, step.placed.iter().map(|placed| placed.row));
            }
        }
    }

    /// The current dense parameters, and the table rows and ids that changed since the last call or [`Trainer::record_changes`].
    /// Without the latter it returns no rows. All ranks must call it.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] if a value is not finite, and the errors of [`Trainer::parameters`].
    pub fn changes(&self) -> Result<Changes, TrainError> {
        let mut changes = Changes::default();
        let mut recorded = self.recorded.as_ref().map(Recorded::lock).map(|mut own| std::mem::take(&mut *own));
        let maps = recorded.iter_mut().flat_map(|recorded| std::mem::take(&mut recorded.maps));
        for (name, mut recorder) in maps {
            let map = self.id_maps().find(|(own, _)| *own == name);
            changes.ids.extend(map.map(|(_, map)| (name, recorder.take(map))));
        }
        for name in self.parameters.iter().filter(|name| !self.tables.contains_key(*name)) {
            changes.whole.insert(name.clone(), self.state(name)?);
        }
        for name in self.tables.keys() {
            let own = recorded.as_mut().and_then(|recorded| recorded.rows.remove(name));
            let own = own.map(|own| own.rows()).unwrap_or_default();
            let (rows, values) = match &self.ranks {
                None => {
                    let values = self.session.state_rows(name, &own)?;
                    (own, values)
                }
                Some(ranks) => {
                    let rows = of_all_ranks(&own, ranks.group.as_ref())?;
                    let values = ranks.rows_of(name, &rows)?;
                    (rows, values)
                }
            };
            if !rows.is_empty() {
                changes.rows.insert(name.clone(), (rows, values));
            }
        }
        let values = changes.rows.iter().map(|(name, (_, values))| (name, values));
        match changes.whole.iter().chain(values).find(|(_, values)| values.first_non_finite().is_some()) {
            None => Ok(changes),
            Some((name, _)) => {
                let parameter = Some(name.clone());
                Err(TrainError::Diverged { step: self.steps, loss: self.progress.loss, parameter })
            }
        }
    }
}

/// The union of the rows of all ranks.
fn of_all_ranks(own: &[u32], group: &dyn Collectives) -> Result<Vec<u32>, CollectiveError> {
    let mut rows = all_gather_of(group, own)?.concat();
    rows.sort_unstable();
    rows.dedup();
    Ok(rows)
}
