//! Parameters that steps changed.

use super::{Prepared, TrainError, Trainer};
use rewire_distributed::{CollectiveError, Collectives, all_gather_of};
use rewire_graph::HostTensor;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Changes of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Trained parameters that are no tables, and states that the model sets, by name.
    pub whole: BTreeMap<String, HostTensor>,
    /// Changed rows of tables, ascending, and their values.
    pub rows: BTreeMap<String, (Vec<u32>, HostTensor)>,
}

/// The rows of tables that steps updated, by table.
#[derive(Debug, Default)]
pub(super) struct UpdatedRows(Mutex<BTreeMap<String, RowSet>>);

/// A set of rows, one bit each.
#[derive(Debug, Default)]
struct RowSet(Vec<u64>);

impl RowSet {
    fn insert(&mut self, row: u32) {
        let (word, bit) = (row as usize / 64, row % 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    /// The rows in ascending order.
    fn rows(&self) -> Vec<u32> {
        let bits = |(word, bits): (usize, &u64)| {
            let bits = *bits;
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word as u32 * 64 + bit)
        };
        self.0.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(bits).collect()
    }
}

impl UpdatedRows {
    fn insert(&self, table: &str, rows: &[u32]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let set = all.entry(table.to_owned()).or_default();
        rows.iter().for_each(|row| set.insert(*row));
    }

    fn take(&self, table: &str) -> Vec<u32> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(table).map(|set| set.rows()).unwrap_or_default()
    }
}

impl Trainer {
    /// Records which rows of tables steps update from now on, for [`Trainer::changes`].
    ///
    /// # Errors
    /// [`TrainError::GrowingChanges`] for growing tables: changes do not hold the ids of rows.
    pub fn record_changes(&mut self) -> Result<(), TrainError> {
        if let Some((name, _)) = self.id_maps().next() {
            return Err(TrainError::GrowingChanges { name: name.to_owned() });
        }
        self.updated = Some(UpdatedRows::default());
        Ok(())
    }

    /// Records the rows that a step updates.
    pub(super) fn record(&self, step: &Prepared) {
        let Some(updated) = &self.updated else { return };
        for (table, lookup) in &self.tables {
            updated.insert(table, &step.rows(self.lookups.get(*lookup)));
        }
    }

    /// Dense parameters now, and the rows of tables that were updated since the last call or
    /// [`Trainer::record_changes`], without which it returns no rows. All ranks have to call it.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] if a value is not finite, and the errors of [`Trainer::parameters`].
    pub fn changes(&self) -> Result<Changes, TrainError> {
        let mut changes = Changes::default();
        for name in self.parameters.iter().filter(|name| !self.tables.contains_key(*name)) {
            changes.whole.insert(name.clone(), self.state(name)?);
        }
        for name in self.tables.keys() {
            let own = self.updated.as_ref().map(|updated| updated.take(name)).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_once_in_ascending_order() {
        let updated = UpdatedRows::default();
        for rows in [&[700, 3, 64][..], &[], &[3, 63, 127, 128]] {
            updated.insert("a", rows);
        }
        assert_eq!(updated.take("a"), [3, 63, 64, 127, 128, 700]);
        assert!(updated.take("a").is_empty() && updated.take("b").is_empty());
    }
}
