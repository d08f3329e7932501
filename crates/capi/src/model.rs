//! Models of any kind, on tensors by name.

use crate::border::{Failure, Status, call, change, free, give, read, slice, text};
use crate::options::{Options, given};
use rewire::package::Package;
#[cfg(feature = "folders")]
use rewire::program::ModelFile;
use rewire::program::{Extent, Program, ScalarType, TypedTensor};
use rewire::rank::{RankError, RankOptions};
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Booleans, a byte each: 0 or 1.
pub const REWIRE_BOOL: u32 = 0;
/// Unsigned integers of 8 bits.
pub const REWIRE_U8: u32 = 1;
/// Integers of 8 bits.
pub const REWIRE_I8: u32 = 2;
/// Integers of 16 bits.
pub const REWIRE_I16: u32 = 3;
/// Integers of 32 bits.
pub const REWIRE_I32: u32 = 4;
/// Integers of 64 bits.
pub const REWIRE_I64: u32 = 5;
/// Floats of 16 bits.
pub const REWIRE_F16: u32 = 6;
/// bfloat16: floats with the exponent of 32 bits and 7 bits of fraction.
pub const REWIRE_BF16: u32 = 7;
/// Floats of 32 bits.
pub const REWIRE_F32: u32 = 8;
/// Floats of 64 bits, computed in 32.
pub const REWIRE_F64: u32 = 9;
/// Unsigned integers of 16 bits.
pub const REWIRE_U16: u32 = 10;
/// Unsigned integers of 32 bits.
pub const REWIRE_U32: u32 = 11;
/// Unsigned integers of 64 bits.
pub const REWIRE_U64: u32 = 12;

/// A tensor: `rank` extents, and elements in row-major order, of a type such as `REWIRE_F32`. Of an input of a model, `data` is null and an extent that a
/// run tells is -1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NamedTensor {
    /// UTF-8 that ends with a zero.
    pub name: *const c_char,
    /// The type of elements.
    pub element: u32,
    /// The number of extents.
    pub rank: usize,
    /// The extents.
    pub shape: *const i64,
    /// The elements.
    pub data: *const c_void,
    /// Bytes of the elements.
    pub bytes: usize,
}

/// A tensor that the library owns.
#[derive(Debug)]
struct Owned {
    name: CString,
    element: u32,
    shape: Vec<i64>,
    data: Vec<u8>,
}

impl Owned {
    fn shown(&self, has_data: bool) -> NamedTensor {
        NamedTensor {
            name: self.name.as_ptr(),
            element: self.element,
            rank: self.shape.len(),
            shape: self.shape.as_ptr(),
            data: if has_data { self.data.as_ptr().cast() } else { std::ptr::null() },
            bytes: self.data.len(),
        }
    }
}

/// A model with the states of its runs. Threads that share one wait for each other.
#[derive(Debug)]
pub struct Model {
    program: Mutex<Program>,
    inputs: Vec<Owned>,
}

/// The tensors that a run gave.
#[derive(Debug)]
pub struct Results(Vec<Owned>);

fn code_of(ty: ScalarType) -> u32 {
    let code = ScalarType::ALL.iter().position(|known| *known == ty);
    debug_assert!(code.is_some(), "tensors of a run are never {ty}");
    // A code that is no type, so that no caller misreads the bytes.
    code.map_or(u32::MAX, |code| code as u32)
}

impl Model {
    fn new(program: Program) -> Self {
        let inputs = program.inputs().iter().map(|port| Owned {
            name: CString::new(port.name.as_str()).unwrap_or_default(),
            element: code_of(port.ty),
            shape: port.shape.iter().map(extent).collect(),
            data: vec![],
        });
        Self { inputs: inputs.collect(), program: Mutex::new(program) }
    }
}

fn extent(extent: &Extent) -> i64 {
    match extent {
        Extent::Known(extent) => *extent as i64,
        Extent::Open(_) => -1,
    }
}

fn open(path: &Path, options: &RankOptions) -> Result<Program, RankError> {
    #[cfg(feature = "folders")]
    return Program::load(&ModelFile::open(path, options.mapping)?, options);
    #[cfg(not(feature = "folders"))]
    return Program::from_package(&Package::read_mapping(path, options.mapping)?, options);
}

/// Opens a model: a package, or, where the library was not built for packages alone, a model folder or an archive of `torch.export.save`, whose name
/// ends in `.pt2`. `options` may be null.
///
/// # Safety
/// `path` is text that ends with a zero, `options` are null or a handle, `out` is a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_open(
    path: *const c_char,
    options: *const Options,
    out: *mut *mut Model,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (Path::new(text(path, "path")?), given(options)) };
        let program = open(path, &options).map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Model::new(program), out) }
    })
}

/// Opens a package from memory. Its bytes are copied. `options` may be null.
///
/// # Safety
/// `bytes` are `count` bytes, `options` are null or a handle, `out` is a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_from_bytes(
    bytes: *const u8,
    count: usize,
    options: *const Options,
    out: *mut *mut Model,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (bytes, options) = unsafe { (slice(bytes, count, "bytes")?, given(options)) };
        let package = Package::parse(bytes.to_vec()).map_err(|error| Failure::of(Status::Model)(&error))?;
        let program = Program::from_package(&package, &options);
        let program = program.map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Model::new(program), out) }
    })
}

/// How many tensors a run of the model takes; 0 for null.
///
/// # Safety
/// `model` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_inputs(model: *const Model) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(model, "model") }.map_or(0, |model| model.inputs.len())
}

/// An input of the model, by its place in the call. Its name and shape stay as long as the model.
///
/// # Safety
/// `model` is null or a handle, `out` is null or a place for a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_input(model: *const Model, place: usize, out: *mut NamedTensor) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (model, out) = unsafe { (read(model, "model")?, change(out, "out")?) };
        let input = model.inputs.get(place);
        *out = input.ok_or_else(|| Failure::argument("place", "the place of an input"))?.shown(false);
        Ok(())
    })
}

/// Runs the model on tensors by name, in any order. What they hold is copied. Buffers that the model changes keep that for the next run.
///
/// # Safety
/// `model` is null or a handle, `tensors` are `count` tensors, whose names end with a zero and whose shapes and data are there, `out` is a place for the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_run(
    model: *const Model,
    tensors: *const NamedTensor,
    count: usize,
    out: *mut *mut Results,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (model, tensors) = unsafe { (read(model, "model")?, slice(tensors, count, "tensors")?) };
        // SAFETY: the caller's promise.
        let inputs = tensors.iter().map(|tensor| unsafe { taken(tensor) }).collect::<Result<_, Failure>>()?;
        let ran = model.program.lock().unwrap_or_else(PoisonError::into_inner).run(inputs);
        let results = ran.map_err(|error| Failure::of(Status::Run)(&error))?.tensors();
        let owned = results.into_iter().map(|(name, tensor)| Owned {
            name: CString::new(name).unwrap_or_default(),
            element: code_of(tensor.ty),
            shape: tensor.tensor.shape().iter().map(|&extent| extent as i64).collect(),
            data: tensor.to_bytes(),
        });
        // SAFETY: the caller's promise.
        unsafe { give(Results(owned.collect()), out) }
    })
}

/// The tensor that a caller describes.
///
/// # Safety
/// Its name ends with a zero, and its shape and data are there.
unsafe fn taken(tensor: &NamedTensor) -> Result<(String, TypedTensor), Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(tensor.name, "tensors[].name") }?;
    let ty = ScalarType::ALL.get(tensor.element as usize).copied();
    let ty = ty.ok_or_else(|| Failure::argument("tensors[].element", "a type such as REWIRE_F32"))?;
    // SAFETY: the caller's promise.
    let shape = unsafe { slice(tensor.shape, tensor.rank, "tensors[].shape") }?;
    let shape = shape.iter().map(|&extent| usize::try_from(extent).ok()).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or_else(|| Failure::argument("tensors[].shape", "extents from 0 on"))?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(tensor.data.cast::<u8>(), tensor.bytes, "tensors[].data") }?;
    let tensor = TypedTensor::from_bytes(name, ty, &shape, bytes);
    Ok((name.to_owned(), tensor.map_err(|error| Failure::of(Status::Argument)(&error))?))
}

/// How many tensors there are; 0 for null.
///
/// # Safety
/// `results` are null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_results_count(results: *const Results) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(results, "results") }.map_or(0, |results| results.0.len())
}

/// A tensor of the results, in the order of names: what the model gives, and buffers and inputs that it changed. It is there as long as the
/// results.
///
/// # Safety
/// `results` are null or a handle, `out` is null or a place for a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_results_tensor(results: *const Results, place: usize, out: *mut NamedTensor) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (results, out) = unsafe { (read(results, "results")?, change(out, "out")?) };
        let tensor = results.0.get(place);
        *out = tensor.ok_or_else(|| Failure::argument("place", "the place of a result"))?.shown(true);
        Ok(())
    })
}

/// Frees results.
///
/// # Safety
/// `results` are null, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_results_free(results: *mut Results) {
    // SAFETY: the caller's promise.
    unsafe { free(results) }
}

/// Frees a model. Results of it stay.
///
/// # Safety
/// `model` is null, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_free(model: *mut Model) {
    // SAFETY: the caller's promise.
    unsafe { free(model) }
}
