use crate::ceilings::Ceilings;
use crate::{BenchError, MOST_SECONDS, Program, PyTorch, Record, Workload, host};
use rewire::describe;
use rewire_graph::HostTensor;
use rewire_graph_rewrite::cost::{Count, HardwareModel};
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::{Binding, Plan};
use rewire_runtime::{
    Detail, Gpu, Inputs, Kernel, KernelRule, MatrixTier, Model, ModelOptions, Outputs, PipelineStore, Profile,
    RunError, RunValue, Session, Tables, TuningStore, wgpu,
};
use std::time::{Duration, Instant};

/// The device and duration of benchmarks.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The backend of the kernels.
    pub kernel: Kernel,
    /// Backends of some operators or modules, which override `kernel`.
    pub kernel_rules: Vec<KernelRule>,
    /// Part of the name, driver or backend of the adapter to use.
    pub adapter: Option<String>,
    /// f16 matmul tier of the adapter's kernels; the best available if `None`.
    pub matrices: Option<MatrixTier>,
    /// Duration of the timed runs of each workload in seconds, up to [`crate::MOST_SECONDS`].
    pub seconds: f64,
    /// Tuning of the kernel emitter.
    pub tuning: Tuning,
    /// Stored tunings, which are used if `tuning` is the default. [`Bench::tune`] stores its results there.
    pub tunings: Option<TuningStore>,
    /// A cache of compiled kernels that persists between processes.
    pub pipelines: Option<PipelineStore>,
    /// Placement of embedding tables.
    pub tables: Tables,
    /// Memory limit of all parameters in bytes; see [`ModelOptions::parameter_bytes`].
    pub parameter_bytes: Option<u64>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            kernel: Kernel::Auto,
            kernel_rules: vec![],
            adapter: None,
            matrices: None,
            seconds: 1.0,
            tuning: Tuning::default(),
            tunings: None,
            pipelines: None,
            tables: Tables::Auto,
            parameter_bytes: None,
        }
    }
}

/// A device that workloads are timed on. Its roofline is measured when it is first needed.
#[derive(Debug)]
pub struct Bench {
    gpu: Option<Gpu>,
    ceilings: Ceilings,
    pub(crate) seconds: f64,
    session: ModelOptions,
}

/// A profiled run, kernel by kernel, with data for predictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profiled {
    /// The measured times.
    pub profile: Profile,
    /// Bytes and operations of every step.
    pub counts: Vec<Count>,
    /// The roofline.
    pub machine: HardwareModel,
}

/// Time for warm-up as a share of the time for timed runs. Clock rates rise under load.
const WARM_UP: f64 = 0.25;
/// Time for timing kernels one by one, after the timed runs, as a share of the same time.
const KERNELS: f64 = 0.5;
/// Minimum and maximum number of timed runs.
const RUNS: (usize, usize) = (3, 100_000);

impl Bench {
    /// Opens the device.
    ///
    /// # Errors
    /// [`BenchError::Gpu`] if the requested adapter does not exist, [`BenchError::Seconds`] if the duration is too long.
    pub fn new(options: &BenchOptions) -> Result<Self, BenchError> {
        if !(0.0..=MOST_SECONDS).contains(&options.seconds) {
            return Err(BenchError::Seconds(options.seconds));
        }
        let wanted = KernelRule::device(options.kernel, &options.kernel_rules);
        let gpu = Gpu::for_kernel(wanted, options.adapter.as_deref())?;
        let gpu = Gpu::with_matrix_tier_if(gpu, options.matrices)?;
        let session = ModelOptions {
            kernel: if gpu.is_some() && options.kernel != Kernel::Cpu { Kernel::Wgpu } else { Kernel::Cpu },
            kernel_rules: options.kernel_rules.clone(),
            gpu: gpu.clone(),
            tuning: options.tuning,
            tunings: options.tunings.clone(),
            pipelines: options.pipelines.clone(),
            tables: options.tables,
            parameter_bytes: options.parameter_bytes,
            ..ModelOptions::default()
        };
        Ok(Self { gpu, ceilings: Ceilings::new(options.seconds), seconds: options.seconds, session })
    }

    /// The roofline. The first call measures it, which takes about a second; it is measured again if a workload exceeds it.
    ///
    /// # Errors
    /// [`BenchError::Gpu`] if the device fails.
    pub fn machine(&self) -> Result<HardwareModel, BenchError> {
        self.ceilings.first(self.gpu.as_ref())
    }

    /// Total time in seconds to measure a workload, in addition to loading it.
    pub fn seconds_each(&self) -> f64 {
        self.seconds * (WARM_UP + 1.0 + KERNELS)
    }

    /// Checks that [`Bench::tune`] can time kernels.
    ///
    /// # Errors
    /// [`BenchError::Run`] if kernels run on the CPU, or the device has no timestamps.
    pub fn check_tunes(&self) -> Result<(), BenchError> {
        let has_times = |gpu: &Gpu| gpu.device().features().contains(wgpu::Features::TIMESTAMP_QUERY);
        match self.gpu.as_ref().is_some_and(has_times) {
            true => Ok(()),
            false => Err(RunError::NoTimes { device: self.adapter() }.into()),
        }
    }

    /// The name of the adapter, or `cpu`.
    pub fn adapter(&self) -> String {
        self.gpu.as_ref().map_or_else(|| "cpu".to_owned(), Gpu::name)
    }

    /// Times a workload. Failures are reported in the record.
    pub fn run(&self, workload: &Workload) -> Record {
        let mut record = Record {
            op: workload.op.clone(),
            shape: workload.shape.clone(),
            dtype: workload.dtype.to_string(),
            kernel: self.session.kernel.to_string(),
            adapter: self.adapter(),
            host: host::name(),
            ..Record::default()
        };
        if let Err(error) = self.measure(workload, &mut record) {
            record.error = Some(describe(&error));
        }
        // A self-test before the first model may have disabled a tier.
        record.matrices = self.gpu.as_ref().map(|gpu| gpu.matrices().tier.to_string());
        record
    }

    /// The median time of a run in PyTorch in milliseconds, on the processor or, if kernels run on a GPU, on PyTorch's accelerator;
    /// `None` for a workload without a counterpart there.
    ///
    /// # Errors
    /// [`BenchError::PyTorch`] if PyTorch fails.
    pub fn run_pytorch(&self, workload: &Workload, pytorch: &mut PyTorch) -> Result<Option<f64>, BenchError> {
        pytorch.time(workload, if self.gpu.is_some() { "accelerator" } else { "cpu" }, self.seconds)
    }

    /// Profiles one run, kernel by kernel, after some warm-up runs.
    ///
    /// # Errors
    /// [`BenchError`] if the workload cannot be compiled, loaded or run.
    pub fn profile(&self, workload: &Workload) -> Result<Profiled, BenchError> {
        let mut case = self.load(workload)?;
        self.warm_up(&mut case)?;
        let counts = case.session.counts(&case.inputs)?;
        let (_, profile) = case.session.run_timed(&case.inputs, Detail::Steps)?;
        Ok(Profiled { profile, counts, machine: self.machine()? })
    }

    /// Loads a workload on the device.
    pub(crate) fn load(&self, workload: &Workload) -> Result<LoadedWorkload, BenchError> {
        LoadedWorkload::new(workload, self.session.clone())
    }

    /// Runs until the device has reached its clock rate.
    fn warm_up(&self, case: &mut LoadedWorkload) -> Result<(), BenchError> {
        repeat(self.seconds * WARM_UP, || {
            let begun = Instant::now();
            case.run()?;
            Ok(begun.elapsed())
        })?;
        Ok(())
    }

    fn measure(&self, workload: &Workload, record: &mut Record) -> Result<(), BenchError> {
        let machine = self.machine()?;
        let begun = Instant::now();
        let mut case = self.load(workload)?;
        record.load_ms = Some(milliseconds(begun.elapsed()));
        let counts = case.session.counts(&case.inputs)?;
        let total: Count = counts.iter().copied().sum();
        record.kernels = Some(counts.len());
        record.tuned = case.session.report().tuned_steps;
        record.bytes = Some(total.bytes());
        record.operations = Some(total.operations());
        self.warm_up(&mut case)?;
        let mut wall = repeat(self.seconds, || {
            let begun = Instant::now();
            let outputs = case.run()?;
            let elapsed = begun.elapsed();
            drop(outputs);
            Ok(elapsed)
        })?;
        wall.sort_unstable();
        record.runs = wall.len();
        record.wall_ms = at(&wall, 0.5);
        record.min_ms = at(&wall, 0.0);
        record.p95_ms = at(&wall, 0.95);
        record.peak_bytes = Some(case.bytes()?);
        let (mut gpu, mut cpu) = (vec![], vec![]);
        repeat(self.seconds * KERNELS, || {
            let begun = Instant::now();
            let (_, profile) = case.session.run_timed(&case.inputs, Detail::Passes)?;
            gpu.extend(profile.gpu);
            cpu.push(profile.cpu);
            Ok(begun.elapsed())
        })?;
        gpu.sort_unstable();
        cpu.sort_unstable();
        record.gpu_ms = at(&gpu, 0.5);
        record.kernel_ms = if self.gpu.is_some() { record.gpu_ms } else { at(&cpu, 0.5) };
        if let Some(time) = record.gpu_ms.or(record.wall_ms).filter(|time| *time > 0.0) {
            record.tflops = Some(total.operations() as f64 / time / 1e9);
            record.gbps = Some(total.bytes() as f64 / time / 1e6);
        }
        let gpu = self.gpu.as_ref();
        let bandwidth = || {
            let read = total.read.max(1);
            Ok::<f64, BenchError>((read + total.written) as f64 / self.ceilings.moving(gpu, read, total.written)?)
        };
        record.set_ceilings(&machine, bandwidth()?, &counts);
        if record.exceeds_ceilings() {
            let machine = self.ceilings.again(gpu)?;
            let bandwidth = || {
                let read = total.read.max(1);
                Ok::<f64, BenchError>((read + total.written) as f64 / self.ceilings.moving(gpu, read, total.written)?)
            };
            record.set_ceilings(&machine, bandwidth()?, &counts);
            record.ceilings_exceeded = record.exceeds_ceilings();
        }
        Ok(())
    }
}

/// A loaded workload with bound inputs.
pub(crate) struct LoadedWorkload {
    pub session: Session,
    pub inputs: Inputs,
    gpu: Option<Gpu>,
}

impl LoadedWorkload {
    fn new(workload: &Workload, options: ModelOptions) -> Result<Self, BenchError> {
        let plan = workload.plan()?;
        let gpu = options.gpu.clone();
        let inputs = workload.inputs.clone();
        let model = match &workload.program {
            Program::Graph(_) => Model::load(plan, &workload.parameters, options)?,
            Program::Package(package) => Model::load(plan, package.weights(), options)?,
        };
        let mut session = model.session();
        session.reserve_states(workload.state_rows)?;
        let inputs = place(&session, inputs, gpu.is_some())?;
        Ok(Self { session, inputs, gpu })
    }

    /// Runs once and waits for the results.
    fn run(&mut self) -> Result<Outputs, BenchError> {
        let outputs = self.session.run(&self.inputs)?;
        if let Some(gpu) = &self.gpu {
            gpu.wait()?;
        }
        Ok(outputs)
    }

    /// Memory use of a run in bytes.
    fn bytes(&mut self) -> Result<u64, BenchError> {
        let outputs = self.run()?;
        let report = self.session.report();
        let inputs = self.session.plan().buffers.iter().filter_map(|buffer| match &buffer.source {
            rewire_graph_rewrite::plan::Source::Input(name) => self.inputs.get(name),
            _ => None,
        });
        let size = |value: &RunValue| match value {
            RunValue::Device(tensor) => tensor.buffer().size(),
            RunValue::Host(tensor) if self.gpu.is_none() => tensor.bytes().len() as u64,
            RunValue::Host(_) => 0,
        };
        let bound: u64 = inputs.map(size).sum::<u64>() + outputs.iter().map(|(_, value)| size(value)).sum::<u64>();
        let held = match self.gpu {
            Some(_) => report.device_bytes,
            None => report.host_bytes + report.packed_bytes + report.scratch_bytes,
        };
        Ok(held + bound)
    }
}

/// Binds inputs. With `on_device`, they are uploaded and outputs stay on the device, except inputs that the host reads.
fn place(session: &Session, values: Vec<(String, HostTensor)>, on_device: bool) -> Result<Inputs, RunError> {
    let plan: &Plan = session.plan();
    let mut inputs = Inputs::new();
    for (name, value) in values {
        let host = plan.host_inputs.iter().any(|input| input.name == name);
        if on_device && !host {
            inputs.insert_device(name, session.upload(&value)?);
        } else {
            inputs.insert(name, value);
        }
    }
    if on_device {
        let outputs = plan.outputs.iter().filter(|output| matches!(output.value, Binding::Buffer(_)));
        outputs.for_each(|output| inputs.keep_on_device(output.name.clone()));
    }
    Ok(inputs)
}

/// Repeats a run for some seconds, and returns the times.
fn repeat(seconds: f64, mut run: impl FnMut() -> Result<Duration, BenchError>) -> Result<Vec<Duration>, BenchError> {
    let begun = Instant::now();
    let mut times = vec![];
    while times.len() < RUNS.0 || (begun.elapsed().as_secs_f64() < seconds && times.len() < RUNS.1) {
        times.push(run()?);
    }
    Ok(times)
}

/// The quantile `share` of sorted times, in milliseconds.
fn at(times: &[Duration], share: f64) -> Option<f64> {
    let position = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
    times.get(position).copied().map(milliseconds)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use std::error::Error;

    #[test]
    fn ceilings_that_work_exceeds_are_measured_again_or_the_record_is_marked() -> Result<(), Box<dyn Error>> {
        let options = BenchOptions { kernel: Kernel::Cpu, seconds: 0.0, ..BenchOptions::default() };
        let bench = Bench::new(&options)?;
        // Measurements can be this low if other programs use the machine.
        let starved = HardwareModel { bandwidth: 1.0, multiply_add: 1.0, matrix: None, launch: 1.0 };
        bench.ceilings.set(starved);
        let shape = Shape { m: 64, k: 64, n: 64, ..Shape::default() };
        let record = bench.run(&Workload::operator("addmm", &shape)?);
        assert_eq!(record.error, None);
        let machine = bench.machine()?;
        assert!(machine.bandwidth > 1e6 && machine.multiply_add > 1e6 && machine.launch < 1.0, "{machine:?}");
        assert!(record.ceiling_gbps > Some(1e-3), "{record:?}");
        let moving = |read, written| bench.ceilings.moving(None, read, written).unwrap();
        assert!(moving(1 << 26, 0) > moving(1 << 25, 0) && moving(1 << 25, 0) > moving(1 << 10, 1 << 10));
        assert!(moving(1 << 26, 1 << 27) > moving(1 << 26, 1 << 26));
        assert_eq!(record.ceiling_tflops, Some(machine.multiply_add / 1e12));
        assert_eq!(record.ceilings_exceeded, record.share() > Some(1.0));
        let marked = Record { ceilings_exceeded: true, ..record };
        assert_eq!(marked.share_in_words(), "over 100 %");
        Ok(())
    }
}
