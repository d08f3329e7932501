//! Properties of GPU families that no API reports.

use rewire_graph_rewrite::device::SubgroupSizes;

// PCI vendor ids.
const AMD: u32 = 0x1002;
const APPLE: u32 = 0x106b;
const ARM: u32 = 0x13b5;
const BROADCOM: u32 = 0x14e4;
const INTEL: u32 = 0x8086;
const NVIDIA: u32 = 0x10de;
const QUALCOMM: u32 = 0x5143;

/// 32-bit registers available to an invocation, see
/// [`Target::registers`](rewire_graph_rewrite::device::Target::registers). `docs/gpus.md` describes how drivers use
/// them.
pub(super) fn registers(info: &wgpu::AdapterInfo) -> u32 {
    match vendor(info) {
        // NVK's compiler spills what NVIDIA's own holds in 255.
        NVIDIA if info.driver.starts_with("NVK") => 192,
        NVIDIA => 255,
        // Eight subgroups of 64 on RDNA 3.
        AMD => 192,
        // 640 threads of a core have 80 each, of which a compiler needs some itself.
        APPLE => 60,
        // Eight waves have 64 each on the sixth generation, and 96 on later ones, of which a compiler needs some itself.
        QUALCOMM if info.name.contains("Adreno (TM) 6") => 48,
        QUALCOMM => 72,
        // Subgroups of 16 share 128 registers of 32 bytes, of which a compiler needs some itself.
        INTEL => 48,
        ARM => 64,
        BROADCOM => 32,
        _ => 0,
    }
}

/// Subgroup sizes. Metal reports one range for all GPUs; Apple's own GPUs have one size.
pub(super) fn subgroup_sizes(info: &wgpu::AdapterInfo) -> SubgroupSizes {
    match (info.backend, vendor(info)) {
        (wgpu::Backend::Metal, APPLE) => SubgroupSizes::fixed(32),
        _ => SubgroupSizes { min: info.subgroup_min_size, max: info.subgroup_max_size },
    }
}

/// The vendor. Metal reports only a name, and Mesa's driver of Apple's GPUs reports Mesa.
fn vendor(info: &wgpu::AdapterInfo) -> u32 {
    if info.name.starts_with("Apple") { APPLE } else { info.vendor }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str, vendor: u32, backend: wgpu::Backend) -> wgpu::AdapterInfo {
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::Other, backend);
        wgpu::AdapterInfo { name: name.to_owned(), vendor, subgroup_min_size: 4, subgroup_max_size: 64, ..info }
    }

    #[test]
    fn gpus_of_apple_have_subgroups_of_one_size_on_metal() {
        let apple = adapter("Apple M2", 0, wgpu::Backend::Metal);
        assert_eq!((subgroup_sizes(&apple), registers(&apple)), (SubgroupSizes::fixed(32), 60));
        let intel = adapter("Intel(R) Iris(TM) Plus Graphics", 0, wgpu::Backend::Metal);
        assert_eq!((subgroup_sizes(&intel), registers(&intel)), (SubgroupSizes { min: 4, max: 64 }, 0));
        let mesa = adapter("Apple M1 (G13G A0)", 0x10005, wgpu::Backend::Vulkan);
        assert_eq!((subgroup_sizes(&mesa), registers(&mesa)), (SubgroupSizes { min: 4, max: 64 }, 60));
    }

    #[test]
    fn the_open_driver_of_nvidia_has_fewer_registers() {
        let own = wgpu::AdapterInfo { driver: "NVIDIA".to_owned(), ..adapter("H100", NVIDIA, wgpu::Backend::Vulkan) };
        let open = wgpu::AdapterInfo { driver: "NVK".to_owned(), ..own.clone() };
        assert_eq!((registers(&own), registers(&open)), (255, 192));
    }

    #[test]
    fn older_gpus_of_qualcomm_have_fewer_registers() {
        let registers_of = |name| registers(&adapter(name, QUALCOMM, wgpu::Backend::Vulkan));
        assert_eq!(["Turnip Adreno (TM) 660", "Adreno (TM) 740"].map(registers_of), [48, 72]);
    }
}
