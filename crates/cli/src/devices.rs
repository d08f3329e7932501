use crate::args::{Common, DeviceList};
use crate::error::CliError;
use crate::output::Output;
use rewire::runtime::{MatrixReason, MatrixTier, block_on};
use rewire::{DeviceInfo, DeviceKind, Gpu, Kernel, devices};
use serde::Serialize;

/// A device, and whether its tier is what the self-test of matrix kernels left.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    device: DeviceInfo,
    tested: bool,
}

pub fn run(options: &DeviceList, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let mut found = devices();
    found.retain(|device| listed(device, common));
    if found.iter().all(|device| device.kind == DeviceKind::Cpu) && common.kernel == Kernel::Wgpu {
        Gpu::open(common.adapter.as_deref())?;
    }
    if let (true, Some(adapter)) = (found.is_empty(), &common.adapter) {
        return Err(CliError::NoDevice(adapter.clone()));
    }
    for device in found {
        let listed = if options.test { tested(device)? } else { Listed { device, tested: false } };
        if common.json { output.json(&listed)? } else { print(&listed, output)? }
    }
    Ok(())
}

/// Runs the self-test on a device with matrix kernels.
fn tested(mut device: DeviceInfo) -> Result<Listed, CliError> {
    let tested = device.matrices.tier > MatrixTier::None;
    if let (true, Some(index)) = (tested, device.index) {
        let gpu = Gpu::open(Some(&format!("#{index}")))?;
        device.matrices = block_on(gpu.test_matrices());
    }
    Ok(Listed { device, tested })
}

fn listed(device: &DeviceInfo, common: &Common) -> bool {
    let of_kernel = match common.kernel {
        Kernel::Auto => true,
        Kernel::Wgpu => device.kind != DeviceKind::Cpu,
        Kernel::Cpu => device.kind == DeviceKind::Cpu,
    };
    of_kernel && common.adapter.as_ref().is_none_or(|adapter| device.is_meant_by(adapter))
}

fn print(Listed { device, tested }: &Listed, output: &mut Output) -> Result<(), CliError> {
    let mark = if device.auto { "*" } else { " " };
    let number = device.index.map(|index| format!("#{index} ")).unwrap_or_default();
    output.line(format_args!("{mark} {number}{} ({:?}, {})", device.name, device.kind, device.backend))?;
    output.line(format_args!("    driver    {}", device.driver))?;
    if let Some(pci) = &device.pci {
        output.line(format_args!("    pci       {pci}"))?;
    }
    if !device.features.is_empty() {
        output.line(format_args!("    features  {}", device.features.join(", ")))?;
    }
    if !device.cooperative_matrices.is_empty() {
        output.line(format_args!("    matrices  {}", device.cooperative_matrices.join(", ")))?;
    }
    if let Some(limits) = &device.limits {
        output.line(format_args!("    kernels   of tier {}", device.matrices))?;
        if *tested {
            let found = if device.matrices.reason == MatrixReason::WrongResults { "wrong" } else { "right" };
            output.line(format_args!("    self-test results of matrix kernels are {found}"))?;
        }
        output.line(format_args!(
            "    limits    {} MiB a binding, {} MiB a buffer, {} buffers a kernel, {} KiB a workgroup, {} invocations, \
             subgroups of {} to {}",
            limits.binding_bytes >> 20,
            limits.buffer_bytes >> 20,
            limits.storage_buffers,
            limits.workgroup_bytes >> 10,
            limits.invocations,
            limits.subgroup_sizes.0,
            limits.subgroup_sizes.1,
        ))?;
    }
    let taken = if device.auto { "taken" } else { "not taken" };
    output.line(format_args!("    auto      {taken}: {}", device.reason))?;
    Ok(())
}
