//! Recovery from a lost device.

use super::Model;
use super::emitter::emit_step;
use super::load::open;
use super::parameters::HostParameters;
use super::sites::BoundModel;
use crate::boxed::BoxedFuture;
use crate::{Gpu, GpuError, Kernel, RunError, RuntimeError};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::Step;
use std::sync::Arc;

impl Model {
    /// Moves a model away from the device that was lost under `sites`: to a reopened device, unless the app opened it,
    /// or to the CPU with [`Kernel::Auto`]. Does nothing if another session recovered first. Boxed, since a separate
    /// session tests the new device.
    pub(crate) fn recover(&self, lost: GpuError, sites: Arc<BoundModel>) -> BoxedFuture<'_, Result<(), RunError>> {
        Box::pin(async move { self.threads().within(self.recover_here(&lost, &sites)).await })
    }

    /// [`Model::recover`] on the installed threads.
    async fn recover_here(&self, lost: &GpuError, sites: &BoundModel) -> Result<(), RunError> {
        let _turn = self.turn().await;
        loop {
            let current = self.sites();
            let resident = &current.resident;
            if !Arc::ptr_eq(&current.placement, &sites.placement) {
                return Ok(());
            }
            if !resident.is_whole() {
                return Err(lost.clone().into());
            }
            let failed = |error: RuntimeError| RunError::Recovery { lost: lost.to_string(), reason: error.to_string() };
            let recovered = match (self.reopen(resident).await, self.options().kernel) {
                (Some(sites), _) => sites,
                (None, Kernel::Auto) => self.bind_to(None, resident).await.map_err(failed)?,
                (None, _) => return Err(lost.clone().into()),
            };
            // An update may have finished first; its parameters have to be on the new device.
            let (updates, attachment) = (current.updates, current.attachment.clone());
            if self.replace_sites(&current, BoundModel { updates, attachment, ..recovered }) {
                let place = self.report().adapter.unwrap_or_else(|| "the CPU".to_owned());
                tracing::warn!("{lost}; continuing on {place}");
                return Ok(());
            }
        }
    }

    /// The steps on a reopened device of the same kernel choice, if the model opened its own and a working one exists.
    async fn reopen(&self, resident: &Arc<HostParameters>) -> Option<BoundModel> {
        if self.options().gpu.is_some() {
            return None;
        }
        let gpu = open(self.options()).await.ok().flatten()?;
        self.bind_to(Some(gpu), resident).await.inspect_err(|error| tracing::warn!("{error}")).ok()
    }

    async fn bind_to(&self, gpu: Option<Gpu>, resident: &Arc<HostParameters>) -> Result<BoundModel, RuntimeError> {
        let emit = |position: usize, step: &Step, target: &Target, tuning: &Tuning| {
            emit_step(self.options(), position, step, target, tuning)
        };
        BoundModel::bind((self.plan(), &[]), gpu, resident, self.options(), &emit).await
    }
}
