//! Going on after a device is lost.

use super::load::{SessionOptions, Sites, emit_step, open};
use super::{Inputs, Session, Value};
use crate::{GpuError, RunError, RuntimeError};
use rewire_graph::HostTensor;
use std::pin::Pin;
use std::sync::Arc;

/// What the sites of a session are made from anew: parameters and constants on the host, by buffer, and how it was loaded.
#[derive(Debug)]
pub(super) struct Backup {
    pub tensors: Vec<Option<HostTensor>>,
    pub options: SessionOptions,
}

impl Session {
    /// Makes a session that may do so go on without the device that was lost: on one that is opened anew, unless the app opened
    /// it, or on the CPU. Boxed, since a new device is tried by a session of its own.
    pub(super) fn recover(
        &mut self,
        lost: GpuError,
    ) -> Pin<Box<dyn Future<Output = Result<(), RunError>> + Send + '_>> {
        Box::pin(async move {
            let Some(backup) = self.backup.clone() else { return Err(lost.into()) };
            let failed = |error: RuntimeError| RunError::Recovery { lost: lost.to_string(), reason: error.to_string() };
            let sites = match self.reopen(&backup).await {
                Some(sites) => sites,
                None => self.bind_without_device(&backup).await.map_err(failed)?,
            };
            (self.placement, self.gpu, self.cpu) = (Arc::new(sites.placement), sites.gpu, sites.cpu);
            self.sizes = None;
            let place = self.report().adapter.unwrap_or_else(|| "the CPU".to_owned());
            tracing::warn!("{lost}; going on on {place}");
            Ok(())
        })
    }

    /// The steps on a device of the same choice, if the session opened its own and there is one that works.
    async fn reopen(&self, backup: &Backup) -> Option<Sites> {
        if backup.options.gpu.is_some() {
            return None;
        }
        let gpu = open(&backup.options).await.ok().flatten()?;
        let sites = Sites::bind(&self.plan, Some(gpu), &backup.tensors, &backup.options, &emit_step).await;
        sites.inspect_err(|error| tracing::warn!("{error}")).ok()
    }

    async fn bind_without_device(&self, backup: &Backup) -> Result<Sites, RuntimeError> {
        Sites::bind(&self.plan, None, &backup.tensors, &backup.options, &emit_step).await
    }
}

/// True if what a run reads is still there when a device is lost.
pub(super) fn outlives(inputs: &Inputs) -> bool {
    inputs.values().all(|value| matches!(value, Value::Host(_)))
}
