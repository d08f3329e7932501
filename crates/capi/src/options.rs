use crate::border::{Failure, Status, call, change, free, give, text};
use rewire::Mapping;
use rewire::rank::RankOptions;
use rewire::runtime::{Kernel, KernelRule, PipelineStore};
use std::ffi::c_char;

/// A hardware GPU if one exists, otherwise the CPU.
pub const REWIRE_KERNEL_AUTO: u32 = 0;
/// A GPU.
pub const REWIRE_KERNEL_WGPU: u32 = 1;
/// The CPU.
pub const REWIRE_KERNEL_CPU: u32 = 2;

/// Files of 4 MiB and more are memory-mapped. Replace them by renaming others over them.
pub const REWIRE_MAPPING_LARGE: u32 = 0;
/// No file is mapped: the model's files are read into memory, and the model does not depend on them.
pub const REWIRE_MAPPING_NEVER: u32 = 1;

/// Options for loading and running a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) options: RankOptions,
}

/// The given options, or the defaults.
///
/// # Safety
/// `options` is null, or a handle that is not changed or freed during the call.
pub(crate) unsafe fn given(options: *const Options) -> RankOptions {
    // SAFETY: the caller's promise.
    unsafe { options.as_ref() }.map(|options| options.options.clone()).unwrap_or_default()
}

/// Creates options with the defaults: `REWIRE_KERNEL_AUTO`, `REWIRE_MAPPING_LARGE`, no folder of compiled kernels.
///
/// # Safety
/// `out` is null or points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_new(out: *mut *mut Options) -> Status {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(Options::default(), out) })
}

/// Sets the backend: `REWIRE_KERNEL_AUTO`, `REWIRE_KERNEL_WGPU` or `REWIRE_KERNEL_CPU`.
///
/// # Safety
/// `options` is null or a handle that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_kernel(options: *mut Options, kernel: u32) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { change(options, "options") }?;
        options.options.kernel = kernel_of(kernel)?;
        Ok(())
    })
}

fn kernel_of(kernel: u32) -> Result<Kernel, Failure> {
    match kernel {
        REWIRE_KERNEL_AUTO => Ok(Kernel::Auto),
        REWIRE_KERNEL_WGPU => Ok(Kernel::Wgpu),
        REWIRE_KERNEL_CPU => Ok(Kernel::Cpu),
        _ => Err(Failure::argument("kernel", "REWIRE_KERNEL_AUTO, REWIRE_KERNEL_WGPU or REWIRE_KERNEL_CPU")),
    }
}

/// Sets the backend of steps whose operator or module matches a pattern; `*` matches any text. If several patterns
/// match a step, the last one applies. Loading fails if a pattern matches nothing.
///
/// # Safety
/// `options` is null or a handle that no other thread uses during the call, `pattern` is null or a null-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_kernel_for(
    options: *mut Options,
    pattern: *const c_char,
    kernel: u32,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (options, pattern) = unsafe { (change(options, "options")?, text(pattern, "pattern")?) };
        options.options.kernel_rules.push(KernelRule { pattern: pattern.to_owned(), kernel: kernel_of(kernel)? });
        Ok(())
    })
}

/// Selects the GPU: a part of its name, driver, backend or PCI address, or `#` and its number.
///
/// # Safety
/// `options` is null or a handle that no other thread uses during the call, `adapter` is null or a null-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_adapter(options: *mut Options, adapter: *const c_char) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (options, adapter) = unsafe { (change(options, "options")?, text(adapter, "adapter")?) };
        options.options.adapter = Some(adapter.to_owned());
        Ok(())
    })
}

/// Sets which files of the model are memory-mapped: `REWIRE_MAPPING_LARGE` or `REWIRE_MAPPING_NEVER`.
///
/// # Safety
/// `options` is null or a handle that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_mapping(options: *mut Options, mapping: u32) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { change(options, "options") }?;
        options.options.mapping = match mapping {
            REWIRE_MAPPING_LARGE => Mapping::Large,
            REWIRE_MAPPING_NEVER => Mapping::Never,
            _ => return Err(Failure::argument("mapping", "REWIRE_MAPPING_LARGE or REWIRE_MAPPING_NEVER")),
        };
        Ok(())
    })
}

/// Sets a folder that caches compiled kernels for later starts. The driver trusts its content: only the user should be able to write to
/// it.
///
/// # Safety
/// `options` is null or a handle that no other thread uses during the call, `folder` is null or a null-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_pipelines(options: *mut Options, folder: *const c_char) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (options, folder) = unsafe { (change(options, "options")?, text(folder, "folder")?) };
        options.options.pipelines = Some(PipelineStore::at(folder));
        Ok(())
    })
}

/// Frees options. Rankers that were loaded with them stay valid.
///
/// # Safety
/// `options` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_free(options: *mut Options) {
    // SAFETY: the caller's promise.
    unsafe { free(options) }
}
