//! What benches measure: a graph on the CPU and on an adapter, with its tensors where the kernels are.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod graphs;

use rewire::graph::op::Parameter;
use rewire::graph::{Graph, HostTensor};
use rewire::prelude::{Inputs, Kernel, Session, SessionOptions};
use rewire::runtime::wgpu::util::DeviceExt;
use rewire::runtime::{DeviceTensor, wgpu};
use rewire::{Gpu, lower, optimize};

/// What runs a bench: an adapter, or all cores of the CPU.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The open adapter; `None` is the CPU.
    pub gpu: Option<Gpu>,
}

/// The CPU, and the best adapter where there is one, a software driver if there is nothing else.
pub fn backends() -> Vec<Backend> {
    let gpu = Gpu::open(None).ok().map(|gpu| Backend { gpu: Some(gpu) });
    std::iter::once(Backend { gpu: None }).chain(gpu).collect()
}

/// True under `cargo bench`. Otherwise one pass over small shapes shows that benches work.
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

/// A graph, ready to run again and again. On an adapter, device tensors stay there from run to run.
#[derive(Debug)]
pub struct Case {
    session: Session,
    inputs: Inputs,
    gpu: Option<Gpu>,
}

impl Case {
    /// Compiles a graph with noise as parameters. `tensors` have widths that are multiples of four; `host` values
    /// are read by the shape program.
    pub fn new(graph: &Graph, backend: &Backend, tensors: &[(&str, HostTensor)], host: &[(&str, HostTensor)]) -> Self {
        let parameters: Vec<(String, HostTensor)> = parameters(graph);
        let find = |name: &str| parameters.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor.clone());
        let plan = lower(&optimize(graph.clone()).unwrap().0).unwrap();
        let options =
            SessionOptions { kernel: backend.kernel(), gpu: backend.gpu.clone(), ..SessionOptions::default() };
        let session = Session::load(plan, find, options).unwrap();
        let mut inputs: Inputs = host.iter().map(|(name, tensor)| (*name, tensor.clone())).collect();
        for (name, tensor) in tensors {
            match &backend.gpu {
                Some(gpu) => inputs.insert_device(*name, upload(gpu, tensor)),
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
            gpu.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        }
    }
}

/// Numbers in -0.5..0.5 that depend on `seed` alone.
pub fn noise(seed: u32, shape: &[usize]) -> HostTensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        })
        .collect();
    HostTensor::f32(shape.to_vec(), &values).unwrap()
}

fn parameters(graph: &Graph) -> Vec<(String, HostTensor)> {
    let parameter = |id: rewire::graph::NodeId| {
        let parameter = graph.node(id)?.op.downcast_ref::<Parameter>()?;
        let shape: Vec<usize> = parameter.ty.shape.iter().map(|dim| dim.as_const().unwrap()).collect();
        Some((parameter.name.clone(), noise(id.number() as u32, &shape)))
    };
    graph.ids().filter_map(parameter).collect()
}

fn upload(gpu: &Gpu, tensor: &HostTensor) -> DeviceTensor {
    assert!(tensor.shape().last().is_some_and(|width| width % 4 == 0), "rows would need padding");
    let buffer = gpu.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: Some("bench input"),
        contents: tensor.bytes(),
        usage: wgpu::BufferUsages::STORAGE,
    });
    DeviceTensor { buffer, dtype: tensor.dtype(), shape: tensor.shape().to_vec() }
}
