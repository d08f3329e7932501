//! The connection to the system's GPU interfaces.

use wgpu::Backends;

/// An instance with these backends; `None` if none is built in.
fn instance_of(backends: Backends) -> Option<wgpu::Instance> {
    let is_built_in = !wgpu::Instance::enabled_backend_features().is_empty();
    is_built_in.then(|| wgpu::Instance::new(wgpu::InstanceDescriptor { backends, ..descriptor() }))
}

/// An instance with all backends; `None` if none is built in.
pub(super) fn instance() -> Option<wgpu::Instance> {
    instance_of(descriptor().backends)
}

/// All adapters.
pub(super) async fn adapters() -> Vec<wgpu::Adapter> {
    if let Some(adapters) = without_windows() {
        return adapters;
    }
    match instance() {
        Some(instance) => instance.enumerate_adapters(Backends::all()).await,
        None => Vec::new(),
    }
}

/// Browsers have no environment.
#[cfg(target_arch = "wasm32")]
fn descriptor() -> wgpu::InstanceDescriptor {
    let descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    wgpu::InstanceDescriptor { flags: wgpu::InstanceFlags::empty(), ..descriptor }
}

#[cfg(not(target_arch = "wasm32"))]
fn descriptor() -> wgpu::InstanceDescriptor {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    descriptor
}

/// The adapters of a Vulkan instance without window extensions, which rewire does not need. With them, Mesa's layer
/// that sorts the display's GPU first connects to Wayland and X whenever adapters are listed, and prints an error if
/// there is no display. `None` if Vulkan is disabled or cannot be opened.
#[cfg(all(feature = "gpu", any(target_os = "linux", target_os = "freebsd")))]
fn without_windows() -> Option<Vec<wgpu::Adapter>> {
    use wgpu::hal::{Instance as _, api::Vulkan, vulkan};

    let descriptor = descriptor();
    if !descriptor.backends.contains(Backends::VULKAN) {
        return None;
    }
    let hal = wgpu::hal::InstanceDescriptor {
        name: "rewire",
        flags: descriptor.flags,
        memory_budget_thresholds: descriptor.memory_budget_thresholds,
        backend_options: descriptor.backend_options,
        telemetry: None,
        display: None,
    };
    let windows = [c"VK_KHR_wayland_surface", c"VK_KHR_xcb_surface", c"VK_KHR_xlib_surface"];
    let callback: Box<vulkan::CreateInstanceCallback<'_>> =
        Box::new(|args| args.extensions.retain(|name| !windows.contains(name)));
    // SAFETY: only surfaces use the omitted extensions; nothing creates surfaces here, and no other extension depends
    // on them.
    let vulkan = unsafe { vulkan::Instance::init_with_callback(&hal, Some(callback)) };
    let vulkan = vulkan.inspect_err(|error| tracing::debug!("no Vulkan: {error}")).ok()?;
    // It opens no backend itself. If created from the other instance, it would have the flags of debug builds and of
    // validated calls.
    let instance = instance_of(Backends::empty())?;
    // SAFETY: the instance is open, and its adapters share it.
    let found = unsafe { vulkan.enumerate_adapters(None) };
    // The loader unloads a driver with the last instance that uses it. A thread that used NVIDIA's driver and ends
    // after that calls unloaded code, so one instance stays alive until the process exits.
    static KEPT: std::sync::OnceLock<vulkan::Instance> = std::sync::OnceLock::new();
    KEPT.get_or_init(|| vulkan);
    // SAFETY: adapters need only the flags of a wgpu instance.
    Some(found.into_iter().map(|adapter| unsafe { instance.create_adapter_from_hal::<Vulkan>(adapter) }).collect())
}

/// Other systems have no such layer.
#[cfg(not(all(feature = "gpu", any(target_os = "linux", target_os = "freebsd"))))]
fn without_windows() -> Option<Vec<wgpu::Adapter>> {
    None
}
