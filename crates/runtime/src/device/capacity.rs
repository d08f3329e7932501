use super::Gpu;

impl Gpu {
    /// Size in bytes of the largest device-local memory, if the driver reports it, as Vulkan drivers do.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        #[cfg(all(feature = "gpu", any(target_os = "linux", target_os = "windows", target_os = "android")))]
        return self.heap_bytes();
        #[cfg(not(all(feature = "gpu", any(target_os = "linux", target_os = "windows", target_os = "android"))))]
        return None;
    }

    #[cfg(all(feature = "gpu", any(target_os = "linux", target_os = "windows", target_os = "android")))]
    fn heap_bytes(&self) -> Option<u64> {
        /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
        const DEVICE_LOCAL: u32 = 1;
        // SAFETY: only queries the device's memory and keeps no handle.
        let device = unsafe { self.device().as_hal::<wgpu::hal::api::Vulkan>() }?;
        let instance = device.shared_instance().raw_instance();
        // SAFETY: the physical device is that of the instance.
        let memory = unsafe { instance.get_physical_device_memory_properties(device.raw_physical_device()) };
        let heaps = memory.memory_heaps.iter().take(memory.memory_heap_count as usize);
        heaps.filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0).map(|heap| heap.size).max()
    }
}
