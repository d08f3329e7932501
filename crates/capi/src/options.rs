use crate::border::{Failure, Status, call, change, free, give, text};
use rewire::Mapping;
use rewire::rank::RankOptions;
use rewire::runtime::{Kernel, KernelRule, PipelineStore};
use std::ffi::c_char;

/// A hardware GPU where there is one, and the CPU otherwise.
pub const REWIRE_KERNEL_AUTO: u32 = 0;
/// A GPU.
pub const REWIRE_KERNEL_WGPU: u32 = 1;
/// The CPU.
pub const REWIRE_KERNEL_CPU: u32 = 2;

/// Files of 4 MiB and more are mapped into memory. Replace them by renaming others over them.
pub const REWIRE_MAPPING_LARGE: u32 = 0;
/// No file is mapped: a model takes the memory of all its files and does not depend on them.
pub const REWIRE_MAPPING_NEVER: u32 = 1;

/// What a model runs on, and how it is loaded.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) options: RankOptions,
}

/// Those that were given, or those there are without any.
///
/// # Safety
/// `options` are null, or a handle that nobody changes or frees meanwhile.
pub(crate) unsafe fn given(options: *const Options) -> RankOptions {
    // SAFETY: the caller's promise.
    unsafe { options.as_ref() }.map(|options| options.options.clone()).unwrap_or_default()
}

/// Options as they are without any: `REWIRE_KERNEL_AUTO`, `REWIRE_MAPPING_LARGE`, no folder of compiled kernels.
///
/// # Safety
/// `out` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_new(out: *mut *mut Options) -> Status {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(Options::default(), out) })
}

/// What the model runs on: `REWIRE_KERNEL_AUTO`, `REWIRE_KERNEL_WGPU` or `REWIRE_KERNEL_CPU`.
///
/// # Safety
/// `options` are null or a handle that nobody else uses meanwhile.
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

/// What runs the steps whose operator or module matches a pattern, in which `*` matches any text. Of several patterns that match a step, the last
/// counts; loading fails where one matches none.
///
/// # Safety
/// `options` are null or a handle that nobody else uses meanwhile, `pattern` is null or text that ends with a zero.
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

/// The GPU to use: a part of its name, driver, backend or PCI address, or `#` and its number.
///
/// # Safety
/// `options` are null or a handle that nobody else uses meanwhile, `adapter` is null or text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_adapter(options: *mut Options, adapter: *const c_char) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (options, adapter) = unsafe { (change(options, "options")?, text(adapter, "adapter")?) };
        options.options.adapter = Some(adapter.to_owned());
        Ok(())
    })
}

/// Which files of the model are mapped into memory: `REWIRE_MAPPING_LARGE` or `REWIRE_MAPPING_NEVER`.
///
/// # Safety
/// `options` are null or a handle that nobody else uses meanwhile.
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

/// A folder in which compiled kernels are kept for later starts. The driver trusts what it reads there: it should be writable for the user
/// alone.
///
/// # Safety
/// `options` are null or a handle that nobody else uses meanwhile, `folder` is null or text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_pipelines(options: *mut Options, folder: *const c_char) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (options, folder) = unsafe { (change(options, "options")?, text(folder, "folder")?) };
        options.options.pipelines = Some(PipelineStore::at(folder));
        Ok(())
    })
}

/// Frees options. Rankers that were loaded with them stay.
///
/// # Safety
/// `options` are null, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_free(options: *mut Options) {
    // SAFETY: the caller's promise.
    unsafe { free(options) }
}
