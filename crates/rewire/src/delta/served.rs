//! The version of a loaded model.

use super::{Delta, DeltaError, ModelVersion};
use crate::weights::Weights;
use rewire_graph_rewrite::plan::Named;
use rewire_runtime::{Attachment, Model};
use rewire_tables::MapChanges;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The version of a loaded model, which deltas advance.
#[derive(Debug)]
pub(crate) struct Served(Mutex<Progress>);

#[derive(Debug)]
struct Progress {
    /// `None` for a model without a version.
    version: Option<ModelVersion>,
    /// True while a delta is applied.
    is_busy: bool,
}

/// Ends an update when it is done or dropped.
struct Turn<'a>(&'a Served);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().is_busy = false;
    }
}

impl Served {
    /// The version of the weights of a model.
    pub fn of(weights: &Weights<'_>) -> Self {
        Self(Mutex::new(Progress { version: ModelVersion::of(weights).ok(), is_busy: false }))
    }

    pub fn version(&self) -> Option<ModelVersion> {
        self.lock().version
    }

    /// Applies a delta to a model without ids. Parameters that its plan does not read are skipped.
    pub async fn update(&self, model: &Model, delta: &Delta) -> Result<(), DeltaError> {
        let without = |ids: &BTreeMap<String, MapChanges>| match ids.keys().next() {
            Some(table) => Err(DeltaError::Ids { table: table.clone() }),
            None => Ok(Arc::new(()) as Attachment),
        };
        self.update_with(model, delta, without).await
    }

    /// [`Served::update`] with a value attached to the new parameters, which is computed from the changes of ids.
    pub async fn update_with(
        &self,
        model: &Model,
        delta: &Delta,
        attachment: impl FnOnce(&BTreeMap<String, MapChanges>) -> Result<Attachment, DeltaError>,
    ) -> Result<(), DeltaError> {
        let _turn = self.begin(delta)?;
        let attachment = attachment(&delta.changes().ids)?;
        let known: HashSet<&str> = model.plan().parameters().map(|Named { name, .. }| name).collect();
        let changes = delta.changes().parameters.iter().filter(|(name, _)| known.contains(name.as_str()));
        let changes = changes.map(|(name, change)| (name.as_str(), change.clone()));
        model.update_attached_async(changes, attachment).await?;
        self.lock().version = Some(delta.version());
        Ok(())
    }

    /// Checks that a delta is the next one. No lock is held while it is applied, since the thread that polls the future
    /// may be the next caller.
    fn begin(&self, delta: &Delta) -> Result<Turn<'_>, DeltaError> {
        let mut progress = self.lock();
        progress.version.ok_or(DeltaError::NoVersion)?.check_next(delta.before())?;
        if std::mem::replace(&mut progress.is_busy, true) {
            return Err(DeltaError::Busy);
        }
        drop(progress);
        Ok(Turn(self))
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
