//! Choice of adapters, in separate processes because drivers read the environment once.
#![allow(clippy::unwrap_used)]

use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{
    DeviceKind, Gpu, GpuError, Kernel, MatrixReason, MatrixTier, Model, ModelOptions, RuntimeError, block_on, devices,
    wgpu,
};
use std::process::Command;

/// Runs a test of this file in a new process with other drivers.
fn alone(test: &str, drivers: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("VK_DRIVER_FILES", drivers)
        .env("VK_ICD_FILENAMES", drivers)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn load(kernel: Kernel) -> Result<Model, RuntimeError> {
    Model::load(Plan::default(), (), ModelOptions { kernel, ..ModelOptions::default() })
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_driver() {
    alone("inner_without_a_driver", "/nonexistent.json");
}

#[test]
#[ignore = "runs through `without_a_driver`"]
fn inner_without_a_driver() {
    let error = load(Kernel::Wgpu).unwrap_err();
    assert!(matches!(error, RuntimeError::Gpu(GpuError::NoAdapter { .. })), "{error}");
    assert!(error.to_string().contains("mesa-vulkan-drivers"), "{error}");
    assert_eq!(load(Kernel::Auto).unwrap().report().adapter, None);
    let devices = devices();
    assert_eq!(devices.len(), 1, "{devices:?}");
    assert!(devices[0].auto && devices[0].kind == DeviceKind::Cpu);
}

#[test]
fn auto_ignores_software_adapters() {
    let devices = devices();
    assert_eq!(devices.iter().filter(|device| device.auto).count(), 1);
    assert_eq!(devices.last().unwrap().kind, DeviceKind::Cpu);
    for device in devices {
        assert!(!device.auto || device.kind != DeviceKind::Software);
        assert!(!device.reason.is_empty());
    }
}

#[test]
fn auto_takes_an_adapter_that_is_named_whatever_its_kind() {
    for device in devices().iter().filter(|device| device.kind != DeviceKind::Cpu) {
        for filter in [format!("#{}", device.index.unwrap()), device.name.clone()] {
            let gpu = Gpu::for_kernel(Kernel::Auto, Some(&filter)).unwrap().unwrap();
            assert!(gpu.name().starts_with(&device.name), "{filter}: {}", gpu.name());
        }
    }
    let missing = Gpu::for_kernel(Kernel::Auto, Some("no such adapter")).unwrap_err();
    assert!(matches!(missing, GpuError::NoAdapter { .. }), "{missing}");
}

#[test]
fn an_adapter_that_is_not_there_is_named() {
    let options =
        ModelOptions { kernel: Kernel::Wgpu, adapter: Some("no such adapter".into()), ..ModelOptions::default() };
    let error = Model::load(Plan::default(), (), options).unwrap_err();
    assert!(error.to_string().contains("no such adapter"), "{error}");
}

#[test]
fn tiers_of_matrices_are_limited_and_none_that_is_missing_is_taken() {
    let Ok(gpu) = Gpu::open(None) else { return };
    let own = gpu.matrices();
    assert_eq!(devices()[0].matrices, own);
    assert_eq!(own.tier > MatrixTier::None, gpu.target().matrices_of_subgroups().is_some(), "{own}");
    for tier in [MatrixTier::None, MatrixTier::Wgsl, MatrixTier::Spirv] {
        let limited = gpu.with_matrix_tier(tier);
        if tier > own.tier {
            let error = limited.unwrap_err();
            assert!(matches!(error, GpuError::Matrices { .. }));
            assert!(
                error
                    .to_string()
                    .contains(&format!("does not support matrix tier {tier}: expected `{}` at most", own.tier))
            );
            continue;
        }
        let limited = limited.unwrap();
        let reason = if tier < own.tier { MatrixReason::Limited } else { own.reason };
        assert_eq!((limited.matrices().tier, limited.matrices().reason), (tier, reason));
        assert_eq!(
            (limited.target().matrix > 0, limited.target().matrix_elements),
            (tier > MatrixTier::None, tier == MatrixTier::Spirv)
        );
        // Only higher features are disabled.
        assert_eq!(gpu.matrices(), own);
    }
    let options = ModelOptions { kernel: Kernel::Cpu, matrices: Some(MatrixTier::Wgsl), ..ModelOptions::default() };
    let error = Model::load(Plan::default(), (), options).unwrap_err();
    assert!(error.to_string().contains("the CPU does not support matrix tier wgsl"), "{error}");
}

#[test]
fn a_device_of_the_app_has_the_tier_that_it_was_opened_for() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    let Some(adapter) = block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN)).into_iter().next() else {
        return;
    };
    let wanted = wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP
        | wgpu::Features::SUBGROUP_BARRIER
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    let request = || wgpu::DeviceDescriptor {
        required_features: adapter.features() & wanted,
        required_limits: adapter.limits(),
        // SAFETY: nothing runs on the device.
        experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
        ..Default::default()
    };
    let has_matrices = adapter.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
    let (device, queue) = block_on(Gpu::request_device(&adapter, request())).unwrap();
    let opened = Gpu::from_device(device, queue);
    assert_eq!(opened.matrices().tier, MatrixTier::None);
    let opened = opened.with_matrices_of(&adapter);
    assert_eq!(opened.matrices().tier == MatrixTier::None, opened.target().matrices_of_subgroups().is_none());
    let opened = opened.matrices();
    assert!(has_matrices || opened.tier == MatrixTier::None);
    let (device, queue) = block_on(adapter.request_device(&request())).unwrap();
    let plain = Gpu::from_device(device, queue).with_matrices_of(&adapter).matrices();
    assert_eq!(plain.tier, opened.tier.min(MatrixTier::Wgsl));
    if opened.tier == MatrixTier::Spirv {
        assert_eq!(plain.reason, MatrixReason::NotOpenedWithExtension);
    }
}
