//! Runs in the app's own command encoder.

use super::execute::{Results, input};
use super::io::{Inputs, Outputs, Wanted};
use super::{RunValue, Session, Shapes, no_device};
use crate::model::Site;
use crate::{RunError, block_on};
use rewire_graph_rewrite::plan::Binding;

impl Session {
    /// Records a run in the app's command encoder, between the app's own commands. The encoder must be of the session's
    /// device. All results stay on the device and are available once the app has submitted the encoder.
    ///
    /// Inputs on the host are copied when the encoder runs. The session may run and encode again before the encoder is
    /// submitted, but keep the results until then: otherwise their memory is reused.
    ///
    /// ```no_run
    /// # fn example(gpu: &rewire_runtime::Gpu, session: &mut rewire_runtime::Session, inputs: &rewire_runtime::Inputs)
    /// # -> Result<(), rewire_runtime::RunError> {
    /// let mut encoder = gpu.device().create_command_encoder(&Default::default());
    /// // Earlier work of the app is in the same encoder.
    /// let outputs = session.encode(&mut encoder, inputs)?;
    /// // And so does what reads the results.
    /// gpu.queue().submit([encoder.finish()]);
    /// # drop(outputs);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Session::run_async`], and [`RunError::NotEncoded`] if steps run on the CPU or the plan has states.
    pub async fn encode_async(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        inputs: &Inputs,
    ) -> Result<Outputs, RunError> {
        self.follow();
        let (model, sites) = (self.model.clone(), self.sites.clone());
        let plan = model.plan();
        self.check_encoded()?;
        let mut inputs = inputs.clone();
        for output in plan.outputs.iter().filter(|output| matches!(output.value, Binding::Buffer(_))) {
            inputs.keep_on_device(output.name.as_str());
        }
        let wanted = Wanted::new(plan, &inputs)?;
        let sizes = self.sizes_of(&inputs, &Shapes::new())?;
        let mut results = Results::default();
        if let Some(side) = &mut self.gpu {
            model.threads().within(side.prepare(plan, &sites.placement, &sizes, &inputs, &wanted)).await?;
            let gpu = side.gpu().clone();
            for segment in &sites.placement.segments {
                let fetched = segment.fetches.iter().filter_map(|id| match input(plan, *id, &inputs)? {
                    RunValue::Host(tensor) => Some((*id, tensor.clone())),
                    RunValue::Device(_) => None,
                });
                let fetched: Vec<_> = fetched.collect();
                let record = || side.encode(encoder, plan, segment, &sizes, &fetched);
                results.device.extend(gpu.checked("recording a run", record).await??);
            }
        }
        let mut values = Vec::with_capacity(plan.outputs.len());
        for output in &plan.outputs {
            let value = self.output(output, &sizes, &inputs, &results).await?;
            values.push((output.name.clone(), value));
        }
        Ok(Outputs::new(values))
    }

    /// [`Session::encode_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::encode_async`].
    pub fn encode(&mut self, encoder: &mut wgpu::CommandEncoder, inputs: &Inputs) -> Result<Outputs, RunError> {
        block_on(self.encode_async(encoder, inputs))
    }

    fn check_encoded(&self) -> Result<(), RunError> {
        if self.gpu.is_none() {
            return Err(no_device("a command encoder"));
        }
        let refused = |reason: &str| Err(RunError::NotEncoded { reason: reason.to_owned() });
        if self.sites.placement.segments.iter().any(|segment| segment.site == Site::Cpu) {
            return refused("steps of the plan run on the CPU");
        }
        match self.plan().states().is_empty() {
            true => Ok(()),
            false => refused("the plan has states, which change when a run has succeeded"),
        }
    }
}
