//! Applies deltas to a model while it predicts.

use super::Predictor;
use super::ids::IdRows;
use super::predictor::Loaded;
use crate::delta::{Delta, DeltaError, ModelVersion};
use rewire_runtime::{Attachment, block_on};
use std::sync::Arc;

impl Predictor {
    /// The version of the parameters; `None` for a model that has none, to which no delta applies.
    pub fn version(&self) -> Option<ModelVersion> {
        self.loaded().served.version()
    }

    /// Applies the next delta while other threads predict. A call of [`Predictor::predict`] uses the parameters and ids
    /// of one version for all rows. [`Caches`](super::Caches) recompute the histories of earlier versions.
    ///
    /// # Errors
    /// [`DeltaError`] if the delta does not follow the model's version or does not fit the model. The model is then
    /// unchanged.
    pub async fn update_async(&self, delta: &Delta) -> Result<(), DeltaError> {
        let Loaded { served, model, signature, ids, .. } = &**self.loaded();
        let next = |changes: &_| {
            let before = model.attachment::<IdRows>();
            Ok(Arc::new(before.as_deref().unwrap_or(ids).with(signature.features(), changes)?) as Attachment)
        };
        served.update_with(model, delta, next).await?;
        self.loaded().sessions.follow();
        Ok(())
    }

    /// [`Predictor::update_async`], blocking.
    ///
    /// # Errors
    /// As [`Predictor::update_async`].
    pub fn update(&self, delta: &Delta) -> Result<(), DeltaError> {
        block_on(self.update_async(delta))
    }
}
