use crate::border::{Failure, Status, call, free, give, read, slice, text};
use crate::options::{Options, given};
use rewire::package::Package;
use rewire::rank;
use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::OnceLock;

/// A model that is ready to rank, for any number of threads.
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

/// Loads a model: a package, or, where the library was not built for packages alone, a folder with `config.json` and `model.safetensors`.
/// `options` may be null.
///
/// # Safety
/// `path` is text that ends with a zero, `options` are null or a handle, `out` is a place for the handle.
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
/// `bytes` are `count` bytes, `options` are null or a handle, `out` is a place for the handle.
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

/// Number of tasks, logits of a candidate; 0 for null.
///
/// # Safety
/// `ranker` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_tasks(ranker: *const Ranker) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(ranker, "ranker") }.map_or(0, |ranker| ranker.tasks.len())
}

/// The name of a task, as long as the ranker is there; null where there is none.
///
/// # Safety
/// `ranker` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_task(ranker: *const Ranker, task: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    let ranker = unsafe { read(ranker, "ranker") }.ok();
    ranker.and_then(|ranker| ranker.tasks.get(task)).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// What the model reads and gives, for people: features of requests with their ranges, tasks, tensors, and an example request as a line of
/// JSON. UTF-8, as long as the ranker is there; null for null.
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

/// Frees a ranker. Rankings and batches of it stay.
///
/// # Safety
/// `ranker` is null, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranker_free(ranker: *mut Ranker) {
    // SAFETY: the caller's promise.
    unsafe { free(ranker) }
}
