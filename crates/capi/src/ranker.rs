use crate::border::{Failure, Status, call, free, give, read, slice, text};
use crate::options::{Options, given};
use rewire::package::Package;
use rewire::rank;
use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::OnceLock;

/// A loaded ranking model, for any number of threads.
#[derive(Debug)]
pub struct Ranker {
    pub(crate) ranker: rank::Ranker,
    tasks: Vec<CString>,
    description: OnceLock<CString>,
}

impl Ranker {
    fn new(ranker: rank::Ranker) -> Self {
        let name = |task: &rank::Task| CString::new(task.name.as_str()).unwrap_or_default();
        Self { tasks: ranker.tasks().iter().map(name).collect(), description: OnceLock::new(), ranker }
    }
}

/// Loads a model: a package or, unless the library was built only for packages, a folder with `config.json` and `model.safetensors`.
/// `options` may be null.
///
/// # Safety
/// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_load(
    path: *const c_char,
    options: *const Options,
    out: *mut *mut Ranker,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (Path::new(text(path, "path")?), given(options)) };
        let load = if cfg!(feature = "folders") { rank::Ranker::load } else { rank::Ranker::load_package };
        let ranker = load(path, &options).map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Ranker::new(ranker), out) }
    })
}

/// Loads a package from memory. Its bytes are copied. `options` may be null.
///
/// # Safety
/// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_from_bytes(
    bytes: *const u8,
    count: usize,
    options: *const Options,
    out: *mut *mut Ranker,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (bytes, options) = unsafe { (slice(bytes, count, "bytes")?, given(options)) };
        let package = Package::parse(bytes.to_vec()).map_err(|error| Failure::of(Status::Model)(&error))?;
        let ranker =
            rank::Ranker::from_package(&package, &options).map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Ranker::new(ranker), out) }
    })
}

/// Number of tasks, which is the number of logits per candidate; 0 for null.
///
/// # Safety
/// `ranker` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_tasks(ranker: *const Ranker) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(ranker, "ranker") }.map_or(0, |ranker| ranker.tasks.len())
}

/// The name of a task, valid as long as the ranker; null if the task does not exist.
///
/// # Safety
/// `ranker` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_task(ranker: *const Ranker, task: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    let ranker = unsafe { read(ranker, "ranker") }.ok();
    ranker.and_then(|ranker| ranker.tasks.get(task)).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// A readable description of the model's inputs and outputs: features of requests with their ranges, tasks, tensors,
/// and an example request as a line of JSON. UTF-8, valid as long as the ranker; null for null.
///
/// # Safety
/// `ranker` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_describe(ranker: *const Ranker) -> *const c_char {
    // SAFETY: the caller's promise.
    let Ok(ranker) = (unsafe { read(ranker, "ranker") }) else { return std::ptr::null() };
    let description = || CString::new(ranker.ranker.describe().to_string()).unwrap_or_default();
    ranker.description.get_or_init(description).as_ptr()
}

/// Frees a ranker. Its rankings and batches stay valid.
///
/// # Safety
/// `ranker` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_free(ranker: *mut Ranker) {
    // SAFETY: the caller's promise.
    unsafe { free(ranker) }
}
