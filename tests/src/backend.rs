//! Runs graphs on the interpreter, the CPU and a GPU adapter.

use crate::compare::{Results, Tolerance};
use crate::golden::is_wanted_whole;
use rewire_graph::{DType, Graph, HostTensor, interpret};
use rewire_graph_rewrite::device::{SubgroupSizes, Target};
use rewire_graph_rewrite::{lower, optimize, plan::Plan};
use rewire_runtime::{Gpu, Inputs, Kernel, Model, ModelOptions, RunValue, Session};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, Once, PoisonError};

/// Tensors by name.
pub type Tensors = HashMap<String, HostTensor>;

/// The oracle.
pub fn oracle(graph: &Graph, inputs: &Tensors, parameters: &Tensors) -> Result<Results, String> {
    interpret(graph, inputs, parameters).map_err(|error| format!("interpreter: {error}"))
}

/// The plan of a graph.
pub fn plan(graph: &Graph) -> Result<Plan, String> {
    let (fused, _) = optimize(graph.clone()).map_err(|error| format!("optimize: {error}"))?;
    lower(&fused).map_err(|error| format!("lower: {error}"))
}

/// Devices, each with true if a thread uses it.
static GPUS: Mutex<Vec<(Option<Gpu>, bool)>> = Mutex::new(vec![]);

/// The position of a thread's device in that list. Devices outlive threads, because they cannot be dropped while a thread
/// ends.
struct Lease(usize);

thread_local! {
    static LEASE: Lease = Lease::take();
}

// SAFETY: the C standard declares `atexit` so, and its handler may be registered by any thread.
unsafe extern "C" {
    safe fn atexit(handler: extern "C" fn()) -> c_int;
}

/// The exit handler, registered after the driver's own and called before it.
static CLOSES: Once = Once::new();

/// Closes the devices: NVIDIA's driver unloads itself at exit while the threads of open devices still execute it. A new
/// thread drops them, because the thread-local values of the exiting one are gone.
extern "C" fn close() {
    let closing = std::thread::spawn(|| GPUS.lock().unwrap_or_else(PoisonError::into_inner).clear());
    if closing.join().is_err() {
        eprintln!("the devices of the tests could not be closed");
    }
}

impl Lease {
    fn take() -> Self {
        let mut gpus = GPUS.lock().unwrap();
        let place = gpus.iter().position(|(_, taken)| !taken).unwrap_or(gpus.len());
        if place == gpus.len() {
            let gpu = Gpu::open(std::env::var("REWIRE_TEST_ADAPTER").ok().as_deref());
            let gpu = gpu.and_then(|gpu| match std::env::var("REWIRE_TEST_MATRICES") {
                Ok(tier) => gpu.with_matrix_tier(tier.parse().unwrap()),
                Err(_) => Ok(gpu),
            });
            let gpu = gpu.map(|gpu| match std::env::var("REWIRE_TEST_SUBGROUPS") {
                Ok(sizes) => gpu.restricted(&Target { subgroup_size: range(&sizes), ..gpu.target().clone() }),
                Err(_) => gpu,
            });
            gpus.push((gpu.inspect_err(|error| eprintln!("without a GPU: {error}")).ok(), false));
            CLOSES.call_once(|| assert_eq!(atexit(close), 0, "the system has no room for another exit handler"));
        }
        gpus[place].1 = true;
        Self(place)
    }
}

/// Parses the smallest and the largest size.
fn range(sizes: &str) -> SubgroupSizes {
    let (min, max) = sizes.split_once('-').expect("a range such as 4-64");
    SubgroupSizes { min: min.parse().unwrap(), max: max.parse().unwrap() }
}

impl Drop for Lease {
    fn drop(&mut self) {
        GPUS.lock().unwrap()[self.0].1 = false;
    }
}

/// A device of the adapter that the tests use; `None` without an adapter. Threads do not share devices, because software
/// drivers compile on one thread of each.
///
/// The environment variable `REWIRE_TEST_ADAPTER` selects the adapter, `REWIRE_TEST_MATRICES` the tier of its matrices, and
/// `REWIRE_TEST_SUBGROUPS`, such as `4-64`, the sizes of subgroups that kernels allow for besides those of the adapter.
pub fn gpu() -> Option<Gpu> {
    LEASE.with(|lease| GPUS.lock().unwrap()[lease.0].0.clone())
}

/// Options of a session on a device.
pub fn on(gpu: Gpu) -> ModelOptions {
    ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), checked: true, ..ModelOptions::default() }
}

/// The tolerance of a kernel against the oracle, for a graph that reads tensors of `dtypes`.
pub fn tolerance(kernel: Kernel, dtypes: impl IntoIterator<Item = DType>) -> Tolerance {
    let has_matrices = || gpu().is_some_and(|gpu| gpu.target().matrix != 0);
    let rounds = kernel != Kernel::Cpu && dtypes.into_iter().any(|dtype| dtype == DType::F16) && has_matrices();
    if rounds { Tolerance::MATRICES } else { Tolerance::SINGLE }
}

/// Options of a session for a kernel; `None` if it needs an adapter and there is none.
pub fn options(kernel: Kernel) -> Option<ModelOptions> {
    let gpu = match kernel {
        Kernel::Cpu => None,
        Kernel::Auto | Kernel::Wgpu => Some(gpu()?),
    };
    Some(ModelOptions { kernel, gpu, checked: true, ..ModelOptions::default() })
}

/// The kernels for the case with a number: always the CPU, and an adapter for one in four, or for all if `REWIRE_TEST_ALL` is
/// set, because each case has separate shaders.
pub fn kernels(number: usize) -> &'static [Kernel] {
    let is_compiled = is_wanted_whole() || number.is_multiple_of(4);
    if is_compiled { &[Kernel::Cpu, Kernel::Wgpu] } else { &[Kernel::Cpu] }
}

/// A session; `None` if it needs an adapter and there is none.
pub fn session(graph: &Graph, parameters: &Tensors, kernel: Kernel) -> Result<Option<Session>, String> {
    options(kernel).map(|options| load(graph, parameters, options)).transpose()
}

/// A session with given options.
pub fn load(graph: &Graph, parameters: &Tensors, options: ModelOptions) -> Result<Session, String> {
    load_plan(plan(graph)?, parameters, options)
}

/// A session of a plan.
pub fn load_plan(plan: Plan, parameters: &Tensors, options: ModelOptions) -> Result<Session, String> {
    let kernel = options.kernel;
    let model = Model::load(plan, parameters, options).map_err(|error| format!("{kernel}: load: {error}"))?;
    Ok(model.session())
}

/// The outputs of one run on the host.
pub fn run(session: &mut Session, inputs: &Tensors) -> Result<Results, String> {
    let inputs: Inputs = inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    let outputs = session.run(&inputs).map_err(|error| format!("run: {error}"))?;
    outputs
        .into_iter()
        .map(|(name, value)| match value {
            RunValue::Host(tensor) => Ok((name, tensor)),
            RunValue::Device(_) => Err(format!("output `{name}` stayed on the device")),
        })
        .collect()
}
