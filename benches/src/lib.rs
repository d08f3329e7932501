//! Support for benchmarks: runs a graph on the CPU and on an adapter, with its tensors on that device.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod graphs;

use rewire::graph::{DType, Graph, HostTensor};
use rewire::prelude::{Inputs, Kernel, Model, ModelOptions, Session};
use rewire::runtime::wgpu;
use rewire::{Gpu, lower, optimize};
use rewire_measure::Noise;
use std::collections::HashMap;

/// The backend of a benchmark: an adapter, or all cores of the CPU.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The open adapter; `None` is the CPU.
    pub gpu: Option<Gpu>,
}

/// The CPU, and the best adapter if there is one, possibly a software driver.
pub fn backends() -> Vec<Backend> {
    let gpu = Gpu::open(None).ok().map(|gpu| Backend { gpu: Some(gpu) });
    std::iter::once(Backend { gpu: None }).chain(gpu).collect()
}

/// A device of the WebGPU baseline that computes nothing, so that a run only consists of the host's work.
pub fn idle_gpu() -> Gpu {
    let options = wgpu::NoopBackendOptions {
        enable: true,
        limits: Some(wgpu::Limits::default()),
        features: Some(wgpu::Features::empty()),
        ..Default::default()
    };
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::NOOP;
    descriptor.backend_options.noop = options;
    let adapter = wgpu::Instance::new(descriptor).request_adapter(&wgpu::RequestAdapterOptions::default());
    let adapter = pollster::block_on(adapter).unwrap();
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap();
    Gpu::from_device(device, queue)
}

/// True under `cargo bench`. Otherwise one pass over small shapes checks that benchmarks work.
pub fn measures() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// `full` under `cargo bench`, else `small`.
pub fn shape<T>(full: T, small: T) -> T {
    if measures() { full } else { small }
}

impl Backend {
    /// `cpu`, or the adapter's name.
    pub fn name(&self) -> String {
        self.gpu.as_ref().map_or_else(|| "cpu".to_owned(), Gpu::name)
    }

    /// The kernel to ask for.
    pub fn kernel(&self) -> Kernel {
        if self.gpu.is_some() { Kernel::Wgpu } else { Kernel::Cpu }
    }
}

/// A loaded graph. On an adapter, device tensors stay there between runs.
#[derive(Debug)]
pub struct BenchCase {
    session: Session,
    inputs: Inputs,
    gpu: Option<Gpu>,
}

impl BenchCase {
    /// Compiles a graph with noise as parameters. `host` values are read by the shape program.
    pub fn new(graph: &Graph, backend: &Backend, tensors: &[(&str, HostTensor)], host: &[(&str, HostTensor)]) -> Self {
        let mut noise = Noise::new(1);
        let specs = graph.parameters().into_iter();
        let parameters: HashMap<String, HostTensor> =
            specs.map(|spec| (spec.name, noise.floats(spec.dtype, &spec.shape).unwrap())).collect();
        let plan = lower(&optimize(graph.clone()).unwrap().0).unwrap();
        let options = ModelOptions { kernel: backend.kernel(), gpu: backend.gpu.clone(), ..ModelOptions::default() };
        let session = Model::load(plan, &parameters, options).unwrap().session();
        let mut inputs: Inputs = host.iter().map(|(name, tensor)| (*name, tensor.clone())).collect();
        for (name, tensor) in tensors {
            match &backend.gpu {
                Some(_) => inputs.insert_device(*name, session.upload(tensor).unwrap()),
                None => inputs.insert(*name, tensor.clone()),
            }
        }
        if backend.gpu.is_some() {
            graph.outputs().iter().for_each(|(name, _)| inputs.keep_on_device(name));
        }
        Self { session, inputs, gpu: backend.gpu.clone() }
    }

    /// Runs once and waits for the results.
    pub fn run(&mut self) {
        let outputs = self.session.run(&self.inputs).unwrap();
        assert!(outputs.iter().count() > 0);
        if let Some(gpu) = &self.gpu {
            gpu.wait().unwrap();
        }
    }
}

/// Numbers in -0.5..0.5 that only depend on `seed`.
pub fn noise(seed: u64, shape: &[usize]) -> HostTensor {
    Noise::new(seed).floats(DType::F32, shape).unwrap()
}
