use super::Model;
use crate::{RuntimeError, block_on};

impl Model {
    /// Compiles every kernel that runs of any size may need, so that no request waits for compilation. Loading compiles
    /// only those for unmeasured sizes, and other sizes may use other tiles. Tensors beyond the binding limit need
    /// separate kernels, which are compiled on first use.
    ///
    /// ```
    /// # use rewire_graph_rewrite::plan::Plan;
    /// use rewire_runtime::{Kernel, Model, ModelOptions};
    /// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    /// let model = Model::load(Plan::default(), (), options)?;
    /// assert_eq!(model.warm_up()?, 0);
    /// # Ok::<(), rewire_runtime::RuntimeError>(())
    /// ```
    ///
    /// Returns the number of compiled kernels; 0 on the CPU.
    ///
    /// # Errors
    /// [`RuntimeError::Gpu`] if the device is lost.
    pub async fn warm_up_async(&self) -> Result<usize, RuntimeError> {
        match &self.sites().gpu {
            Some(site) => {
                site.kernels.gpu().check_process()?;
                Ok(self.threads().within(site.kernels.make_all(&self.plan().steps)).await?)
            }
            None => Ok(0),
        }
    }

    /// [`Model::warm_up_async`], blocking.
    ///
    /// # Errors
    /// As [`Model::warm_up_async`].
    pub fn warm_up(&self) -> Result<usize, RuntimeError> {
        block_on(self.warm_up_async())
    }
}
