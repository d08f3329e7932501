use super::Model;
use super::row_patch::RowChange;
use crate::{RuntimeError, block_on};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::{BufferId, Source};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value that belongs to one state of a model's parameters.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// New values of a parameter.
#[derive(Clone, Debug)]
pub enum ParameterUpdate {
    /// All of them.
    Whole(HostTensor),
    /// Some rows of a matrix. If a row is given twice, the last values count.
    Rows {
        /// The rows.
        rows: Vec<u32>,
        /// Their values, `[rows, width]`.
        values: HostTensor,
    },
}

impl From<HostTensor> for ParameterUpdate {
    fn from(tensor: HostTensor) -> Self {
        Self::Whole(tensor)
    }
}

/// The part of a tensor that an update replaces.
#[derive(Clone, Debug)]
pub(crate) enum Changed {
    Whole,
    Rows(RowChange),
}

impl Model {
    /// Replaces parameters, or rows of them, while sessions run. A run reads all of the new values or, if it began
    /// before, all of the old ones; see [`Session::hold`](crate::Session::hold) for several runs. Values that the plan
    /// computes from parameters are recomputed.
    ///
    /// Runs in progress keep the old values of what changes: a copy of every changed tensor on the device or in CPU
    /// memory, and for a table on the host ([`Tables`](crate::Tables)) only its changed rows. The copies are freed when
    /// the last run and session with them ends or adopts new ones.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope};
    /// use rewire_graph_rewrite::{lower, optimize};
    /// use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};
    ///
    /// let scope = Scope::new();
    /// let y = scope.input("x", DType::F32, [4]) * scope.parameter("scale", DType::F32, [4]);
    /// let graph = scope.finish(&[("y", y)])?;
    /// let scale = |value: f32| HostTensor::f32(vec![4], &[value; 4]);
    ///
    /// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    /// let model = Model::load(lower(&optimize(graph)?.0)?, [("scale", scale(1.0)?)], options)?;
    /// let mut session = model.session();
    /// model.update([("scale", scale(2.0)?)])?;
    /// let y = session.run(&Inputs::new().with("x", scale(3.0)?))?;
    /// assert_eq!(y.get("y").map(HostTensor::to_f32), Some(vec![6.0; 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::UnknownParameter`], [`RuntimeError::ParameterRows`], and the errors of [`Model::load_async`] for
    /// parameters. On an error nothing is replaced.
    pub async fn update_async<N: AsRef<str>, U: Into<ParameterUpdate>>(
        &self,
        parameters: impl IntoIterator<Item = (N, U)>,
    ) -> Result<(), RuntimeError> {
        let parameters: Vec<_> = parameters.into_iter().map(|(name, update)| (name, update.into())).collect();
        self.threads().within(self.update_here(&parameters, None)).await
    }

    /// [`Model::update_async`] with a value that belongs to the new parameters: a session that runs with them has it as
    /// [`Session::attachment`](crate::Session::attachment). Updates without a value keep it.
    ///
    /// ```
    /// # use rewire_graph::{DType, HostTensor, Scope};
    /// # use rewire_graph_rewrite::{lower, optimize};
    /// # use rewire_runtime::{Kernel, Model, ModelOptions, block_on};
    /// # use std::sync::Arc;
    /// # let scope = Scope::new();
    /// # let y = scope.input("x", DType::F32, [1]) * scope.parameter("scale", DType::F32, [1]);
    /// # let plan = lower(&optimize(scope.finish(&[("y", y)])?)?.0)?;
    /// # let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    /// # let number = |value: f32| HostTensor::f32([1], &[value]);
    /// let model = Model::load(plan, [("scale", number(1.0)?)], options)?;
    /// let mut session = model.session();
    /// session.hold();
    /// block_on(model.update_attached_async([("scale", number(2.0)?)], Arc::new("two")))?;
    /// assert_eq!((session.attachment::<&str>(), model.attachment::<&str>().as_deref()), (None, Some(&"two")));
    /// session.hold();
    /// assert_eq!(session.attachment::<&str>().as_deref(), Some(&"two"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::update_async`].
    pub async fn update_attached_async<N: AsRef<str>, U: Into<ParameterUpdate>>(
        &self,
        parameters: impl IntoIterator<Item = (N, U)>,
        attachment: Attachment,
    ) -> Result<(), RuntimeError> {
        let parameters: Vec<_> = parameters.into_iter().map(|(name, update)| (name, update.into())).collect();
        self.threads().within(self.update_here(&parameters, Some(&attachment))).await
    }

    /// The [attachment](Model::update_attached_async) of the current parameters; `None` if there is none of this type.
    pub fn attachment<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.sites().attachment.clone()?.downcast().ok()
    }

    /// [`Model::update_async`] on the installed threads.
    async fn update_here<N: AsRef<str>>(
        &self,
        parameters: &[(N, ParameterUpdate)],
        attachment: Option<&Attachment>,
    ) -> Result<(), RuntimeError> {
        let _turn = self.turn().await;
        loop {
            let sites = self.sites();
            let mut resident = (*sites.resident).clone();
            let mut changed = BTreeMap::new();
            for (name, update) in parameters {
                resident.set(self.plan(), (name.as_ref(), update), &mut changed)?;
            }
            let computed = |id: &BufferId| self.plan().buffer(*id).is_some_and(|buffer| buffer.source == Source::Load);
            if changed.keys().any(computed) {
                resident.compute(self.plan())?;
            }
            let mut updated = sites.with_parameters(self.plan(), resident, &changed).await?;
            updated.attachment = attachment.or(sites.attachment.as_ref()).cloned();
            // Another update or recovery may have finished first; this one has to build on it.
            if self.replace_sites(&sites, updated) {
                return Ok(());
            }
        }
    }

    /// [`Model::update_async`], blocking.
    ///
    /// # Errors
    /// As [`Model::update_async`].
    pub fn update<N: AsRef<str>, U: Into<ParameterUpdate>>(
        &self,
        parameters: impl IntoIterator<Item = (N, U)>,
    ) -> Result<(), RuntimeError> {
        block_on(self.update_async(parameters))
    }
}
