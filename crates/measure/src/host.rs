//! The computer that measurements run on.

use std::thread::available_parallelism;

/// Name of the processor and number of its threads; `None` if the processor does not report its name. Records contain it, so that CPU
/// times are only compared on the same computer.
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
