//! Runs an emitted kernel on a Vulkan adapter.

use crate::tensor::{Tensor, extent};
use rewire_graph::Symbol;
use rewire_graph_rewrite::device::{BindingSource, EmittedKernel, GridFactor, Param, TileList};
use rewire_graph_rewrite::plan::{Computation, Extent, MemorySpace};
use std::cell::RefCell;
use std::collections::HashMap;
use wgpu::util::DeviceExt;

/// The shaders of a test that run: the first `FIRST`, then every `EACH`th.
const FIRST: usize = 3;
const EACH: usize = 6;

pub struct Device {
    name: String,
    device: wgpu::Device,
    queue: wgpu::Queue,
    pub f16: bool,
    /// True for a CPU device.
    pub software: bool,
    /// Size of its cooperative matrices, and of its subgroups; 0 if there are none.
    pub matrices: (u32, u32),
    /// Pipelines by WGSL source; `None` for shaders that do not run.
    pipelines: RefCell<HashMap<String, Option<wgpu::ComputePipeline>>>,
}

thread_local! {
    // Never dropped, since a device cannot be dropped while its thread ends.
    static DEVICE: Option<&'static Device> = {
        let device = pollster::block_on(open());
        match &device {
            Ok(device) => eprintln!("emitted kernels run on {}", device.name),
            Err(reason) => eprintln!("emitted kernels are not run: {reason}"),
        }
        device.ok().map(|device| &*Box::leak(Box::new(device)))
    };
}

/// A device of the default adapter; `None` if there is no adapter, and kernels are then emitted but not run. Each
/// thread has a separate device, because software drivers compile on one thread per device.
pub fn device() -> Option<&'static Device> {
    DEVICE.with(|device| *device)
}

async fn open() -> Result<Device, String> {
    let instance = wgpu::Instance::default();
    let options = wgpu::RequestAdapterOptions::default();
    let adapter = instance.request_adapter(&options).await.map_err(|e| e.to_string())?;
    let f16 = adapter.features().contains(wgpu::Features::SHADER_F16);
    let info = adapter.get_info();
    let wanted = wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP
        | wgpu::Features::SUBGROUP_BARRIER
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    let request = wgpu::DeviceDescriptor {
        required_features: adapter.features() & wanted,
        required_limits: adapter.limits(),
        // SAFETY: the only experimental feature is cooperative matrices, which these tests check.
        experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
        ..Default::default()
    };
    let size = adapter.cooperative_matrix_properties().iter().filter(|p| p.m_size == p.n_size).map(|p| p.m_size).max();
    let fixed = adapter.features().contains(wanted) && info.subgroup_min_size == info.subgroup_max_size;
    let matrices = if fixed { (size.unwrap_or(0), info.subgroup_min_size) } else { (0, 0) };
    let (device, queue) = adapter.request_device(&request).await.map_err(|e| e.to_string())?;
    let software = info.device_type == wgpu::DeviceType::Cpu;
    Ok(Device { name: info.name, device, queue, f16, software, matrices, pipelines: RefCell::default() })
}

fn tiles(list: &TileList, operands: &[Tensor], symbols: &HashMap<Symbol, i64>) -> Vec<i32> {
    let mut tiles = vec![];
    let samples: usize = list.samples.iter().map(|dim| extent(dim, symbols)).product();
    for sample in 0..samples {
        let rows = match &list.rows {
            Extent::Dense(dim) => extent(dim, symbols) as i64,
            Extent::Ragged { offsets } => {
                let data = &operands[*offsets as usize].data;
                data[sample + 1].integer() - data[sample].integer()
            }
        };
        (0..rows).step_by(list.tile as usize).for_each(|row| tiles.push((sample as i32, row as i32)));
    }
    if list.longest_first {
        tiles.sort_by_key(|t| (t.1 != 0, -t.1));
    }
    tiles.into_iter().flat_map(|t| [t.0, t.1]).collect()
}

/// True if shader `number` of a test runs. All run if `REWIRE_TEST_ALL` is set. Software drivers take far longer to
/// compile a shader than to run it.
fn is_run(number: usize) -> bool {
    number < FIRST || number.is_multiple_of(EACH) || std::env::var_os("REWIRE_TEST_ALL").is_some()
}

impl Device {
    /// Runs a kernel and returns its results; `None` if its shader is skipped.
    pub fn run(
        &self,
        kernel: &Computation,
        emitted: &EmittedKernel,
        operands: &[Tensor],
        symbols: &HashMap<Symbol, i64>,
    ) -> Option<Vec<Tensor>> {
        let body = kernel.body();
        let mut sizes: Vec<i32> = vec![];
        let mut host_base = HashMap::new();
        for (n, operand) in body.operands.iter().enumerate() {
            if operand.space == MemorySpace::Host {
                host_base.insert(n as u16, sizes.len() as i32);
                sizes.extend(operands[n].data.iter().map(|x| x.integer() as i32));
            }
        }
        let mut pooled: HashMap<rewire_graph::DType, Vec<u8>> = HashMap::new();
        let mut packed_base = HashMap::new();
        for (n, operand) in body.operands.iter().enumerate() {
            if operand.space == MemorySpace::Pooled {
                let group = operand.dtype.format().bytes(4) as usize;
                let content = pooled.entry(operand.dtype).or_insert_with(|| vec![0; group]);
                packed_base.insert(n as u16, (content.len() / group) as i32);
                content.extend(operands[n].padded_bytes(true));
            }
        }
        let lists: Vec<Vec<i32>> = emitted.tile_lists.iter().map(|list| tiles(list, operands, symbols)).collect();
        let mut tile_base = vec![];
        for list in &lists {
            tile_base.push(sizes.len() as i32);
            sizes.extend(list);
        }
        sizes.resize(sizes.len().max(4), 0);
        let workgroups: usize = emitted
            .grid
            .iter()
            .map(|factor| match factor {
                GridFactor::Tiles(dims, tile) => {
                    dims.iter().map(|d| extent(d, symbols)).product::<usize>().div_ceil(*tile as usize)
                }
                GridFactor::TileList(n) => lists[*n as usize].len() / 2,
            })
            .product();
        let pipeline = match workgroups {
            0 => None,
            _ => Some(self.pipeline(&emitted.wgsl)?),
        };
        let mut params: Vec<i32> = emitted
            .params
            .iter()
            .map(|param| match param {
                Param::Dim(dim) => extent(dim, symbols) as i32,
                Param::HostBase(n) => host_base[n],
                Param::PooledBase(n) => packed_base[n],
                Param::TileBase(n) => tile_base[*n as usize],
                Param::Workgroups => workgroups as i32,
            })
            .collect();
        params.resize(params.len().max(1).next_multiple_of(4), 0);
        let shapes: Vec<(rewire_graph::DType, Vec<usize>)> = crate::reference::targets(kernel.outputs())
            .iter()
            .map(|o| (o.dtype, o.shape.iter().map(|d| extent(d, symbols)).collect()))
            .collect();
        let make = |bytes: &[u8], usage| {
            self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents: bytes, usage })
        };
        let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let outputs: Vec<wgpu::Buffer> = shapes
            .iter()
            .map(|(dtype, shape)| {
                let data = vec![rewire_graph::Number::Integer(0); shape.iter().product()];
                make(&Tensor { dtype: *dtype, shape: shape.clone(), data }.padded_bytes(false), storage)
            })
            .collect();
        let mut buffers = vec![make(bytemuck::cast_slice(&params), wgpu::BufferUsages::UNIFORM)];
        for slot in &emitted.slots {
            buffers.push(match slot {
                BindingSource::Sizes => make(bytemuck::cast_slice(&sizes), storage),
                BindingSource::Operand(n) => make(&operands[*n as usize].padded_bytes(true), storage),
                BindingSource::Dequantized { .. } => unreachable!("workgroups of this device share no matrices"),
                BindingSource::Pooled(dtype) => make(&pooled[dtype], storage),
                BindingSource::Output(n) => outputs[*n as usize].clone(),
            });
        }
        if let Some(pipeline) = pipeline {
            self.dispatch(&pipeline, &buffers, workgroups as u32);
        }
        let tensor =
            |(buffer, (dtype, shape)): (&wgpu::Buffer, _)| Tensor::from_padded(dtype, shape, &self.read(buffer));
        Some(outputs.iter().zip(shapes).map(tensor).collect())
    }

    fn pipeline(&self, wgsl: &str) -> Option<wgpu::ComputePipeline> {
        let mut pipelines = self.pipelines.borrow_mut();
        let number = pipelines.len();
        pipelines.entry(wgsl.to_owned()).or_insert_with(|| is_run(number).then(|| self.compile(wgsl))).clone()
    }

    fn compile(&self, wgsl: &str) -> wgpu::ComputePipeline {
        let source = wgpu::ShaderSource::Wgsl(wgsl.into());
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }

    fn dispatch(&self, pipeline: &wgpu::ComputePipeline, buffers: &[wgpu::Buffer], workgroups: u32) {
        let entries: Vec<_> = buffers
            .iter()
            .enumerate()
            .map(|(n, b)| wgpu::BindGroupEntry { binding: n as u32, resource: b.as_entire_binding() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            // Folds the grid as a runtime would, with workgroups beyond the last.
            let x = workgroups.div_ceil(3);
            pass.dispatch_workgroups(x, workgroups.div_ceil(x), 1);
        }
        self.queue.submit([encoder.finish()]);
    }

    fn read(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: None, size: buffer.size(), usage, mapped_at_creation: false };
        let staging = self.device.create_buffer(&descriptor);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging.slice(..).map_async(wgpu::MapMode::Read, |r| r.unwrap());
        self.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        staging.slice(..).get_mapped_range().unwrap().to_vec()
    }
}
