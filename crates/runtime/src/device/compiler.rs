//! Compiler statistics of kernels, from `VK_KHR_pipeline_executable_properties`.

use super::adapters::{self, title};
use super::compiled::CompiledKernel;
use super::gpu::{descriptor, target};
use super::matrices::{Matrices, MatrixTier};
use crate::{GpuError, block_on};
use ash::{khr, vk};
use rewire_emit::ParsedKernel;
use rewire_graph_rewrite::device::{BindingSource, Target};
use std::ffi::c_char;
use std::ptr;
use wgpu::hal::api::Vulkan;

/// Names of a statistic in Mesa's drivers.
const REGISTERS: &[&str] =
    &["VGPRs", "GPRs", "Registers", "Registers used", "Max live registers", "Number of GPRs", "Num GPRs"];
const SPILLS: &[&str] = &["Spilled VGPRs", "Spill Count", "Spills", "Spills to memory", "STP Count"];
const SCRATCH: &[&str] = &["Scratch size", "Scratch Memory Size", "Scratch", "SLM Size"];
const OCCUPANCY: &[&str] =
    &["Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core", "Threads", "Max dispatch width"];
const INSTRUCTIONS: &[&str] = &["Instructions", "Instruction Count"];

/// Collects the statistics with known names.
fn told(subgroup: u32, statistics: &[(String, u64)]) -> CompiledKernel {
    let of = |names: &[&str]| {
        let figure = |name: &&str| statistics.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        names.iter().find_map(figure).map(|(_, value)| *value)
    };
    CompiledKernel {
        subgroup: Some(subgroup).filter(|size| *size != 0),
        registers: of(REGISTERS),
        spills: of(SPILLS),
        scratch: of(SCRATCH),
        occupancy: of(OCCUPANCY),
        instructions: of(INSTRUCTIONS),
        code: None,
    }
}

/// A device that compiles kernels and runs none, so that a driver works without its hardware.
pub struct KernelCompiler {
    name: String,
    target: Target,
    opened: wgpu::hal::OpenDevice<Vulkan>,
    executables: khr::pipeline_executable_properties::Device,
}

impl KernelCompiler {
    /// Opens a Vulkan adapter; the filter is that of [`Gpu::open`](crate::Gpu::open). Kernels are those of `tier`, or
    /// of the fastest tier that the adapter offers before any self-test.
    ///
    /// # Errors
    /// [`GpuError::NoAdapter`]; [`GpuError::Matrices`] if it supports only a lower tier than `tier`; [`GpuError::Open`]
    /// if it is not a Vulkan adapter, or the driver reports no statistics.
    pub fn open(filter: Option<&str>, tier: Option<MatrixTier>) -> Result<Self, GpuError> {
        let adapter = block_on(adapters::select(filter, |_| true))?;
        let info = adapter.get_info();
        let name = title(&info);
        let plain = target(adapter.features(), &adapter.limits(), &info);
        let (offered, own) = Matrices::offered(&adapter, plain);
        let target = match tier {
            Some(tier) if tier > own.tier => return Err(GpuError::Matrices { adapter: name, tier, own }),
            Some(tier) => tier.limited(&offered),
            None => offered,
        };
        let failed = |reason: String| GpuError::Open { adapter: name.clone(), reason };
        // SAFETY: the adapter is not destroyed here.
        let hal = unsafe { adapter.as_hal::<Vulkan>() };
        let hal = hal.ok_or_else(|| failed(format!("it is an adapter of {}, and not of Vulkan", info.backend)))?;
        if !hal.physical_device_capabilities().supports_extension(khr::pipeline_executable_properties::NAME) {
            return Err(failed("the driver has no VK_KHR_pipeline_executable_properties".to_owned()));
        }
        let request = descriptor(&adapter);
        let mut feature =
            vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default().pipeline_executable_info(true);
        let callback: Box<wgpu::hal::vulkan::CreateDeviceCallback<'_>> = Box::new(|args| {
            args.extensions.push(khr::pipeline_executable_properties::NAME);
            feature.p_next = args.create_info.p_next.cast_mut();
            args.create_info.p_next = ptr::from_ref(&feature).cast();
        });
        // SAFETY: the callback adds an extension that the adapter supports, and its feature in a structure that
        // outlives the call.
        let opened = unsafe {
            let (features, limits) = (request.required_features, &request.required_limits);
            hal.open_with_callback(features, limits, &request.memory_hints, Some(callback))
        };
        let opened = opened.map_err(|error| failed(error.to_string()))?;
        let instance = hal.shared_instance().raw_instance();
        let executables = khr::pipeline_executable_properties::Device::new(instance, opened.device.raw_device());
        drop(hal);
        Ok(Self { name, target, opened, executables })
    }

    /// The name of the adapter.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The capabilities for which kernels are emitted.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Compiles a kernel that was emitted for [`KernelCompiler::target`]. With `code`, the result contains the program.
    ///
    /// # Errors
    /// [`GpuError::Rejected`] if the driver rejects it.
    pub fn compile(&self, parsed: &ParsedKernel, code: bool) -> Result<CompiledKernel, GpuError> {
        let rejected = |reason: String| GpuError::Rejected { what: "a kernel".to_owned(), reason };
        let words = parsed.spirv(&self.target, false).map_err(|error| rejected(error.to_string()))?;
        let mut objects = Objects::new(self.opened.device.raw_device());
        // SAFETY: naga validated the module for this device, whose layout has the module's bindings.
        let compiled = unsafe {
            let pipeline = objects.pipeline(&words, &parsed.kernel.slots, code);
            pipeline.and_then(|pipeline| self.figures(pipeline, code))
        };
        compiled.map_err(|result| rejected(result.to_string()))
    }

    /// The statistics of a pipeline of this device that captured them.
    unsafe fn figures(&self, pipeline: vk::Pipeline, code: bool) -> Result<CompiledKernel, vk::Result> {
        let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
        // SAFETY: by the caller's contract the pipeline belongs to this device, which has the extension.
        let properties = unsafe { self.executables.get_pipeline_executable_properties(&info)? };
        let subgroup = properties.first().map_or(0, |executable| executable.subgroup_size);
        let mut figures = vec![];
        let mut text = String::new();
        for number in 0..properties.len() as u32 {
            let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(number);
            // SAFETY: as above; the pipeline captured its statistics, and its programs with `code`.
            unsafe {
                figures.extend(self.executables.get_pipeline_executable_statistics(&info)?.iter().map(figure));
                if code {
                    text += &self.programs(&info)?;
                }
            }
        }
        tracing::debug!(?figures, "a compiled kernel");
        Ok(CompiledKernel { code: code.then_some(text), ..told(subgroup, &figures) })
    }

    /// The programs of an executable as strings; the last one is the machine code.
    unsafe fn programs(&self, info: &vk::PipelineExecutableInfoKHR<'_>) -> Result<String, vk::Result> {
        // SAFETY: by the caller's contract the executable belongs to a pipeline of this device that captured its
        // programs.
        let mut programs = unsafe { self.executables.get_pipeline_executable_internal_representations(info)? };
        let mut texts: Vec<Vec<u8>> = programs.iter().map(|program| vec![0; program.data_size]).collect();
        for (program, text) in programs.iter_mut().zip(&mut texts) {
            program.p_data = text.as_mut_ptr().cast();
        }
        let mut count = programs.len() as u32;
        let fill = self.executables.fp().get_pipeline_executable_internal_representations_khr;
        // SAFETY: as above; every structure has room for as many bytes as it declares.
        unsafe { fill(self.executables.device(), info, &mut count, programs.as_mut_ptr()).result()? };
        let shown = programs.iter().zip(&texts).filter(|(program, _)| program.is_text == vk::TRUE);
        let show = |(program, text): (&vk::PipelineExecutableInternalRepresentationKHR<'_>, &Vec<u8>)| {
            let program_text =
                String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or(text)).into_owned();
            format!("=== {}\n{program_text}\n", name(&program.name))
        };
        Ok(shown.map(show).collect())
    }
}

/// A statistic and its name.
fn figure(statistic: &vk::PipelineExecutableStatisticKHR<'_>) -> (String, u64) {
    // SAFETY: the format determines the member that the driver has written.
    let value = unsafe {
        match statistic.format {
            vk::PipelineExecutableStatisticFormatKHR::FLOAT64 => statistic.value.f64 as u64,
            vk::PipelineExecutableStatisticFormatKHR::BOOL32 => statistic.value.b32.into(),
            _ => statistic.value.u64,
        }
    };
    (name(&statistic.name), value)
}

fn name(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|&byte| byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Vulkan objects of a compilation, destroyed at its end.
struct Objects<'a> {
    device: &'a ash::Device,
    module: vk::ShaderModule,
    bindings: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

impl<'a> Objects<'a> {
    fn new(device: &'a ash::Device) -> Self {
        let (module, bindings) = (vk::ShaderModule::null(), vk::DescriptorSetLayout::null());
        Self { device, module, bindings, layout: vk::PipelineLayout::null(), pipeline: vk::Pipeline::null() }
    }

    /// The pipeline of a module of SPIR-V, which binds the block of parameters and then `slots`. With `code` it captures its programs.
    unsafe fn pipeline(
        &mut self,
        words: &[u32],
        slots: &[BindingSource],
        code: bool,
    ) -> Result<vk::Pipeline, vk::Result> {
        let binding = |number: usize, kind| {
            let stages = vk::ShaderStageFlags::COMPUTE;
            let binding = vk::DescriptorSetLayoutBinding::default().binding(number as u32).descriptor_type(kind);
            binding.descriptor_count(1).stage_flags(stages)
        };
        let storage = (1..=slots.len()).map(|number| binding(number, vk::DescriptorType::STORAGE_BUFFER));
        let bindings: Vec<_> = std::iter::once(binding(0, vk::DescriptorType::UNIFORM_BUFFER)).chain(storage).collect();
        let mut flags = vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR;
        if code {
            flags |= vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
        }
        // SAFETY: all objects are of this device, and the caller's words are a valid module for it.
        unsafe {
            let module = vk::ShaderModuleCreateInfo::default().code(words);
            self.module = self.device.create_shader_module(&module, None)?;
            let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            self.bindings = self.device.create_descriptor_set_layout(&set, None)?;
            let sets = [self.bindings];
            let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
            self.layout = self.device.create_pipeline_layout(&layout, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default().stage(vk::ShaderStageFlags::COMPUTE);
            let stage = stage.module(self.module).name(c"main");
            let pipeline = vk::ComputePipelineCreateInfo::default().flags(flags).stage(stage).layout(self.layout);
            let made = self.device.create_compute_pipelines(vk::PipelineCache::null(), &[pipeline], None);
            let pipelines = made.map_err(|(_, error)| error)?;
            self.pipeline = pipelines.first().copied().ok_or(vk::Result::ERROR_UNKNOWN)?;
        }
        Ok(self.pipeline)
    }
}

impl Drop for Objects<'_> {
    fn drop(&mut self) {
        // SAFETY: they belong to this device, nothing uses them, and null handles are allowed.
        unsafe {
            self.device.destroy_pipeline(self.pipeline, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_set_layout(self.bindings, None);
            self.device.destroy_shader_module(self.module, None);
        }
    }
}
