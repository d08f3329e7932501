use super::gpu::target;
use super::instance::{self, instance};
use super::matrices::Matrices;
use super::workers::block_on;
use crate::GpuError;
use crate::timing::timed_async;
use rewire_graph::Arrange;
use serde::Serialize;

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A GPU with dedicated memory.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// A GPU of unknown kind, as in a browser.
    Other,
    /// A driver that computes on the CPU: lavapipe, SwiftShader, WARP.
    Software,
    /// The CPU, without a driver.
    Cpu,
}

/// Adapter limits that are relevant to kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceLimits {
    /// Size of a storage binding in bytes.
    pub binding_bytes: u64,
    /// Size of a buffer in bytes.
    pub buffer_bytes: u64,
    /// Storage buffers per kernel.
    pub storage_buffers: u32,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Invocations per workgroup.
    pub invocations: u32,
    /// Workgroups per dimension of a dispatch.
    pub workgroups: u32,
    /// Smallest and largest subgroup size.
    pub subgroup_sizes: (u32, u32),
}

/// A device: an adapter or the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// Its index in the list of adapters, which distinguishes adapters with the same name; `None` for the CPU. Drivers
    /// may renumber adapters when one is added or removed.
    pub index: Option<usize>,
    /// Name of the adapter, `cpu` for the CPU.
    pub name: String,
    /// Kind of device.
    pub kind: DeviceKind,
    /// Backend: vulkan, metal, dx12, webgpu; `cpu` for the CPU.
    pub backend: String,
    /// Driver and its version.
    pub driver: String,
    /// PCI address, if the driver reports it: domain, bus, device and function.
    pub pci: Option<String>,
    /// Optional features that the adapter supports.
    pub features: Vec<String>,
    /// Cooperative matrices: rows, columns, inner size, operand and accumulator type.
    pub cooperative_matrices: Vec<String>,
    /// Its f16 matmul tier, and why no faster one.
    pub matrices: Matrices,
    /// Limits; none for the CPU.
    pub limits: Option<DeviceLimits>,
    /// True for the device that [`crate::Kernel::Auto`] chooses.
    pub auto: bool,
    /// Why `auto` chooses it, or does not.
    pub reason: String,
}

impl DeviceInfo {
    /// True if `filter`, in the form that [`crate::Gpu::open`] accepts, matches this device.
    ///
    /// ```
    /// let devices = rewire_runtime::devices();
    /// assert!(devices.last().unwrap().is_meant_by("CPU"));
    /// assert!(devices.iter().filter(|device| device.is_meant_by("#0")).count() <= 1);
    /// ```
    pub fn is_meant_by(&self, filter: &str) -> bool {
        let texts = [&self.name, &self.driver, &self.backend];
        let texts = texts.into_iter().chain(&self.pci).map(String::as_str);
        means(filter, self.index, texts)
    }
}

/// True if a filter is `#` and this index, or any other substring of one of these strings.
fn means<'a>(filter: &str, index: Option<usize>, mut texts: impl Iterator<Item = &'a str>) -> bool {
    match filter.strip_prefix('#').map(str::parse::<usize>) {
        Some(Ok(number)) => index == Some(number),
        _ => {
            let filter = filter.to_ascii_lowercase();
            texts.any(|text| text.to_ascii_lowercase().contains(&filter))
        }
    }
}

/// All adapters, hardware first, and the CPU last.
pub async fn devices_async() -> Vec<DeviceInfo> {
    let adapters = enumerate().await;
    let mut devices: Vec<DeviceInfo> = adapters.iter().enumerate().map(|(n, adapter)| describe(n, adapter)).collect();
    devices.push(cpu());
    let chosen = devices.iter().position(|device| device.kind != DeviceKind::Software).unwrap_or(0);
    for (position, device) in devices.iter_mut().enumerate() {
        device.auto = position == chosen;
        device.reason = match device.kind {
            DeviceKind::Software => {
                "software adapters compute on the CPU, without its fast path, and are used only if they are named"
            }
            DeviceKind::Cpu if device.auto => "there is no hardware GPU",
            DeviceKind::Cpu => "runs the steps that the GPU cannot",
            _ if device.auto => "the first hardware GPU",
            _ => "another hardware GPU comes first",
        }
        .to_owned();
    }
    devices
}

/// [`devices_async`], blocking.
pub fn devices() -> Vec<DeviceInfo> {
    block_on(devices_async())
}

/// The first allowed adapter that `filter` matches.
pub(super) async fn select(
    filter: Option<&str>,
    allowed: impl Fn(&wgpu::AdapterInfo) -> bool,
) -> Result<wgpu::Adapter, GpuError> {
    let adapters = timed_async("listing adapters", enumerate()).await;
    let wanted = |(index, adapter): &(usize, &wgpu::Adapter)| {
        allowed(&adapter.get_info()) && filter.is_none_or(|filter| describe(*index, adapter).is_meant_by(filter))
    };
    if let Some((_, adapter)) = adapters.iter().enumerate().find(wanted) {
        return Ok(adapter.clone());
    }
    let missing = if adapters.is_empty() {
        missing().await
    } else {
        let found = adapters.iter().enumerate().map(|(index, adapter)| {
            let info = adapter.get_info();
            let pci = if info.device_pci_bus_id.is_empty() { "" } else { " at " };
            format!("#{index} {}{pci}{}", title(&info), info.device_pci_bus_id)
        });
        let found: Vec<String> = found.collect();
        format!("found {}", found.join(", "))
    };
    Err(GpuError::NoAdapter { filter: filter.map(str::to_owned), missing })
}

/// True for a hardware adapter.
pub(super) fn hardware(info: &wgpu::AdapterInfo) -> bool {
    kind(info) != DeviceKind::Software
}

pub(super) fn title(info: &wgpu::AdapterInfo) -> String {
    format!("{} ({} {})", info.name, info.backend, info.driver).trim_end_matches([' ', ')']).to_owned() + ")"
}

async fn enumerate() -> Vec<wgpu::Adapter> {
    let mut adapters = instance::adapters().await;
    adapters.retain(|adapter| {
        let capabilities = adapter.get_downlevel_capabilities();
        capabilities.flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    });
    adapters.arrange_by_key(|adapter| kind(&adapter.get_info()));
    adapters
}

/// Installation advice if there is no adapter at all.
async fn missing() -> String {
    let Some(instance) = instance() else { return "no GPU interface is built in for this platform".into() };
    let request = instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await;
    let detail = request.err().map(|error| error.to_string()).unwrap_or_default();
    format!("{} ({detail})", advice(std::env::consts::OS, std::env::consts::ARCH, &detail))
}

/// Advice for a system without an adapter, from the details that wgpu reports.
fn advice(os: &str, arch: &str, detail: &str) -> &'static str {
    match (os, arch) {
        (_, "wasm32") => "the browser has no WebGPU adapter; use the kernel `auto` or `cpu`",
        ("windows" | "macos" | "ios" | "tvos" | "visionos" | "watchos", _) => {
            "install the graphics driver of the vendor"
        }
        _ if detail.contains("vulkan drivers/libraries could not be loaded") => {
            "no Vulkan loader or driver could be loaded; install the loader (libvulkan.so.1, package libvulkan1) and a driver \
             (the GPU vendor's, or mesa-vulkan-drivers)"
        }
        _ => {
            "the Vulkan loader found no driver; install one (the GPU vendor's, or mesa-vulkan-drivers) and check \
             VK_DRIVER_FILES and VK_ICD_FILENAMES"
        }
    }
}

fn kind(info: &wgpu::AdapterInfo) -> DeviceKind {
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::Discrete,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
        wgpu::DeviceType::VirtualGpu => DeviceKind::Virtual,
        wgpu::DeviceType::Other => DeviceKind::Other,
        wgpu::DeviceType::Cpu => DeviceKind::Software,
    }
}

fn describe(index: usize, adapter: &wgpu::Adapter) -> DeviceInfo {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let target = target(features, &limits, &info);
    let names = [
        ("shader-f16", wgpu::Features::SHADER_F16),
        ("shader-int64", wgpu::Features::SHADER_INT64),
        ("subgroups", wgpu::Features::SUBGROUP),
        ("cooperative-matrix", wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
        ("timestamp-query", wgpu::Features::TIMESTAMP_QUERY),
        ("pipeline-cache", wgpu::Features::PIPELINE_CACHE),
    ];
    DeviceInfo {
        index: Some(index),
        pci: Some(info.device_pci_bus_id.clone()).filter(|pci| !pci.is_empty()),
        kind: kind(&info),
        backend: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        features: names.iter().filter(|(_, f)| features.contains(*f)).map(|(name, _)| (*name).to_owned()).collect(),
        cooperative_matrices: adapter
            .cooperative_matrix_properties()
            .iter()
            .map(|p| format!("{}x{}x{} {:?} {:?}", p.m_size, p.n_size, p.k_size, p.ab_type, p.cr_type))
            .collect(),
        matrices: Matrices::offered(adapter, target.clone()).1,
        limits: Some(DeviceLimits {
            binding_bytes: target.binding_bytes,
            buffer_bytes: limits.max_buffer_size,
            storage_buffers: target.storage_buffers,
            workgroup_bytes: target.workgroup_bytes,
            invocations: target.invocations,
            workgroups: limits.max_compute_workgroups_per_dimension,
            subgroup_sizes: (info.subgroup_min_size, info.subgroup_max_size),
        }),
        name: info.name,
        auto: false,
        reason: String::new(),
    }
}

fn cpu() -> DeviceInfo {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    DeviceInfo {
        index: None,
        pci: None,
        name: "cpu".into(),
        kind: DeviceKind::Cpu,
        backend: "cpu".into(),
        driver: format!("{} threads, {}", threads, std::env::consts::ARCH),
        features: Vec::new(),
        cooperative_matrices: Vec::new(),
        matrices: Matrices::NONE,
        limits: None,
        auto: false,
        reason: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_that_of_the_system() {
        assert!(advice("unknown", "wasm32", "").contains("use the kernel `auto` or `cpu`"));
        assert!(!advice("unknown", "wasm32", "").contains("Vulkan"));
        assert!(advice("windows", "x86_64", "").contains("driver of the vendor"));
        assert!(advice("linux", "x86_64", "").contains("VK_DRIVER_FILES"));
        let no_loader = "vulkan drivers/libraries could not be loaded";
        assert!(advice("linux", "x86_64", no_loader).contains("libvulkan1"));
    }

    #[test]
    fn adapters_of_one_name_are_told_apart() {
        let twin = |index, pci: &str| DeviceInfo {
            index: Some(index),
            name: "NVIDIA H100".into(),
            backend: "vulkan".into(),
            pci: Some(pci.into()),
            ..cpu()
        };
        let twins = [twin(0, "0000:19:00.0"), twin(1, "0000:3b:00.0"), cpu()];
        let meant = |filter: &str| twins.each_ref().map(|twin| twin.is_meant_by(filter));
        assert_eq!(meant("h100"), [true, true, false]);
        assert_eq!(meant("#1"), [false, true, false]);
        assert_eq!(meant("3B:00"), [false, true, false]);
        assert_eq!(meant("0000:19:00.0"), [true, false, false]);
        assert_eq!(meant("#2"), [false; 3]);
        assert_eq!(meant("#x"), [false; 3]);
    }
}
