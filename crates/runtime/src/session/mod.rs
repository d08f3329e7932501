//! A plan bound to a device or the CPU.

mod control;
mod cpu;
mod gpu;
mod io;
mod load;
mod matrices;
mod names;
mod packed;
mod parameters;
mod pipelines;
mod placement;
mod profile;
mod recover;
mod room;
mod sizes;
mod tune;
mod validate;

#[cfg(test)]
mod tests;

pub use io::{DeviceTensor, Inputs, Outputs, Value};
pub use load::SessionOptions;
pub use pipelines::PipelineStore;
pub(crate) use pipelines::{Pipelines, WantedPipeline};
pub use profile::{Detail, Lane, Profile, Span};
pub use tune::{Refinement, Tuned};

use crate::{GpuError, Kernel, RunError, TuningStore, block_on};
use cpu::CpuSide;
use gpu::GpuSide;
use io::Wanted;
use placement::{Placement, Segment, Site};
use profile::Recorder;
use recover::{Backup, outlives};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::cost::{self, Count, Counter};
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, PlanOutput, Source};
use serde::Serialize;
use sizes::{Declared, Sizes};
use std::collections::HashMap;
use std::sync::Arc;

/// A plan with its parameters in place, ready to run at any batch size.
///
/// Runs are deterministic: equal inputs give equal bits on the same device.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    kernel: Kernel,
    /// Ids beyond their table are no errors.
    clamp_ids: bool,
    placement: Arc<Placement>,
    gpu: Option<GpuSide>,
    cpu: CpuSide,
    inputs: Vec<Declared>,
    /// The sizes of the latest run.
    sizes: Option<Arc<Sizes>>,
    /// Parameters and constants that are outputs themselves.
    constants: HashMap<BufferId, HostTensor>,
    /// Keeps what is measured.
    tunings: Option<TuningStore>,
    /// With [`Kernel::Auto`] on a device: what goes on elsewhere if that is lost.
    backup: Option<Arc<Backup>>,
}

/// What a session runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was asked for.
    pub kernel: Kernel,
    /// Name of the adapter; `None` if all steps run on the CPU.
    pub adapter: Option<String>,
    /// Steps that run on the adapter.
    pub gpu_steps: usize,
    /// Steps that run on the CPU.
    pub cpu_steps: usize,
    /// Steps on the adapter with tunings that were measured.
    pub tuned_steps: usize,
    /// Bytes of device memory held now: parameters, and tensors of the largest run so far.
    pub device_bytes: u64,
    /// Bytes of host memory held now for steps on the CPU: parameters, and tensors of the largest run so far.
    pub host_bytes: u64,
}

impl Session {
    /// Where the steps run.
    pub fn report(&self) -> Report {
        let count = |site| self.placement.segments.iter().filter(|s| s.site == site).map(|s| s.steps.len()).sum();
        Report {
            kernel: self.kernel,
            adapter: self.gpu.as_ref().map(|side| side.gpu().name()),
            gpu_steps: count(Site::Gpu),
            cpu_steps: count(Site::Cpu),
            tuned_steps: self.gpu.as_ref().map_or(0, |side| side.tunings.measured()),
            device_bytes: self.gpu.as_ref().map_or(0, GpuSide::bytes),
            host_bytes: self.cpu.bytes(),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Frees all memory except parameters and constants. The next run allocates anew.
    pub fn trim(&mut self) {
        self.cpu.trim();
        if let Some(side) = &mut self.gpu {
            side.trim();
        }
    }

    /// Runs the plan. Natively the future does not block on the device: it is polled again at once, or sleeps where
    /// [`SessionOptions::workers`] wait. Steps on the CPU run where it is polled: an executor's thread that is not to be blocked
    /// by them hands the session to another, with [`Session::run`].
    ///
    /// With [`Kernel::Auto`] a run whose device is lost goes on on a device that is opened anew, or on the CPU if the device
    /// was the app's or there is no other. Tensors on the lost device are gone: a run that reads one is an error, and the next
    /// one goes on. For this the session keeps parameters on the host as well.
    ///
    /// # Errors
    /// [`RunError`] names the input that does not fit its declaration, the step that failed, or what the
    /// device reported. The session stays usable unless the device is lost with another kernel than [`Kernel::Auto`], and keeps
    /// its memory unless the device or the host ran out of it.
    pub async fn run_async(&mut self, inputs: &Inputs) -> Result<Outputs, RunError> {
        self.run_recorded(inputs, &mut Recorder::default()).await
    }

    /// [`Session::run_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::run_async`].
    pub fn run(&mut self, inputs: &Inputs) -> Result<Outputs, RunError> {
        block_on(self.run_async(inputs))
    }

    /// [`Session::run_async`] with what took how long. Results on the device are complete when it returns.
    ///
    /// ```
    /// use rewire_graph_rewrite::plan::Plan;
    /// use rewire_runtime::{Detail, Inputs, Kernel, Session, SessionOptions};
    /// let options = SessionOptions { kernel: Kernel::Cpu, ..SessionOptions::default() };
    /// let mut session = Session::load(Plan::default(), |_| None, options)?;
    /// let (_, profile) = session.run_timed(&Inputs::new(), Detail::Steps)?;
    /// assert_eq!(profile.gpu, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::run_async`].
    pub async fn run_timed_async(&mut self, inputs: &Inputs, detail: Detail) -> Result<(Outputs, Profile), RunError> {
        let mut recorder = Recorder::new(detail);
        let outputs = self.run_recorded(inputs, &mut recorder).await?;
        Ok((outputs, recorder.finish()))
    }

    /// [`Session::run_timed_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::run_async`].
    pub fn run_timed(&mut self, inputs: &Inputs, detail: Detail) -> Result<(Outputs, Profile), RunError> {
        block_on(self.run_timed_async(inputs, detail))
    }

    /// What every step moves and computes in a run with these inputs.
    ///
    /// # Errors
    /// As [`Session::run_async`] for inputs that do not fit.
    pub fn counts(&self, inputs: &Inputs) -> Result<Vec<Count>, RunError> {
        let sizes = Sizes::new(&self.plan, &self.inputs, &Declared::find(&self.plan, &self.inputs, inputs)?)?;
        let mut counter = Counter::default();
        let counts = self.plan.steps.iter();
        Ok(counts.map(|step| counter.count(&step.kernel, cost::Sizes::of_run(step, &sizes.values))).collect())
    }

    async fn run_recorded(&mut self, inputs: &Inputs, recorder: &mut Recorder) -> Result<Outputs, RunError> {
        let mut result = self.execute(inputs, recorder).await;
        if let Err(RunError::Gpu(lost @ GpuError::Lost { .. })) = &result
            && self.backup.is_some()
        {
            self.recover(lost.clone()).await?;
            if outlives(inputs) {
                result = self.execute(inputs, recorder).await;
            }
        }
        self.cpu.release();
        self.gpu.iter().for_each(GpuSide::store);
        result
    }

    /// Brings a tensor to the session's device, where runs can read it as an input.
    ///
    /// # Errors
    /// [`RunError::Gpu`] where there is no room, [`RunError::InputPlace`] if the session has no device.
    pub async fn upload_async(&self, tensor: &HostTensor) -> Result<DeviceTensor, RunError> {
        match &self.gpu {
            Some(side) => Ok(side.keep(tensor).await?),
            None => Err(no_device("a device tensor")),
        }
    }

    /// [`Session::upload_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::upload_async`].
    pub fn upload(&self, tensor: &HostTensor) -> Result<DeviceTensor, RunError> {
        block_on(self.upload_async(tensor))
    }

    /// Brings a tensor of the session's device to the host. Its buffer needs `COPY_SRC` usage.
    ///
    /// # Errors
    /// [`RunError::Gpu`] where the copy fails, [`RunError::InputPlace`] if the session has no device.
    pub async fn read_async(&self, tensor: &DeviceTensor) -> Result<HostTensor, RunError> {
        match &self.gpu {
            Some(side) => Ok(side.read(tensor).await?),
            None => Err(no_device("a device tensor")),
        }
    }

    async fn execute(&mut self, inputs: &Inputs, recorder: &mut Recorder) -> Result<Outputs, RunError> {
        let begun = recorder.now();
        let wanted = Wanted::new(&self.plan, inputs)?;
        if self.gpu.is_none() {
            self.check_places(inputs)?;
        }
        let sizes = self.sizes_of(inputs)?;
        recorder.host("sizes", begun);
        if let Some(side) = &mut self.gpu {
            let begun = recorder.now();
            side.prepare(&self.plan, &self.placement, &sizes, inputs, &wanted).await?;
            recorder.host("prepare", begun);
        }
        let mut results = Results::default();
        let placement = self.placement.clone();
        for segment in &placement.segments {
            match segment.site {
                Site::Cpu => self.run_on_cpu(segment, &sizes, inputs, &mut results, recorder).await?,
                Site::Gpu => self.run_on_gpu(segment, &sizes, inputs, &wanted, &mut results, recorder).await?,
            }
        }
        let mut values = Vec::with_capacity(self.plan.outputs.len());
        for output in &self.plan.outputs {
            let value = self.output(output, &sizes, inputs, &results).await?;
            values.push((output.name.clone(), value));
        }
        Ok(Outputs::new(values))
    }

    /// The sizes of a run: those of the latest one, where they are the same.
    fn sizes_of(&mut self, inputs: &Inputs) -> Result<Arc<Sizes>, RunError> {
        let given = Declared::find(&self.plan, &self.inputs, inputs)?;
        let sizes = match self.sizes.take().filter(|latest| latest.fit(&given)) {
            Some(latest) => latest,
            None => {
                let sizes = Sizes::new(&self.plan, &self.inputs, &given)?;
                self.cpu.check_room(&self.plan, &sizes)?;
                Arc::new(sizes)
            }
        };
        self.sizes = Some(sizes.clone());
        if !self.clamp_ids {
            self.plan.shapes.check_ids(&sizes.values.symbols, |name| match inputs.get(name) {
                Some(Value::Host(tensor)) => Some(tensor),
                _ => None,
            })?;
        }
        Ok(sizes)
    }

    fn check_places(&self, inputs: &Inputs) -> Result<(), RunError> {
        for buffer in &self.plan.buffers {
            if let Source::Input(name) = &buffer.source
                && let Some(Value::Device(_)) = inputs.get(name)
            {
                return Err(no_device(name));
            }
        }
        match inputs.on_device().first() {
            Some(name) => Err(no_device(name)),
            None => Ok(()),
        }
    }

    async fn run_on_cpu(
        &mut self,
        segment: &Segment,
        sizes: &Sizes,
        inputs: &Inputs,
        results: &mut Results,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        let begun = recorder.now();
        for &id in &segment.fetches {
            let read;
            let tensor = match (input(&self.plan, id, inputs), &self.gpu) {
                (Some(Value::Host(tensor)), _) => tensor,
                (Some(Value::Device(tensor)), Some(side)) => {
                    read = side.read(tensor).await?;
                    &read
                }
                _ => continue,
            };
            self.cpu.put(id, tensor).map_err(|error| cpu_failure(segment, &self.plan, &error))?;
        }
        recorder.host("fetch", begun);
        self.cpu.run(&self.plan, segment, sizes, recorder)?;
        let begun = recorder.now();
        for &id in &segment.results {
            let tensor = self.cpu.get(id).map_err(|error| cpu_failure(segment, &self.plan, &error))?;
            results.host.extend(tensor.map(|tensor| (id, tensor)));
        }
        recorder.host("collect", begun);
        Ok(())
    }

    async fn run_on_gpu(
        &mut self,
        segment: &Segment,
        sizes: &Sizes,
        inputs: &Inputs,
        wanted: &Wanted,
        results: &mut Results,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        let Some(side) = &mut self.gpu else { return Err(no_device("a device tensor")) };
        let mut fetched = Vec::with_capacity(segment.fetches.len());
        for &id in &segment.fetches {
            let tensor = match input(&self.plan, id, inputs) {
                Some(Value::Host(tensor)) => Some(tensor.clone()),
                Some(Value::Device(_)) => None,
                None => self.cpu.get(id).map_err(|error| cpu_failure(segment, &self.plan, &error))?,
            };
            fetched.extend(tensor.map(|tensor| (id, tensor)));
        }
        let values = side.run(&self.plan, segment, sizes, &fetched, wanted, recorder).await;
        for (id, value) in values.inspect_err(|_| side.trim())? {
            if let (Value::Host(tensor), true) = (&value, segment.downloads.contains(&id)) {
                self.cpu.put(id, tensor).map_err(|error| cpu_failure(segment, &self.plan, &error))?;
            }
            match value {
                Value::Host(tensor) if segment.results.contains(&id) => results.host.insert(id, tensor).map(drop),
                Value::Device(tensor) => results.device.insert(id, tensor).map(drop),
                Value::Host(_) => None,
            };
        }
        Ok(())
    }

    async fn output(
        &self,
        output: &PlanOutput,
        sizes: &Sizes,
        inputs: &Inputs,
        results: &Results,
    ) -> Result<Value, RunError> {
        let id = match output.value {
            Binding::Host(slot) => return host_value(output, sizes, sizes.slot(slot)).map(Value::Host),
            Binding::Buffer(id) => id,
        };
        let kept = inputs.on_device().contains(&output.name);
        if let (true, Some(tensor)) = (kept, results.device.get(&id)) {
            return Ok(Value::Device(tensor.clone()));
        }
        let host = results.host.get(&id).or_else(|| self.constants.get(&id)).cloned().map(Value::Host);
        match (host.or_else(|| input(&self.plan, id, inputs).cloned()), &self.gpu) {
            (Some(Value::Host(tensor)), Some(side)) if kept => Ok(Value::Device(side.keep(&tensor).await?)),
            (Some(value), _) => Ok(value),
            (None, _) => Err(RunError::UnknownName { name: output.name.clone(), known: "no value for it".into() }),
        }
    }
}

/// What a run computed so far.
#[derive(Default)]
struct Results {
    host: HashMap<BufferId, HostTensor>,
    device: HashMap<BufferId, DeviceTensor>,
}

/// The value of an input tensor.
fn input<'a>(plan: &Plan, id: BufferId, inputs: &'a Inputs) -> Option<&'a Value> {
    match &plan.buffer(id)?.source {
        Source::Input(name) => inputs.get(name),
        _ => None,
    }
}

fn host_value(output: &PlanOutput, sizes: &Sizes, values: &[i64]) -> Result<HostTensor, RunError> {
    let shape = output.shape.iter().map(|dim| sizes.dim(dim).map(|n| n as usize)).collect::<Result<_, _>>()?;
    HostTensor::lengths(values)
        .reshape(shape)
        .map_err(|error| RunError::Size { what: format!("output `{}`", output.name), size: error.to_string() })
}

fn no_device(name: &str) -> RunError {
    RunError::InputPlace { name: name.to_owned(), reason: "the session runs on the CPU, without a device".into() }
}

fn cpu_failure(segment: &Segment, plan: &Plan, error: &crate::cpu::CpuError) -> RunError {
    let step = plan.steps.get(segment.steps.start);
    RunError::Cpu {
        step: segment.steps.start,
        name: step.map(|step| step.name.clone()).unwrap_or_default(),
        path: step.map(|step| step.path.clone()).unwrap_or_default(),
        reason: error.to_string(),
    }
}
