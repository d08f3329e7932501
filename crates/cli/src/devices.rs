use crate::args::Common;
use crate::error::CliError;
use crate::output::Output;
use rewire::{DeviceInfo, DeviceKind, Gpu, Kernel, devices};

pub fn run(common: &Common, output: &mut Output) -> Result<(), CliError> {
    let mut found = devices();
    found.retain(|device| listed(device, common));
    if found.iter().all(|device| device.kind == DeviceKind::Cpu) && common.kernel == Kernel::Wgpu {
        Gpu::open(common.adapter.as_deref())?;
    }
    if let (true, Some(adapter)) = (found.is_empty(), &common.adapter) {
        return Err(CliError::NoDevice(adapter.clone()));
    }
    for device in &found {
        if common.json { output.json(device)? } else { print(device, output)? }
    }
    Ok(())
}

fn listed(device: &DeviceInfo, common: &Common) -> bool {
    let of_kernel = match common.kernel {
        Kernel::Auto => true,
        Kernel::Wgpu => device.kind != DeviceKind::Cpu,
        Kernel::Cpu => device.kind == DeviceKind::Cpu,
    };
    of_kernel && common.adapter.as_ref().is_none_or(|adapter| device.is_meant_by(adapter))
}

fn print(device: &DeviceInfo, output: &mut Output) -> Result<(), CliError> {
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
