//! The computer that figures were measured on.

use std::thread::available_parallelism;

/// The processor and its threads. Records contain it, so that CPU figures are only compared on the same computer.
/// `None` if the processor does not report its name.
pub(crate) fn name() -> Option<String> {
    let threads = available_parallelism().map_or(1, usize::from);
    Some(format!("{}, {threads} threads", processor()?.trim()))
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn processor() -> Option<String> {
    Some(raw_cpuid::CpuId::new().get_processor_brand_string()?.as_str().to_owned())
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn processor() -> Option<String> {
    None
}
