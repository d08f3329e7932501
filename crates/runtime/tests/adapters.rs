//! Choice of adapters, in processes of their own because drivers read the environment once.
#![allow(clippy::unwrap_used)]

use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{DeviceKind, GpuError, Kernel, Model, ModelOptions, RuntimeError, devices};
use std::process::Command;

/// Runs a test of this file again with other drivers.
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
fn an_adapter_that_is_not_there_is_named() {
    let options =
        ModelOptions { kernel: Kernel::Wgpu, adapter: Some("no such adapter".into()), ..ModelOptions::default() };
    let error = Model::load(Plan::default(), (), options).unwrap_err();
    assert!(error.to_string().contains("no such adapter"), "{error}");
}
