//! The connection to the system's GPU interfaces.

/// An instance that lists adapters; `None` where no interface is built in.
pub(super) fn instance() -> Option<wgpu::Instance> {
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return None;
    }
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    Some(without_windows(&descriptor).unwrap_or_else(|| wgpu::Instance::new(descriptor)))
}

/// A Vulkan instance without the extensions for windows, which nothing here opens. With them, Mesa's layer that puts the GPU of
/// the display first connects to Wayland and X whenever adapters are listed, and prints an error where there is no display.
#[cfg(all(feature = "gpu", any(target_os = "linux", target_os = "freebsd")))]
fn without_windows(descriptor: &wgpu::InstanceDescriptor) -> Option<wgpu::Instance> {
    use wgpu::hal::{api::Vulkan, vulkan};

    if !descriptor.backends.contains(wgpu::Backends::VULKAN) {
        return None;
    }
    let hal = wgpu::hal::InstanceDescriptor {
        name: "rewire",
        flags: descriptor.flags,
        memory_budget_thresholds: descriptor.memory_budget_thresholds,
        backend_options: descriptor.backend_options.clone(),
        telemetry: None,
        display: None,
    };
    let windows = [c"VK_KHR_wayland_surface", c"VK_KHR_xcb_surface", c"VK_KHR_xlib_surface"];
    let callback: Box<vulkan::CreateInstanceCallback<'_>> =
        Box::new(|args| args.extensions.retain(|name| !windows.contains(name)));
    // SAFETY: the extensions that are left out are used by surfaces alone, which this instance never makes, and no other extension
    // depends on them.
    let opened = unsafe { vulkan::Instance::init_with_callback(&hal, Some(callback)) };
    let opened = opened.inspect_err(|error| tracing::debug!("no Vulkan: {error}")).ok()?;
    // SAFETY: the instance was just opened, and nothing else holds it.
    Some(unsafe { wgpu::Instance::from_hal::<Vulkan>(opened) })
}

/// Other systems have no such layer.
#[cfg(not(all(feature = "gpu", any(target_os = "linux", target_os = "freebsd"))))]
fn without_windows(_: &wgpu::InstanceDescriptor) -> Option<wgpu::Instance> {
    None
}
