//! Runs of a model for one caller: the memory of their tensors, and launch parameters.

mod control;
mod cpu;
mod encode;
mod execute;
mod gpu;
mod io;
mod profile;
mod room;
mod set_rows;
mod sizes;
mod spill;
mod state_rows;
mod states;
mod tune;

#[cfg(test)]
pub(crate) mod tests;

pub use io::{DeviceTensor, Inputs, Outputs, RunValue};
pub use profile::{Detail, Lane, Profile, Span};
pub use spill::SpilledRows;
pub use tune::{Refinement, Tuned};

pub(crate) use control::ControlLayout;
pub(crate) use cpu::CpuSide;
pub(crate) use sizes::{Declared, Shapes, Sizes};

use crate::boxed::BoxedFuture;
use crate::device::blocks;
use crate::memory::Layout;
use crate::model::{BoundModel, Model, Report};
use crate::{Gpu, GpuError, RunError, Workers, block_on};
use gpu::GpuSide;
use profile::Recorder;
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::cost::{self, Count, Counter};
use rewire_graph_rewrite::plan::{Plan, ShapeValues};
use states::States;
use std::any::Any;
use std::sync::Arc;

/// Runs a model for one caller at a time, at any batch size, and holds the memory of its tensors.
///
/// Created by [`Model::session`]. Kernels and parameters belong to the model and are shared by all its sessions; any
/// number of them run at the same time. Runs are deterministic: equal inputs give equal bits on the same device.
#[derive(Debug)]
pub struct Session {
    model: Model,
    /// The sites of the latest run.
    sites: Arc<BoundModel>,
    gpu: Option<GpuSide>,
    cpu: CpuSide,
    /// The sizes of the latest run.
    sizes: Option<Arc<Sizes>>,
    states: States,
    /// The update counter of the parameters that runs keep, if [`Session::hold`] was called.
    held: Option<u64>,
}

impl Session {
    pub(crate) fn new(model: Model) -> Self {
        let sites = model.sites();
        let (gpu, cpu) = (sites.gpu.clone().map(GpuSide::new), CpuSide::new(sites.cpu.clone()));
        Self { model, sites, gpu, cpu, sizes: None, states: States::default(), held: None }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The devices that run the steps, with the memory of the session, without parameters, which belong to the model.
    pub fn report(&self) -> Report {
        let model = self.sites.report(self.model.options().kernel);
        Report {
            device_bytes: model.device_bytes + self.gpu.as_ref().map_or(0, GpuSide::bytes),
            host_bytes: model.host_bytes + self.cpu.bytes(),
            ..model
        }
    }

    /// The device of the latest run; `None` if all steps run on the CPU.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref().map(GpuSide::gpu)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.model.plan()
    }

    /// The number of calls of [`Model::update`] before the latest run. If it is the same for two runs, they used the
    /// same parameters.
    pub fn updates(&self) -> u64 {
        self.sites.updates
    }

    /// Adopts the model's parameters, which all runs until [`Session::release`] read, whatever [`Model::update`]
    /// replaces meanwhile. If the device is lost and the parameters on it were replaced, one run fails with
    /// [`RunError::Replaced`], and later ones follow updates again.
    ///
    /// ```
    /// # use rewire_graph::{DType, HostTensor, Scope};
    /// # use rewire_graph_rewrite::{lower, optimize};
    /// # use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};
    /// # let scope = Scope::new();
    /// # let y = scope.input("x", DType::F32, [1]) * scope.parameter("scale", DType::F32, [1]);
    /// # let plan = lower(&optimize(scope.finish(&[("y", y)])?)?.0)?;
    /// # let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    /// # let number = |value: f32| HostTensor::f32([1], &[value]);
    /// let model = Model::load(plan, [("scale", number(1.0)?)], options)?;
    /// let (mut session, x) = (model.session(), Inputs::new().with("x", number(3.0)?));
    /// session.hold();
    /// model.update([("scale", number(2.0)?)])?;
    /// assert_eq!(session.run(&x)?.get("y").map(HostTensor::to_f32), Some(vec![3.0]));
    /// session.release();
    /// assert_eq!(session.run(&x)?.get("y").map(HostTensor::to_f32), Some(vec![6.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold(&mut self) {
        self.held = None;
        self.follow();
        self.held = Some(self.sites.updates);
    }

    /// The [attachment](Model::update_attached_async) of the parameters that [`Session::hold`] adopted, or of the
    /// parameters of the latest run; `None` if there is none of this type.
    pub fn attachment<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.sites.attachment.clone()?.downcast().ok()
    }

    /// Lets runs follow updates of the model again.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// The results of the shape program for a run, from which the sizes of tensors follow.
    ///
    /// # Errors
    /// [`RunError`] names the input that violates its declaration.
    pub fn shape_values(&self, inputs: &Inputs) -> Result<ShapeValues, RunError> {
        let (plan, declared) = (self.plan(), self.model.inputs());
        let (bound, states) = (Declared::find(plan, declared, inputs)?, self.states.shapes(plan));
        match self.sizes.as_ref().filter(|latest| latest.fit(&bound, &states)) {
            Some(latest) => Ok(latest.values.clone()),
            None => Ok(Sizes::new(plan, (declared, self.model.size_names()), &bound, &states, None)?.values),
        }
    }

    /// Frees all memory except parameters and constants, including memory that the model's kernels keep for all
    /// sessions ([`Model::trim`]). The next run allocates it again.
    pub fn trim(&mut self) {
        self.cpu.trim();
        if let Some(side) = &mut self.gpu {
            side.trim();
        }
    }

    /// Runs the plan. With [`crate::ModelOptions::workers`] a worker runs it, and the future is pending meanwhile. If
    /// the future is dropped, states keep their values (states on the CPU whose rows a run sets in place are lost), and
    /// the next run allocates its memory again. Without workers, steps on the CPU run on the polling thread; the future
    /// is pending while it waits for the device.
    ///
    /// If all results stay on the device, a run returns when its work is submitted. Up to three such runs are in flight
    /// before the next one waits for the first of them. Errors that the device reports later are returned by a later
    /// run, or on reading.
    ///
    /// If the device is lost during a run, the run continues on a reopened device, unless the app opened it, or on the
    /// CPU with [`Kernel::Auto`](crate::Kernel::Auto). Tensors on the lost device are gone: a run that reads one fails,
    /// and later runs continue. For this the model keeps parameters on the host as well, sharing the given tensors.
    ///
    /// # Errors
    /// [`RunError`] names the input that violates its declaration, the step that failed, or the error of the device.
    /// The session stays usable, unless the device is lost with another kernel than [`crate::Kernel::Auto`]. It keeps
    /// its memory, unless the device or the host ran out of it.
    pub async fn run_async(&mut self, inputs: &Inputs) -> Result<Outputs, RunError> {
        let Some(workers) = self.workers() else { return self.run_recorded(inputs, &mut Recorder::default()).await };
        self.lent(workers, inputs, |session, inputs| session.run(inputs)).await
    }

    /// [`Session::run_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::run_async`].
    pub fn run(&mut self, inputs: &Inputs) -> Result<Outputs, RunError> {
        block_on(self.run_async(inputs))
    }

    /// [`Session::run_async`] with a profile. Results on the device are complete when it returns.
    ///
    /// ```
    /// use rewire_graph_rewrite::plan::Plan;
    /// use rewire_runtime::{Detail, Inputs, Kernel, Model, ModelOptions};
    /// let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    /// let mut session = Model::load(Plan::default(), (), options)?.session();
    /// let (_, profile) = session.run_timed(&Inputs::new(), Detail::Steps)?;
    /// assert_eq!(profile.gpu, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::run_async`].
    pub async fn run_timed_async(&mut self, inputs: &Inputs, detail: Detail) -> Result<(Outputs, Profile), RunError> {
        if let Some(workers) = self.workers() {
            return self.lent(workers, inputs, move |session, inputs| session.run_timed(inputs, detail)).await;
        }
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

    /// Waits until the device has finished all runs in flight. With some drivers, submitting more work would block the
    /// thread for as long. Within [`block_on`] it returns at once.
    ///
    /// # Errors
    /// [`RunError::Gpu`] with the error of the device.
    pub async fn sleep_async(&mut self) -> Result<(), RunError> {
        match &mut self.gpu {
            Some(side) if !blocks() => Ok(side.wait().await?),
            _ => Ok(()),
        }
    }

    /// True if the run may succeed when repeated after it failed with `error`: the model recovered from the loss of its
    /// device, and tensors on it must be given again; or memory was short and has been freed. Other errors are
    /// permanent.
    ///
    /// ```
    /// # use rewire_graph_rewrite::plan::Plan;
    /// # use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};
    /// # let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    /// # let mut session = Model::load(Plan::default(), (), options)?.session();
    /// let inputs = Inputs::new();
    /// let outputs = match session.run(&inputs) {
    ///     Err(error) if session.is_retryable(&error) => session.run(&inputs)?,
    ///     result => result?,
    /// };
    /// # assert_eq!(outputs.iter().count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_retryable(&self, error: &RunError) -> bool {
        match error {
            RunError::Gpu(GpuError::Lost { .. }) | RunError::StateLost { .. } => {
                let sites = self.model.sites();
                sites.gpu.as_ref().is_none_or(|site| site.kernels.gpu().alive().is_ok())
            }
            RunError::Gpu(GpuError::OutOfMemory { .. }) | RunError::HostMemory(_) | RunError::Replaced => true,
            _ => false,
        }
    }

    /// The memory traffic and operations of every step in a run with these inputs.
    ///
    /// # Errors
    /// As [`Session::run_async`] for invalid inputs.
    pub fn counts(&self, inputs: &Inputs) -> Result<Vec<Count>, RunError> {
        let (values, mut counter) = (self.shape_values(inputs)?, Counter::default());
        let counts = self.plan().steps.iter();
        Ok(counts.map(|step| counter.count(&step.computation, cost::Sizes::of_run(step, &values))).collect())
    }

    /// The workers that run the futures.
    fn workers(&self) -> Option<Workers> {
        self.model.options().workers.clone().filter(|_| !blocks())
    }

    /// Lends the session to a worker for a piece of blocking work.
    async fn lent<T: Send + 'static>(
        &mut self,
        workers: Workers,
        inputs: &Inputs,
        work: impl FnOnce(&mut Self, &Inputs) -> Result<T, RunError> + Send + 'static,
    ) -> Result<T, RunError> {
        let stand_in = Self { states: self.states.stand_in(), ..self.model.session() };
        let (mut session, inputs) = (std::mem::replace(self, stand_in), inputs.clone());
        let done = workers.run(move || (work(&mut session, &inputs), session)).await;
        let (result, session) = done?;
        *self = session;
        result
    }

    async fn run_recorded(&mut self, inputs: &Inputs, recorder: &mut Recorder) -> Result<Outputs, RunError> {
        let running = self.model.refiner().map(|refiner| refiner.run());
        self.follow();
        self.sites.resident.check_backing()?;
        let mut result = self.attempt(inputs, recorder).await;
        match self.recover(&result, inputs.outlive_a_device()).await {
            Ok(true) => result = self.attempt(inputs, recorder).await,
            Ok(false) => {}
            Err(error) => result = Err(error),
        }
        self.cpu.release();
        self.gpu.iter().for_each(GpuSide::store);
        if self.held.take_if(|held| *held != self.sites.updates).is_some() {
            return result.and(Err(RunError::Replaced));
        }
        match &mut result {
            Ok(outputs) => self.states.take(self.model.plan(), outputs),
            Err(RunError::Gpu(GpuError::Lost { .. })) => self.states.lose_device(),
            Err(_) => {}
        }
        drop(running);
        if result.is_ok() {
            self.refine_later(inputs);
        }
        result
    }

    /// Moves the model to another device if work failed because the device was lost. True if the work may be repeated,
    /// since none of its inputs was lost.
    async fn recover<T>(&mut self, result: &Result<T, RunError>, inputs_are_left: bool) -> Result<bool, RunError> {
        let Err(RunError::Gpu(lost @ GpuError::Lost { .. })) = result else { return Ok(false) };
        let may_go_on = inputs_are_left && self.states.outlive_a_device();
        self.model.recover(lost.clone(), self.sites.clone()).await?;
        if may_go_on {
            self.follow();
        }
        Ok(may_go_on)
    }

    /// A run on the session's current sites, with its states. Boxed, since every crate that awaits a future contains a
    /// copy of its code.
    fn attempt<'a>(
        &'a mut self,
        inputs: &'a Inputs,
        recorder: &'a mut Recorder,
    ) -> BoxedFuture<'a, Result<Outputs, RunError>> {
        let threads = self.model.threads();
        Box::pin(async move { threads.within(self.attempt_here(inputs, recorder)).await })
    }

    /// [`Session::attempt`] on the installed threads.
    async fn attempt_here(&mut self, inputs: &Inputs, recorder: &mut Recorder) -> Result<Outputs, RunError> {
        let with_states;
        let inputs = match self.plan().states().is_empty() {
            true => inputs,
            false => {
                with_states = self.with_states(inputs).await?;
                &with_states
            }
        };
        self.states.lend(self.model.plan(), &mut self.cpu);
        let result = self.execute(inputs, recorder).await;
        self.states.take_back(self.model.plan(), &mut self.cpu);
        result
    }

    /// Adopts the model's current sites.
    fn follow(&mut self) {
        let sites = self.model.sites();
        let keeps = self.held.is_some() && Arc::ptr_eq(&sites.placement, &self.sites.placement);
        if keeps || Arc::ptr_eq(&sites, &self.sites) {
            return;
        }
        if Arc::ptr_eq(&sites.placement, &self.sites.placement) {
            self.gpu.iter_mut().zip(&sites.gpu).for_each(|(side, site)| side.set_weights(site));
            self.cpu.set_weights(&sites.cpu.weights);
            self.sites = sites;
            return;
        }
        self.gpu = sites.gpu.clone().map(GpuSide::new);
        self.cpu = CpuSide::new(sites.cpu.clone());
        (self.sites, self.sizes) = (sites, None);
        self.states.lose_device();
    }

    /// Uploads a tensor to the model's device, where runs can read it as an input.
    ///
    /// # Errors
    /// [`RunError::Gpu`] if memory cannot be allocated, [`RunError::InputPlace`] if the session has no device.
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

    /// Downloads a tensor of the session's device. Its buffer requires `COPY_SRC` usage.
    ///
    /// # Errors
    /// [`RunError::Gpu`] if the copy fails, [`RunError::InputPlace`] if the session has no device.
    pub async fn read_async(&self, tensor: &DeviceTensor) -> Result<HostTensor, RunError> {
        match &self.gpu {
            Some(side) => Ok(side.read(tensor).await?),
            None => Err(no_device("a device tensor")),
        }
    }

    /// [`Session::read_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::read_async`].
    pub fn read(&self, tensor: &DeviceTensor) -> Result<HostTensor, RunError> {
        block_on(self.read_async(tensor))
    }

    /// Passes the elements of the outputs that the latest run [sent](Inputs::send) to `take`, with their names, as the
    /// device computes them.
    ///
    /// # Errors
    /// As [`Session::read_async`].
    pub fn read_each(&mut self, take: impl FnMut(&str, &[u8])) -> Result<(), RunError> {
        match &mut self.gpu {
            Some(side) => Ok(block_on(side.read_each(take))?),
            None => Err(no_device("a device tensor")),
        }
    }

    /// Allocates a tensor of zeros on the session's device.
    ///
    /// # Errors
    /// As [`Session::upload_async`].
    pub fn zeros(&self, dtype: DType, shape: &[usize]) -> Result<DeviceTensor, RunError> {
        match &self.gpu {
            Some(side) => Ok(block_on(side.zeros(Layout::new(dtype, shape.to_vec())))?),
            None => Err(no_device("a device tensor")),
        }
    }

    /// Replaces rows of a tensor on the session's device, after the runs that are submitted. Each part replaces the rows
    /// from a first one. Parts of a vector begin and end at multiples of four elements, or end with the vector.
    ///
    /// # Errors
    /// [`RunError::InputPlace`] if the session has no device, or a part does not fit; [`RunError::Gpu`] if it cannot be
    /// copied.
    pub fn overwrite(&self, tensor: &DeviceTensor, parts: &[(usize, RunValue)]) -> Result<(), RunError> {
        let Some(side) = &self.gpu else { return Err(no_device("a device tensor")) };
        let place = |(first, part): &(usize, RunValue)| {
            let end = part.shape().first().and_then(|own| first.checked_add(*own));
            let fits = match (tensor.shape.as_slice(), part.shape(), end) {
                // The device copies four elements at once.
                ([all], [_], Some(end)) => {
                    end <= *all && first.is_multiple_of(4) && (end == *all || end.is_multiple_of(4))
                }
                ([all, inner @ ..], [_, other @ ..], Some(end)) => end <= *all && inner == other,
                _ => false,
            };
            if !fits || tensor.dtype != part.dtype() {
                let (all, own) = ((tensor.dtype, &tensor.shape), (part.dtype(), part.shape()));
                let reason = format!("{own:?} at row {first} is not a part of {all:?}");
                return Err(RunError::InputPlace { name: "a device tensor".to_owned(), reason });
            }
            let before = tensor.shape.iter().enumerate().map(|(n, extent)| if n == 0 { *first } else { *extent });
            Ok((Layout::new(tensor.dtype, before.collect()).bytes(), part.clone()))
        };
        let parts = parts.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        Ok(block_on(side.write_parts(tensor, &parts))?)
    }

    /// The sizes of a run; cached from the latest run if they are the same.
    fn sizes_of(&mut self, inputs: &Inputs, states: &Shapes) -> Result<Arc<Sizes>, RunError> {
        let model = self.model.clone();
        let (plan, declared) = (model.plan(), model.inputs());
        let bound = Declared::find(plan, declared, inputs)?;
        let sizes = match self.sizes.take() {
            Some(latest) if latest.fit(&bound, states) => latest,
            latest => {
                let sizes = Sizes::new(plan, (declared, model.size_names()), &bound, states, latest)?;
                self.cpu.check_room(plan, &sizes)?;
                Arc::new(sizes)
            }
        };
        self.sizes = Some(sizes.clone());
        if !model.options().clamp_ids {
            plan.shapes.check_ids(&sizes.values.symbols, |name| match inputs.get(name) {
                Some(RunValue::Host(tensor)) => Some(tensor),
                _ => None,
            })?;
        }
        Ok(sizes)
    }
}

fn no_device(name: &str) -> RunError {
    RunError::InputPlace { name: name.to_owned(), reason: "the session runs on the CPU, without a device".into() }
}
